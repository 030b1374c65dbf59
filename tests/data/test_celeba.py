"""CelebA: the rows are those of its files, the images are those of the rows, and bad files are told."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from sklearn.linear_model import RidgeClassifier

import pyro_fairvae
from pyro_fairvae.base.errors import InputError
from pyro_fairvae.data import DATASETS, celeba
from pyro_fairvae.data.celeba import ATTRIBUTE_NAMES, TASKS, read_celeba
from pyro_fairvae.data.image_cache import decode
from pyro_fairvae.data.images import ImageTable
from pyro_fairvae.data.torchvision_import import torchvision_datasets
from pyro_fairvae.schema.image_rows import PixelRows
from tests.support.pictures import (
    attribute_rows,
    file_of,
    image_name,
    noise,
    solid,
    write_attributes,
    write_celeba,
    write_images,
)

REAL = Path(os.environ.get("FAIRVAE_DATA", "nowhere")) / "celeba"
ROWS = 12
MALE, ATTRACTIVE = ATTRIBUTE_NAMES.index("Male"), ATTRIBUTE_NAMES.index("Attractive")


@pytest.fixture(autouse=True)
def _own_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("FAIRVAE_DATA", raising=False)
    monkeypatch.setenv("FAIRVAE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def faces(tmp_path: Path) -> Path:
    """A folder with a small CelebA, in the publisher's layout."""
    write_celeba(
        tmp_path / "data" / "celeba", [noise(row) for row in range(ROWS)], people=range(50, 50 + ROWS)
    )
    return tmp_path / "data" / "celeba"


def edit(path: Path, line: int, change: str | None) -> None:
    """Replace a line, counted from 1, or delete it."""
    lines = path.read_text().splitlines()
    lines[line - 1 : line] = [] if change is None else [change]
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("images", celeba.IMAGES)
@pytest.mark.parametrize("attributes", celeba.LISTS)
def test_rows_are_those_of_the_files(images: str, attributes: str, tmp_path: Path) -> None:
    pictures = [noise(row) for row in range(ROWS)]
    values = np.array(write_celeba(tmp_path, pictures, images, attributes, people=range(7, 7 + ROWS)))
    table = read_celeba("Attractive", "Male", tmp_path, side=8)
    assert table.y.tolist() == (values[:, ATTRACTIVE] == 1).astype(int).tolist()
    assert table.a.tolist() == (values[:, MALE] == 1).astype(int).tolist()
    assert table.people is not None
    assert table.people.tolist() == list(range(7, 7 + ROWS))
    assert (table.y.dtype, table.a.dtype, table.people.dtype, table.index.dtype) == (np.int64,) * 4
    assert table.classes == ("not Attractive", "Attractive")
    assert table.groups == ("Female", "Male")
    assert table.attributes.names == ("Male",)
    assert table.pixels.shape == (3, 8, 8)
    expected = [list(decode(file_of(picture), 8, celeba.FACE)) for picture in pictures]
    assert table.stored.tolist() == expected
    assert table.index.tolist() == list(range(ROWS))


@pytest.mark.parametrize("name", ATTRIBUTE_NAMES)
def test_every_attribute_can_be_label_and_group(name: str, tmp_path: Path) -> None:
    write_attributes(tmp_path / "list_attr_celeba.txt", attribute_rows(64))
    expected = np.array(attribute_rows(64))[:, ATTRIBUTE_NAMES.index(name)] == 1
    names, (found,) = celeba.read_attributes(tmp_path / "list_attr_celeba.txt", [name])
    assert names == [image_name(row) for row in range(64)]
    assert found.tolist() == expected.astype(int).tolist()
    assert celeba.celeba_attributes(name).group_names == celeba.classes_of(name)
    assert name in DATASETS["celeba"].labels
    assert name in DATASETS["celeba"].groups


def test_zeros_and_ones_mean_the_same_as_signs(tmp_path: Path) -> None:
    signs = attribute_rows(ROWS)
    write_attributes(tmp_path / "list_attr_celeba.txt", signs)
    write_attributes(tmp_path / "list_attr_celeba.csv", [[max(value, 0) for value in row] for row in signs])
    one, other = (celeba.read_attributes(tmp_path / name, ["Bald", "Young"]) for name in celeba.LISTS)
    assert one[0] == other[0]
    assert np.array_equal(one[1], other[1])


def test_a_csv_may_have_some_of_the_attributes_in_any_order(tmp_path: Path) -> None:
    path = tmp_path / "list_attr_celeba.csv"
    path.write_bytes(b"\xef\xbb\xbfimage_id,Young,Male\r\na.jpg,1,0\r\nb.jpg,0,1\r\n")
    names, (male, young) = celeba.read_attributes(path, ["Male", "Young"])
    assert (names, male.tolist(), young.tolist()) == (["a.jpg", "b.jpg"], [0, 1], [1, 0])
    with pytest.raises(InputError, match=r"unknown attribute in .* 'Bald'; expected one of Male, Young"):
        celeba.read_attributes(path, ["Bald"])


def test_files_are_found_as_those_of_other_data_sets_are(
    faces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert celeba.locate(faces) == celeba.locate(faces.parent) == faces
    monkeypatch.setenv("FAIRVAE_DATA", str(faces.parent))
    assert celeba.locate() == faces
    monkeypatch.setenv("FAIRVAE_CACHE", str(faces.parent))
    monkeypatch.delenv("FAIRVAE_DATA")
    assert celeba.locate() == faces


def test_without_files_it_is_told_what_to_put_where(tmp_path: Path) -> None:
    (tmp_path / "list_attr_celeba.txt").write_text("")
    words = (
        r"(?s)not found.*tried: .*there is no img_align_celeba\.zip or img_align_celeba\).*"
        r"and no list_attr_celeba\.txt or list_attr_celeba\.csv\).*"
        r"Put .*identity_CelebA\.txt from https.*FAIRVAE_DATA; or .*download=True"
    )
    with pytest.raises(InputError, match=words):
        read_celeba("Attractive", "Male", tmp_path)


def test_identities_are_optional(faces: Path) -> None:
    (faces / "identity_CelebA.txt").unlink()
    assert read_celeba("Attractive", "Male", faces, side=4).people is None


def test_images_without_a_row_are_ignored(faces: Path) -> None:
    write_images(faces / "img_align_celeba", {"999999.jpg": file_of(solid((0, 0, 0)))}, inside="more")
    assert read_celeba("Attractive", "Male", faces, side=4).rows == ROWS


def test_rows_without_an_image_are_counted(faces: Path) -> None:
    for row in (1, 4):
        (faces / "img_align_celeba" / "img_align_celeba" / image_name(row)).unlink()
    with pytest.raises(InputError, match=r"2 of 12 images are not in .*: 000002\.jpg, 000005\.jpg\. Restore"):
        read_celeba("Attractive", "Male", faces)


@pytest.mark.parametrize(
    ("label", "group", "words"),
    [
        ("Atractive", "Male", "unknown label of CelebA 'Atractive'.* Did you mean 'Attractive'"),
        ("Attractive", "male", "unknown group of CelebA 'male'.* Did you mean 'Male'"),
        ("Male", "Male", "label and group are both 'Male'"),
    ],
)
def test_bad_attributes_are_refused_before_files_are_read(label: str, group: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_celeba(label, group, "nowhere")


ROW = " ".join(["000003.jpg", *["1"] * 40])


@pytest.mark.parametrize(
    ("line", "change", "words"),
    [
        (1, "13", "states 13 rows in its first line, but has 12: it is truncated"),
        (1, "many rows", "begins with 'many rows', expected the number of its rows"),
        (9, None, "states 12 rows in its first line, but has 11"),
        (5, ROW.replace(" 1", " 2", 1), "line 5: the value '2'; expected -1 or 0 for no and 1 for yes"),
        (5, ROW[:-2], "line 5: 40 values, expected 41"),
        (5, ROW + " 1", "line 5: 42 values, expected 41"),
        (5, ROW.replace("3", "2"), r"line 5: a second row for 000002\.jpg"),
        (5, ROW.replace(" 1", " 0", 1), "has values -1 and 0"),
        (2, "Male Young Male", "names an attribute twice"),
        (2, "Male Young", "unknown attribute in .* 'Attractive'"),
    ],
)
def test_a_bad_attribute_file_is_refused(line: int, change: str | None, words: str, faces: Path) -> None:
    edit(faces / "list_attr_celeba.txt", line, change)
    with pytest.raises(InputError, match=words):
        read_celeba("Attractive", "Male", faces)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "begins with the column '', expected image_id"),
        ("Male,Young\n1,0\n", "begins with the column 'Male', expected image_id"),
        ("image_id,Male,Young\n", "has no row"),
        ("image_id,Male,Young\na.jpg,1,yes\n", "line 2: the value 'yes'"),
    ],
)
def test_a_bad_csv_is_refused(content: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "list_attr_celeba.csv").write_text(content)
    with pytest.raises(InputError, match=words):
        celeba.read_attributes(tmp_path / "list_attr_celeba.csv", ["Male", "Young"])


@pytest.mark.parametrize(
    ("line", "change", "words"),
    [
        (3, None, r"has no row for 1 of 12 images: 000003\.jpg\. Fetch it again, or delete it"),
        (3, "000003.jpg", "line 3: '000003.jpg', expected an image and the number of a person"),
        (3, "000003.jpg x", "line 3: '000003.jpg x', expected"),
        (3, "000002.jpg 5", "line 3: a second row for 000002.jpg"),
    ],
)
def test_a_bad_identity_file_is_refused(line: int, change: str | None, words: str, faces: Path) -> None:
    edit(faces / "identity_CelebA.txt", line, change)
    with pytest.raises(InputError, match=words):
        read_celeba("Attractive", "Male", faces)


@pytest.mark.parametrize(
    ("name", "what", "value"), [("Attractive", "label", "not Attractive"), ("Male", "group", "Female")]
)
def test_one_class_or_group_alone_is_refused(name: str, what: str, value: str, faces: Path) -> None:
    rows = np.array(attribute_rows(ROWS))
    rows[:, ATTRIBUTE_NAMES.index(name)] = -1
    write_attributes(faces / "list_attr_celeba.txt", rows.tolist())
    with pytest.raises(InputError, match=f"{what} '{name}': every one of the 12 images is '{value}'"):
        read_celeba("Attractive", "Male", faces)


@pytest.fixture
def datasets() -> ModuleType:
    try:
        return torchvision_datasets()
    except InputError as reason:
        pytest.skip(str(reason))


def test_the_publishers_files_are_checked_as_torchvision_does(
    faces: Path, datasets: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that says it is the whole of CelebA has to be."""
    path = faces / "list_attr_celeba.txt"
    (faces / "list_eval_partition.txt").write_text("")
    digests = {
        name: hashlib.md5((faces / name).read_bytes()).hexdigest()
        for name in ("list_attr_celeba.txt", "list_eval_partition.txt", "identity_CelebA.txt")
    }
    monkeypatch.setattr(
        datasets.CelebA, "file_list", [("", digest, name) for name, digest in digests.items()]
    )
    monkeypatch.setattr(celeba, "PUBLISHED", ROWS)
    assert celeba.locate(faces) == faces
    edit(path, 3, ROW)
    with pytest.raises(InputError, match=r"list_attr_celeba\.txt does not have the MD5 .* fetch it again"):
        celeba.locate(faces)
    monkeypatch.setattr(celeba, "PUBLISHED", ROWS + 1)
    assert celeba.locate(faces) == faces  # a part of CelebA is anyone's own


def test_torchvision_lists_the_files_that_are_read(datasets: ModuleType) -> None:
    listed = {name for _, _, name in datasets.CelebA.file_list}
    assert {celeba.IMAGES[0], celeba.LISTS[0], celeba.PEOPLE, "list_eval_partition.txt"} <= listed


def test_downloading_is_torchvisions(
    datasets: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(root: str, split: str, download: bool) -> None:
        assert (split, download) == ("all", True)
        write_celeba(Path(root) / "celeba", [noise(row) for row in range(ROWS)])

    monkeypatch.setattr(datasets, "CelebA", download)
    assert read_celeba("Attractive", "Male", side=4, download=True).rows == ROWS
    assert (tmp_path / "cache" / "celeba").is_dir()
    assert read_celeba("Attractive", "Male", tmp_path / "own", side=4, download=True).rows == ROWS
    assert (tmp_path / "own" / "celeba").is_dir()


def test_a_failed_download_says_what_to_do(
    datasets: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(*arguments: object, **options: object) -> None:
        raise RuntimeError("To download files from GDrive, 'gdown' is required.")

    monkeypatch.setattr(datasets, "CelebA", download)
    with pytest.raises(
        InputError, match=r"(?s)could not download .*'gdown' is required.*pip install gdown.*by hand"
    ):
        read_celeba("Attractive", "Male", tmp_path, download=True)


def test_without_torchvision_only_downloading_fails(
    faces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("torchvision")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torchvision", None)
    (faces / "list_eval_partition.txt").write_text("")
    monkeypatch.setattr(celeba, "PUBLISHED", ROWS)
    assert read_celeba("Attractive", "Male", faces, side=4).rows == ROWS
    with pytest.raises(InputError, match="pip install torchvision"):
        read_celeba("Attractive", "Male", tmp_path / "empty", download=True)


def test_torchvision_is_imported_only_when_asked_for() -> None:
    """No module names it in an import, which would be done for tables too."""
    for path in Path(pyro_fairvae.__file__).parent.rglob("*.py"):
        assert not re.search(r"^\s*(import|from) torchvision", path.read_text(), re.MULTILINE), path


@pytest.mark.skipif(not REAL.is_dir(), reason=f"CelebA is not in {REAL}; name its parent in FAIRVAE_DATA")
def test_the_first_ten_thousand_are_as_published() -> None:
    """Rates as the files' description has them; a ridge regression reads no less from faces than from it all.

    The description's accuracies, .911 and .750, are of whole images; the table's are cut to the face.
    """
    table = read_celeba(*TASKS["celeba"], REAL, side=16)
    if table.rows != 10_000:
        pytest.skip(f"the rates are of the first 10,000 images, not of the {table.rows} in {REAL}")
    rates = [table.a.mean(), table.y.mean(), table.y[table.a == 1].mean(), table.y[table.a == 0].mean()]
    assert rates == pytest.approx([0.422, 0.512, 0.271, 0.687], abs=6e-4)
    assert table.people is not None
    assert len(np.unique(table.people)) == 5429
    assert accuracy(table, table.a) > 0.911 - 0.01
    assert accuracy(table, table.y) > 0.750 - 0.01


def accuracy(table: ImageTable, truth: np.ndarray) -> float:
    """How often a ridge regression on the pixels of the first 8,000 images is right on the others."""
    x = PixelRows(table.stored, torch.from_numpy(table.index))[:].numpy()
    model = RidgeClassifier(alpha=10.0).fit(x[:8000], truth[:8000])
    return float(model.score(x[8000:], truth[8000:]))
