"""Parts of a model as plain JSON types and tensors, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyro_fairvae.base.documents import finite_or_nan
from pyro_fairvae.base.errors import require
from pyro_fairvae.base.options import build, flatten
from pyro_fairvae.boosting.cross_fitted_trees import CrossFittedTrees
from pyro_fairvae.boosting.scores import BoostedScores
from pyro_fairvae.boosting.tree_text import check_tree_text
from pyro_fairvae.data.coded_columns import word_of
from pyro_fairvae.data.table_encoder import TableEncoder
from pyro_fairvae.inference.fit_result import Fit
from pyro_fairvae.inference.program import Program
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.nn.trunks import chosen_trunk
from pyro_fairvae.schema.attributes import Attributes
from pyro_fairvae.schema.documents import (
    Classes,
    FitDocument,
    GroupAttributes,
    ImageColumns,
    OutcomeDocument,
    TableColumns,
    TreesDocument,
    TreesOfFolds,
    as_plain,
)
from pyro_fairvae.schema.image_rows import Pixels
from pyro_fairvae.schema.levels import Levels
from pyro_fairvae.schema.number_outcome import NumberOutcome
from pyro_fairvae.schema.observed import Columns, Observed
from pyro_fairvae.storage.model_folder import DOCUMENT, TENSORS

ADJUSTMENT, RECALIBRATION = "adjustment", "recalibration"
CLASS_KINDS: dict[str, tuple[type, str]] = {  # type of classes, and kinds of arrays that hold them
    "bool": (bool, "bO"),
    "int": (int, "iuO"),
    "float": (float, "fO"),
    "str": (str, "UO"),
}


@dataclass(frozen=True)
class TreeDecisions:
    """Decisions of boosted trees, settled to targets; the first of them is without one."""

    labels: CrossFittedTrees  # P(y|x)
    groups: CrossFittedTrees | None  # P(a|x,y), if groups were given
    recalibration: np.ndarray | None  # of P(y|x), (classes − 1, classes)
    adjustment: np.ndarray  # ν, (targets, classes, classes y, groups)


def decisions_content(decisions: TreeDecisions) -> dict[str, Tensor]:
    """Decisions without their trees, as tensors by name."""
    tensors = {ADJUSTMENT: torch.from_numpy(decisions.adjustment)}
    if decisions.recalibration is not None:
        tensors[RECALIBRATION] = torch.from_numpy(decisions.recalibration)
    return tensors


def decisions_from(
    tensors: dict[str, Tensor], trees: TreesDocument, members: int, classes: int, groups: int
) -> TreeDecisions:
    """The decisions of :func:`decisions_content` and :func:`trees_content`."""
    shapes = {
        ADJUSTMENT: (members, classes, classes, groups),
        RECALIBRATION: (classes - 1, classes),
    }
    for name, tensor in tensors.items():
        require(name in shapes, f"{TENSORS} holds {name!r}, which is not part of a model of trees.")
        require(
            tensor.shape == shapes[name] and tensor.dtype == torch.float64 and bool(tensor.isfinite().all()),
            f"{name!r} is {tensor.dtype} of the shape {tuple(tensor.shape)}, expected finite float64 of "
            f"{shapes[name]}.",
        )
    require(ADJUSTMENT in tensors, f"{TENSORS} holds no {ADJUSTMENT!r}; the model is damaged.")
    recalibration = tensors.get(RECALIBRATION)
    return TreeDecisions(
        _trees_from(trees.labels, classes),
        None if trees.groups is None else _trees_from(trees.groups, groups),
        None if recalibration is None else recalibration.numpy(),
        tensors[ADJUSTMENT].numpy(),
    )


def fit_content(fit: Fit) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A fit as plain JSON types and as tensors by name."""
    tensors = {
        f"{part}/{name}": value.detach().cpu().contiguous()
        for part, state in (("program", fit.program.state()), ("chosen", fit.chosen))
        for name, value in state.items()
    }
    if fit.adjustment is not None:
        tensors[ADJUSTMENT] = fit.adjustment.detach().cpu().contiguous()
    document = {
        "settings": flatten(dataclasses.asdict(fit.settings)),
        "lambdas": list(fit.lambdas),
        "chosen_epoch": list(fit.chosen_epoch),
        "history": fit.history,
    }
    if fit.targets is not None:
        document["targets"] = list(fit.targets)
    return document, tensors


def fit_from(
    document: FitDocument,
    tensors: dict[str, Tensor],
    columns: TableEncoder | Pixels,
    classes: np.ndarray,
    attributes: Attributes,
    device: torch.device,
    proxies: TableEncoder | None = None,
    scores: BoostedScores | None = None,
    number: NumberOutcome | None = None,
) -> Fit:
    """The fit of :func:`fit_content`, for rows with these columns, classes, groups, proxies and scores."""
    settings = build(Settings, document.settings)
    lambdas, class_names = tuple(document.lambdas), tuple(map(word_of, classes))
    features = columns if isinstance(columns, Pixels) else columns.columns
    if scores is not None:
        features = scores.with_scores
    u_columns = None if proxies is None else proxies.columns
    _check_sizes(settings, len(lambdas), features, attributes, tensors, u_columns)
    # Empty rows, from which a program of the right shape is built.
    empty = empty_rows(features, class_names, attributes, u_columns, number)
    program = Program(empty, settings, [0] * len(lambdas)).to(device, torch.float32)
    adjustment = tensors[ADJUSTMENT].to(device) if ADJUSTMENT in tensors else None
    parts: dict[str, dict[str, Tensor]] = {"program": {}, "chosen": {}}
    for name, value in tensors.items():
        part, _, rest = name.partition("/")
        if name != ADJUSTMENT:
            require(part in parts, f"{TENSORS} holds {name!r}, which is not part of a model.")
            require(bool(value.isfinite().all()), f"{name!r} in {TENSORS} has values that are not finite.")
            parts[part][rest] = value.to(device)
    made = {name: (value.shape, value.dtype) for name, value in program.state().items()}
    for part, state in parts.items():
        require(
            {name: (value.shape, value.dtype) for name, value in state.items()} == made,
            f"the tensors of {part!r} do not fit what {DOCUMENT} describes; the model is damaged.",
        )
    shape = (len(lambdas), len(class_names), len(class_names), attributes.groups)
    if adjustment is not None:
        require(
            adjustment.shape == shape
            and adjustment.dtype == torch.float32
            and bool(adjustment.isfinite().all()),
            f"{ADJUSTMENT!r} is {adjustment.dtype} of the shape {tuple(adjustment.shape)}, expected finite "
            f"float32 of {shape}.",
        )
    chosen = document.chosen_epoch
    require(len(chosen) == len(lambdas), f"{len(chosen)} epochs were chosen for {len(lambdas)} members.")
    history = [{name: finite_or_nan(value) for name, value in row.items()} for row in document.history]
    program.load_state(parts["program"])
    targets = tuple(document.targets) or None
    require(
        targets is None or len(targets) == len(lambdas),
        f"there are {len(document.targets)} targets for {len(lambdas)} members.",
    )
    return Fit(program, parts["chosen"], chosen, lambdas, settings, history, adjustment, targets)


def empty_rows(
    columns: Columns | Pixels,
    class_names: tuple[str, ...],
    attributes: Attributes,
    proxies: Columns | None = None,
    number: NumberOutcome | None = None,
) -> Observed:
    """Rows that state nothing, of a table with these columns, classes, groups and proxies."""
    return Observed(
        torch.zeros(2, columns.width),
        torch.full((2,), len(class_names)),
        torch.full((2,), attributes.outcomes - 1),
        columns,
        len(class_names),
        attributes.groups,
        attributes,
        class_names,
        None if proxies is None else torch.zeros(2, proxies.width),
        proxies,
        number,
        None if number is None else torch.zeros(2),
    )


def _check_sizes(
    settings: Settings,
    members: int,
    columns: Columns | Pixels,
    attributes: Attributes,
    tensors: dict[str, Tensor],
    u_columns: Columns | None,
) -> None:
    """Refuse a network with more weights than the tensors hold, before memory is allocated for it."""
    stored = sum(value.numel() for name, value in tensors.items() if name.startswith("program/"))
    trunk = chosen_trunk(columns, settings).weights(columns, settings)
    encoder = trunk + settings.hidden * attributes.groups + (u_columns.width if u_columns is not None else 0)
    decoder = settings.decoder_hidden * (
        settings.latent + (0 if isinstance(columns, Pixels) else columns.decoded)
    )
    require(
        0 < members * (encoder + decoder) <= stored,
        f"{DOCUMENT} describes a network with {members * (encoder + decoder)} weights or more, but {TENSORS} "
        f"holds {stored}.",
    )


def trees_content(labels: CrossFittedTrees, groups: CrossFittedTrees | None) -> dict[str, Any]:
    """Trees as plain JSON types."""
    return {
        name: {"shares": trees.shares.tolist(), "folds": trees.texts()}
        for name, trees in (("labels", labels), ("groups", groups))
        if trees is not None
    }


def scores_from(trees: TreesDocument, columns: Columns, classes: int, groups: int) -> BoostedScores:
    """The scores of the trees of :func:`trees_content`, for rows with these columns, classes and groups."""
    require(trees.groups is not None, "trees.json has no trees of groups; the model is damaged.")
    assert trees.groups is not None
    return BoostedScores(_trees_from(trees.labels, classes), _trees_from(trees.groups, groups), columns)


def _trees_from(trees: TreesOfFolds, values: int) -> CrossFittedTrees:
    require(
        len(trees.shares) == values, f"trees have scores of {len(trees.shares)} values, expected {values}."
    )
    require(
        all(0 <= share <= 1 for share in trees.shares), f"shares of values are {trees.shares}, not in [0, 1]."
    )
    for text in trees.folds:
        check_tree_text(text, values)
    return CrossFittedTrees.of_texts(trees.folds, np.array(trees.shares))


def columns_content(columns: TableEncoder | Pixels) -> dict[str, Any]:
    """Columns as plain JSON types."""
    if isinstance(columns, Pixels):
        return {"type": "images", "channels": columns.channels, "side": columns.side}
    return {"type": "table", **columns.to_dict()}


def columns_from(content: TableColumns | ImageColumns) -> TableEncoder | Pixels:
    """The columns of :func:`columns_content`."""
    if isinstance(content, ImageColumns):
        return Pixels(content.channels, content.side)
    return encoder_from(content)


def encoder_from(content: TableColumns) -> TableEncoder:
    """The encoder of a table of :func:`columns_content`."""
    plain = as_plain(content)
    return TableEncoder.from_dict({name: value for name, value in plain.items() if name != "type"})


def attributes_content(attributes: Attributes) -> dict[str, Any]:
    """Attributes as plain JSON types."""
    levels = attributes.levels
    return {"names": attributes.names, "values": attributes.values} | (
        {} if levels is None else {"levels": dataclasses.asdict(levels)}
    )


def attributes_from(content: GroupAttributes) -> Attributes:
    """The attributes of :func:`attributes_content`."""
    levels = content.levels
    return Attributes(
        tuple(content.names),
        tuple(map(tuple, content.values)),
        None if levels is None else Levels(tuple(levels.edges), tuple(levels.centres)),
    )


def outcome_content(number: NumberOutcome) -> dict[str, Any]:
    """An outcome that is a number as plain JSON types."""
    content = dataclasses.asdict(number)
    return content | {"bins": list(number.bins)}


def outcome_from(content: OutcomeDocument) -> NumberOutcome:
    """The outcome of :func:`outcome_content`."""
    levels = Levels(tuple(content.levels.edges), tuple(content.levels.centres))
    return NumberOutcome(content.mean, content.deviation, levels, tuple(content.bins))


def classes_content(classes: np.ndarray) -> dict[str, Any]:
    """Classes as plain JSON types, with their kind."""
    values = classes.tolist()
    kinds = {type(value).__name__ for value in values}
    require(
        len(kinds) == 1 and kinds <= CLASS_KINDS.keys(),
        f"classes of the kind {', '.join(sorted(kinds))} cannot be saved; expected {', '.join(CLASS_KINDS)}.",
    )
    return {
        "kind": kinds.pop(),
        "values": values,
        "dtype": classes.dtype.str if classes.dtype != object else "O",
    }


def classes_from(content: Classes) -> np.ndarray:
    """The classes of :func:`classes_content`; raises an error if they cannot have been written by it."""
    kind, arrays = CLASS_KINDS[content.kind]
    values, dtype = list(content.values), np.dtype(content.dtype)
    require(
        dtype.kind in arrays and dtype.itemsize < 1 << 20 and all(type(value) is kind for value in values),
        f"classes {values} are not of the kind {content.kind}, or cannot be held by {content.dtype!r}.",
    )
    classes = np.array(values, dtype=dtype)
    require(
        classes.tolist() == values and len(set(values)) == len(values) > 1,
        f"classes {values} must be two or more, and different.",
    )
    return classes


def is_plain(value: Any) -> bool:
    """Whether a value consists of types that JSON supports."""
    if isinstance(value, (list, tuple)):
        return all(map(is_plain, value))
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and is_plain(entry) for key, entry in value.items())
    return value is None or isinstance(value, (bool, int, float, str))
