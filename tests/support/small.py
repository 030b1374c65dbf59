"""Settings and tables for fits that take a moment."""

from __future__ import annotations

from pyro_fairvae.base.options import build
from pyro_fairvae.data import Missingness, split, synthetic
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.schema.observed import Observed

FEW_STEPS = {"channel_steps": 2, "decision_steps": 10}  # for tests that are not about what these find
SMALL = {"hidden": 8, "layers": 2, "pieces": 3, "latent": 3, "decoder_hidden": 8, "samples": 7, "batch": 32,
         **FEW_STEPS}  # fmt: skip


def small_settings(**changes: object) -> Settings:
    """Settings for a fit that takes a moment, with options changed by their flat names."""
    return build(Settings, SMALL | changes)


def three_groups(rows: int = 90, seed: int = 0) -> Observed:
    """An observed table with three groups and three classes, some of each withheld."""
    missing = Missingness((0.2, 0.5, 0.3), (0.0, 0.0, 0.0), (0.3, 0.1, 0.2))
    return split(synthetic(rows=rows, seed=seed, groups=3, classes=3), missing, seed).train
