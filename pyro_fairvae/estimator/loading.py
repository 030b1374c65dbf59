"""The estimator of a folder, whichever kind wrote it."""

from __future__ import annotations

from pathlib import Path

from pyro_fairvae.base.devices import resolve_device
from pyro_fairvae.estimator.classifier import FairSSVAEClassifier
from pyro_fairvae.estimator.fair_decisions import FairDecisions
from pyro_fairvae.estimator.regressor import FairSSVAERegressor
from pyro_fairvae.storage.contents import TreeDecisions
from pyro_fairvae.storage.stored_model import load_model


def load_estimator(
    folder: Path, device: str = "auto"
) -> FairSSVAEClassifier | FairDecisions | FairSSVAERegressor:
    """The fitted estimator of a folder; no code from the folder is run, and nothing is fitted."""
    stored = load_model(folder, resolve_device(device))
    if isinstance(stored.decider, TreeDecisions):
        return FairDecisions.restored(stored, folder)
    if stored.number is not None:
        return FairSSVAERegressor.restored(stored, folder)
    return FairSSVAEClassifier.restored(stored, folder)
