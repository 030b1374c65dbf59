"""What follows training on an accelerator: decisions, who withholds, checkpoints, and models that are saved."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pyro_fairvae import FairSSVAEClassifier, audit
from pyro_fairvae.boosting.scores import folds_of
from pyro_fairvae.data import Missingness, Splits, split, synthetic
from pyro_fairvae.evaluation.members import evaluate_members, score_imputers
from pyro_fairvae.inference import checkpoint
from pyro_fairvae.inference.training import fit
from pyro_fairvae.posterior.calibration import calibrate_fit
from pyro_fairvae.posterior.summaries import summarise
from tests.devices.test_fits import SETTINGS
from tests.support import pretend
from tests.support.small import small_settings
from tests.support.user_tables import made_table, tiny

CALIBRATED = {
    "plain": {},
    "misstating": {"prior_a": "flat"},
    "v": {"withholding_depends_on": ("x1", "label")},
    "crossed": {"prior_a": "{given: c}"},
}


@pytest.mark.parametrize("name", CALIBRATED)
def test_who_withholds_is_that_of_the_cpu(
    splits: Splits, accelerator: torch.device, name: str
) -> None:
    settings = small_settings(**SETTINGS | CALIBRATED[name])
    summaries = []
    for device in (torch.device("cpu"), accelerator):
        fitted = fit(splits.train, splits.validation, (0.0,), settings, 1, device)
        calibrated = calibrate_fit(fitted, splits.train, [0])
        summaries.append(summarise(fitted, calibrated))
    if accelerator.type == pretend.NAME:
        assert summaries[1] == summaries[0]


def test_a_run_of_the_command(tmp_path: Path, accelerator: torch.device, capsys: pytest.CaptureFixture[str]) -> None:
    from pyro_fairvae.run.__main__ import main

    flags = [
        "--dataset", "synthetic", "--lambdas", "0,1", "--quiet", "--epochs", "1", "--hidden", "8", "--layers", "1", "--batch", "512",
        "--channel-steps", "2", "--decision-steps", "2", "--latent", "2", "--decoder-hidden", "4",
    ]  # fmt: skip
    for device in ("cpu", str(accelerator)):
        out = str(tmp_path / device)
        assert main(["train", *flags, "--device", device, "--out", out]) == 0, capsys.readouterr().err
        assert main(["train", *flags, "--device", device, "--out", out, "--resume"]) == 0, capsys.readouterr().err
        assert main(["decide", out, "--device", device, "--quiet"]) == 0, capsys.readouterr().err
        assert main(["inspect", out]) == 0, capsys.readouterr().err
    if accelerator.type == pretend.NAME:
        for file in ("results.json", "posterior.json", "decisions-test.csv", "history.csv"):
            first, second = ((tmp_path / device / file).read_text() for device in ("cpu", str(accelerator)))
            assert first == second, file
