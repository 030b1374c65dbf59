"""A check of LightGBM's text before LightGBM, which trusts it, follows its indexes in memory."""

from __future__ import annotations

import math
import re

from pyro_fairvae.base.errors import InputError

# Of a tree, in LightGBM's own words; trees with linear models in their leaves have others, too.
OF_SPLITS = ("split_feature", "split_gain", "threshold", "decision_type", "left_child", "right_child",
             "internal_value", "internal_weight", "internal_count")  # fmt: skip
OF_LEAVES = ("leaf_value", "leaf_weight", "leaf_count")
OTHERS = ("Tree", "num_leaves", "num_cat", "cat_boundaries", "cat_threshold", "is_linear", "shrinkage")
CATEGORICAL = 1  # in decision_type
END = "end of trees"


def check_tree_text(text: str, values: int) -> None:
    """Raise unless all indexes in trees for so many values point to what is there, and scores are finite."""
    head, *blocks = re.split(r"^(?=Tree=)", text.partition(f"\n{END}")[0] + "\n", flags=re.MULTILINE)
    try:
        fields = _fields(head)
        outputs = 1 if values == 2 else values
        sizes = [int(size) for size in fields["tree_sizes"].split()]
        features = int(fields["max_feature_idx"]) + 1
        _check(int(fields["num_class"]) == int(fields["num_tree_per_iteration"]) == outputs, "outputs")
        _check(sizes == [len(block.encode()) for block in blocks], "sizes")
        _check(1 <= features == len(fields["feature_names"].split()), "features")
        for block in blocks:
            _check_tree(_fields(block), features)
    except (KeyError, ValueError, OverflowError) as reason:
        raise InputError(f"the trees are damaged: {reason}.") from reason


def _fields(block: str) -> dict[str, str]:
    lines = (line.partition("=") for line in block.splitlines() if "=" in line)
    return {name: value for name, _, value in lines}


def _check_tree(tree: dict[str, str], features: int) -> None:
    _check(tree.keys() <= {*OF_SPLITS, *OF_LEAVES, *OTHERS}, "fields")
    _check(int(tree.get("is_linear", "0")) == 0, "leaves")
    leaves = int(tree["num_leaves"])
    numbers = {name: tree.get(name, "").split() for name in (*OF_SPLITS, *OF_LEAVES)}
    _check(leaves >= 1 and len(numbers["leaf_value"]) == leaves, "leaves")
    _check(all(math.isfinite(float(value)) for value in numbers["leaf_value"]), "values of leaves")
    if leaves == 1:
        return
    _check(all(len(numbers[name]) == leaves - 1 for name in OF_SPLITS), "splits")
    _check(all(len(numbers[name]) == leaves for name in OF_LEAVES), "leaves")
    _check(all(0 <= int(feature) < features for feature in numbers["split_feature"]), "features of splits")
    for side in ("left_child", "right_child"):
        for parent, child in enumerate(map(int, numbers[side])):
            # A child comes after its parent, so that no row goes in circles; a leaf n is −n − 1.
            _check(-leaves <= child < leaves - 1 and (child < 0 or child > parent), "children")
    _check_categories(tree, numbers)


def _check_categories(tree: dict[str, str], numbers: dict[str, list[str]]) -> None:
    """A split by categories has the number of its bits, which lie between two boundaries."""
    categorical = [
        int(float(place))
        for place, kind in zip(numbers["threshold"], numbers["decision_type"], strict=True)
        if int(kind) & CATEGORICAL
    ]
    splits = int(tree["num_cat"])
    _check(len(categorical) <= splits and all(0 <= place < splits for place in categorical), "categories")
    if splits:
        boundaries = [int(place) for place in tree["cat_boundaries"].split()]
        bits = tree["cat_threshold"].split()
        _check(len(boundaries) == splits + 1 and boundaries[0] == 0, "categories")
        _check(boundaries == sorted(boundaries) and boundaries[-1] == len(bits), "categories")


def _check(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(f"their {what} do not belong together")
