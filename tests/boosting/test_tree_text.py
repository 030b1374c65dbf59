"""Trees whose text does not hang together, which LightGBM would follow out of its memory."""

from __future__ import annotations

import re

import numpy as np
import pytest

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.boosting.cross_fitted_trees import CrossFittedTrees
from pyro_fairvae.boosting.tree_text import check_tree_text


@pytest.fixture(scope="module", params=[2, 3])
def grown(request: pytest.FixtureRequest) -> tuple[str, int]:
    values = int(request.param)
    draw = np.random.default_rng(0)
    category = draw.integers(8, size=3000)
    inputs = np.column_stack([draw.normal(size=3000), category])
    code = np.where(inputs[:, 0] > 1, 0, np.array([0, 1, 1, 2, 1, 0, 2, 0])[category] % values)
    trees = CrossFittedTrees.grow(inputs, np.array([False, True]), code, np.arange(3000) % 2, values)
    return trees.texts()[0], values


def resized(text: str) -> str:
    """With sizes that agree, as somebody would write them who means harm."""
    head, *blocks = re.split(r"^(?=Tree=)", text.partition("\nend of trees")[0] + "\n", flags=re.MULTILINE)
    sizes = " ".join(str(len(block.encode())) for block in blocks)
    return re.sub(r"tree_sizes=.*", f"tree_sizes={sizes}", head) + "".join(blocks) + "end of trees\n"


def test_grown_trees_pass(grown: tuple[str, int]) -> None:
    text, values = grown
    assert "cat_threshold=" in text
    check_tree_text(text, values)
    check_tree_text(resized(text), values)
    with pytest.raises(InputError, match="outputs do not belong together"):
        check_tree_text(text, values + 2)


@pytest.mark.parametrize(
    ("pattern", "wrong"),
    [
        (r"split_feature=\d+", "split_feature=2"),
        (r"split_feature=\d+", "split_feature=-1"),
        (r"left_child=\S+", "left_child=0"),
        (r"left_child=\S+", "left_child=99"),
        (r"right_child=\S+", "right_child=-99"),
        (r"leaf_value=\S+", "leaf_value=nan"),
        (r"leaf_value=\S+", "leaf_value=inf"),
        (r"leaf_value=\S+", "leaf_value=1 1"),
        (r"num_leaves=\d+", "num_leaves=1000000"),
        (r"num_leaves=\d+", "num_leaves=-1"),
        (r"cat_boundaries=0 \d+", "cat_boundaries=0 99"),
        (r"cat_boundaries=0", "cat_boundaries=-5"),
        (r"num_cat=[1-9]\d*", "num_cat=0"),
        (r"is_linear=0", "is_linear=1"),
        (r"max_feature_idx=1", "max_feature_idx=7"),
        (r"decision_type=\S+", "decision_type=x"),
        (r"threshold=\S+", ""),
        (r"shrinkage=", "surprise=1\nshrinkage="),
    ],
)
def test_trees_with_a_wrong_index_or_value_are_refused(
    grown: tuple[str, int], pattern: str, wrong: str
) -> None:
    text, values = grown
    changed = resized(re.sub(rf"^{pattern}", wrong, text, count=1, flags=re.MULTILINE))
    assert changed != resized(text)
    with pytest.raises(InputError, match="the trees are damaged"):
        check_tree_text(changed, values)


def test_sizes_that_lie_are_refused(grown: tuple[str, int]) -> None:
    text, values = grown
    with pytest.raises(InputError, match="sizes do not belong together"):
        check_tree_text(re.sub(r"tree_sizes=\d+", "tree_sizes=99999999", text), values)
