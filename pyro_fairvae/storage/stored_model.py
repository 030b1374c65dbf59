"""A model in the form that all commands and the estimator read and write."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from pyro_fairvae.base.documents import finite_or_nan
from pyro_fairvae.base.errors import InputError, require
from pyro_fairvae.base.options import build, flatten
from pyro_fairvae.boosting.cross_fitted_trees import CrossFittedTrees
from pyro_fairvae.boosting.scores import BoostedScores
from pyro_fairvae.data.coded_columns import word_of
from pyro_fairvae.data.table_encoder import TableEncoder
from pyro_fairvae.inference.fit_result import Fit
from pyro_fairvae.inference.program import Program
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.nn.trunks import chosen_trunk
from pyro_fairvae.posterior.summaries import PosteriorSummary
from pyro_fairvae.schema.attributes import Attributes
from pyro_fairvae.schema.documents import (
    Classes,
    FitDocument,
    ImageColumns,
    ModelDocument,
    SourceDocument,
    TableColumns,
    TreesDocument,
    as_plain,
)
from pyro_fairvae.schema.image_rows import Pixels
from pyro_fairvae.schema.observed import Columns, Observed
from pyro_fairvae.storage.model_folder import DOCUMENT, TENSORS, read_model, write_model

ADJUSTMENT = "adjustment"
CLASS_KINDS: dict[str, tuple[type, str]] = {  # type of classes, and kinds of arrays that hold them
    "bool": (bool, "bO"),
    "int": (int, "iuO"),
    "float": (float, "fO"),
    "str": (str, "UO"),
}


@dataclass(frozen=True)
class StoredModel:
    """Everything that a folder holds about a model, whether ``fairvae train`` or ``fairvae fit`` wrote it.

    Attributes
    ----------
    fit : Fit
        The trained members: ``fit.predict_proba`` and ``fit.decide`` take features as :meth:`encode` returns
        them.
    columns : TableEncoder or Pixels
        How a row of a table becomes features, or that rows are images.
    classes : ndarray
        The classes, in the order of the scores.
    attributes : Attributes
        The sensitive attributes and their groups.
    knows_groups : bool
        Whether groups were given; without them nothing was made fair.
    selected : int
        The member that decides.
    metric : str
        The metric by which it was selected.
    frontier : DataFrame
        λ, error, disparity and its standard error of each member, on rows held out of training.
    posterior : dict
        The result of :func:`summarise`: who withholds.
    summary : dict
        Counts of the rows that the model was fitted to.
    source : dict
        Names of the label and the groups, and how the table was read; empty for rows given in Python.
    draws : mapping of str to ndarray
        Draws behind ``posterior``, by source, channel and row.
    parameters : dict or None
        Those of the estimator if one was fitted.
    feature_names : tuple of str
        Columns of the table, in order, without proxies.
    proxies : TableEncoder or None
        How proxies of the group were encoded, which only training looks at.
    scores : BoostedScores or None
        Boosted trees whose scores are columns of the rows that ``fit`` takes, if it was trained with them.

    Examples
    --------
    >>> import tempfile
    >>> from pyro_fairvae import FairSSVAEClassifier, load, synthetic
    >>> table = synthetic(rows=60)
    >>> small = FairSSVAEClassifier(lambdas=(0.0,), epochs=1, hidden=4, layers=1, intervals="given_h")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     small.fit(table.frame, table.y, table.a).save(folder, overwrite=True)
    ...     model = load(folder)
    >>> model.fit.lambdas, model.attributes.group_names, model.classes.tolist()
    ((0.0,), ('0', '1'), [0, 1])
    """

    fit: Fit
    columns: TableEncoder | Pixels
    classes: np.ndarray
    attributes: Attributes
    knows_groups: bool
    selected: int
    metric: str
    frontier: pd.DataFrame
    posterior: PosteriorSummary
    summary: dict[str, Any]
    source: dict[str, Any] = field(default_factory=dict)
    draws: Mapping[str, np.ndarray] = field(default_factory=dict)
    parameters: dict[str, Any] | None = None
    feature_names: tuple[str, ...] = ()
    proxies: TableEncoder | None = None
    scores: BoostedScores | None = None

    def encode(self, table: pd.DataFrame) -> Tensor:
        """Rows of a table as the features that ``fit`` takes."""
        require(isinstance(self.columns, TableEncoder), "it is a model of images, and takes no tables.")
        assert isinstance(self.columns, TableEncoder)
        x = torch.from_numpy(self.columns.encode(table))
        return x if self.scores is None else self.scores.to_rows(x)

    def save(self, folder: Path, overwrite: bool = False) -> None:
        """Write the folder, from which :func:`load_model` restores the same model."""
        fitted, tensors = fit_content(self.fit)
        body = {
            "classes": classes_content(self.classes),
            "attributes": {"names": self.attributes.names, "values": self.attributes.values},
            "knows_groups": self.knows_groups,
            "columns": columns_content(self.columns),
            "fit": fitted,
            "selected": self.selected,
            "metric": self.metric,
            "frontier": self.frontier.to_dict("list"),
            "posterior": self.posterior,
            "summary": self.summary,
            "source": self.source,
            "parameters": self.parameters,
            "feature_names": list(self.feature_names),
        }
        if self.proxies is not None:
            body["proxies"] = columns_content(self.proxies)
        trees = None if self.scores is None else trees_content(self.scores)
        write_model(folder, body, tensors, self.draws, trees, overwrite)


def load_model(folder: str | Path, device: torch.device | str = "cpu") -> StoredModel:
    """The model in a folder that ``fairvae train``, ``fairvae fit`` or an estimator's ``save`` wrote.

    No code from the folder is run, and nothing is trained or optimised.

    Parameters
    ----------
    folder : path
        Holds ``model.json``, ``weights.safetensors`` and, but for older models, ``draws.safetensors``.
    device : torch.device or str
        Where the networks go.

    Returns
    -------
    StoredModel
        The model, its frontier and its posterior.

    Raises
    ------
    InputError
        If the folder holds no model, or a damaged one.

    Examples
    --------
    >>> from pyro_fairvae import load
    >>> load("no-such-folder")
    Traceback (most recent call last):
        ...
    pyro_fairvae.base.errors.InputError: no-such-folder is not the folder of a model: it has no model.json.
    """
    folder = Path(folder)
    document, tensors, draws, trees = read_model(folder)
    with restoring(folder):
        return _restored(document, tensors, draws, trees, torch.device(device))


@contextmanager
def restoring(folder: Path) -> Iterator[None]:
    """Report errors in the ``with`` block as errors of a model's document, whose content is not trusted."""
    try:
        yield
    except InputError as reason:
        raise InputError(f"{folder / DOCUMENT} cannot be used: {reason}") from reason
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError) as reason:
        raise InputError(
            f"{folder / DOCUMENT} does not describe a usable model: {type(reason).__name__}, {reason}."
        ) from reason


def _restored(
    document: ModelDocument,
    tensors: dict[str, Tensor],
    draws: dict[str, np.ndarray],
    trees: TreesDocument | None,
    device: torch.device,
) -> StoredModel:
    classes = classes_from(document.classes)
    given = document.attributes
    attributes = Attributes(tuple(given.names), tuple(map(tuple, given.values)))
    columns = columns_from(document.columns)
    proxies = None if document.proxies is None else encoder_from(document.proxies)
    scores = None
    if trees is not None:
        require(isinstance(columns, TableEncoder), "a model of images has no trees.")
        assert isinstance(columns, TableEncoder)
        scores = scores_from(trees, columns.columns, len(classes), attributes.groups)
    fit = fit_from(document.fit, tensors, columns, classes, attributes, device, proxies, scores)
    members = len(fit.lambdas)
    require(
        document.selected < members,
        f"member {document.selected} is selected, but there are {members} members.",
    )
    lines = as_plain(document.frontier)
    member = "lambda" if lines["lambda"] else "target"
    names = (member, "error", "disparity", "standard_error")
    frontier = pd.DataFrame({name: lines[name] for name in names}).astype(float)  # null becomes NaN
    require(len(frontier) == members, f"the frontier has {len(frontier)} lines for {members} members.")
    return StoredModel(
        fit,
        columns,
        classes,
        attributes,
        document.knows_groups,
        document.selected,
        document.metric,
        frontier,
        _without_defaults(as_plain(document.posterior)),
        as_plain(document.summary),
        {} if document.source == SourceDocument() else as_plain(document.source),
        draws,
        document.parameters,
        tuple(document.feature_names),
        proxies,
        scores,
    )


def _without_defaults(posterior: dict[str, Any]) -> PosteriorSummary:
    """A posterior as it was summarised, without the keys of a rate that are null."""

    def known(rates: dict[str, dict[str, dict[str, Any]]]) -> dict[str, Any]:
        return {
            label: {
                outcome: {name: value for name, value in rate.items() if value is not None}
                for outcome, rate in row.items()
            }
            for label, row in rates.items()
        }

    top = posterior | {name: known(posterior[name]) for name in ("a", "y")}
    members = [member | {name: known(member[name]) for name in ("a", "y")} for member in posterior["members"]]
    return cast(PosteriorSummary, top | {"members": members})


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
    empty = Observed(
        torch.zeros(2, features.width),
        torch.full((2,), len(class_names)),
        torch.full((2,), attributes.outcomes - 1),
        features,
        len(class_names),
        attributes.groups,
        attributes,
        class_names,
        None if u_columns is None else torch.zeros(2, u_columns.width),
        u_columns,
    )
    program = Program(empty, settings, [0] * len(lambdas)).to(device, torch.float32)
    adjustment = tensors[ADJUSTMENT].to(device) if ADJUSTMENT in tensors else None
    parts: dict[str, dict[str, Tensor]] = {"program": {}, "chosen": {}}
    for name, value in tensors.items():
        part, _, rest = name.partition("/")
        if name != ADJUSTMENT:
            require(part in parts, f"{TENSORS} holds {name!r}, which is not part of a model.")
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
            adjustment.shape == shape and adjustment.dtype == torch.float32,
            f"{ADJUSTMENT!r} is {adjustment.dtype} of the shape {tuple(adjustment.shape)}, expected float32 "
            f"of {shape}.",
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


def trees_content(scores: BoostedScores) -> dict[str, Any]:
    """Trees as plain JSON types."""
    return {
        name: {"shares": trees.shares.tolist(), "folds": trees.texts()}
        for name, trees in (("labels", scores.labels), ("groups", scores.groups))
    }


def scores_from(trees: TreesDocument, columns: Columns, classes: int, groups: int) -> BoostedScores:
    """The scores of :func:`trees_content`, for rows with these columns, classes and groups."""
    found = []
    for of, values in ((trees.labels, classes), (trees.groups, groups)):
        require(len(of.shares) == values, f"trees have scores of {len(of.shares)} values, expected {values}.")
        found.append(CrossFittedTrees.of_texts(of.folds, np.array(of.shares)))
    return BoostedScores(found[0], found[1], columns)


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
