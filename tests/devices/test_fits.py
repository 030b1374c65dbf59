"""Training and what refines it on an accelerator: nothing is elsewhere, and the numbers are the CPU's."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pyro_fairvae.boosting.scores import folds_of
from pyro_fairvae.data import Missingness, Splits, block_orders, split, synthetic
from pyro_fairvae.data.images import ImageTable
from pyro_fairvae.decisions import targets
from pyro_fairvae.inference import refinement, settling
from pyro_fairvae.inference.fit_result import Fit
from pyro_fairvae.inference.settling import fit_to_targets
from pyro_fairvae.inference.training import fit
from pyro_fairvae.risks.imputers import IMPUTERS
from pyro_fairvae.schema.attributes import Attributes
from pyro_fairvae.schema.image_rows import PixelRows, Pixels
from pyro_fairvae.schema.levels import Levels
from pyro_fairvae.schema.observed import Columns, Imputation, Observed
from tests.support import pretend
from tests.support.small import small_settings, three_groups
from tests.support.stored import stored

SETTINGS: dict[str, Any] = {"batch": 96, "epochs": 1, "channel_steps": 2, "decision_steps": 2}
PROXIES = Columns(1, (2,), ("surname", "place"))


def same_as_on_the_cpu(
    table: Observed, validation: Observed, accelerator: torch.device, **changes: Any
) -> tuple[Fit, Fit]:
    """Fits on the CPU and on the accelerator; the pretended one gives the same numbers, bit for bit."""
    given = {name: changes.pop(name) for name in ("lambdas", "workers", "imputation") if name in changes}
    # Convolutions of the CPU take tensors of another layout, and round otherwise.
    near = {"rtol": 1e-4, "atol": 1e-6} if isinstance(table.x, PixelRows) else {"rtol": 0, "atol": 0}
    settings = small_settings(**SETTINGS | changes)
    lambdas = given.pop("lambdas", (0.0, 1.0))
    cpu, there = (
        fit(table, validation, lambdas, settings, 1, device, **given) for device in ("cpu", accelerator)
    )
    check_place(there, accelerator)
    if accelerator.type == pretend.NAME:
        for mine, others in ((there.program.state(), cpu.program.state()), (there.chosen, cpu.chosen)):
            assert mine.keys() == others.keys()
            for name, value in mine.items():
                torch.testing.assert_close(value.cpu(), others[name], **near, msg=name)
        for line, expected in zip(there.history, cpu.history, strict=True):
            assert line == (pytest.approx(expected, rel=1e-4) if near["rtol"] else expected)
    return cpu, there


@pytest.fixture
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches for decisions that go a few steps: where tensors are does not depend on how many."""
    monkeypatch.setattr(targets, "TRIES", 2)
    for user in (settling, refinement):
        monkeypatch.setattr(user, "settle", partial(targets.settle, steps=20))


def check_place(fitted: Fit, device: torch.device) -> None:
    places: dict[str, Tensor] = {**fitted.program.state(), **fitted.chosen}
    if fitted.adjustment is not None:
        places["adjustment"] = fitted.adjustment
    assert {name for name, value in places.items() if value.device != device} == set()


def parts_with_proxies(parts: Splits) -> Splits:
    def added(table: Observed) -> Observed:
        draw = torch.Generator().manual_seed(0)
        place = torch.eye(2)[torch.randint(2, table.y_obs.shape, generator=draw)]
        u = torch.cat([torch.randn(table.rows, 1, generator=draw), place], dim=-1)
        return replace(table, u=u, u_columns=PROXIES)

    return replace(parts, train=added(parts.train), validation=added(parts.validation))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"risk_estimator": "expected", "risk": "ddp", "relaxation": "straight"},
        {"risk_estimator": "sampled", "relaxation": "kde", "risk": "mean_odds"},
        {"risk_gradient": "vanilla", "imputer": "features", "refine_decisions": 0.0},
        {"objective": "paper", "likelihood": "normal", "prevalence": "independent", "sites": "map"},
        {"thresholds": (0.4, 0.6), "risk": "disparate_impact"},
        {"labeller": "propagation", "neighbours": 3, "elbo_weight": 0.0},
        {"prior_a": "flat", "prior_y": "paper", "risk": "chi2"},
        {"risk_classes": (1,), "pieces": 0, "risk": "mutual_information"},
    ],
    ids=lambda changes: "_".join(map(str, changes.values())) or "default",
)  # fmt: skip
def test_a_fit_is_that_of_the_cpu(splits: Splits, accelerator: torch.device, changes: dict[str, Any]) -> None:
    cpu, there = same_as_on_the_cpu(splits.train, splits.validation, accelerator, **changes)
    x = splits.test.features
    assert there.decide(x).device.type == there.predict_proba(x).device.type == "cpu"
    if accelerator.type == pretend.NAME:
        assert torch.equal(there.predict_proba(x), cpu.predict_proba(x))
        assert torch.equal(there.decide(x), cpu.decide(x))


@pytest.mark.parametrize("imputer", sorted(IMPUTERS))
def test_every_imputer(splits: Splits, accelerator: torch.device, imputer: str) -> None:
    _, there = same_as_on_the_cpu(splits.train, splits.validation, accelerator, imputer=imputer)
    assert there.impute(splits.validation).device.type == "cpu"


@pytest.mark.parametrize(
    "changes",
    [
        {"withholding_depends_on": ("x1", "c", "label")},
        {"prior_a": "{given: c}"},
        {"prior_a": "{given: label}"},
        {"prior_a": "{given: c}", "withholding_depends_on": ("x0", "label")},
    ],
    ids=["v", "given_c", "given_label", "both"],
)
def test_withholding_that_depends_on_more(
    splits: Splits, accelerator: torch.device, changes: dict[str, Any]
) -> None:
    same_as_on_the_cpu(splits.train, splits.validation, accelerator, **changes)


def test_proxies(splits: Splits, accelerator: torch.device) -> None:
    parts = parts_with_proxies(splits)
    same_as_on_the_cpu(parts.train, parts.validation, accelerator, withholding_depends_on=("x1", "label"))


@pytest.mark.usefixtures("few_steps")
def test_three_groups_and_classes(accelerator: torch.device) -> None:
    """With more than two classes decisions are also settled to targets, and the best is kept."""
    same_as_on_the_cpu(three_groups(), three_groups(seed=1), accelerator, lambdas=(0.0, 2.0))


def test_rows_of_their_own(accelerator: torch.device) -> None:
    own = [split(synthetic(rows=200, seed=k), Missingness(), seed=k) for k in range(2)]
    train, validation = (
        Observed.stack([getattr(parts, part) for parts in own]) for part in ("train", "validation")
    )
    same_as_on_the_cpu(train, validation, accelerator)


def test_an_ordered_channel(splits: Splits, accelerator: torch.device) -> None:
    levels = Attributes.of_number(Levels((1.0, 2.0), (0.0, 1.0, 3.0)), "age")
    train, validation = (
        replace(table, a_obs=(table.a_obs + torch.arange(table.rows) % 2) % 4, groups=3, attributes=levels)
        for table in (splits.train, splits.validation)
    )
    same_as_on_the_cpu(train, validation, accelerator, risk="ddp")


def test_imputations_of_others(splits: Splits, accelerator: torch.device) -> None:
    draw = torch.Generator().manual_seed(0)
    joint = torch.rand(splits.train.rows, 4, generator=draw).softmax(-1).unflatten(-1, (2, 2))
    same_as_on_the_cpu(
        splits.train, splits.validation, accelerator, imputation=Imputation(joint, joint.sum(-1))
    )


def images(rows: int = 220) -> Splits:
    draw = np.random.default_rng(0)
    y, a = draw.integers(2, size=rows), draw.integers(2, size=rows)
    stored = torch.from_numpy(draw.integers(0, 256, (rows, 3 * 8 * 8)).astype(np.uint8))
    table = ImageTable(
        stored, np.arange(rows), y, a, ("dark", "bright"), Attributes.single(("green", "red")), Pixels(3, 8)
    )
    return split(table, Missingness(), 0)


@pytest.mark.parametrize("workers", [0, 1])
def test_images_with_workers(accelerator: torch.device, workers: int) -> None:
    parts = images()
    same_as_on_the_cpu(parts.train, parts.validation, accelerator, workers=workers, precision="full")


@pytest.mark.usefixtures("few_steps")
def test_members_settled_to_targets(splits: Splits, accelerator: torch.device) -> None:
    train, settings = splits.train, small_settings(**SETTINGS)
    fold = torch.from_numpy(folds_of(train, 0))
    cpu, there = (
        fit_to_targets(train, splits.validation, (0.1, 0.05), fold, settings, device=device)
        for device in ("cpu", accelerator)
    )
    check_place(there, accelerator)
    assert there.adjustment is not None
    assert cpu.adjustment is not None
    if accelerator.type == pretend.NAME:
        assert torch.equal(there.adjustment.cpu(), cpu.adjustment)


@pytest.mark.parametrize("settled", [False, True])
def test_rows_on_disk_in_blocks(
    splits: Splits, accelerator: torch.device, monkeypatch: pytest.MonkeyPatch, settled: bool
) -> None:
    for name, value in (("BLOCK", 8), ("WINDOW", 100)):
        monkeypatch.setattr(block_orders, name, value)
    monkeypatch.setattr(Observed.sampled, "__defaults__", (90,))
    train, settings = stored(splits.train), small_settings(**SETTINGS)
    if not settled:
        same_as_on_the_cpu(train, splits.validation, accelerator)
        return
    monkeypatch.setattr(refinement, "ROWS", 70)
    fold = torch.from_numpy(folds_of(train, 0))
    cpu, there = (
        fit_to_targets(train, splits.validation, (0.1,), fold, settings, device=device)
        for device in ("cpu", accelerator)
    )
    check_place(there, accelerator)
    if accelerator.type == pretend.NAME:
        for name, value in there.program.state().items():
            assert torch.equal(value.cpu(), cpu.program.state()[name]), name


def test_a_run_goes_on_where_it_was_stopped(splits: Splits, accelerator: torch.device) -> None:
    settings, states = small_settings(**SETTINGS | {"epochs": 2}), []
    given: dict[str, Any] = {"settings": settings, "seeds": 1, "device": accelerator}
    whole = fit(
        splits.train, splits.validation, (0.0, 1.0),
        after_epoch=lambda done: states.append(done.state()), **given,
    )  # fmt: skip
    again = fit(splits.train, splits.validation, (0.0, 1.0), state=states[0], **given)
    check_place(again, accelerator)
    for name, value in whole.program.state().items():
        assert torch.equal(value.cpu(), again.program.state()[name].cpu()), name
