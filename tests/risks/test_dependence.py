"""Risks of dependence against exact mutual information, closed forms of normal numbers, and brute force."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import entropy
from torch import Tensor
from torch.nn import functional

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.risks.critics import Critics, CriticSettings
from pyro_fairvae.risks.dependence import (
    DEPENDENCE,
    Joint,
    Pairs,
    Rows,
    density,
    view_of_rows,
)

CRITICISED = [name for name, risk in DEPENDENCE.items() if risk.criticised]


def normal_pairs(rho: float, rows: int, seed: int, members: int = 1) -> tuple[Tensor, Tensor]:
    """Numbers with the correlation ρ, (members, rows) each."""
    generator = torch.Generator().manual_seed(seed)
    a, noise = torch.randn(2, members, rows, generator=generator, dtype=torch.float64)
    return rho * a + math.sqrt(1 - rho**2) * noise, a


def people(rows: int = 300, classes: int = 3, groups: int = 4, members: int = 2) -> tuple[Tensor, Tensor]:
    """P_f, (members, rows, classes), that depends on P(y, a|row), (members, rows, 2, groups)."""
    generator = torch.Generator().manual_seed(1)
    joint = torch.rand(members, rows, 2 * groups, generator=generator, dtype=torch.float64)
    joint = (joint * 9).softmax(-1).view(members, rows, 2, groups)
    mixing = torch.randn(members, 2 * groups, classes, generator=generator, dtype=torch.float64)
    return (4 * joint.flatten(-2) @ mixing).softmax(-1), joint


def exact_information(p: Tensor, joint: Tensor, given_label: bool) -> float:
    """Σ_y P(y) [H(ŷ|y) + H(a|y) − H(ŷ, a|y)] of one member, by scipy."""
    table = np.einsum("rc,rya->yca", p.numpy(), joint.numpy())
    tables = table if given_label else table.sum(0, keepdims=True)
    return float(
        sum(
            part.sum() * (entropy(part.sum(0)) + entropy(part.sum(1)) - entropy(part.ravel()))
            for part in tables
        )
        / tables.sum()
    )


def trained(name: str, view: Any, steps: int, seeds: tuple[int, ...] = (0,), **options: Any) -> Critics:
    critics = Critics(DEPENDENCE[name], view, CriticSettings(critic_steps=steps, **options), seeds)
    critics.learn(view)
    return critics


@pytest.mark.parametrize("name", CRITICISED)
@pytest.mark.parametrize("bound", ["printed", "donsker_varadhan"])
def test_critics_of_classes_meet_the_exact_mutual_information(name: str, bound: str) -> None:
    p, joint = people()
    risk = DEPENDENCE[name]
    view = view_of_rows(Rows(probabilities=p, groups=joint), risk.given_label)
    found = trained(name, view, 1000, (0, 1), critic_bound=bound)(view)
    exact = [exact_information(*member, risk.given_label) for member in zip(p, joint, strict=True)]
    assert min(exact) > 0.02
    np.testing.assert_allclose(found, exact, atol=2e-3)
    assert (found.numpy() <= np.array(exact) + 1e-9).all()  # lower bounds
    np.testing.assert_allclose(risk.of_view(view), exact, rtol=1e-6)  # the supremum in closed form


@pytest.mark.parametrize(("rho", "names"), [(0.0, ["mine"]), (0.6, ["mine", "infonce"])])
def test_critics_of_numbers_come_near_the_closed_form(rho: float, names: list[str]) -> None:
    """On new rows, so that critics that remember their rows would fail."""
    decided, a = normal_pairs(rho, 2000, seed=1)
    fresh, fresh_a = normal_pairs(rho, 4000, seed=2)
    view = view_of_rows(Rows(decided=decided, sensitive=a), False)
    other = view_of_rows(Rows(decided=fresh, sensitive=fresh_a), False)
    for name in names:
        found = float(trained(name, view, 60)(other))
        assert found == pytest.approx(-0.5 * math.log(1 - rho**2), abs=0.04)


@pytest.mark.parametrize("name", ["mine", "infonce"])
def test_bounds_of_pairs_are_those_over_all_pairs_where_all_fit(name: str) -> None:
    """Twelve rows are few enough that each is paired with all others; P(y|row) is soft."""
    decided, a = normal_pairs(0.5, 12, seed=3, members=2)
    labels = torch.rand(2, 12, 3, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    labels = labels / labels.sum(-1, keepdim=True)
    view = view_of_rows(Rows(decided=decided, sensitive=a, labels=labels), True)
    assert isinstance(view, Pairs)
    critics = trained(name, view, 5, (0, 1))
    one_hot = torch.eye(3, dtype=torch.float64)
    for k in range(2):
        state = {
            key.replace("/", "."): value[k : k + 1] for key, value in critics.networks.state_dict().items()
        }

        def t(i: int, j: int, y: int, state: dict[str, Tensor] = state, k: int = k) -> float:
            hidden = functional.elu(
                view.decided[k, i] * state["of_first.weight"][0, :, 0]
                + state["of_first.bias"][0]
                + view.sensitive[k, j] * state["of_second.weight"][0, :, 0]
                + state["of_label.weight"][0] @ one_hot[y]
            )
            inner = functional.elu(state["inner.weight"][0] @ hidden + state["inner.bias"][0])
            raw = state["out.weight"][0, 0] @ inner + state["out.bias"][0, 0]
            return float(12 * torch.tanh(raw / 12))

        total = 0.0
        w = labels[k].numpy()
        for y in range(3):
            share = w[:, y].sum() / w.sum()
            joint_mean = sum(w[i, y] * t(i, i, y) for i in range(12)) / w[:, y].sum()
            if name == "mine":
                pairs = [(i, j) for i in range(12) for j in range(12) if i != j]
                mass = sum(w[i, y] * w[j, y] for i, j in pairs)
                mean = sum(w[i, y] * w[j, y] * math.exp(t(i, j, y)) for i, j in pairs) / mass
                total += share * (joint_mean - (mean - 1))
            else:
                contrast = sum(
                    w[i, y] * math.log(sum(w[j, y] * math.exp(t(i, j, y)) for j in range(12)) / w[:, y].sum())
                    for i in range(12)
                )
                total += share * (joint_mean - contrast / w[:, y].sum())
        assert float(critics(view)[k]) == pytest.approx(total, rel=1e-6)


def rows_of(form: str, p: Tensor, decided: Tensor, joint: Tensor, a: Tensor) -> Rows:
    return {
        "classes, groups": Rows(probabilities=p, groups=joint),
        "classes by group, groups": Rows(
            probabilities=p.unsqueeze(2) * torch.linspace(0.5, 1, 4, dtype=p.dtype).view(1, 1, 4, 1),
            groups=joint,
        ),
        "classes, levels": Rows(
            probabilities=p, groups=joint, centres=torch.tensor([1.0, 2.0, 4.0, 9.0], dtype=p.dtype)
        ),
        "numbers, groups": Rows(decided=decided, groups=joint),
        "classes, numbers": Rows(probabilities=p, sensitive=a, labels=joint.sum(-1)),
        "numbers, numbers": Rows(decided=decided, sensitive=a, labels=joint.sum(-1)),
    }[form]


FORMS = [
    "classes, groups", "classes by group, groups", "classes, levels", "numbers, groups", "classes, numbers",
    "numbers, numbers",
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", list(DEPENDENCE))
def test_gradients_are_those_of_finite_differences_and_reach_decisions_only(name: str, form: str) -> None:
    p, joint = people(rows=9)
    decided, a = normal_pairs(0.5, 9, seed=5, members=2)
    risk = DEPENDENCE[name]

    def view(logits: Tensor, numbers: Tensor) -> Any:
        return view_of_rows(rows_of(form, logits.softmax(-1), numbers, joint, a), risk.given_label)

    logits, numbers = p.log().requires_grad_(), decided.clone().requires_grad_()
    if risk.criticised:
        critics = trained(name, view(logits, numbers), 30, (0, 1))
        before = {key: value.clone() for key, value in critics.networks.state_dict().items()}
        risk = risk.with_critics(critics)
        assert (logits.grad, numbers.grad) == (None, None)  # a critic's step leaves decisions alone
    assert torch.autograd.gradcheck(
        lambda logits, numbers: risk.of_view(view(logits, numbers)), (logits, numbers)
    )
    if risk.criticised:
        risk.of_view(view(logits, numbers)).sum().backward()
        for key, value in critics.networks.named_parameters():
            assert value.grad is None
            torch.testing.assert_close(value, before[key], rtol=0, atol=0)


def test_a_step_of_critics_reaches_critics_only_and_raises_their_bound() -> None:
    p, joint = people()
    logits = p.log().requires_grad_()
    view = view_of_rows(Rows(probabilities=logits.softmax(-1), groups=joint), False)
    critics = Critics(DEPENDENCE["mine"], view, CriticSettings(critic_steps=20), (0, 1))
    torch.testing.assert_close(critics(view), torch.zeros(2, dtype=torch.float64))
    critics.learn(view)
    assert logits.grad is None
    assert (critics(view) > 0).all()
    assert not any(parameter.requires_grad for parameter in critics.networks.parameters())


@pytest.mark.parametrize("form", ["classes, groups", "numbers, numbers"])
def test_a_member_does_not_depend_on_the_others(form: str) -> None:
    p, joint = people()
    decided, a = normal_pairs(0.5, 300, seed=6, members=2)
    whole = view_of_rows(rows_of(form, p, decided, joint, a), False)
    alone = view_of_rows(rows_of(form, p[1:], decided[1:], joint[1:], a[1:]), False)
    both, one = trained("mine", whole, 20, (3, 7)), trained("mine", alone, 20, (7,))
    torch.testing.assert_close(both(whole)[1:], one(alone))


def test_critics_go_on_from_their_state_bit_for_bit() -> None:
    p, joint = people()
    view = view_of_rows(Rows(probabilities=p, groups=joint), True)
    first = trained("infonce_given_label", view, 7, (0, 1))
    state = {
        name: {key: (value.clone() if isinstance(value, Tensor) else value) for key, value in part.items()}
        for name, part in first.state().items()
        if name == "networks"
    } | {"optimizer": torch.utils._pytree.tree_map(_copied, first.state()["optimizer"])}
    first.learn(view)
    second = Critics(DEPENDENCE["infonce_given_label"], view, CriticSettings(critic_steps=7), (5, 6))
    second.load_state(state)
    second.learn(view)
    torch.testing.assert_close(first(view), second(view), rtol=0, atol=0)


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


def test_the_global_generator_is_left_alone() -> None:
    decided, a = normal_pairs(0.5, 50, seed=0)
    view = view_of_rows(Rows(decided=decided, sensitive=a), False)
    before = torch.get_rng_state()
    trained("mine", view, 2)
    assert torch.equal(before, torch.get_rng_state())


def test_maximal_correlation_of_numbers_is_that_of_smoothed_normal_ones() -> None:
    """The kernel adds n^(−1/3) to both variances; HGR of normal numbers is their correlation."""
    rows = 20_000
    decided, a = normal_pairs(0.6, rows, seed=0)
    found = float(DEPENDENCE["hgr"].of_rows(Rows(decided=decided, sensitive=a)))
    assert found == pytest.approx(0.6 / (1 + rows ** (-1 / 3)), abs=0.02)


def test_maximal_correlation_sees_what_correlation_does_not() -> None:
    a = torch.linspace(-1, 1, 2000, dtype=torch.float64).expand(1, -1)
    found = DEPENDENCE["hgr"].of_rows(Rows(decided=a.square(), sensitive=a))
    assert abs(np.corrcoef(a[0], a[0].square())[0, 1]) < 1e-9
    assert float(found) > 0.8  # 1 but for the kernel


def test_weights_of_a_density_are_those_of_its_kernel() -> None:
    numbers = torch.tensor([[-1.0, 0.3, 2.0]], dtype=torch.float64)
    places = np.linspace(-4, 4, 32)
    kernel = np.exp(-(((numbers.numpy()[0][:, None] - places) / 3 ** (-1 / 6)) ** 2) / 2)
    np.testing.assert_allclose(density(numbers)[0], kernel / kernel.sum(1, keepdims=True))


def test_infonce_over_all_categories_has_no_cap() -> None:
    """Decisions that tell one of 40 groups have log 40 nats; 16 contrasts alone would end at log 17."""
    told = torch.eye(40, dtype=torch.float64).repeat(5, 1).unsqueeze(0)
    view = view_of_rows(Rows(probabilities=told, groups=told.unsqueeze(-2)), False)
    assert isinstance(view, Joint)
    assert float(trained("infonce", view, 400)(view)) == pytest.approx(math.log(40), abs=0.05)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"sensitive": torch.zeros(1, 4)}, "decisions are either"),
        ({"decided": torch.zeros(1, 4)}, "what is sensitive is either"),
    ],
)
def test_rows_need_one_form_of_each(given: dict[str, Tensor], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        Rows(**given)


def test_numbers_need_critics_and_thresholds_by_group_need_groups() -> None:
    decided, a = normal_pairs(0.5, 20, seed=0)
    with pytest.raises(InputError, match="'mine' of numbers needs critics"):
        DEPENDENCE["mine"].of_rows(Rows(decided=decided, sensitive=a))
    with pytest.raises(InputError, match="probabilities by group"):
        view_of_rows(Rows(probabilities=torch.ones(1, 20, 2, 2), sensitive=a), False)
    with pytest.raises(InputError, match="about decisions of all classes"):
        DEPENDENCE["mine"].over((1,))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"critic_rate": 0.0}, "critic_rate must be positive"),
        ({"critic_steps": 0}, "critic_steps must be at least 1"),
        ({"critic_hidden": -1}, "critic_hidden must not be negative"),
        ({"critic_bound": "dv"}, "unknown critic_bound 'dv'"),
    ],
)
def test_settings_of_critics_are_checked(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        CriticSettings(**options)
