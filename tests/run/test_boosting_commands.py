"""``fit --estimator boosting``: its folder is read by the other commands, and holds the same decisions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pyro_fairvae import FairDecisions, FairSSVAEClassifier
from pyro_fairvae.base.errors import InputError
from tests.support.browser import Reader
from tests.support.command_line import run
from tests.support.user_tables import made_table

COLUMNS = ("--label", "hired", "--group", "sex")
ROWS = 800


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = made_table(ROWS)
    path = tmp_path_factory.mktemp("boosting") / "people.csv"
    pd.concat([made.X, made.y_obs, made.a_obs], axis=1).to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def folder(people: Path) -> Path:
    out = people.parent / "model"
    targets = ("--targets", ".1,.05", "--estimator", "boosting")
    assert run("fit", people, *COLUMNS, *targets, "--quiet", "--out", out) == 0
    return out


def test_a_folder_restores_decisions_scores_and_rates(folder: Path, tmp_path: Path) -> None:
    made = made_table(300, seed=3)
    model = FairDecisions(targets=(0.1, 0.05), folds=3).fit(made.X, made.y_obs, made.a_obs)
    model.select(0.07)
    model.save(tmp_path / "saved")
    loaded = FairDecisions.load(tmp_path / "saved")
    new = made_table(100, seed=4).X
    for method in ("predict", "decision_function", "predict_proba", "predict_groups_proba"):
        np.testing.assert_array_equal(getattr(model, method)(new), getattr(loaded, method)(new))
    pd.testing.assert_frame_equal(model.frontier_, loaded.frontier_)
    pd.testing.assert_frame_equal(model.channels_, loaded.channels_)
    assert (loaded.groups_, loaded.metric_, loaded.targets) == (("f", "m"), "deo", [0.1, 0.05])
    assert loaded.select(0.07).selected_ == model.selected_
    assert loaded.select(0.06).frontier_["target"][loaded.selected_] == 0.05
    with pytest.raises(InputError, match="has no rows to audit"):
        loaded.select(0.1, confidence=0.9)
    with pytest.raises(InputError, match="already holds a model"):
        model.save(tmp_path / "saved")


def test_a_model_without_groups_is_saved(tmp_path: Path) -> None:
    made = made_table(200)
    with pytest.warns(UserWarning, match="no sensitive_features"):
        model = FairDecisions(folds=2).fit(made.X, made.y_obs)
    model.save(tmp_path)
    np.testing.assert_array_equal(FairDecisions.load(tmp_path).predict(made.X), model.predict(made.X))


def test_only_trees_are_saved(tmp_path: Path) -> None:
    from sklearn.linear_model import LogisticRegression

    made = made_table(200)
    numbers = made.X.select_dtypes("number")
    model = FairDecisions(LogisticRegression(), folds=2, targets=(0.1,)).fit(numbers, made.y_obs, made.a_obs)
    with pytest.raises(InputError, match="LogisticRegression cannot be saved without code; use joblib"):
        model.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_predict_decides_as_the_model_does(folder: Path, people: Path, tmp_path: Path) -> None:
    out = tmp_path / "decisions.csv"
    assert run("predict", folder, people, "--groups", "--max-disparity", ".1", "--out", out) == 0
    written = pd.read_csv(out)
    model = FairDecisions.load(folder).select(0.1)
    X = pd.read_csv(people).drop(columns=["hired", "sex"])
    assert written["decision"].tolist() == model.predict(X).tolist()
    np.testing.assert_allclose(written["P(sex = f)"], model.predict_groups_proba(X)[:, 0], atol=1e-5)


def test_audit_inspect_and_report_read_it(
    folder: Path, people: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("audit", folder, people, "--out", tmp_path / "audit.json") == 0
    assert json.loads((tmp_path / "audit.json").read_text())["rows"]["rows"] == ROWS
    assert run("inspect", folder) == 0
    assert (folder / "channel-a.png").is_file()
    assert "cross-fitted" in capsys.readouterr().out
    assert run("report", folder, "--out", tmp_path / "page.html") == 0
    assert "each scored by trees not grown on it" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("decide", "MODEL", "DATA"), "boosted trees"),
        (("predict", "MODEL", "DATA", "--lambda", "1"), "have targets and no λ"),
    ],
)
def test_what_needs_a_network_says_so(
    folder: Path, people: Path, command: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [{"MODEL": folder, "DATA": people}.get(word, word) for word in command]
    assert run(*given) == 2
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said


def test_flags_of_networks_are_refused(people: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = people.parent / "refused"
    boosting = ("--estimator", "boosting", "--out", out)
    assert run("fit", people, *COLUMNS, *boosting, "--lambdas", "0,1", "--epochs", "3") == 2
    assert "--lambdas, --epochs: for networks only" in capsys.readouterr().err
    assert not out.exists()


def test_what_withholding_depends_on_and_proxies(
    people: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The folder keeps them: audit weighs by them, inspect and the page show what makes people withhold."""
    table = pd.read_csv(people)[:400]
    draw = np.random.default_rng(0)
    table["district"] = np.where(draw.random(400) < 0.2 + 0.6 * (table["sex"] == "f"), "north", "south")
    table["p_f"] = draw.uniform(0.3, 0.7, size=400)
    table["p_m"] = 1 - table["p_f"]
    table.to_csv(tmp_path / "people.csv", index=False)
    out, roles = tmp_path / "model", ("--withholding-depends-on", "x0,label", "--proxy", "district")
    given = (*COLUMNS, *roles, "--proxy-proba", "m=p_m,f=p_f", "--targets", ".1", "--quiet", "--out", out)
    assert run("fit", tmp_path / "people.csv", "--estimator", "boosting", *given) == 0
    assert "averaged over the people of the group" in " ".join(capsys.readouterr().out.split())
    model = FairDecisions.load(out)
    assert (list(model.withholding_depends_on), list(model.proxies)) == (["x0", "label"], ["district"])
    assert model.source_["proxy_proba"] == {"m": "p_m", "f": "p_f"}
    unproxied = table.drop(columns=["district", "p_f", "p_m"])
    unproxied.to_csv(tmp_path / "new.csv", index=False)
    assert run("audit", out, tmp_path / "new.csv", "--out", tmp_path / "audit.json") == 0
    assert json.loads((tmp_path / "audit.json").read_text())["depends_on"] == "group, x0, label"
    capsys.readouterr()
    assert run("inspect", out) == 0
    printed = capsys.readouterr().out
    assert "x0 (piece 1)" in printed
    assert "averaged over the people of the group" in printed
    assert (out / "effects.png").is_file()
    assert run("report", out, "--out", tmp_path / "page.html") == 0
    words = " ".join(" ".join(text) for text in Reader((tmp_path / "page.html").read_text()).texts)
    assert "may depend on it and on: x0, label." in words
    assert "What makes people withhold" in words
    assert "never decide: district, log P(f)" in words


def test_an_estimator_refuses_the_folder_of_the_other(folder: Path) -> None:
    with pytest.raises(InputError, match="boosted trees"):
        FairSSVAEClassifier.load(folder)


@pytest.mark.parametrize("name", ["trees.json", "weights.safetensors", "model.json"])
def test_a_damaged_file_is_noticed(folder: Path, tmp_path: Path, name: str) -> None:
    import shutil

    shutil.copytree(folder, tmp_path / "copy")
    content = bytearray((tmp_path / "copy" / name).read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "copy" / name).write_bytes(content)
    with pytest.raises(InputError, match="damaged"):
        FairDecisions.load(tmp_path / "copy")
