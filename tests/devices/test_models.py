"""What follows training on an accelerator: who withholds, decisions, checkpoints, and saved models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pyro_fairvae.run.__main__ import main

from pyro_fairvae import FairSSVAEClassifier, audit
from pyro_fairvae.channels.priors import channel
from pyro_fairvae.data import Splits, split_complete, synthetic
from pyro_fairvae.evaluation.members import score_imputers
from pyro_fairvae.inference import checkpoint
from pyro_fairvae.inference.program import channel_of_groups
from pyro_fairvae.inference.training import fit
from pyro_fairvae.posterior import calibration, cross_fitting, stage_draws
from pyro_fairvae.posterior.calibration import calibrate
from pyro_fairvae.posterior.cross_fitting import cross_fit
from pyro_fairvae.schema.attributes import Attributes
from pyro_fairvae.schema.levels import Levels
from pyro_fairvae.studies.faces import look_at_faces
from tests.devices.test_fits import SETTINGS, check_place, images, parts_with_proxies
from tests.support import pretend
from tests.support.command_line import TINY
from tests.support.small import small_settings
from tests.support.user_tables import made_table, tiny

AGE = Attributes.of_number(Levels((1.0, 2.0), (0.0, 1.0, 3.0)), "age")


@pytest.fixture
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chains and networks that go a few steps: where tensors are does not depend on how many."""
    monkeypatch.setattr(stage_draws, "WARMUP", 1)
    monkeypatch.setattr(stage_draws, "PROPOSALS", 30)
    monkeypatch.setattr(calibration, "DISAGREEMENT", float("inf"))
    monkeypatch.setattr(cross_fitting, "TABLE_EPOCHS", 1)
    monkeypatch.setattr(cross_fitting, "TABLE_REPEATS", 1)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"withholding_depends_on": ("x1", "label")},
        {"prior_a": "{given: c}"},
        {"ordered": True},
    ],
    ids=["plain", "v", "crossed", "ordered"],
)
@pytest.mark.usefixtures("few_steps")
def test_who_withholds(splits: Splits, accelerator: torch.device, options: dict[str, Any]) -> None:
    table = parts_with_proxies(splits).train
    if options.pop("ordered", False):
        a_obs = (table.a_obs + torch.arange(table.rows) % 2) % 4
        table = replace(table, a_obs=a_obs, groups=3, attributes=AGE)
    settings = small_settings(**SETTINGS | options)
    channels = channel_of_groups(table, settings), channel("y", table.label_attributes, settings.prior_y)
    cpu = calibrate(table, channels, settings, [0], draws=4)
    with pretend.watched() as traffic:
        there = calibrate(table.to(accelerator), channels, settings, [0], draws=4)
    assert not traffic.unordered
    for name in ("a", "y"):
        rows = list(zip(cpu[name].draws.rows, there[name].draws.rows, strict=True))
        assert all(isinstance(row, np.ndarray) and np.isfinite(row).all() for pair in rows for row in pair)
        if accelerator.type == pretend.NAME:
            assert all(np.allclose(*pair, rtol=1e-5, atol=1e-7) for pair in rows)
    if there["a"].by_row is not None:  # of rows that are on the CPU, as those of a table that is judged
        assert np.isfinite(there["a"].by_row.likelihood(table)).all()


@pytest.mark.usefixtures("few_steps")
def test_images_are_scored_and_shown(accelerator: torch.device) -> None:
    parts = images()
    settings = small_settings(**SETTINGS | {"precision": "full", "batch": 128})
    channels = channel("a", parts.train.group_attributes), channel("y", parts.train.label_attributes)
    cpu, there = (
        cross_fit(parts.train.to(device), channels, settings, [0]) for device in ("cpu", accelerator)
    )
    assert there.groups.device == accelerator
    if accelerator.type == pretend.NAME:
        torch.testing.assert_close(there.groups.cpu(), cpu.groups, rtol=1e-4, atol=1e-5)
    fitted = fit(parts.train, parts.validation, (0.0,), settings, 0, accelerator)
    faces = look_at_faces(fitted, parts.test)
    assert faces is not None
    assert faces.reconstructions.shape == faces.originals.shape == (8, 3, 8, 8)


def test_a_stopped_run_goes_on_anywhere(splits: Splits, accelerator: torch.device, tmp_path: Path) -> None:
    settings, path = small_settings(**SETTINGS | {"epochs": 2}), tmp_path / "checkpoint.pt"

    def run(device: torch.device | str, **more: Any) -> Any:
        return fit(splits.train, splits.validation, (0.0, 1.0), settings, 1, device, **more)

    def save_first(done: Any) -> None:
        if done.epoch == 1:
            checkpoint.save(path, {}, done.state())

    whole = run(accelerator, after_epoch=save_first).program.state()
    with pretend.watched() as traffic:
        again = run(accelerator, state=checkpoint.load(path, {}))
    check_place(again, accelerator)
    assert all(torch.equal(value, whole[name]) for name, value in again.program.state().items())
    # Counts of steps stay on the CPU, where the optimizer reads them in each step.
    assert not [line for line in traffic.waits if "optimizer.py" in line or "adam" in line]
    elsewhere = run("cpu", state=checkpoint.load(path, {})).program.state()
    if accelerator.type == pretend.NAME:
        assert all(torch.equal(value, whole[name].cpu()) for name, value in elsewhere.items())


def test_an_estimator(accelerator: torch.device, tmp_path: Path) -> None:
    people = made_table(240)
    given = {"sensitive_features": people.a_obs}
    cpu, there = (
        tiny(device=str(device), random_state=0).fit(people.X, people.y_obs, **given)
        for device in ("cpu", accelerator)
    )
    there.save(tmp_path / "model")
    loaded = [FairSSVAEClassifier.load(tmp_path / "model", device=str(d)) for d in ("cpu", accelerator)]
    assert loaded[1].fit_.device == accelerator
    check_place(loaded[1].fit_, accelerator)
    for model in (there, *loaded):
        for method in ("predict", "predict_proba", "decision_function", "predict_groups_proba"):
            found, expected = getattr(model, method)(people.X), getattr(there, method)(people.X)
            assert np.array_equal(found, expected) or np.allclose(found, expected, atol=1e-5), method
        stated = model.predict_groups_proba(people.X, people.a_obs)
        assert np.allclose(stated.sum(-1), 1, atol=1e-5)
    if accelerator.type == pretend.NAME:
        assert there.posterior_ == cpu.posterior_
        assert there.frontier_.equals(cpu.frontier_)
    found = audit(people.y_obs, there.predict(people.X), people.a_obs, X=people.X, model=there)
    assert np.isfinite(found.metrics["estimate"].to_numpy(dtype=float)).any()


def test_imputers_are_scored(splits: Splits, accelerator: torch.device) -> None:
    fitted = fit(splits.train, splits.validation, (0.0,), small_settings(**SETTINGS), 1, accelerator)
    truth = split_complete(synthetic(rows=300, seed=3), 5)["validation"]
    scored = score_imputers(fitted, truth, splits.validation, 0)
    assert {"group", "label"} <= set(scored)


def test_commands(tmp_path: Path, accelerator: torch.device, capsys: pytest.CaptureFixture[str]) -> None:
    place = TINY.index("--device")
    flags = [*TINY[:place], *TINY[place + 2 :]]
    for device in ("cpu", str(accelerator)):
        out = str(tmp_path / device.replace(":", "-"))
        train = ["train", "--dataset", "synthetic", *flags, "--device", device, "--out", out]
        for command in (train, [*train, "--resume"], ["decide", out, "--device", device, "--draws", "3"]):
            assert main(command) == 0, capsys.readouterr().err
    if accelerator.type == pretend.NAME:
        for file in ("results.json", "posterior.json", "decisions-test.csv", "history.csv"):
            first, second = ((folder / file).read_text() for folder in sorted(tmp_path.iterdir()))
            assert first == second, file
