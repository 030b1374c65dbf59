"""Members that start as one, against members that are trained apart from the start."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pyro_fairvae.data import Missingness, Splits, split, synthetic
from pyro_fairvae.inference import training
from pyro_fairvae.inference.fit_result import Fit
from pyro_fairvae.inference.schedule import Schedule
from pyro_fairvae.inference.shared_start import SharedStart
from pyro_fairvae.inference.training import Progress, fit
from tests.support.small import small_settings

LAMBDAS = (0.0, 0.5, 2.0, 0.5)
# Where batched products and sums round as single ones do; networks as small as those of other tests do not.
SIZES = {"hidden": 128, "latent": 16, "decoder_hidden": 64, "pieces": 16, "batch": 256}
KINDS = [
    {},
    {"risk_estimator": "sampled", "labeller": "propagation"},
    {"sites": "map", "objective": "paper"},
]


@pytest.fixture(scope="module")
def parts() -> Splits:
    return split(synthetic(rows=800, seed=2), Missingness((0.2, 0.4)), 2)


def trained(parts: Splits, seeds: list[int], options: dict[str, Any], **more: Any) -> tuple[Fit, list[Any]]:
    """A fit, and the states after its epochs."""
    states = []

    def keep(done: Progress) -> None:
        state = done.state()
        assert done.rows == state["history"][-len(LAMBDAS) :]
        states.append(state)

    settings = small_settings(epochs=6, risk_from=0.5, risk_full=0.7, **SIZES, **options)
    return fit(parts.train, parts.validation, LAMBDAS, settings, seeds, after_epoch=keep, **more), states


def assert_same(first: Any, second: Any, path: str = "") -> None:
    """Equal bit for bit, through dicts and lists."""
    assert type(first) is type(second), path
    if isinstance(first, torch.Tensor):
        assert torch.equal(first, second), path
    elif isinstance(first, dict):
        assert first.keys() == second.keys(), path
        for key, value in first.items():
            assert_same(value, second[key], f"{path}/{key}")
    elif isinstance(first, list):
        assert len(first) == len(second), path
        for k, (one, other) in enumerate(zip(first, second, strict=True)):
            assert_same(one, other, f"{path}/{k}")
    else:
        assert first == second, path


@pytest.mark.parametrize("options", KINDS, ids=str)
@pytest.mark.parametrize("seeds", [[4, 4, 4, 4], [4, 7, 4, 7]], ids=str)
def test_what_members_trained_apart_have(
    parts: Splits, seeds: list[int], options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit: parameters, the optimizer, the risk's memory and the history, after every epoch."""
    sizes: list[int] = []
    steps = training._Run._train_epoch

    def counted(self: training._Run) -> Any:
        sizes.append(len(self.seeds))
        return steps(self)

    monkeypatch.setattr(training._Run, "_train_epoch", counted)
    together, states = trained(parts, seeds, options)
    assert sizes == [2] * 3 + [4] * 3
    monkeypatch.setattr(SharedStart, "of", lambda *_: SharedStart(0, (), ()))
    apart, own_states = trained(parts, seeds, options)
    assert sizes[6:] == [4] * 6
    assert_same(states, own_states)
    assert_same(together.program.state(), apart.program.state())
    assert_same(together.chosen, apart.chosen)
    assert together.history == apart.history


@pytest.mark.parametrize("done", [2, 3, 4])
def test_resumed_from_any_epoch(parts: Splits, done: int) -> None:
    unbroken, states = trained(parts, [4, 7, 4, 7], {})
    resumed, rest = trained(parts, [4, 7, 4, 7], {}, state=states[done - 1])
    assert_same(states[done:], rest)
    assert_same(unbroken.program.state(), resumed.program.state())
    assert unbroken.history == resumed.history


@pytest.mark.parametrize(
    ("seeds", "risk_from", "epochs"),
    [
        ([1, 1, 1], 0.2, 6),
        ([1, 2], 0.2, 0),
        ([1, 1], 0.2, 0),
        ([5], 0.2, 0),
        ([1, 1, 1], 0.0, 0),
        ([1, 1, 1], 1.0, 29),
        ([1, 2, 1], 0.21, 6),
    ],
)
def test_how_long_members_are_equal(seeds: list[int], risk_from: float, epochs: int) -> None:
    schedule = Schedule(risk_from=risk_from, risk_full=1.0)
    found = SharedStart.of(seeds, 30, schedule)
    assert found.epochs == epochs
    # λ is 0 in every step of these epochs, and not in the next.
    assert all(schedule.risk((epoch + 1) / 30) == 0 for epoch in range(epochs))
    assert [seeds[found.first[place]] for place in found.place] == seeds
