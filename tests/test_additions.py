"""Everything that docs/contributing.md says can be added, added as it says, and used."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pyro_fairvae.auditing import audit
from pyro_fairvae.base.documents import check_document
from pyro_fairvae.baselines import METHODS, Task
from pyro_fairvae.channels.priors import PRIOR_PRESETS
from pyro_fairvae.data import DATASETS, Missingness, Splits, split, synthetic
from pyro_fairvae.evaluation import MEASURES, measures
from pyro_fairvae.evaluation.members import evaluate_members, judge
from pyro_fairvae.evaluation.metrics import METRICS
from pyro_fairvae.inference.fit_result import Fit
from pyro_fairvae.inference.training import fit
from pyro_fairvae.nn.trunks import TRUNKS
from pyro_fairvae.risks import IMPUTERS, RELAXATIONS, RISKS, gaps
from pyro_fairvae.risks.custom import CUSTOM
from pyro_fairvae.schema.documents import FitDocument
from pyro_fairvae.storage.contents import fit_content, fit_from
from pyro_fairvae.studies.config import DataConfig
from tests.support.command_line import SYNTHETIC, run
from tests.support.small import small_settings

PAGE = (Path(__file__).parent.parent / "docs" / "contributing.md").read_text()
EXAMPLES = dict(re.findall(r"^## (.*?)\n.*?```python\n(.*?)```", PAGE, flags=re.DOTALL | re.MULTILINE))
TABLES: tuple[dict[str, Any], ...] = (
    gaps._RISKS, MEASURES, METRICS, measures.AUDITED, CUSTOM, TRUNKS, DATASETS, PRIOR_PRESETS, METHODS,
    IMPUTERS, RELAXATIONS,
)  # fmt: skip


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = [dict(table) for table in TABLES]
    yield
    for table, rows in zip(TABLES, before, strict=True):
        table.clear()
        table.update(rows)


@pytest.fixture(scope="module")
def parts() -> Splits:
    return split(synthetic(rows=200, seed=1), Missingness(), 1)


def added(heading: str) -> dict[str, Any]:
    """What the example below a heading of the page defines, once it has run."""
    names: dict[str, Any] = {"__name__": "example"}
    exec(EXAMPLES[heading], names)  # the page is ours
    return names


def trained(parts: Splits, **changes: object) -> Fit:
    fitted = fit(parts.train, parts.validation, [0.0, 1.0], small_settings(epochs=2, **changes), 0)
    assert all(math.isfinite(value) for row in fitted.history for value in row.values())
    return fitted


def test_every_addition_has_an_example_and_a_test() -> None:
    used = set(re.findall(r'added\("(.*?)"\)', Path(__file__).read_text()))
    headings = set(re.findall(r"^## (.*)$", PAGE, flags=re.MULTILINE))
    assert headings == set(EXAMPLES) == used - {"(.*?)"}


def test_a_risk_and_its_metric(parts: Splits) -> None:
    added("A risk and its metric")
    found = evaluate_members(trained(parts, risk="acceptance"), parts)
    assert found["metric"] == "acceptance"
    for member in found["members"]:  # of two classes DDP is the same
        assert member["test"]["acceptance"] == pytest.approx(member["test"]["ddp"])
    decided = np.arange(parts.test.rows) % 3 == 0
    audited = audit(parts.test.y, decided.astype(int), parts.test.a).metrics
    assert audited.loc["acceptance", "estimate"] == pytest.approx(audited.loc["ddp", "estimate"])


def test_a_risk_of_ones_own(parts: Splits) -> None:
    added("A risk of your own")
    found = evaluate_members(trained(parts, risk="score_gap"), parts)
    assert found["metric"] == "score_gap"
    for member in found["members"]:
        assert member["test"]["score_gap"] == pytest.approx(member["test"]["ddp"])


def test_a_risk_of_ones_own_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("page_risk.py").write_text(EXAMPLES["A risk of your own"].split('register("score_gap"')[0])
    assert run(*SYNTHETIC, "--risk", "page_risk:gap", "--out", "run") == 0
    assert '"risk": "page_risk:gap"' in Path("run/config.json").read_text()
    assert '"metric": "page_risk:gap"' in Path("run/results.json").read_text()
    assert run(*SYNTHETIC, "--risk", "page_risk:gaps", "--out", "other") == 2
    assert "function of page_risk 'gaps'" in capsys.readouterr().err
    assert not Path("other").exists()
    del sys.modules["page_risk"]


def test_a_trunk(parts: Splits) -> None:
    added("A trunk")
    fitted = trained(parts, trunk="shallow")
    names = [name for name in fitted.program.state() if "trunk" in name]
    assert {name.rsplit("/", 1)[-1] for name in names} == {"weight", "bias"}
    assert len(names) == 2
    content, tensors = fit_content(fitted)
    document = check_document(content, FitDocument, "here", "a fit")
    assert parts.test.encoder is not None
    described = parts.test.encoder, np.array(parts.test.classes), parts.train.group_attributes
    restored = fit_from(document, tensors, *described, torch.device("cpu"))
    x = parts.test.features
    assert torch.equal(restored.predict_proba(x), fitted.predict_proba(x))


def test_a_data_set() -> None:
    added("A data set")
    config = DataConfig(dataset="coins")
    found = split(config.table(0), config.missingness(), 0)
    assert found.test.groups == ("left", "right")
    assert evaluate_members(trained(found), found)["metric"] == "deo"


def test_a_prior_preset(parts: Splits) -> None:
    added("A prior preset")
    channel = trained(parts, prior_a="open").program.guide.channel_a
    np.testing.assert_allclose(channel.mean_matrix(), [[0.8, 0.0, 0.2], [0.0, 0.8, 0.2]])


def test_a_method_to_compare_with(parts: Splits) -> None:
    added("A method to compare with")
    method = METHODS["shares"]
    settings = small_settings(epochs=1)
    fitted = method.fit(Task(parts.train, parts.validation, settings), method.weights)
    stated = parts.train.y_obs[parts.train.y_obs < 2].float()
    assert float(fitted.predict_proba(parts.test.features)[0, 0, 1]) == pytest.approx(float(stated.mean()))
    cells = torch.full((2, parts.validation.rows, 2, 2), 0.25)
    found = judge(fitted, method.weights, settings.fairness, parts, cells)
    assert [member["test"]["deo"] for member in found["members"]] == [0.0, 0.0]


def test_an_imputer(parts: Splits) -> None:
    added("An imputer")
    fitted = trained(parts, imputer="cautious")
    by_features, cautious = (fitted.impute(parts.validation, name) for name in ("features", "cautious"))
    expected = (by_features + by_features.mean(-1, keepdim=True)) / 2
    torch.testing.assert_close(cautious, expected)
    assert evaluate_members(fitted, parts)["metric"] == "deo"


def test_a_relaxation(parts: Splits) -> None:
    relax = added("A relaxation")["algebraic"]
    logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 3.0]])
    torch.testing.assert_close(relax(logits, 1e-4), torch.eye(2)[logits.argmax(-1)], rtol=0, atol=1e-4)
    trained(parts, relaxation="algebraic")


def test_nothing_is_left_of_what_was_added() -> None:
    assert "acceptance" not in RISKS
    assert "coins" not in DATASETS
