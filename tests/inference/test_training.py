"""The SVI loop: members, seeds, going on after a kill, and what it must never see."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any

import pyro
import pytest
import torch
from pyro_fairvae.guides import GLOBAL_GUIDES
from pyro_fairvae.models import LIKELIHOODS, PREVALENCES
from torch import nn

from pyro_fairvae.base.errors import DivergedError, InputError
from pyro_fairvae.channels.priors import PRIOR_PRESETS
from pyro_fairvae.data import Missingness, Splits, split, synthetic
from pyro_fairvae.inference.fit_result import Fit
from pyro_fairvae.inference.objective import FairELBO
from pyro_fairvae.inference.optimizer import MembersAdamW
from pyro_fairvae.inference.program import Program
from pyro_fairvae.inference.schedule import Schedule
from pyro_fairvae.inference.settings import OBJECTIVES, Settings
from pyro_fairvae.inference.svi import MeasuredSVI
from pyro_fairvae.inference.training import Progress, fit
from pyro_fairvae.nn.members import Members
from pyro_fairvae.risks import IMPUTERS, RELAXATIONS, RISKS, RiskLoss
from pyro_fairvae.risks.expectation import ESTIMATORS
from pyro_fairvae.risks.risk_loss import GRADIENTS, LABELLERS
from pyro_fairvae.schema.image_rows import Pixels
from pyro_fairvae.schema.observed import Observed
from tests.support.small import small_settings

LAMBDAS = (0.0, 0.5, 2.0)


# Noise of its own comes with draws; fields, thresholds and critics are kept for each member.
KINDS = [
    {},
    {"risk_estimator": "sampled"},
    {"risk_estimator": "sampled", "memory": 0.2},
    {"risk_estimator": "sampled", "risk_gradient": "vanilla", "imputer": "features"},
    {"labeller": "propagation", "thresholds": (0.4, 0.6)},
    {"risk": "mine", "critic_steps": 2, "thresholds": "learned_by_group"},
]


def train(tables: Splits, lambdas: tuple[float, ...], seeds: list[int], **options: object) -> Fit:
    steps = {"channel_steps": 20, "decision_steps": 20}
    settings = small_settings(epochs=3, batch=30, **steps, **options)  # 7 steps an epoch, 21 in all
    return fit(tables.train, tables.validation, lambdas, settings, seeds, dtype=torch.float64)


def assert_equal_member(together: Fit, k: int, alone: Fit) -> None:
    for states in ((together.program.state(), alone.program.state()), (together.chosen, alone.chosen)):
        for name, value in states[0].items():
            torch.testing.assert_close(value[k], states[1][name][0], rtol=0, atol=1e-8, msg=name)
    assert together.chosen_epoch[k] == alone.chosen_epoch[0]


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_members_equal_single_runs(splits: Splits, options: dict[str, object]) -> None:
    together = train(splits, LAMBDAS, [4, 4, 4], **options)
    for k, weight in enumerate(LAMBDAS):
        assert_equal_member(together, k, train(splits, (weight,), [4], **options))


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_members_with_their_own_split_and_mask_equal_single_runs(options: dict[str, object]) -> None:
    table = synthetic(rows=300, seed=1)
    own = [split(table, Missingness((0.2 + 0.2 * k, 0.3)), seed=k) for k in range(3)]
    stacked = Splits(
        Observed.stack([each.train for each in own]),
        Observed.stack([each.validation for each in own]),
        own[0].test,
    )
    together = train(stacked, LAMBDAS, [5, 6, 7], **options)
    for k, weight in enumerate(LAMBDAS):
        assert_equal_member(together, k, train(own[k], (weight,), [5 + k], **options))


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_equal_weights_and_seeds_give_equal_members(splits: Splits, options: dict[str, object]) -> None:
    fitted = train(splits, (0.4, 0.0, 0.4), [4, 4, 4], **options)
    for states in (fitted.program.state(), fitted.chosen):
        for name, value in states.items():
            # Sums within batched products may round otherwise in the last bits.
            torch.testing.assert_close(value[0], value[2], rtol=0, atol=1e-12, msg=name)
    classifier = fitted.program.state()["guide.encoder.classifier/weight"]
    assert not torch.equal(classifier[0], classifier[1])
    other = train(splits, (0.4, 0.4), [4, 5], **options)
    assert not torch.allclose(
        other.program.state()["guide.sites.pi"][0], other.program.state()["guide.sites.pi"][1]
    )


def test_a_seed_fixes_a_fit_and_another_changes_it(splits: Splits, small: Settings, device: str) -> None:
    def run(seed: int) -> dict[str, torch.Tensor]:
        return fit(splits.train, splits.validation, (0.0, 1.0), small, seed, device).program.state()

    first, again, other = run(0), run(0), run(1)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["guide.sites.channel_a_0"], other["guide.sites.channel_a_0"])


def test_a_fit_leaves_the_callers_random_state_alone(splits: Splits, small: Settings) -> None:
    before = torch.random.get_rng_state()
    fit(splits.train, splits.validation, (0.0,), small)
    assert torch.equal(before, torch.random.get_rng_state())


def test_every_parameter_moves(splits: Splits, small: Settings) -> None:
    start: dict[str, torch.Tensor] = {}

    def keep(done: Progress) -> None:
        if done.epoch == 1:
            start.update({name: value.clone() for name, value in done.state()["parameters"].items()})

    ended = fit(splits.train, splits.validation, (0.5,), small, after_epoch=keep).program.state()
    still = [name for name, value in ended.items() if torch.equal(value, start[name])]
    assert still == [f"guide.encoder.trunk/0/{edge}" for edge in ("low", "width")]  # of numbers' pieces


def test_going_on_equals_an_unbroken_run(splits: Splits) -> None:
    settings = small_settings(epochs=4)
    saved: dict[str, Any] = {}

    def keep(done: Progress) -> None:
        if done.epoch == 2:
            saved.update(done.state())

    unbroken = fit(splits.train, splits.validation, (0.0, 1.0), settings, after_epoch=keep)
    resumed = fit(splits.train, splits.validation, (0.0, 1.0), settings, state=saved)
    assert all(
        torch.equal(value, resumed.program.state()[name]) for name, value in unbroken.program.state().items()
    )
    assert all(torch.equal(value, resumed.chosen[name]) for name, value in unbroken.chosen.items())
    assert unbroken.history == resumed.history


def test_truth_cannot_reach_training(splits: Splits, small: Settings) -> None:
    assert {field.name for field in dataclasses.fields(Observed)}.isdisjoint({"y", "a"})
    with pytest.raises(TypeError, match="hold no truth"):
        fit(splits.test, splits.validation, (0.0,), small)  # type: ignore[arg-type]


def test_clipping_scales_each_member_to_the_norm_and_drops_what_is_not_finite() -> None:
    first = torch.nn.Parameter(torch.zeros(3, 2))
    second = torch.nn.Parameter(torch.zeros(3, 1, 2))
    pyro.param("first", first)
    pyro.param("second", second)
    optimizer = MembersAdamW(lr=1e-3, sites_lr=1e-3, weight_decay=0.0, clip=1.0)
    first.grad = torch.tensor([[3.0, 0.0], [0.1, 0.2], [torch.inf, 1.0]])
    second.grad = torch.tensor([[[0.0, 4.0]], [[0.2, 0.0]], [[1.0, 1.0]]])
    optimizer([first, second])
    torch.testing.assert_close(first.grad, torch.tensor([[0.6, 0.0], [0.1, 0.2], [0.0, 0.0]]))
    torch.testing.assert_close(second.grad, torch.tensor([[[0.0, 0.8]], [[0.2, 0.0]], [[0.0, 0.0]]]))


@pytest.mark.parametrize("images", [False, True], ids=["table", "images"])
def test_rates_and_weight_decay_by_kind_of_parameter(splits: Splits, images: bool) -> None:
    """Shared sites have their own rate; norms and scales of images, and sites, do not decay."""
    table = splits.train
    if images:
        x = torch.randint(256, (60, 3 * 8 * 8), dtype=torch.uint8).float()
        table = replace(table, x=x, y_obs=table.y_obs[:60], a_obs=table.a_obs[:60], columns=Pixels(3, 8))
    settings = small_settings(lr=0.5, sites_lr=0.25, weight_decay=0.125, decoder_hidden=4)
    program = Program(table, settings, [0, 1])
    fair = FairELBO(table.rows, torch.ones(2), RiskLoss(settings.fairness))
    optimizer = MembersAdamW(
        0.5, 0.25, 0.125, 1.0, sites=program.site_parameters, undecayed=program.undecayed_parameters
    )
    MeasuredSVI(program.model, program.guide, optimizer, fair).step(table.batch(torch.arange(20)), 0.0)
    assert optimizer.optimizer is not None
    kinds = {
        id(parameter): (group["lr"], group["weight_decay"])
        for group in optimizer.optimizer.param_groups
        for parameter in group["params"]
    }
    norms = set(map(id, _norms(program.guide.encoder))) if images else set()
    for name, parameter in program.guide.named_parameters():
        if any(parameter is own for own in program.guide.sites.parameters()):
            expected = (0.25, 0.0)
        else:
            expected = (0.5, 0.0 if id(parameter) in norms else 0.125)
        assert kinds.pop(id(parameter)) == expected, name
    for name, parameter in program.model.named_parameters():
        spared = images and parameter is program.model.log_scale
        assert kinds.pop(id(parameter)) == (0.5, 0.0 if spared else 0.125), name
    assert not kinds
    assert bool(norms) == images


def _norms(encoder: Members) -> list[torch.Tensor]:
    """Parameters of the layers that normalise."""
    layers = [
        path for path, layer in encoder.skeletons.module.named_modules() if isinstance(layer, nn.GroupNorm)
    ]
    return [
        getattr(encoder, f"{path}.{kind}".replace(".", "/")) for path in layers for kind in ("weight", "bias")
    ]


def test_a_diverged_run_says_so(splits: Splits) -> None:
    pyro.enable_validation(False)  # as in training; Pyro's own checks would be first
    assert not issubclass(DivergedError, InputError)
    with pytest.raises(DivergedError, match=r"diverged: in epoch 1 .* λ = 0 .*Lower lr"):
        fit(splits.train, splits.validation, (0.0,), small_settings(lr=1e30))


@pytest.mark.parametrize(
    "option",
    [
        *({"likelihood": name} for name in LIKELIHOODS),
        *({"prevalence": name} for name in PREVALENCES),
        *({"imputer": name} for name in IMPUTERS),
        *({"risk": name} for name in RISKS),
        *({"risk_estimator": name} for name in ESTIMATORS),
        *({"labeller": name} for name in LABELLERS),
        {"thresholds": (0.4, 0.6)},
        {"pieces": 0},
        *({"relaxation": name} for name in RELAXATIONS),
        *({"risk_gradient": name, "imputer": "features"} for name in GRADIENTS),
        *({"sites": name} for name in GLOBAL_GUIDES),
        *({"prior_a": name, "prior_y": name} for name in PRIOR_PRESETS if name != "informed"),
        *({"objective": name} for name in OBJECTIVES),
    ],
    ids=str,
)
def test_smoke_every_registered_choice_trains(
    splits: Splits, small: Settings, option: dict[str, Any]
) -> None:
    fitted = fit(splits.train, splits.validation, (0.5,), small_settings(epochs=2, **option))
    assert fitted.history[-1]["x"] < fitted.history[0]["x"]


@pytest.mark.parametrize("thresholds", [(0.5,), (0.3,), (0.3, 0.7)])
def test_decisions_take_the_threshold_of_the_likeliest_group(
    splits: Splits, thresholds: tuple[float, ...]
) -> None:
    settings = small_settings(epochs=1, thresholds=thresholds, refine_decisions=0)
    fitted = fit(splits.train, splits.validation, (0.0, 1.0), settings)
    x = torch.from_numpy(splits.test.x)
    with torch.no_grad():
        group = fitted.program.guide.heads(x).group_logits.argmax(-1)
    tau = torch.tensor(thresholds).expand(2)[group]
    assert torch.equal(fitted.decide(x), (fitted.predict_proba(x)[..., 1] > tau).long())


def test_schedule_of_risk_and_kl() -> None:
    schedule = Schedule(risk_from=0.2, risk_full=0.4, kl_full=0.1)
    assert [schedule.risk(at) for at in (0.0, 0.2, 0.3, 0.4, 1.0)] == pytest.approx([0, 0, 0.5, 1, 1])
    assert [schedule.kl(at) for at in (0.0, 0.05, 0.1, 0.7)] == pytest.approx([0, 0.5, 1, 1])


def test_gradients_of_one_member_do_not_change_another(splits: Splits) -> None:
    """A member whose gradient is huge must not shrink another's step."""
    settings = small_settings(epochs=1, clip=0.5, risk_from=0.0, risk_full=0.0)
    both = fit(splits.train, splits.validation, (0.0, 1e4), settings, dtype=torch.float64)
    alone = fit(splits.train, splits.validation, (0.0,), settings, dtype=torch.float64)
    assert_equal_member(both, 0, alone)


@pytest.mark.parametrize("weights", [(-1.0,), (float("nan"),), (float("inf"),), ()])
def test_bad_weights_are_refused(splits: Splits, weights: tuple[float, ...]) -> None:
    with pytest.raises(InputError, match="λ"):
        fit(splits.train, splits.validation, weights)


def test_tables_that_do_not_fit_are_refused_before_training(splits: Splits) -> None:
    stacked = Observed.stack([splits.validation] * 2)
    with pytest.raises(InputError, match="validation must have the columns"):
        fit(splits.train, stacked, (0.0, 0.1, 0.2))
    unlabelled = replace(splits.train, y_obs=torch.full_like(splits.train.y_obs, 2))
    with pytest.raises(InputError, match="needs stated labels, but train states none"):
        fit(unlabelled, splits.validation, (1.0,), small_settings(labeller="propagation"))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"y_obs": torch.full((210,), 5)}, "y_obs must be a non-empty tensor of integers from 0 to 2"),
        ({"a_obs": torch.full((210,), -1)}, "a_obs must be a non-empty tensor of integers"),
        ({"a_obs": torch.full((210,), 0.5)}, "a_obs must be a non-empty tensor of integers"),
        ({"x": torch.full((210, 12), torch.nan)}, "x holds values that are not finite"),
    ],
)
def test_tables_with_impossible_values_are_refused(
    splits: Splits, change: dict[str, torch.Tensor], complaint: str
) -> None:
    with pytest.raises(InputError, match=complaint):
        replace(splits.train, **change)
