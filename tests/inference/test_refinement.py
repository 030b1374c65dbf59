"""What is brought to its optimum after training."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.base.options import build
from pyro_fairvae.data import Missingness, split, synthetic
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.inference.training import fit

SMALL = {"hidden": 16, "latent": 2, "decoder_hidden": 8, "batch": 256, "epochs": 3}


def test_a_member_without_risk_is_left_alone_and_others_get_fairer() -> None:
    table = synthetic(rows=3000, seed=1)
    parts = split(table, Missingness((0.6, 0.3)), seed=0)
    fits = {
        settle: fit(
            parts.train, parts.validation, (0.0, 3.0), build(Settings, SMALL | {"refine_decisions": settle})
        )
        for settle in (0.0, 50.0)
    }
    trained, settled = (fits[settle].decide(parts.train.x) for settle in (0.0, 50.0))
    assert fits[0.0].adjustment is None
    assert torch.equal(trained[0], settled[0])
    assert not torch.equal(trained[1], settled[1])
    assert torch.equal(fits[0.0].predict_proba(parts.train.x), fits[50.0].predict_proba(parts.train.x))


def test_the_settings_say_how_many_steps_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of Adam, counted; training itself takes AdamW."""
    parts = split(synthetic(rows=300, seed=1), Missingness((0.6, 0.3)), seed=0)
    steps: Counter[int] = Counter()
    step = torch.optim.Adam.step

    def counted(self: torch.optim.Adam, *arguments: Any) -> Any:
        if type(self) is torch.optim.Adam:
            steps[len(self.param_groups[0]["params"])] += 1
        return step(self, *arguments)

    monkeypatch.setattr(torch.optim.Adam, "step", counted)
    settings = build(Settings, SMALL | {"epochs": 1, "channel_steps": 3, "decision_steps": 7})
    fit(parts.train, parts.validation, (0.0, 1.0), settings)
    assert steps == {2: 2 * 3, 1: 7}  # two channels of two rows each, and the weights of decisions


@pytest.mark.parametrize("name", ["channel_steps", "decision_steps"])
def test_no_steps_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"{name} must be at least 1, got 0"):
        build(Settings, {name: 0})
