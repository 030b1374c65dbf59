"""What is brought to its optimum after training."""

from __future__ import annotations

import torch

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
