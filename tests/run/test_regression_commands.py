"""fairvae fit --task regression, predict, audit, inspect and report on a table whose outcome is a number."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from pyro_fairvae.auditing import audit
from pyro_fairvae.auditing.number_audit import NumberAudit, audit_numbers
from pyro_fairvae.base.errors import InputError
from pyro_fairvae.estimator.regressor import FairSSVAERegressor
from pyro_fairvae.schema.documents import NumberAuditDocument
from tests.support.command_line import FEW_STEPS, run
from tests.support.numbers import number_table

TINY = ("--task", "regression", "--lambdas", "0,1", "--epochs", "2", "--device", "cpu", "--quiet", *FEW_STEPS)


def people(rows: int = 320, seed: int = 0) -> pd.DataFrame:
    made = number_table(rows, seed)
    table = pd.DataFrame(made.x.round(4), columns=list("pqrs")).assign(id=np.arange(rows))
    return table.assign(sex=np.array(["f", "m", None], dtype=object)[made.a_obs], pay=made.y_obs.round(3))


@pytest.fixture(scope="module")
def csv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tables") / "people.csv"
    people().to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def model(csv: Path) -> Path:
    out = csv.parent / "model"
    assert run("fit", csv, "--label", "pay", "--group", "sex", "--drop", "id", *TINY, "--out", out) == 0
    return out


def test_predict_writes_numbers_intervals_and_groups(
    csv: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new, out = tmp_path / "new.csv", tmp_path / "predictions.csv"
    table = people(40, seed=3)
    table.drop(columns=["sex", "pay"]).to_csv(new, index=False)
    assert run("predict", model, new, "--lambda", "1", "--keep", "id", "--groups", "--out", out) == 0
    assert "40 rows predicted by the member at λ = 1" in capsys.readouterr().out
    written = pd.read_csv(out)
    assert list(written) == ["id", "prediction", "low", "high", "P(sex = f)", "P(sex = m)"]
    estimator = FairSSVAERegressor.load(model, "cpu").select(lambda_=1.0)
    X = pd.read_csv(new)[list("pqrs")]
    np.testing.assert_allclose(written["prediction"], estimator.predict(X), rtol=1e-5)
    np.testing.assert_allclose(written[["low", "high"]], estimator.predict_interval(X), rtol=1e-5)
    assert (written["low"] < written["high"]).all()


def test_audit_inspect_and_report(
    csv: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("audit", model, csv, "--out", tmp_path / "audit.json") == 0
    assert "mean prediction" in capsys.readouterr().out
    kept = NumberAudit.read(tmp_path / "audit.json")
    table = pd.read_csv(csv)
    estimator = FairSSVAERegressor.load(model, "cpu")
    found = audit_numbers(table["pay"], estimator.predict(table[list("pqrs")]), table["sex"])
    pd.testing.assert_frame_equal(kept.differences, found.differences)
    pd.testing.assert_frame_equal(kept.means, found.means)
    assert kept.rows == found.rows
    assert json.loads((model / "audit.json").read_text())["rows"]["rows"] == 64
    assert run("inspect", model, "--out", tmp_path / "figures") == 0
    assert "P(ỹ | y)" in capsys.readouterr().out
    assert run("report", model, "--audit", tmp_path / "audit.json", "--out", tmp_path / "page.html") == 0
    page = (tmp_path / "page.html").read_text()
    for words in ("A predictor of pay", "root mean squared error", "mean absolute error", "below"):
        assert words in page
    assert run("audit", model, csv, "--depends-on", "group and label") == 2
    assert "leave --depends-on out" in capsys.readouterr().err
    assert run("decide", model, csv, "--out", tmp_path / "labels.csv") == 2
    assert "it predicts a number and knows no classes to decide on" in capsys.readouterr().err
    with pytest.raises(InputError, match="the model predicts a number, and audit is for classes"):
        audit(table["sex"], table["sex"], table["sex"], X=table, model=estimator)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--targets", ".1"), "--targets: for labels with classes only"),
        (("--estimator", "boosting"), "--estimator: for labels with classes only"),
        (("--risk", "deo"), "choose one of mean_gap"),
        (("--label", "sex", "--group", "pay"), "For classes use FairSSVAEClassifier"),
    ],
)
def test_what_is_for_classes_is_refused(
    flags: tuple[str, ...], words: str, csv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("--label", "pay", "--group", "sex", "--task", "regression", "--device", "cpu", "--quiet")
    assert run("fit", csv, *given, *flags, "--out", tmp_path / "model") == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_a_risk_of_numbers_is_refused_for_classes(
    csv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = people(100)
    table.assign(pay=np.where(table["p"] > 0, "high", "low")).to_csv(tmp_path / "c.csv", index=False)
    given = ("--label", "pay", "--group", "sex", "--risk", "wasserstein", "--device", "cpu", "--quiet")
    assert run("fit", tmp_path / "c.csv", *given, "--out", tmp_path / "model") == 2
    assert "'wasserstein' is of predicted numbers, but the label has classes" in capsys.readouterr().err


def test_intervals_of_an_audit_are_welchs() -> None:
    draw = np.random.default_rng(0)
    groups = draw.choice(["f", "m"], 300, p=[0.3, 0.7])
    y = draw.normal(size=300) * np.where(groups == "f", 2, 1)
    predicted = y + draw.normal(size=300) + (groups == "m")
    hidden = np.where(draw.random(300) < 0.3, None, groups)
    found = audit_numbers(y, predicted, hidden, confidence=0.95)
    m, f = (predicted[hidden == group] for group in ("m", "f"))
    expected = stats.ttest_ind(m, f, equal_var=False).confidence_interval(0.95)
    line = found.differences.set_index("what").loc["prediction"]
    assert (line["higher"], line["lower"]) == ("m", "f")
    assert line["low"] == pytest.approx(max(0, expected.low))
    assert line["high"] == pytest.approx(expected.high)
    own = found.means.query("what == 'error' and group == 'f'").iloc[0]
    error = (predicted - y)[hidden == "f"]
    ends = stats.t.interval(0.95, len(error) - 1, error.mean(), stats.sem(error))
    assert (own["low"], own["high"]) == pytest.approx(ends)
    assert set(found.to_dict()) == set(NumberAuditDocument.__struct_fields__)


def test_intervals_of_the_largest_of_three_differences_cover() -> None:
    """In nine of ten tables or more, each end of the interval of m − f, groups of which g lies between."""
    inside = 0
    for seed in range(200):
        draw = np.random.default_rng(seed)
        groups = np.array(["f", "g", "m"])[draw.integers(3, size=150)]
        predicted = draw.normal(size=150) + np.select([groups == "m", groups == "f"], [0.5, -0.5])
        line = audit_numbers(predicted, predicted, groups).differences.iloc[0]
        inside += line["low"] <= 1.0 <= line["high"]
    assert inside >= 176  # of 200, at 90 %: two standard errors


@pytest.mark.parametrize(
    ("y", "predicted", "groups", "words"),
    [
        ([1.0] * 20, [1.0, np.nan] * 10, ["f", "m"] * 10, "predictions are missing in 10 rows"),
        ([1.0] * 20, [1.0, np.inf] * 10, ["f", "m"] * 10, "predicted contains infinity in 10 rows"),
        ([1.0] * 20, [1.0] * 19, ["f", "m"] * 10, "20 outcomes, 19 predictions and 20 groups"),
        ([1.0] * 20, [1.0] * 20, ["f"] * 18 + ["m"] * 2, "fewer than two groups have 5 rows"),
    ],
)
def test_audits_that_cannot_be_made(y: list, predicted: list, groups: list, words: str) -> None:
    with pytest.raises(InputError) as raised:
        audit_numbers(y, predicted, groups)
    assert words in str(raised.value)
