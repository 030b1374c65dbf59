"""A table in a file, fitted from Python: what its columns are, what is held out, what was taken for a gap."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.data.splits import random_share
from pyro_fairvae.estimator.classifier import FairSSVAEClassifier
from pyro_fairvae.studies import user_fit
from tests.support.user_tables import tiny

WORDS = ("None", "this", "that", "?", "NA", "")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    draw = np.random.default_rng(0)
    path = tmp_path / "people.csv"
    columns = {
        "age": draw.normal(40, 9, size=200).round(1),
        "faith": draw.choice(WORDS, size=200),
        "hired": draw.choice(["no", "yes"], size=200),
    }
    pd.DataFrame(columns).to_csv(path, index=False)
    return path


def test_words_that_were_taken_for_gaps_are_counted(table: Path) -> None:
    gaps: dict[str, dict[str, int]] = {}
    read = user_fit.read_user_table(
        table, "hired", ["faith"], missing=["?"], report_gaps=lambda name, counts: gaps.update({name: counts})
    )
    with table.open() as file:
        written = Counter(row["faith"] for row in csv.DictReader(file))
    assert gaps == {"faith": {word: written[word] for word in ("None", "NA")}}
    assert read.groups["faith"].isna().sum() == sum(written[word] for word in ("None", "NA", "?", ""))
    assert (list(read.features), read.source["groups"], read.source["missing"]) == (["age"], ["faith"], ["?"])


@pytest.mark.parametrize(("rows", "share"), [(10, 0.2), (7, 0.5), (100, 0.0), (3, 0.99)])
def test_a_share_of_rows_is_held_out(rows: int, share: float) -> None:
    chosen = random_share(rows, share, 3)
    assert (chosen.shape, chosen.sum()) == ((rows,), round(share * rows))
    assert (chosen == random_share(rows, share, 3)).all()


def test_a_fit_from_python_is_in_its_folder(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "model"
    fitted = user_fit.fit_table(table, "hired", ["faith"], out, model=tiny(device="cpu"), seed=1)
    assert fitted.audited_rows == 40
    assert fitted.audit is not None
    loaded = FairSSVAEClassifier.load(out, "cpu")
    features = pd.read_csv(table)[["age"]]
    np.testing.assert_array_equal(loaded.predict(features), fitted.model.predict(features))
    with pytest.raises(InputError, match="pass overwrite=True") as refused:
        user_fit.fit_table(table, "hired", ["faith"], out)
    assert refused.value.parameters == ("overwrite", "out")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"holdout": 1.0}, "holdout must be"),
        ({"seed": -1}, "seed must"),
        ({"drop": ["faith"]}, "out of drop"),
    ],
)
def test_errors_name_parameters_and_no_flags(
    given: dict[str, object], words: str, table: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=words) as refused:
        user_fit.fit_table(table, "hired", ["faith"], tmp_path / "model", **given)  # type: ignore[arg-type]
    assert refused.value.parameters == tuple(given)
    assert "--" not in str(refused.value)
