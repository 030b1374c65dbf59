"""CelebA (Liu et al. 2015): faces with forty attributes, any of which can be the label or the group."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from pyro_fairvae.base.errors import InputError, choose, require
from pyro_fairvae.base.messages import first_line
from pyro_fairvae.data.dataset import FOR_IMAGES, Dataset
from pyro_fairvae.data.image_cache import Cut, cached_images
from pyro_fairvae.data.image_sources import open_images
from pyro_fairvae.data.images import ImageTable
from pyro_fairvae.data.mapped_store import cache_home
from pyro_fairvae.data.torchvision_import import torchvision_datasets
from pyro_fairvae.schema.arrays import Integers
from pyro_fairvae.schema.attributes import Attributes
from pyro_fairvae.schema.image_rows import Pixels

ATTRIBUTE_NAMES = (
    "5_o_Clock_Shadow", "Arched_Eyebrows", "Attractive", "Bags_Under_Eyes", "Bald", "Bangs", "Big_Lips",
    "Big_Nose", "Black_Hair", "Blond_Hair", "Blurry", "Brown_Hair", "Bushy_Eyebrows", "Chubby", "Double_Chin",
    "Eyeglasses", "Goatee", "Gray_Hair", "Heavy_Makeup", "High_Cheekbones", "Male", "Mouth_Slightly_Open",
    "Mustache", "Narrow_Eyes", "No_Beard", "Oval_Face", "Pale_Skin", "Pointy_Nose", "Receding_Hairline",
    "Rosy_Cheeks", "Sideburns", "Smiling", "Straight_Hair", "Wavy_Hair", "Wearing_Earrings", "Wearing_Hat",
    "Wearing_Lipstick", "Wearing_Necklace", "Wearing_Necktie", "Young",
)  # fmt: skip
# The label and the group of each experiment of the paper.
TASKS = {"celeba": ("Attractive", "Male"), "celeba_cheekbones": ("High_Cheekbones", "Male")}
IMAGES = ("img_align_celeba.zip", "img_align_celeba")  # a zip or a folder
LISTS = ("list_attr_celeba.txt", "list_attr_celeba.csv")
PEOPLE = "identity_CelebA.txt"
# The 125 × 125 pixels from the brow to below the chin of the publisher's aligned images, which are 178 × 218
# with the eyes at (69, 111) and (108, 111): at the whole width, half of the pixels would be background.
FACE = Cut(share=0.7, down=0.05)
PUBLISHER = "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html"
PUBLISHED = 202_599  # images
FETCH_AGAIN = "The file is broken or altered; fetch it again"


def read_celeba(
    label: str,
    group: str,
    folder: str | Path | None = None,
    side: int = 32,
    download: bool = False,
    progress: bool | None = None,
) -> ImageTable:
    """Read all images listed in the attribute file, at ``side`` pixels, with their classes and groups.

    ``label`` and ``group`` are two of ATTRIBUTE_NAMES. :func:`locate` finds the files, and
    :func:`~pyro_fairvae.data.image_cache.cached_images` decodes the square FACE of each image once and caches
    it. The person in an image is known if the publisher's file of identities is present.
    """
    choose("label of CelebA", label, ATTRIBUTE_NAMES)
    choose("group of CelebA", group, ATTRIBUTE_NAMES)
    require(label != group, f"label and group are both {label!r}; choose two different attributes.")
    where = locate(folder, download)
    names, (y, a) = read_attributes(_first(where, LISTS), (label, group))
    classes, attributes = classes_of(label), celeba_attributes(group)
    _require_both("label", label, y, classes)
    _require_both("group", group, a, attributes.group_names)
    people = read_people(where / PEOPLE, names) if (where / PEOPLE).is_file() else None
    with open_images(_first(where, IMAGES)) as source:
        stored = cached_images(source, names, side, progress=progress, cut=FACE)
    return ImageTable(stored, np.arange(len(names)), y, a, classes, attributes, Pixels(3, side), people)


def classes_of(label: str) -> tuple[str, ...]:
    """The names of the values 0 and 1 of an attribute."""
    return ("Female", "Male") if label == "Male" else (f"not {label}", label)


def celeba_attributes(group: str) -> Attributes:
    return Attributes.single(classes_of(group), group)


def locate(folder: str | Path | None = None, download: bool = False) -> Path:
    """The folder that holds the images and the attribute file.

    Looks in ``folder`` or ``$FAIRVAE_DATA`` (in itself, or in a subfolder ``celeba``); then in the cache,
    unless ``folder`` was given. With ``download``, torchvision downloads the files if they are not found.
    """
    given = folder or os.environ.get("FAIRVAE_DATA")
    places = [Path(given), Path(given) / "celeba"] if given else []
    if not folder:
        places.append(cache_home() / "celeba")
    for place in places:
        if _first_or_none(place, LISTS) and _first_or_none(place, IMAGES):
            _check_published(place)
            return place
    if download:
        return fetch(Path(folder) if folder else cache_home())
    raise InputError(
        "CelebA was not found."
        + "".join(f"\n  tried: {place} ({_lacking(place)})" for place in places)
        + f"\nPut {' or '.join(IMAGES)}, {' or '.join(LISTS)} and, where you have it, {PEOPLE} from "
        f"{PUBLISHER} into one folder and name it with data_dir or in FAIRVAE_DATA; or let torchvision "
        "download them by read_celeba(..., download=True).",
        "data_dir",
    )


def _lacking(place: Path) -> str:
    lacking = [" or ".join(names) for names in (IMAGES, LISTS) if not _first_or_none(place, names)]
    return "there is no " + ", and no ".join(lacking)


def fetch(root: Path) -> Path:
    """Download and check the publisher's files by torchvision, into ``celeba`` below ``root``."""
    try:
        torchvision_datasets().CelebA(str(root), split="all", download=True)
    except InputError:
        raise
    except Exception as reason:  # the publisher's server limits downloads, and reports it in various ways
        raise InputError(
            f"torchvision could not download CelebA into {root / 'celeba'}: {first_line(reason)}. It needs "
            "gdown (pip install gdown), and the publisher's server limits downloads. Try again later, or "
            f"put the files from {PUBLISHER} there by hand."
        ) from reason
    return root / "celeba"


def _check_published(folder: Path) -> None:
    """Check the files by torchvision's list of MD5s, if all are present as torchvision downloads them."""
    path = folder / LISTS[0]
    if not path.is_file() or not (folder / "list_eval_partition.txt").is_file():
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        if file.readline().strip() != str(PUBLISHED):
            return
    try:
        datasets = torchvision_datasets()
    except InputError:  # torchvision is optional, needed for downloads only
        return
    for _, digest, name in datasets.CelebA.file_list:
        if name.endswith(".txt") and (folder / name).is_file():
            whole = datasets.utils.check_integrity(str(folder / name), digest)
            require(whole, f"{folder / name} does not have the MD5 {digest}. {FETCH_AGAIN}.")


def read_attributes(path: Path, wanted: Sequence[str]) -> tuple[list[str], list[Integers]]:
    """The names of the images in an attribute file, and the values, 0 or 1, of each wanted attribute."""
    lines = _lines(path)
    stated = _stated_rows(path, lines) if path.suffix == ".txt" else None
    header = _header(path, lines)
    columns = [1 + header.index(choose(f"attribute in {path}", name, header)) for name in wanted]
    rows: dict[str, list[bool]] = {}
    values: set[str] = set()
    for number, fields in lines:
        at = f"{path}, line {number}:"
        expected = 1 + len(header)
        require(len(fields) == expected, f"{at} {len(fields)} values, expected {expected}. {FETCH_AGAIN}.")
        odd = set(fields[1:]) - {"-1", "0", "1"}
        require(not odd, f"{at} the value {min(odd, default='')!r}; expected -1 or 0 for no and 1 for yes.")
        require(fields[0] not in rows, f"{at} a second row for {fields[0]}; keep one of them.")
        values.update(fields[1:])
        rows[fields[0]] = [fields[column] == "1" for column in columns]
    require(
        stated in (None, len(rows)),
        f"{path} states {stated} rows in its first line, but has {len(rows)}: it is truncated or "
        "altered. Fetch it again, or correct the first line.",
    )
    require(len(rows) > 0, f"{path} has no row. {FETCH_AGAIN}.")
    require(not values >= {"-1", "0"}, f"{path} has values -1 and 0; keep one of them, to mean no.")
    codes = np.array(list(rows.values()), dtype=np.int64)
    return list(rows), list(np.ascontiguousarray(codes.T))


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The fields of each line that has any, with its number: split by commas in a CSV, else by spaces."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        rows = csv.reader(file) if path.suffix == ".csv" else (line.split() for line in file)
        for number, fields in enumerate(rows, start=1):
            if fields:
                yield number, [field.strip() for field in fields]


def _stated_rows(path: Path, lines: Iterator[tuple[int, list[str]]]) -> int:
    _, fields = next(lines, (1, []))
    require(
        len(fields) == 1 and fields[0].isdecimal(),
        f"{path} begins with {' '.join(fields)[:40]!r}, expected the number of its rows, as the publisher's "
        f"file does. {FETCH_AGAIN}.",
    )
    return int(fields[0])


def _header(path: Path, lines: Iterator[tuple[int, list[str]]]) -> list[str]:
    """The names of the attributes, without that of the column of images."""
    _, header = next(lines, (1, []))
    if path.suffix == ".csv":
        require(
            header[:1] == ["image_id"],
            f"{path} begins with the column {''.join(header[:1])!r}, expected image_id and then attributes.",
        )
        header = header[1:]
    require(len(set(header)) == len(header), f"{path} names an attribute twice. {FETCH_AGAIN}.")
    return header


def read_people(path: Path, names: Sequence[str]) -> Integers:
    """The person in each of the images, by the publisher's number."""
    person_of: dict[str, int] = {}
    for number, fields in _lines(path):
        at = f"{path}, line {number}:"
        require(
            len(fields) == 2 and fields[1].isdecimal(),
            f"{at} {' '.join(fields)[:40]!r}, expected an image and the number of a person. {FETCH_AGAIN}.",
        )
        require(fields[0] not in person_of, f"{at} a second row for {fields[0]}; keep one of them.")
        person_of[fields[0]] = int(fields[1])
    missing = [name for name in names if name not in person_of]
    require(
        not missing,
        f"{path} has no row for {len(missing)} of {len(names)} images: {', '.join(missing[:3])}"
        f"{', ...' if len(missing) > 3 else ''}. Fetch it again, or delete it to do without identities.",
    )
    return np.array([person_of[name] for name in names], dtype=np.int64)


def _require_both(what: str, name: str, codes: Integers, values: tuple[str, ...]) -> None:
    """Raise if an attribute has the same value in all images."""
    require(
        len(np.unique(codes)) == 2,
        f"{what} {name!r}: every one of the {len(codes)} images is {values[codes[0]]!r}, but both values are "
        f"needed. Choose another {what}, or add images.",
    )


def _first(folder: Path, names: Sequence[str]) -> Path:
    path = _first_or_none(folder, names)
    assert path is not None, f"{folder} must contain one of {names}"
    return path


def _first_or_none(folder: Path, names: Sequence[str]) -> Path | None:
    return next((folder / name for name in names if (folder / name).exists()), None)


CELEBA_DATASETS = tuple(
    Dataset(
        name,
        (label, *(other for other in ATTRIBUTE_NAMES if other != label)),
        (group, *(other for other in ATTRIBUTE_NAMES if other != group)),
        lambda label, group, side, folder: read_celeba(label, group, folder, side),
        celeba_attributes,
        classes_of,
        most_rows=50_000,  # the paper's 45k + 5k
        images=True,
        suits=FOR_IMAGES,
        published={
            ("Male", "sparse"): (0.34, 0.67),
            ("Male", "medium"): (0.08, 0.44),
            ("Male", "dense"): (0.16, 0.29),
        },
    )
    for name, (label, group) in TASKS.items()
)
