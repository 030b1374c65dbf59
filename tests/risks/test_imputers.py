"""Imputed groups and labels: what is stated is kept, and sums over cells come out right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.semi_supervised import LabelPropagation
from torch import Tensor

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.data import Splits
from pyro_fairvae.inference.objective import FairELBO, beliefs, by_propagation
from pyro_fairvae.inference.program import Program
from pyro_fairvae.inference.training import fit
from pyro_fairvae.risks import IMPUTERS, Beliefs, RiskLoss, impute, propagate_labels
from pyro_fairvae.risks import label_propagation as field_module
from pyro_fairvae.risks.label_propagation import similarity_graph
from tests.support.small import small_settings


def some_beliefs() -> Beliefs:
    """Two rows: ỹ = 0 and ã = ∅, then ỹ = ∅ and ã = 1; P(∅|a) is .4 for both groups."""
    return Beliefs(
        label=torch.tensor([[[0.0, -torch.inf], [-0.7, -0.7]]]),
        group=torch.tensor([[[-1.0, -0.5], [-torch.inf, 0.0]]]),
        grouper=torch.tensor([[[[-3.0, -0.1], [-0.1, -3.0]], [[-1.0, -1.0], [-1.0, -1.0]]]]).log_softmax(-1),
        group_channel=torch.tensor([[[0.4, 0.4], [0.0, 0.6]]]).log(),
        classified=torch.zeros(1, 2, 2),
        group_stated=torch.tensor([False, True]),
    )


@pytest.mark.parametrize("imputer", sorted(IMPUTERS.keys() - {"control_variate"}))
def test_imputation_clamps_what_was_stated(imputer: str) -> None:
    imputed = impute(some_beliefs(), imputer)
    assert torch.equal(imputed[0, 1].sum(0), torch.tensor([0.0, 1.0]))
    if imputer == "stated":
        assert not imputed[0, 0].any()
        return
    assert torch.equal(imputed[0, 0].sum(-1), torch.tensor([1.0, 0.0]))
    torch.testing.assert_close(imputed.sum((-1, -2)), torch.ones(1, 2))


def test_imputers_differ_where_they_should() -> None:
    held = some_beliefs()
    torch.testing.assert_close(impute(held, "features")[0, 0, 0], torch.tensor([-1.0, -0.5]).softmax(-1))
    torch.testing.assert_close(impute(held, "outcome")[0, 0, 0], torch.tensor([-3.0, -0.1]).softmax(-1))
    assert torch.equal(impute(held, "rounded")[0, 0, 0], torch.tensor([0.0, 1.0]))


def withheld_rows(rows: int, guess: Callable[[Tensor], Tensor]) -> tuple[Beliefs, Tensor, Tensor]:
    """Rows of class 0 whose group is withheld at rates .8 and .4, their score, and one-hot true groups.

    What is believed of groups is ``guess`` of the true P(a=1|score).
    """
    generator = torch.Generator().manual_seed(0)
    score = torch.rand(rows, generator=generator, dtype=torch.float64)
    chance = 0.2 + 0.6 * score
    a = (torch.rand(rows, generator=generator, dtype=torch.float64) < chance).long()
    withheld = torch.rand(rows, generator=generator) < torch.tensor([0.8, 0.4])[a]
    own = torch.eye(2, dtype=torch.float64)[a]
    rates = torch.tensor([0.8, 0.4], dtype=torch.float64)
    channel = torch.where(withheld.unsqueeze(-1), rates, own * (1 - rates))
    guessed = torch.stack([1 - guess(chance), guess(chance)], dim=-1)
    held = Beliefs(
        label=torch.tensor([[0.0, -torch.inf]], dtype=torch.float64).expand(rows, 2).unsqueeze(0),
        group=(guessed.log() + channel.log()).unsqueeze(0),
        grouper=guessed.log().unsqueeze(-2).expand(rows, 2, 2).unsqueeze(0),
        group_channel=channel.log().unsqueeze(0),
        classified=torch.zeros(1, rows, 2),
        group_stated=~withheld,
    )
    return held, score, own


@pytest.mark.parametrize(
    ("imputer", "guess", "right"),
    [
        ("control_variate", lambda chance: chance, True),
        (
            "control_variate",
            lambda chance: torch.full_like(chance, 0.9),
            True,
        ),  # a bad guess costs no validity
        ("outcome", lambda chance: chance, True),
        ("outcome", lambda chance: torch.full_like(chance, 0.9), False),
    ],
)
def test_cell_sums_are_those_of_the_truth(
    imputer: str, guess: Callable[[Tensor], Tensor], right: bool
) -> None:
    """The mass of each group and its mean score, of which a gap is made."""
    held, score, own = withheld_rows(400_000, guess)
    imputed = impute(held, imputer)[0, :, 0]

    def described(weight: Tensor) -> Tensor:
        return torch.cat([weight.mean(0), (weight * score.unsqueeze(-1)).sum(0) / weight.sum(0)])

    close = (described(imputed) - described(own)).abs() < 0.01
    assert bool(close.all()) == right


def test_a_stated_group_tells_of_a_hidden_label() -> None:
    """Exact beliefs where a and y are one and half the labels are hidden: cell masses are the true ones."""
    rows = 200_000
    generator = torch.Generator().manual_seed(0)
    a = torch.randint(2, (rows,), generator=generator)
    y = torch.where(torch.rand(rows, generator=generator) < 0.8, a, 1 - a)
    withheld = torch.rand(rows, generator=generator) < torch.tensor([0.8, 0.4])[a]
    unlabelled = torch.rand(rows, generator=generator) < 0.5
    rates = torch.tensor([0.8, 0.4])
    r = torch.tensor([[0.8, 0.2], [0.2, 0.8]])  # P(a | y)
    held = Beliefs(
        label=torch.where(unlabelled.unsqueeze(-1), torch.full((2,), 0.5), torch.eye(2)[y]).log()[None],
        group=torch.zeros(1, rows, 2),
        grouper=r.log().expand(1, rows, 2, 2),
        group_channel=torch.where(withheld.unsqueeze(-1), rates, torch.eye(2)[a] * (1 - rates)).log()[None],
        classified=torch.zeros(1, rows, 2),
        group_stated=~withheld,
    )
    for imputer in ("control_variate", "outcome"):
        mass = impute(held, imputer)[0].mean(0)
        torch.testing.assert_close(mass, torch.tensor([[0.4, 0.1], [0.1, 0.4]]), atol=0.01, rtol=0)


def dense_harmonic(graph: np.ndarray, y_obs: np.ndarray, prior: np.ndarray, chance: float) -> np.ndarray:
    """The harmonic function with dongles, by inverting Zhu's transition matrix densely."""
    known = y_obs < 2
    walk = graph / graph.sum(1, keepdims=True)
    told = np.eye(2)[y_obs[known]]
    right = (1 - chance) * walk[~known][:, known] @ told + chance * prior
    inside = np.eye((~known).sum()) - (1 - chance) * walk[~known][:, ~known]
    found = np.zeros((len(graph), 2))
    found[known], found[~known] = told, np.linalg.solve(inside, right)
    return found


def moons(rows: int = 200) -> tuple[Tensor, np.ndarray, Tensor]:
    """Two half circles, 10 % of their labels stated."""
    generator = np.random.default_rng(0)
    y = np.arange(rows) % 2
    angle = generator.uniform(0, np.pi, size=rows)
    x = np.stack([np.cos(angle) + y, np.where(y == 1, -1, 1) * np.sin(angle)], axis=1)
    x += generator.normal(scale=0.1, size=x.shape)
    y_obs = np.where(generator.random(rows) < 0.1, y, 2)
    return torch.from_numpy(x), y, torch.from_numpy(y_obs)


def test_field_is_the_harmonic_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a dense solve, and as η vanishes against scikit-learn's label propagation on the same graph."""
    x, y, y_obs = moons()
    graph = similarity_graph(x.float().numpy(), 10).toarray()
    stated = y_obs.numpy()
    prior = np.bincount(stated[stated < 2]) / (stated < 2).sum()
    found = propagate_labels(x, y_obs, classes=2).numpy()
    np.testing.assert_allclose(found, dense_harmonic(graph, stated, prior, field_module.RETURN), atol=1e-4)
    assert (found.argmax(1) == y)[stated == 2].mean() > 0.9

    monkeypatch.setattr(field_module, "RETURN", 1e-9)
    other = LabelPropagation(kernel=lambda a, b: graph, max_iter=100_000, tol=1e-9)
    other.fit(x.numpy(), np.where(stated == 2, -1, stated))
    np.testing.assert_allclose(
        propagate_labels(x, y_obs, classes=2).numpy(), other.label_distributions_, atol=1e-3
    )


def test_field_with_fewer_landmarks_than_rows_is_close(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, y_obs = moons(1000)
    monkeypatch.setattr(field_module, "LANDMARKS", 300)
    found = propagate_labels(x, y_obs, classes=2).numpy()
    assert (found.argmax(1) == y)[y_obs.numpy() == 2].mean() > 0.9
    graph = similarity_graph(x.float().numpy(), 10)
    landmarks = np.random.default_rng(0).permutation(1000)[:300]
    others = np.setdiff1d(np.arange(1000), landmarks)
    assert graph[others][:, others].nnz == 0  # only landmarks are neighbours
    assert graph[others][:, landmarks].nnz >= 10 * 700


def test_field_of_odd_tables() -> None:
    x = torch.zeros(5, 2)  # all rows alike
    found = propagate_labels(x, torch.tensor([0, 0, 1, 2, 2]), classes=2, neighbours=50)
    torch.testing.assert_close(found[3:, 1], torch.full((2,), 1 / 3, dtype=torch.float64))
    whole = propagate_labels(x, torch.tensor([0, 1, 1, 0, 0]), classes=2)
    assert torch.equal(whole.argmax(1), torch.tensor([0, 1, 1, 0, 0]))
    with pytest.raises(InputError, match="needs stated labels"):
        propagate_labels(x, torch.full((5,), 2), classes=2)


def test_field_is_told_how_often_labels_are_withheld(splits: Splits) -> None:
    """Bayes' rule by hand: the field knows P(y|x, stated), an ∅ has odds P(∅|y) / P(stated|y) on top."""
    table = splits.train.to("cpu", torch.float64)
    program = Program(table, small_settings(), [0]).to(torch.device("cpu"), torch.float64)
    batch, encoding = next(program.encode(table))
    field = torch.full((1, table.rows, 2), 0.5, dtype=torch.float64)
    stated = batch.y_obs != 2
    field[:, stated] = torch.eye(2, dtype=torch.float64)[batch.y_obs[stated]]
    held = by_propagation(beliefs(encoding, batch.a_obs != 2), field, encoding, stated)
    found = held.label.softmax(-1)
    torch.testing.assert_close(found[:, stated], field[:, stated])
    withheld = program.guide.channel_mean(program.guide.channel_y)[0, :, -1]
    odds = withheld / (1 - withheld)
    torch.testing.assert_close(found[:, ~stated], (odds / odds.sum()).expand(1, int((~stated).sum()), 2))


def test_field_trains_resumes_and_is_refreshed(splits: Splits, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []

    def counted(*arguments: object) -> Tensor:
        taken.append(arguments)
        return propagate_labels(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("pyro_fairvae.inference.training.propagate_labels", counted)
    settings = small_settings(
        epochs=6, labeller="propagation", propagation_every=2, risk_from=0.2, risk_full=0.3
    )
    states = []
    whole = fit(
        splits.train,
        splits.validation,
        (0.0, 1.0),
        settings,
        after_epoch=lambda done: states.append(done.state()),
    )
    # The risk acts within the second epoch; refreshed at the third and fifth; two members each.
    assert len(taken) == 6
    again = fit(splits.train, splits.validation, (0.0, 1.0), settings, state=states[3])
    assert again.history == whole.history


def test_a_row_far_from_all_others_is_told_the_prevalence() -> None:
    x, _, y_obs = moons()
    x[0], y_obs[0] = 1e6, 2
    found = propagate_labels(x, y_obs, classes=2)
    stated = y_obs[y_obs < 2]
    assert found.isfinite().all()
    assert found[0, 1].item() == pytest.approx(stated.double().mean().item(), abs=1e-4)


def test_the_risk_takes_labels_from_the_field(splits: Splits) -> None:
    """The gap of a step, against expected cell sums under a field made by hand."""
    table = splits.train.to("cpu", torch.float64)
    settings = small_settings(labeller="propagation", memory=1.0)
    program = Program(table, settings, [0]).to(torch.device("cpu"), torch.float64)
    fair = FairELBO(table.rows, torch.ones(1, dtype=torch.float64), RiskLoss(settings.fairness))
    label = torch.arange(table.rows) % 2
    field = torch.eye(2, dtype=torch.float64)[label].unsqueeze(0)
    batch = replace(table.batch(torch.arange(table.rows)), propagated_labels=field)
    run = fair.run(program.model, program.guide, batch)
    measured, encoding = fair.evaluate_run(run, program.model, batch).measured, run.encoding
    held = beliefs(encoding, batch.a_obs != 2)
    rows = torch.arange(table.rows)
    group = (held.grouper[0, rows, label] + held.group_channel[0]).softmax(-1)
    decided = (encoding.heads.class_logits[0] / 0.2).softmax(-1)
    rates = [
        [(group[label == y, a] * decided[label == y, y]).sum() / group[label == y, a].sum() for a in (0, 1)]
        for y in (0, 1)
    ]
    expected = max(abs(first - second) for first, second in rates)
    assert measured.gap.item() == pytest.approx(expected.item())
