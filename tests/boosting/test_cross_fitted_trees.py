"""Trees that were not grown on the rows they score, and the columns they take."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import log_loss

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.boosting.cross_fitted_trees import CrossFittedTrees, even_folds
from pyro_fairvae.boosting.scores import UNIT, BoostedScores
from pyro_fairvae.boosting.tree_inputs import are_categories, tree_inputs
from pyro_fairvae.data import Missingness, split, synthetic
from pyro_fairvae.data.table_encoder import TableEncoder


def people(rows: int, values: int = 2, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs of which one is a category, codes that follow from them by a logistic rule, and chances."""
    draw = np.random.default_rng(seed)
    numbers, category = draw.normal(size=(rows, 3)), draw.integers(0, 3, rows)
    logits = np.column_stack(
        [np.zeros(rows)] + [numbers[:, k % 3] + (category == k) for k in range(1, values)]
    )
    chance = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    code = (draw.random((rows, 1)) > chance.cumsum(1)).sum(1)
    return np.column_stack([numbers, category]), code, chance


CATEGORIES = np.array([False, False, False, True])


@pytest.mark.parametrize("values", [2, 3])
def test_scores_are_nearly_as_likely_as_the_truth(values: int) -> None:
    inputs, code, chance = people(4000, values)
    fold = even_folds(code, code, 4, seed=0)
    trees = CrossFittedTrees.grow(inputs, CATEGORIES, code, fold, values)
    scores = trees.out_of_fold(inputs, fold)
    np.testing.assert_allclose(scores.sum(1), 1, atol=1e-6)
    allowed = 0.02 * values  # trees approximate a linear rule by steps
    assert log_loss(code, scores) < log_loss(code, chance) + allowed
    new, new_code, new_chance = people(4000, values, seed=1)
    assert log_loss(new_code, trees.predict(new)) < log_loss(new_code, new_chance) + allowed


def test_scores_do_not_know_what_their_rows_say() -> None:
    """Inputs are noise: what a row says can be learned from the row alone, or from a twin in another fold."""
    draw = np.random.default_rng(0)
    inputs, code = draw.normal(size=(600, 6)), draw.integers(0, 2, 600)
    twice, fold = np.tile(inputs, (2, 1)), np.repeat([0, 1], 600)
    alone = CrossFittedTrees.grow(inputs, np.zeros(6, bool), code, np.arange(600) % 4, 2)
    found = alone.out_of_fold(inputs, np.arange(600) % 4)[:, 1]
    assert abs(np.cov(found, code)[0, 1]) < 0.15 * code.std() * max(found.std(), 0.01)
    twins = CrossFittedTrees.grow(twice, np.zeros(6, bool), np.tile(code, 2), fold, 2)
    assert np.corrcoef(twins.out_of_fold(twice, fold)[:, 1], np.tile(code, 2))[0, 1] > 0.5


def test_rows_that_say_nothing_are_scored_and_not_learned_from() -> None:
    inputs, code, _ = people(1000)
    fold = np.arange(1000) % 5
    some = np.where(np.arange(1000) < 700, code, 2)
    trees = CrossFittedTrees.grow(inputs, CATEGORIES, some, fold, 2)
    fewer = CrossFittedTrees.grow(inputs[:700], CATEGORIES, code[:700], fold[:700], 2)
    np.testing.assert_array_equal(
        trees.out_of_fold(inputs, fold)[:700], fewer.out_of_fold(inputs[:700], fold[:700])
    )


def test_weights_shift_scores_to_the_rows_that_they_stand_for() -> None:
    inputs, code, _ = people(4000)
    stated = np.where(np.random.default_rng(1).random(4000) < np.array([0.8, 0.2])[code], code, 2)
    fold = np.arange(4000) % 5
    weight = 1 / np.array([0.8, 0.2, 1.0])[stated]
    plain, weighed = (
        CrossFittedTrees.grow(inputs, CATEGORIES, stated, fold, 2, each)
        .out_of_fold(inputs, fold)[:, 1]
        .mean()
        for each in (None, weight)
    )
    assert plain < code.mean() - 0.15
    assert abs(weighed - code.mean()) < 0.03


def test_one_value_or_few_rows_give_shares() -> None:
    inputs, code, _ = people(50)
    for known in (np.zeros(50, int), np.where(np.arange(50) < 3, code, 2)):
        trees = CrossFittedTrees.grow(inputs, CATEGORIES, known, np.arange(50) % 5, 2)
        assert not trees.boosters
        np.testing.assert_allclose(trees.predict(inputs), np.tile(trees.shares, (50, 1)))


def test_trees_are_text_that_is_read_back_bit_for_bit() -> None:
    inputs, code, _ = people(500, values=3)
    trees = CrossFittedTrees.grow(inputs, CATEGORIES, code, np.arange(500) % 5, 3)
    again = CrossFittedTrees.of_texts(trees.texts(), trees.shares)
    np.testing.assert_array_equal(again.predict(inputs), trees.predict(inputs))
    with pytest.raises(InputError, match="trees cannot be read"):
        CrossFittedTrees.of_texts(["tree"], trees.shares)


def test_folds_are_even_in_what_was_recorded() -> None:
    y, a = np.repeat([0, 1, 2], [50, 30, 20]), np.tile([0, 1], 50)
    fold = even_folds(y, a, 5, seed=0)
    for label in range(3):
        for group in range(2):
            counts = np.bincount(fold[(y == label) & (a == group)], minlength=5)
            assert counts.max() - counts.min() <= 1


def test_inputs_have_gaps_and_categories_as_they_are() -> None:
    table = pd.DataFrame(
        {"age": [20.0, None, 40.0, 60.0], "size": [1.0, 2.0, 3.0, 5.0], "place": ["b", "a", None, "a"]}
    )
    encoder = TableEncoder.learn(table)
    inputs = tree_inputs(encoder.encode(table), encoder.columns)
    assert are_categories(encoder.columns).tolist() == [False, False, True]
    assert np.isnan(inputs[:, 0]).tolist() == [False, True, False, False]
    assert np.argsort(inputs[[0, 2, 3], 0]).tolist() == [0, 1, 2]
    assert inputs[:, 2].tolist() == [1.0, 0.0, 2.0, 0.0]
    unknown = tree_inputs(encoder.encode(table.assign(place="z")), encoder.columns)
    assert np.isnan(unknown[:, 2]).all()


def test_scores_become_the_last_columns() -> None:
    parts = split(synthetic(rows=600), Missingness(), seed=0)
    fold = even_folds(parts.train.y_obs.numpy(), parts.train.a_obs.numpy(), 5, seed=0)
    scores = BoostedScores.learn(parts.train, fold, seed=0)
    learned, other = scores.to_learned(parts.train, fold), scores.to_table(parts.validation)
    assert learned.columns == other.columns
    assert learned.columns.scores == 2
    assert isinstance(other.x, torch.Tensor)
    assert isinstance(parts.validation.x, torch.Tensor)
    inputs = tree_inputs(parts.validation.x, scores.columns)
    chance = scores.labels.predict(inputs)
    np.testing.assert_allclose(
        other.x[:, -2].double() * UNIT, np.log(chance[:, 0] / chance[:, 1]), rtol=1e-4, atol=1e-4
    )
    torch.testing.assert_close(other.x[:, :-2], parts.validation.x)
