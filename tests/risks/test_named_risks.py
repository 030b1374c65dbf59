"""Risks of the user's own that are named as module:function."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.estimator.classifier import FairSSVAEClassifier
from pyro_fairvae.risks import RiskLoss, RiskSettings
from pyro_fairvae.risks.custom import CUSTOM, is_reference, resolve, without_imports
from pyro_fairvae.schema.documents import as_plain
from pyro_fairvae.storage.model_folder import DOCUMENT, read_model, write_model

GAP = """
import pathlib

pathlib.Path("imported").touch()


def gap(p, y, a):
    rates = [(p[..., 1] * (a == g)).sum(-1) / (a == g).sum(-1).clamp(min=1) for g in (0, 1)]
    return (rates[1] - rates[0]).abs()


def judged(p, y, a):
    return gap(p, y, a)


judged.metric = lambda y, decided, a, classes, weight: 0.25
judged.bound = 1.0


def flat(p, y, a):
    return gap(p, y, a).mean()


def broken(p, y, a):
    return p.no_such_thing


number = 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current directory, with modules of the user's own."""
    before = dict(CUSTOM), set(sys.modules), list(sys.path)
    (tmp_path / "own_risk.py").write_text(GAP)
    (tmp_path / "needs_more.py").write_text("import surely_not_installed\n")
    (tmp_path / "fails.py").write_text("raise RuntimeError('on purpose')\n")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    CUSTOM.clear()
    CUSTOM.update(before[0])
    for name in set(sys.modules) - before[1]:
        if name in ("own_risk", "needs_more", "fails"):
            del sys.modules[name]
    assert sys.path == before[2]


def test_settings_name_a_risk_and_only_its_use_imports_it(folder: Path) -> None:
    settings = RiskSettings(risk="own_risk:judged")
    assert not (folder / "imported").exists()
    RiskLoss(settings)
    assert (folder / "imported").exists()
    risk = settings.chosen()
    assert (risk.name, risk.bound) == ("own_risk:judged", 1.0)
    assert CUSTOM["own_risk:judged"].metric is not None


@pytest.mark.parametrize(
    "name", ["own_risk:", ":gap", "own risk:gap", "own_risk:gap:more", "a..b:c", "../x:y"]
)
def test_what_is_no_name_of_a_function_is_refused_at_once(name: str) -> None:
    assert is_reference(name)
    with pytest.raises(InputError, match="module:function"):
        RiskSettings(risk=name)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("no_such_module:gap", "there is no module 'no_such_module' in"),
        ("own_risk.inner:gap", "own_risk"),
        ("needs_more:gap", "cannot be imported: No module named 'surely_not_installed'"),
        ("fails:gap", "cannot be imported: RuntimeError, on purpose"),
        ("own_risk:gaps", "function of own_risk 'gaps'.*gap"),
        ("own_risk:number", "must be a function, got int"),
        ("own_risk:flat", "must return a tensor of shape"),
        ("own_risk:broken", "could not be evaluated: AttributeError"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_errors_say_what_is_wrong_with_a_named_risk(name: str, complaint: str) -> None:
    settings = RiskSettings(risk=name)
    with pytest.raises(InputError, match=complaint):
        settings.check(2, 2)


def test_imports_can_be_forbidden(folder: Path) -> None:
    with (
        without_imports(),
        pytest.raises(InputError, match="because the name comes from a file"),
    ):
        RiskSettings(risk="own_risk:gap").chosen()
    assert not (folder / "imported").exists()
    resolve("own_risk:gap")
    with without_imports():  # what the user imported already is there to use
        assert RiskSettings(risk="own_risk:gap").chosen().name == "own_risk:gap"


def people(rows: int = 240) -> tuple[pd.DataFrame, np.ndarray, pd.Series]:
    draw = np.random.default_rng(0)
    group, label = draw.integers(2, size=rows), draw.integers(2, size=rows)
    numbers = pd.DataFrame({"u": group + draw.normal(size=rows), "v": label + draw.normal(size=rows)})
    said = pd.Series(np.array(["f", "m"], dtype=object)[group]).mask(draw.random(rows) < 0.3)
    return numbers, label, said


def test_an_estimator_trains_by_a_named_risk_and_a_saved_one_imports_nothing(folder: Path) -> None:
    x, y, groups = people()
    model = FairSSVAEClassifier(
        risk="own_risk:judged", lambdas=(0.0, 1.0), epochs=2, hidden=8, layers=1, intervals="given_h",
        options={"samples": 5},
    )  # fmt: skip
    model.fit(x, y, groups)
    assert model.metric_ == "own_risk:judged"
    assert model.frontier_["disparity"].tolist() == [0.25, 0.25]
    plain = FairSSVAEClassifier(
        risk="own_risk:gap", lambdas=(0.0, 1.0), epochs=2, hidden=8, layers=1, intervals="given_h",
        options={"samples": 5},
    ).fit(x, y, groups)  # fmt: skip
    assert plain.metric_ == "deo"
    model.save(folder / "model")
    document = json.loads((folder / "model" / DOCUMENT).read_text())
    _, tensors, draws, trees = read_model(folder / "model")
    assert document["fit"]["settings"]["risk"] == "own_risk:judged"
    # A crafted model names a module that leaves a trace when it is imported.
    (folder / "trap.py").write_text("import pathlib\npathlib.Path('sprung').touch()\n")
    body = {
        key: each for key, each in document.items() if key not in ("format", "version", "library", "sha256")
    }
    body["fit"]["settings"]["risk"] = body["parameters"]["risk"] = "trap:gap"
    write_model(folder / "crafted", body, tensors, draws, as_plain(trees))
    assert json.loads((folder / "crafted" / DOCUMENT).read_text())["fit"]["settings"]["risk"] == "trap:gap"
    crafted = FairSSVAEClassifier.load(folder / "crafted")
    expected = model.predict_proba(x)
    np.testing.assert_array_equal(crafted.predict_proba(x), expected)
    crafted.predict(x)
    crafted.predict_groups_proba(x, groups)
    assert not (folder / "sprung").exists()
    assert "trap" not in sys.modules
    with pytest.raises(InputError, match="gap"):  # a new fit is asked for, and imports what it is named
        crafted.fit(x, y, groups)
    assert (folder / "sprung").exists()
    del sys.modules["trap"]
