"""What a training step costs besides arithmetic: copies, waiting for the device, sums in no fixed order."""

from __future__ import annotations

import math
from typing import Any

import pyro
import pytest
import torch
from pyro.infer import TraceEnum_ELBO

from pyro_fairvae.data import Splits
from pyro_fairvae.inference.program import Program
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.inference.training import fit
from pyro_fairvae.schema.observed import Observed
from tests.devices.test_fits import images, parts_with_proxies
from tests.support import pretend
from tests.support.small import small_settings

V = {"withholding_depends_on": ("x1", "c", "label")}


def recorded(train: Observed, validation: Observed, device: torch.device, **options: Any) -> pretend.Traffic:
    """What a fit of one epoch costs."""
    given = {"batch": 96, "epochs": 1, "channel_steps": 1, "decision_steps": 1}
    with pretend.watched() as traffic:
        fit(train, validation, (0.0, 1.0), small_settings(**given | options), 1, device)
    return traffic


def split_off_constants(traffic: pretend.Traffic) -> tuple[int, int]:
    """Constants that were copied, which stay on the device, and all other copies."""
    constants = sum("base/devices.py" in line for line in traffic.copies)
    return constants, len(traffic.copies) - constants


def traffic_of_a_step(
    train: Observed, validation: Observed, device: torch.device, **options: Any
) -> tuple[float, float, pretend.Traffic]:
    """Copies and waits of one more step of an epoch, and all that was recorded in the longer fit."""
    fewer, more = (recorded(train, validation, device, batch=batch, **options) for batch in (96, 32))
    extra = math.ceil(train.rows / 32) - math.ceil(train.rows / 96)
    (constants, copies), (constants_of_more, copies_of_more) = map(split_off_constants, (fewer, more))
    assert constants_of_more <= constants
    return (copies_of_more - copies) / extra, (len(more.waits) - len(fewer.waits)) / extra, more


def waits_of_pyro(train: Observed, settings: Settings, device: torch.device) -> int:
    """How often Pyro's own ELBO with enumeration waits for the device, for the same model and guide."""
    program = Program(train.to(device), settings, [0, 1]).to(device, torch.float32)
    with pyro.get_param_store().scope(), pretend.watched() as traffic:
        elbo = TraceEnum_ELBO(max_plate_nesting=2)
        elbo.differentiable_loss(
            program.model, program.guide, train.to(device).batch(torch.arange(32, device=device))
        )
    return sum("_local_scalar_dense" in line for line in traffic.waits)


@pytest.mark.parametrize(
    "options",
    [
        {},
        V,
        {"prior_a": "{given: c}"},
        {"risk_estimator": "sampled", "imputer": "features"},
        {"risk": "deopp", "thresholds": (0.4, 0.6)},
    ],
    ids=["default", "v", "crossed", "sampled", "deopp"],
)
def test_a_step_on_a_table(splits: Splits, pretended: torch.device, options: dict[str, Any]) -> None:
    """It copies nothing and never waits, unlike a step of Pyro's own loss."""
    copies, waited, traffic = traffic_of_a_step(splits.train, splits.validation, pretended, **options)
    assert (copies, waited) == (0, 0), f"{traffic}"
    assert waits_of_pyro(splits.train, small_settings(**options), pretended) > 0
    assert not traffic.unordered


def test_a_step_with_proxies(splits: Splits, pretended: torch.device) -> None:
    parts = parts_with_proxies(splits)
    copies, waited, traffic = traffic_of_a_step(parts.train, parts.validation, pretended)
    assert (copies, waited) == (0, 0), f"{traffic}"
    assert not traffic.unordered


def test_a_step_on_images(pretended: torch.device) -> None:
    """A step copies its pixels."""
    parts = images()
    copies, waited, traffic = traffic_of_a_step(parts.train, parts.validation, pretended)
    assert (copies, waited) == (1, 0), f"{traffic}"


def test_a_step_of_refinement(splits: Splits, pretended: torch.device) -> None:
    """Neither that of channels nor that of decisions copies anything or waits."""
    options = V | {"prior_a": "{given: c}", "withholding_depends_on": ("x1", "label")}
    few, many = (
        recorded(
            splits.train, splits.validation, pretended, **options, channel_steps=steps, decision_steps=steps
        )
        for steps in (1, 4)
    )
    assert split_off_constants(many)[1] == split_off_constants(few)[1], str(many)
    assert len(many.waits) == len(few.waits), str(many)


def test_a_seed_fixes_a_fit(splits: Splits, accelerator: torch.device) -> None:
    settings = small_settings(epochs=2)
    first, second = (
        fit(splits.train, splits.validation, (0.0, 1.0), settings, 1, accelerator).program.state()
        for _ in range(2)
    )
    assert all(torch.equal(value, second[name]) for name, value in first.items())
