"""Two processes beside one: the same parameters, posteriors and decisions, however the work is divided."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from pyro_fairvae.base import devices, ranks
from pyro_fairvae.base.devices import device_of_rank
from pyro_fairvae.base.errors import DivergedError, InputError
from pyro_fairvae.base.ranks import ALONE, Ranks
from pyro_fairvae.data import Missingness, split, synthetic
from pyro_fairvae.inference.divided_members import state_of_all, state_of_own
from pyro_fairvae.inference.fit_result import Fit
from pyro_fairvae.inference.settling import fit_to_targets
from pyro_fairvae.inference.training import Progress, fit, skip_validation
from pyro_fairvae.posterior.calibration import calibrate_fit
from pyro_fairvae.risks import custom
from pyro_fairvae.schema.image_rows import PixelRows, Pixels
from pyro_fairvae.schema.observed import Imputation, Observed
from tests.support.numbers import number_table
from tests.support.processes import on_ranks
from tests.support.small import small_settings

HERE = "tests.inference.test_several_processes"
LAMBDAS = (0.0, 0.5, 2.0)
STEPS = {"epochs": 2, "batch": 33, "risk_from": 0.25, "risk_full": 0.5, "hidden": 16}  # 5 steps in an epoch
# What is divided, and what a case is about: options, or the λ of its members.
CASES: dict[str, dict[str, Any]] = {
    "members": {"sharding": "members", "epochs": 4},
    "rows": {"sharding": "rows", "epochs": 4},
    "members with critics": {"sharding": "members", "risk": "mine", "lambdas": (0.0, 0.0, 1.0)},
    "members, rows of their own": {"sharding": "members"},
    "rows of their own": {"sharding": "rows"},
    "some rows of the ELBO": {"sharding": "rows", "elbo_share": 0.3, "elbo_weight": 0.5},
    "sampled": {"sharding": "rows", "risk_estimator": "sampled", "memory": 0.2},
    "vanilla": {"sharding": "rows", "risk_gradient": "vanilla", "imputer": "features",
                "risk_estimator": "sampled"},
    "critics": {"sharding": "rows", "risk": "infonce", "withholding_depends_on": "label"},
    "propagation": {"sharding": "rows", "labeller": "propagation"},
    "custom": {"sharding": "rows", "risk": "gap_of_means", "risk_estimator": "sampled"},
    "images": {"sharding": "rows", "trunk": "cnn"},
    "imputed": {"sharding": "rows"},
    "number": {"sharding": "rows", "risk": "mean_gap"},
}  # fmt: skip


def gap_of_means(p: Tensor, y: Tensor, a: Tensor) -> Tensor:
    """A risk that is no function of cell sums: of squares of means."""
    means = [(p[..., -1] * (a == g)).sum(-1) / (a == g).sum(-1).clamp(min=1) for g in (0, 1)]
    return (means[0] - means[1]).square()


def tables(case: str) -> tuple[Observed, Observed]:
    """Training and validation rows."""
    parts = [split(synthetic(rows=240, seed=seed), Missingness((0.2, 0.4)), 2) for seed in (2, 3, 4)]
    train, validation = parts[0].train, parts[0].validation
    if "of their own" in case:
        return Observed.stack([of.train for of in parts]), Observed.stack([of.validation for of in parts])
    if case == "number":
        table = number_table(240, levels=5).observed
        return table.take(torch.arange(160)), table.take(torch.arange(160, 240))
    if case == "images":
        stored = torch.randint(256, (240, 3 * 64), generator=torch.Generator().manual_seed(0))
        rows = PixelRows(stored.to(torch.uint8), torch.arange(240), dtype=torch.float64)
        first, more = torch.arange(train.rows), torch.arange(100, 100 + validation.rows)
        columns = Pixels(3, 8)
        return (
            replace(train, x=rows.take(first), columns=columns),
            replace(validation, x=rows.take(more), columns=columns),
        )
    return train, validation


def fitted(case: str, state: dict[str, Any] | None = None) -> tuple[Fit, list[Any]]:
    """A fit, and the states after its epochs."""
    if "gap_of_means" not in custom.CUSTOM:
        custom.register("gap_of_means", gap_of_means)
    given = {name: value for name, value in CASES[case].items() if name not in ("sharding", "lambdas")}
    train, validation = tables(case)
    states: list[Any] = []

    def keep(done: Progress) -> None:
        states.append(done.state())
        assert [(row["member"], row["epoch"]) for row in done.rows] == [(k, done.epoch) for k in range(3)]

    imputation = None
    if case == "imputed":
        joint = torch.rand(train.rows, 2, 2, generator=torch.Generator().manual_seed(1)) + 0.1
        joint = joint / joint.sum((1, 2), keepdim=True)
        imputation = Imputation(joint, joint.sum(-1))
    lambdas = CASES[case].get("lambdas", LAMBDAS)
    found = fit(
        train, validation, lambdas, small_settings(**(STEPS | given)), 7, dtype=torch.float64,
        after_epoch=keep, state=state, imputation=imputation,
    )  # fmt: skip
    return found, states


def content(found: Fit) -> dict[str, Any]:
    return {
        "program": found.program.state(), "chosen": found.chosen, "epochs": found.chosen_epoch,
        "adjustment": found.adjustment, "history": found.history, "lambdas": found.lambdas,
    }  # fmt: skip


def settled() -> dict[str, Any]:
    """Decisions settled to targets, by networks of folds; computed in single precision."""
    train, validation = tables("targets")
    fold = torch.arange(train.rows) % 2
    return content(fit_to_targets(train, validation, (0.1, 0.3), fold, small_settings(**STEPS), 7))


def calibrated(whole: Fit) -> dict[str, Any]:
    train, _ = tables("rows")
    found = calibrate_fit(whole, train.to("cpu", torch.float64), [3])
    return {name: [torch.from_numpy(row) for row in of.draws.rows] for name, of in found.items()}


def all_cases(processes: Ranks) -> dict[str, Any]:
    """What every case finds on these ranks."""
    found: dict[str, Any] = {}
    for case, given in CASES.items():
        with dividing(processes, given["sharding"]):
            whole, states = fitted(case)
            found[case] = content(whole)
            if given.get("epochs") == 4:
                found[f"states of {case}"] = states
                found[f"{case}, resumed"] = content(fitted(case, states[1])[0])
                found[f"settled, {case} divided"] = settled()
            if case == "rows":
                found["calibrated"] = calibrated(whole)
    return found


def on_two(processes: Ranks) -> dict[str, Any]:
    """What every case finds, and what is refused."""
    skip_validation()
    return all_cases(processes) | {"refused": refused(processes)}


def refused(processes: Ranks) -> dict[str, str]:
    """Messages of errors that all ranks raise; rank 1 is the one to blame."""
    first = processes.is_first
    train, validation = tables("rows")
    other = replace(train, a_obs=train.a_obs.flip(0))

    def fail(error: Exception) -> Callable[[], None]:
        def raising() -> None:
            if not first:
                raise error

        return raising

    def on_gpus() -> None:
        devices.ACCELERATORS["cuda"] = lambda: int(first)
        device_of_rank("cuda", processes)

    def on_some_gpus() -> None:
        device_of_rank("auto", processes)

    small = small_settings(**STEPS)
    tried: dict[str, Callable[[], Any]] = {
        "other rows": lambda: fit(train if first else other, validation, LAMBDAS, small),
        "other seeds": lambda: fit(train, validation, LAMBDAS, small, processes.rank),
        "few rows": lambda: fit(train, validation, settings=small_settings(**(STEPS | {"batch": 1}))),
        "no GPU": on_gpus,
        "a GPU for some": on_some_gpus,
        "one GPU": lambda: device_of_rank("cuda:0", processes),
        "an error of one": lambda: processes.everywhere(fail(DivergedError("lost"))),
        "an error of the first": lambda: processes.from_first(lambda: tables("rows")[2]),  # type: ignore[misc]
    }
    messages = {}
    for name, call in tried.items():
        try:
            call()
        except Exception as error:
            messages[name] = f"{type(error).__name__}: {error}"
    return messages


@contextmanager
def dividing(processes: Ranks, what: str) -> Iterator[None]:
    """The ranks divide members, or rows, inside of the ``with`` block."""
    before, ranks._current = ranks._current, replace(processes, sharding=what)
    try:
        yield
    finally:
        ranks._current = before


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return on_ranks(f"{HERE}:on_two", 2, tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="module")
def one() -> dict[str, Any]:
    skip_validation()
    return all_cases(ALONE)


def assert_close(found: Any, expected: Any, within: float, path: str = "") -> None:
    """Numbers that differ by at most so much, through dicts and lists."""
    assert type(found) is type(expected), path
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), path
        for name, value in expected.items():
            assert_close(found[name], value, within, f"{path}/{name}")
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected), path
        for k, value in enumerate(expected):
            assert_close(found[k], value, within, f"{path}/{k}")
    elif isinstance(expected, Tensor):
        torch.testing.assert_close(found, expected, rtol=0, atol=within, msg=lambda words: f"{path} {words}")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, abs=within), path
    else:
        assert found == expected, path


MORE = [f"{case}, resumed" for case in ("members", "rows")] + [f"states of {c}" for c in ("members", "rows")]


@pytest.mark.parametrize("case", [*CASES, *MORE, "calibrated"])
def test_two_processes_find_what_one_finds(case: str, one: dict[str, Any], two: list[dict[str, Any]]) -> None:
    for of_rank in two:
        assert_close(of_rank[case], one[case], 1e-8)
    assert_close(two[1][case], two[0][case], 0)  # all ranks are one


@pytest.mark.parametrize("name", ["settled, members divided", "settled, rows divided"])
def test_decisions_are_settled_to_targets_by_two_as_by_one(
    name: str, one: dict[str, Any], two: list[dict[str, Any]]
) -> None:
    assert_close(two[0][name], one[name], 1e-3)
    assert_close(two[1][name], two[0][name], 0)


@pytest.mark.parametrize("case", ["members", "rows"])
def test_training_goes_on_with_another_number_of_processes(
    case: str, one: dict[str, Any], two: list[dict[str, Any]]
) -> None:
    """From the state of two, in one; the cases above went on from states of as many as before."""
    resumed, _ = fitted(case, two[0][f"states of {case}"][1])
    assert_close(content(resumed), one[case], 1e-8)


def test_what_one_case_finds_another_does_not(one: dict[str, Any]) -> None:
    """The cases above differ in what they compute; else they would say less than they seem to."""
    found = [
        one[case]["program"]["guide.encoder.group/weight"]
        for case in CASES
        if case not in ("images", "number")
    ]
    for k, weight in enumerate(found):
        same = [other for other in found[:k] if torch.equal(other, weight)]
        assert len(same) <= 1  # of members and rows divided
    assert float((found[0] - found[2]).abs().max()) > 1e-4


def test_errors_are_those_of_all_and_name_the_rank(two: list[dict[str, Any]]) -> None:
    messages = two[0]["refused"]
    assert two[1]["refused"] == messages
    for name in ("other rows", "other seeds"):
        assert messages[name].startswith("InputError: rank 1 of 2 has other rows or options than rank 0: ")
    assert "1 row in a step cannot be divided between 2 processes" in messages["few rows"]
    assert messages["no GPU"].startswith("InputError: rank 1 of 2: device 'cuda:1' was requested") or (
        messages["no GPU"].startswith("InputError: rank 1 of 2: device 'cuda' was requested")
    )
    assert messages["a GPU for some"].startswith(
        "InputError: rank 0 of 2 would compute on cuda, but rank 1 on cpu"
    )
    assert "would be that of all 2 processes" in messages["one GPU"]
    assert messages["an error of one"] == "DivergedError: rank 1 of 2: lost"
    assert messages["an error of the first"].startswith("IndexError")


def test_a_state_is_divided_and_put_together(one: dict[str, Any]) -> None:
    state = one["states of members"][-1]
    parts = [state_of_own(state, range(2)), state_of_own(state, range(2, 3))]
    assert [len(part["best"]) for part in parts] == [2, 1]
    assert_close(state_of_all(parts), state, 0)


def test_blocks_and_parts_are_all_there_is() -> None:
    for count in (1, 2, 3, 5):
        all_ranks = [Ranks(rank, count) for rank in range(count)]
        for total in (5, 6, 11):
            assert [k for of in all_ranks for k in of.block(total)] == list(range(total))
            rows = torch.arange(total)
            parts = [of.part(rows) for of in all_ranks]
            assert [len(part) for part in parts] == [of.size(total) for of in all_ranks]
            assert torch.equal(torch.cat(parts).sort().values, rows)
            for first in range(1, total):  # the part of the first rows are the first rows of the part
                for of, part in zip(all_ranks, parts, strict=True):
                    assert torch.equal(of.part(rows[:first]), part[: of.size(first)])


def test_which_is_divided() -> None:
    assert not ALONE.shares_members(8)
    assert Ranks(0, 2).shares_members(2)
    assert not Ranks(0, 3).shares_members(2)
    assert not Ranks(0, 2, "rows").shares_members(2)
    with pytest.raises(InputError, match="1 member cannot be divided between 2 processes: start at most 1"):
        Ranks(0, 2, "members").shares_members(1)
