"""Every method of the comparison on an accelerator."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pyro_fairvae.baselines import METHODS, Task
from pyro_fairvae.baselines.fairrf import fit_fairrf
from pyro_fairvae.data import Missingness, split, split_complete, synthetic
from tests.support import pretend
from tests.support.small import small_settings

RELATED = {"fairrf_age": fit_fairrf(["c"]), "fairrf": fit_fairrf(["c", "x0"])}  # these data have no age
ROWS: dict[str, Any] = {"rows": 240, "seed": 1, "dependence": 0.6}


@pytest.mark.parametrize("name", sorted(METHODS))
def test_it_decides_as_on_the_cpu(name: str, accelerator: torch.device) -> None:
    method = METHODS[name]
    parts = split(synthetic(**ROWS), Missingness((0.6, 0.3)), seed=0)
    truth = split_complete(synthetic(**ROWS), 0)["train"] if method.informed else None
    settings = small_settings(epochs=1, batch=96, channel_steps=1, decision_steps=1)
    cpu, there = (
        RELATED.get(name, method.fit)(
            Task(parts.train, parts.validation, settings, 0, device, truth), (0.0, 1.0)
        )
        for device in ("cpu", accelerator)
    )
    x = torch.from_numpy(parts.test.x)
    proba, decided = there.predict_proba(x), there.decide(x)
    assert proba.device.type == decided.device.type == "cpu"
    if accelerator.type == pretend.NAME:
        torch.testing.assert_close(proba, cpu.predict_proba(x))
        assert torch.equal(decided, cpu.decide(x))
