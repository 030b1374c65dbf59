"""FairDSR, three weak proxies, and boosted trees, each against something that is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from fairlearn.metrics import equalized_odds_difference

from pyro_fairvae import FairDecisions
from pyro_fairvae.base.errors import InputError
from pyro_fairvae.base.options import build, changed
from pyro_fairvae.baselines import METHODS, Task, fairdsr, trees
from pyro_fairvae.baselines.fairdsr import certain_groups, uncertainty
from pyro_fairvae.baselines.library import imputation
from pyro_fairvae.baselines.penalised import fit_penalised
from pyro_fairvae.baselines.proxies import Consensus, calibrated_groups
from pyro_fairvae.baselines.trees import fit_trees_settled, fit_trees_thresholds, guessed_by_trees
from pyro_fairvae.boosting.scores import folds_of, for_trunk
from pyro_fairvae.boosting.tree_inputs import tree_inputs
from pyro_fairvae.data import Missingness, Splits, split, split_complete, synthetic
from pyro_fairvae.estimator.imputation import TreeImputer
from pyro_fairvae.inference.settings import Settings

SETTINGS = build(Settings, {"hidden": 16, "layers": 1, "pieces": 0, "epochs": 3, "batch": 256, "lr": 5e-3})


@pytest.fixture(scope="module")
def parts() -> Splits:
    return split(synthetic(rows=1500, seed=2, dependence=0.6), Missingness((0.6, 0.3)), 0)


def task(parts: Splits, **changes: object) -> Task:
    return Task(replace(parts.train, **changes), parts.validation, SETTINGS, 0)


def test_fairdsr_with_every_group_known_is_the_constraint_on_all_rows(parts: Splits) -> None:
    truth = split_complete(synthetic(rows=1500, seed=2, dependence=0.6), 0)["train"]
    known = task(parts, a_obs=torch.from_numpy(truth.a))
    x = torch.from_numpy(parts.test.x)
    ours = METHODS["fairdsr"].fit(known, (0.0, 1.6)).predict_proba(x)
    theirs = fit_penalised("guessed")(known, (0.0, 1.6)).predict_proba(x)
    assert torch.equal(ours, theirs)


def test_fairdsr_leaves_out_uncertain_groups_alone(parts: Splits, monkeypatch: pytest.MonkeyPatch) -> None:
    train = parts.train
    chance = torch.linspace(0.5, 1, train.rows).unsqueeze(-1)
    probability = torch.cat([chance, 1 - chance], dim=-1)
    monkeypatch.setattr(fairdsr, "ensembled_groups", lambda _: probability)
    found = certain_groups(task(parts))
    stated, doubt = train.a_obs < 2, uncertainty(probability)
    assert torch.equal(found[stated], train.a_obs[stated])
    hidden = ~stated
    assert torch.equal(found[hidden] == 0, doubt[hidden] <= doubt[hidden].mean())
    assert set(found[hidden].tolist()) == {0, 2}
    entropies = uncertainty(torch.tensor([[0.5, 0.5], [1.0, 0.0], [0.9, 0.1]]))
    expected = -(0.9 * np.log2(0.9) + 0.1 * np.log2(0.1))
    torch.testing.assert_close(entropies, torch.tensor([1.0, 0.0, float(expected)]), rtol=0, atol=1e-6)


def test_certain_groups_are_oftener_right(parts: Splits) -> None:
    truth = torch.from_numpy(split_complete(synthetic(rows=1500, seed=2, dependence=0.6), 0)["train"].a)
    found = certain_groups(task(parts))
    hidden = parts.train.a_obs == 2
    probability = fairdsr.ensembled_groups(task(parts))
    certain = hidden & (found < 2)
    assert 0.2 < certain.double().sum() / hidden.double().sum() < 0.9
    right = (probability.argmax(-1) == truth).double()
    assert right[certain].mean() > right[hidden & ~certain].mean() + 0.1


@pytest.mark.parametrize("groups", [2, 3])
def test_three_proxies_recover_true_rates(groups: int) -> None:
    """Conditionally independent proxies that are wrong in a quarter of the rows and more."""
    rng = np.random.default_rng(groups)
    rows = 60_000
    shares = rng.dirichlet(np.full(groups, 5.0))
    a = rng.choice(groups, rows, p=shares)
    y = (rng.random(rows) < 0.3 + 0.2 * a / groups).astype(int)
    decided = (rng.random(rows) < 0.2 + 0.4 * y + 0.25 * a / groups).astype(int)
    matrices = np.stack(
        [rng.dirichlet(np.full(groups, 4.0) + 30 * np.eye(groups)[g], 3) for g in range(groups)], 1
    )
    said = np.stack([[rng.choice(groups, p=of[g]) for g in a] for of in matrices], axis=1)
    found = Consensus.learn(said, groups)
    np.testing.assert_allclose(found.shares, np.bincount(a, minlength=groups) / rows, atol=0.03)
    np.testing.assert_allclose(found.transitions, matrices, atol=0.04)
    mass = calibrated_groups(said, y, decided, groups)
    for label in range(2):
        inside = y == label
        true, naive = (
            np.array([decided[inside & (group == g)].mean() for g in range(groups)])
            for group in (a, said[:, 0])
        )
        calibrated = (mass[inside] * decided[inside, None]).sum(0) / mass[inside].sum(0)
        assert np.abs(calibrated - true).max() < 0.03
        assert np.ptp(naive) < 0.9 * np.ptp(true)  # proxies alone make groups look alike


def test_settled_trees_decide_as_fair_decisions_do(parts: Splits) -> None:
    """The same trees, folds and targets through the estimator of the library."""
    train, columns = parts.train, parts.train.columns
    ours = fit_trees_settled(task(parts), (0.0, 10.0, 25.0))
    x = torch.from_numpy(parts.test.x)
    decided = ours.decide(x).numpy()
    frames = []
    for rows in (train.x, x):
        frame = pd.DataFrame(rows[:, : columns.numbers].numpy(), columns=columns.names[: columns.numbers])
        for name in columns.names[columns.numbers :]:
            frame[name] = [f"c{code}" for code in rows[:, columns.of(name)].argmax(1).tolist()]
        frames.append(frame)
    stated = [np.where(codes < 2, codes, np.nan) for codes in (train.y_obs.numpy(), train.a_obs.numpy())]
    peer = FairDecisions(targets=(0.1, 0.04), random_state=0)
    peer.fit(frames[0], stated[0], sensitive_features=stated[1])
    for member in range(3):
        peer.selected_ = member
        assert (decided[member] == peer.predict(frames[1])).mean() > 0.97
    gaps = [equalized_odds_difference(parts.test.y, row, sensitive_features=parts.test.a) for row in decided]
    assert gaps[2] < gaps[0]
    np.testing.assert_array_equal(decided[0], ours.predict_proba(x)[0].argmax(-1))


def test_thresholds_of_groups_are_the_best_of_a_grid(parts: Splits) -> None:
    """Error + λ DEO at guessed labels and groups, against all pairs of thresholds of a grid."""
    weight = 1.6
    given = task(parts)
    found = guessed_by_trees(given)
    score, y, a = found.label[:, 1], found.labels.numpy(), found.groups.numpy()
    likeliest = found.likeliest.numpy()

    def objective(decided: np.ndarray) -> float:
        rates = np.array([[decided[(y == c) & (a == g)].mean() for g in range(2)] for c in range(2)])
        return float((decided != y).mean() + weight * np.ptp(rates, axis=1).max())

    grid = np.quantile(score, np.linspace(0, 1, 30))
    best = min(
        objective((score > np.array([low, high])[likeliest]).astype(int)) for low in grid for high in grid
    )
    problem_of: list[np.ndarray] = []
    tuned = trees.tuned_thresholds

    def kept(*arguments: object) -> torch.Tensor:
        thresholds = tuned(*arguments)  # type: ignore[arg-type]
        problem_of.append(thresholds.numpy())
        return thresholds

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(trees, "tuned_thresholds", kept)
        fitted = fit_trees_thresholds(given, (0.0, weight))
    (thresholds,) = problem_of
    assert objective((score > thresholds[likeliest]).astype(int)) < best + 0.01
    x = torch.from_numpy(parts.test.x)
    inputs = tree_inputs(x, parts.train.columns)
    groups = found.scores.groups.predict(inputs).argmax(1)
    positive = found.scores.labels.predict(inputs)[:, 1]
    np.testing.assert_array_equal(fitted.decide(x)[1].numpy(), positive > thresholds[groups])


def test_reduced_trees_are_told_stated_values_and_guesses(
    parts: Splits, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Task] = []
    monkeypatch.setattr(trees, "fit_exponentiated_gradient", lambda given, _: seen.append(given))
    trees.fit_trees_reduced(task(parts), (0.0,))
    train, (given,) = parts.train, seen
    for guessed, observed in ((given.train.y_obs, train.y_obs), (given.train.a_obs, train.a_obs)):
        assert int(guessed.max()) == 1
        assert torch.equal(guessed[observed < 2], observed[observed < 2])


def test_weights_of_settled_decisions_are_bounds(parts: Splits) -> None:
    with pytest.raises(InputError, match="at least 1, as 1/target"):
        fit_trees_settled(task(parts), (0.0, 0.5))
    with pytest.raises(InputError, match="give weight 0, too"):
        METHODS["fair_ssvae_settled"].fit(task(parts), (10.0,))


def test_trees_in_the_trunk_impute_for_the_library_as_in_training(parts: Splits) -> None:
    """With the scores of trees λ members are judged by those trees, unless settings or rows forbid it."""
    given = build(Settings, {"trunk": "boosted", "hidden": 8, "layers": 1, "epochs": 1})
    scored, scores = for_trunk(parts, given, 0)
    assert scores is not None
    task = Task(scored.train, scored.validation, given, 0, scores=scores)
    believed = imputation(task, task.train, given)
    assert believed is not None
    fold = folds_of(parts.train, 0)
    expected = TreeImputer.learn(parts.train, fold, given, 0, scores)
    assert expected is not None
    assert torch.equal(believed.joint, expected.learned.joint)
    assert imputation(task, task.train, changed(given, {"imputation": "own"})) is None
    assert imputation(task, task.train.take(torch.arange(50)), given) is None
    assert imputation(replace(task, scores=None), task.train, given) is None
