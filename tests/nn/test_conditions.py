"""What withholding may depend on, against columns computed by pandas and numpy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.data.table_encoder import TableEncoder
from pyro_fairvae.nn.conditions import PIECES, Conditions
from pyro_fairvae.schema.image_rows import Pixels
from pyro_fairvae.schema.observed import Columns, Observed

NAMES = ("month", "label", "age")


def frame(rows: int = 60, seed: int = 0) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    age = draw.integers(18, 70, rows).astype(float)
    age[::7] = np.nan
    month = draw.choice(["May", "June", "July"], rows).astype(object)
    month[:3], month[3:6] = ["May", "June", "July"], None
    return pd.DataFrame({"height": draw.normal(size=rows), "age": age, "month": month})


def observed(seed: int = 0) -> tuple[pd.DataFrame, Observed]:
    table = frame(seed=seed)
    encoder = TableEncoder.learn(table)
    codes = torch.from_numpy(np.random.default_rng(seed + 10).integers(0, 3, len(table)))
    x = torch.from_numpy(encoder.encode(table)).double()
    return table, Observed(x, codes, codes, encoder.columns, 2, 2, class_names=("no", "yes"))


def by_hand(table: pd.DataFrame) -> pd.DataFrame:
    """Every column of features by its words, centred."""
    filled = table["age"].fillna(table["age"].median()).to_numpy()
    edges = np.quantile(np.unique(filled), np.linspace(0, 1, PIECES + 1))
    columns = {f"age (piece {t + 1})": np.interp(filled, edges[t : t + 2], [0.0, 1.0]) for t in range(PIECES)}
    columns["age is missing"] = table["age"].isna().to_numpy(float)
    months = table["month"].fillna("missing")
    columns |= {f"month = {month}": (months == month).to_numpy(float) for month in months.unique()}
    found = pd.DataFrame(columns)
    return found - found.mean()


def test_columns_and_their_words_equal_those_of_pandas() -> None:
    table, train = observed()
    conditions = Conditions.learn(train, NAMES, members=2)
    found = conditions.features(train.x)
    expected = by_hand(table)
    assert sorted(conditions.columns) == sorted([*expected, "label = no", "label = yes"])
    assert conditions.columns[-2:] == ("label = no", "label = yes")
    assert (conditions.width, conditions.classes, found.shape) == (len(expected.columns) + 2, 2, (2, 60, 9))
    for k in range(2):
        np.testing.assert_allclose(found[k], expected[list(conditions.columns[:-2])], atol=1e-5)
    stated = train.y_obs[train.y_obs < 2].double()
    np.testing.assert_allclose(conditions.labels[1, 1], [stated.mean() - 1, 1 - stated.mean()], atol=1e-12)


def test_tilt_is_the_product_with_every_column() -> None:
    _, train = observed()
    conditions = Conditions.learn(train, NAMES, members=2)
    w = torch.randn(2, 3, conditions.width, dtype=torch.float64)
    features = conditions.features(train.x)
    tilt = conditions.tilt(features, w)
    assert tilt.shape == (2, 60, 2, 3, 1)
    for k, i, y, j in [(0, 0, 0, 0), (1, 30, 1, 2)]:
        v = torch.cat([features[k, i], conditions.labels[k, y]])
        torch.testing.assert_close(tilt[k, i, y, j, 0], v @ w[k, j])
    without = Conditions.learn(train, ("age",), members=2)
    assert without.tilt(without.features(train.x), w[..., : without.width]).shape == (2, 60, 3, 1)


def test_members_with_their_own_rows_learn_from_them() -> None:
    tables = [observed(seed)[1] for seed in (0, 1)]
    tables[1] = replace(tables[1], columns=tables[0].columns)
    together = Conditions.learn(Observed.stack(tables), NAMES, members=2)
    x = torch.stack([table.x for table in tables])
    for k, table in enumerate(tables):
        alone = Conditions.learn(table, NAMES, members=1)
        assert torch.equal(together.features(x)[k], alone.features(table.x)[0])
        assert torch.equal(together.labels[k], alone.labels[0])
    assert not torch.equal(together.low[0], together.low[1])


def test_label_alone_and_without_any_stated() -> None:
    _, train = observed()
    unstated = replace(train, y_obs=torch.full_like(train.y_obs, 2))
    conditions = Conditions.learn(unstated, ("label",), members=1)
    assert conditions.features(train.x).shape == (1, 60, 0)
    torch.testing.assert_close(
        conditions.labels[0], torch.tensor([[0.5, -0.5], [-0.5, 0.5]], dtype=torch.float64)
    )


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("mont",), "unknown name in withholding_depends_on 'mont'.*Did you mean 'month'"),
        (("age is missing",), "unknown name in withholding_depends_on 'age is missing'"),
        (("age", "month", "age"), "has 'age' more than once"),
        (("surname",), "'surname' is a proxy"),
    ],
)
def test_names_that_cannot_be_used(names: tuple[str, ...], message: str) -> None:
    _, train = observed()
    train = replace(train, u=torch.zeros(60, 1), u_columns=Columns(1, (), ("surname",)))
    with pytest.raises(InputError, match=message):
        Conditions.learn(train, names, members=1)


def test_images_have_a_label_alone() -> None:
    codes = torch.tensor([0, 1, 2])
    images = Observed(torch.randn(3, 64), codes, codes, Pixels(1, 8), 2, 2)
    with pytest.raises(InputError, match="images, which have no named columns"):
        Conditions.learn(images, ("age",), members=1)
    assert Conditions.learn(images, ("label",), members=3).columns == ("label = 0", "label = 1")


def test_relative_effects_leave_withholding_as_it_is() -> None:
    draw = np.random.default_rng(3)
    kind = draw.integers(3, size=60)
    x = torch.tensor(np.c_[draw.normal(size=60), np.eye(3)[kind]], dtype=torch.float32)
    label = torch.tensor(draw.integers(3, size=60))
    train = Observed(x, label, torch.zeros(60, dtype=torch.long), Columns(1, (3,), ("age", "kind")), 2, 2)
    conditions = Conditions.learn(train, ("age", "kind", "label"), 2)
    w = torch.randn(4, 2, 1, conditions.width, generator=torch.Generator().manual_seed(0))
    relative = conditions.relative(w)
    features = conditions.features(x)
    for k in range(4):
        assert torch.allclose(
            conditions.tilt(features, w[k]), conditions.tilt(features, relative[k]), atol=1e-5
        )
    assert torch.equal(relative[..., :4], w[..., :4])  # the pieces of the number
    shares = torch.tensor(np.bincount(kind) / 60, dtype=torch.float32)
    assert torch.allclose(relative[..., 4:7] @ shares, torch.zeros(4, 2, 1), atol=1e-6)
    # A constant added to all categories cannot be seen, and is gone.
    assert torch.allclose(conditions.relative(w + 5 * (torch.arange(9) > 3)), relative, atol=1e-5)


def test_a_number_of_few_values_has_a_piece_between_each_two() -> None:
    """As many coefficients as steps between values, with the number's name where there is one step."""
    draw = np.random.default_rng(0)
    x = np.stack([draw.integers(0, 2, 200), draw.integers(0, 3, 200), draw.normal(size=200)], 1)
    y, a = (torch.from_numpy(draw.integers(0, size, 200)) for size in (2, 3))
    table = Observed(torch.from_numpy(x), y, a, Columns(3, (), ("two", "three", "many")), 2, 2)
    conditions = Conditions.learn(table, ("two", "three", "many"), 1)
    shown = [word for word, varies in zip(conditions.words, conditions.varies, strict=True) if varies]
    assert shown == [
        "two",
        "three (piece 1)",
        "three (piece 2)",
        *(f"many (piece {t})" for t in (1, 2, 3, 4)),
    ]
    design = conditions.features(table.x)[0]
    two = x[:, 0] - x[:, 0].mean()
    np.testing.assert_allclose(design[:, 0], two, atol=1e-6)
    np.testing.assert_allclose(design[:, 1:4], 0.0, atol=1e-12)
    np.testing.assert_allclose(design[:, 4], (x[:, 1] > 0) - (x[:, 1] > 0).mean(), atol=1e-6)
    np.testing.assert_allclose(design[:, 5], (x[:, 1] > 1) - (x[:, 1] > 1).mean(), atol=1e-6)
