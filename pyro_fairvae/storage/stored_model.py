"""A model in the form that all commands and the estimator read and write."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from pyro_fairvae.base.errors import InputError, require
from pyro_fairvae.base.messages import first_line
from pyro_fairvae.base.options import build
from pyro_fairvae.base.reports import Report, silent
from pyro_fairvae.boosting.scores import BoostedScores
from pyro_fairvae.channels.channel import Channel
from pyro_fairvae.channels.priors import channel
from pyro_fairvae.data.coded_columns import word_of
from pyro_fairvae.data.table_encoder import TableEncoder, names_of
from pyro_fairvae.data.user_table import stated_rows
from pyro_fairvae.evaluation.joint_decisions import DecidedTogether, JointProblem, JointRule
from pyro_fairvae.inference.fit_result import Fit
from pyro_fairvae.inference.program import channel_of_groups
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.posterior.summaries import PosteriorSummary
from pyro_fairvae.schema.attributes import Attributes
from pyro_fairvae.schema.documents import (
    MembersDocument,
    ModelDocument,
    SourceDocument,
    TreesDocument,
    as_plain,
)
from pyro_fairvae.schema.image_rows import Pixels
from pyro_fairvae.schema.number_outcome import NumberOutcome
from pyro_fairvae.storage.contents import (
    TreeDecisions,
    attributes_content,
    attributes_from,
    classes_content,
    classes_from,
    columns_content,
    columns_from,
    decisions_content,
    decisions_from,
    empty_rows,
    encoder_from,
    fit_content,
    fit_from,
    outcome_content,
    outcome_from,
    scores_from,
    trees_content,
)
from pyro_fairvae.storage.model_folder import DOCUMENT, DRAWS, read_model, write_model


@dataclass(frozen=True)
class StoredModel:
    """Everything that a folder holds about a model, whether ``fairvae train`` or ``fairvae fit`` wrote it.

    Attributes
    ----------
    decider : Fit or TreeDecisions
        The trained members, which :attr:`fit` returns, or decisions of boosted trees.
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
    number : NumberOutcome or None
        The outcome, where it is a number; ``classes`` are then its levels.
    members : MembersDocument or None
        The members side by side on rows held out of training: rates by group, who gains and who loses.

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

    decider: Fit | TreeDecisions
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
    number: NumberOutcome | None = None
    members: MembersDocument | None = None

    @property
    def fit(self) -> Fit:
        """The trained members: its ``predict_proba`` and ``decide`` take features as :meth:`encode` returns.

        Raises :class:`~pyro_fairvae.base.errors.InputError` if boosted trees decide.
        """
        require(
            isinstance(self.decider, Fit),
            "its decisions are those of boosted trees (fairvae fit --estimator boosting), without a network; "
            "use predict, audit, inspect or report, or fit one with --estimator vae.",
        )
        assert isinstance(self.decider, Fit)
        return self.decider

    @property
    def channels(self) -> tuple[Channel, Channel]:
        """P(ã|a) and P(ỹ|y)."""
        if isinstance(self.decider, Fit):
            guide = self.decider.program.guide
            return guide.channel_a, guide.channel_y
        assert isinstance(self.columns, TableEncoder)
        proxies = None if self.proxies is None else self.proxies.columns
        words = tuple(map(word_of, self.classes))
        rows = empty_rows(self.columns.columns, words, self.attributes, proxies)
        return (
            channel_of_groups(rows, self.settings),
            channel("y", rows.label_attributes, self.settings.prior_y),
        )

    @property
    def depends_on(self) -> tuple[str, ...]:
        """What withholding may depend on besides the group."""
        return self.settings.withholding_depends_on

    @property
    def settings(self) -> Settings:
        """Those of the fit; where trees decide, those of withholding."""
        if isinstance(self.decider, Fit):
            return self.decider.settings
        given = self.parameters or {}
        priors = {name: given[name] for name in ("prior_a", "prior_y") if name in given}
        return Settings(**priors, withholding_depends_on=names_of(given.get("withholding_depends_on")))

    def encode(self, table: pd.DataFrame) -> Tensor:
        """Rows of a table as the features that ``fit`` takes."""
        require(isinstance(self.columns, TableEncoder), "it is a model of images, and takes no tables.")
        assert isinstance(self.columns, TableEncoder)
        x = torch.from_numpy(self.columns.encode(table))
        return x if self.scores is None else self.scores.to_rows(x)

    def decide_together(
        self,
        table: pd.DataFrame,
        sensitive_features: Any = None,
        *,
        report: Report = silent,
        **options: Any,
    ) -> DecidedTogether:
        """Decide about all rows of a table together, to a low expected error and unfairness of these rows.

        Parameters and result are those of :meth:`.FairSSVAEClassifier.decide_together`. The table has the
        model's columns by name.
        """
        rule = build(JointRule, options)
        require(
            isinstance(self.decider, Fit),
            "its decisions are those of boosted trees; open it by FairDecisions.load, which decides "
            "together, too.",
        )
        require(self.knows_groups, "the model was fitted without sensitive_features and knows no groups.")
        require(len(table) > 0, "the table has 0 rows; give at least one.")
        x = self.encode(table)
        assert isinstance(self.columns, TableEncoder)
        missing_values = (self.parameters or {}).get("missing_values", ())
        described = (self.columns, self.classes, self.attributes, missing_values)
        rows = stated_rows(x, sensitive_features, *described)
        if self.scores is not None:
            rows = replace(rows, x=x, columns=self.scores.with_scores)
        problem = JointProblem.of_fit(self.fit, self.selected, rows, rule, sensitive_features is not None)
        return problem.decide(rule, self.classes, self.attributes.group_names, report)

    def save(
        self,
        folder: Path,
        overwrite: bool = False,
        about: Mapping[str, bytes | str] | None = None,
        gone: Collection[str] = (),
    ) -> None:
        """Write the folder, from which :func:`load_model` restores the same model, and files ``about`` it.

        Files named in ``gone`` are deleted at the same moment.
        """
        fitted, trees = None, None
        if isinstance(self.decider, Fit):
            fitted, tensors = fit_content(self.decider)
        else:
            tensors = decisions_content(self.decider)
            trees = trees_content(self.decider.labels, self.decider.groups)
        if self.scores is not None:
            trees = trees_content(self.scores.labels, self.scores.groups)
        body = {
            "classes": classes_content(self.classes),
            "attributes": attributes_content(self.attributes),
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
        if self.number is not None:
            body["outcome"] = outcome_content(self.number)
        if self.members is not None:
            body["members"] = as_plain(self.members)
        write_model(folder, body, tensors, self.draws, trees, overwrite, about, gone)


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
        for name, array in draws.items():
            require(
                array.dtype.kind == "f" and bool(np.isfinite(array).all()),
                f"{name!r} in {DRAWS} is not of finite numbers.",
            )
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
            f"{folder / DOCUMENT} does not describe a usable model: {type(reason).__name__}, "
            f"{first_line(reason)}."
        ) from reason


def _restored(
    document: ModelDocument,
    tensors: dict[str, Tensor],
    draws: dict[str, np.ndarray],
    trees: TreesDocument | None,
    device: torch.device,
) -> StoredModel:
    classes = classes_from(document.classes)
    attributes = attributes_from(document.attributes)
    columns = columns_from(document.columns)
    proxies = None if document.proxies is None else encoder_from(document.proxies)
    number = None if document.outcome is None else outcome_from(document.outcome)
    require(
        number is None or classes.tolist() == list(number.levels.names),
        f"the classes {classes.tolist()} are not the levels of the outcome.",
    )
    lines = as_plain(document.frontier)
    member = "lambda" if lines["lambda"] else "target"
    names = (member, "error", *["cost"] * bool(lines["cost"]), "disparity", "standard_error", "low", "high")
    unknown = [None] * len(lines["error"])  # intervals, in models of earlier versions
    frontier = pd.DataFrame({name: lines[name] or unknown for name in names})
    frontier = frontier.astype(float)  # null becomes NaN
    scores: BoostedScores | None = None
    decider: Fit | TreeDecisions
    if document.fit is None:
        require(trees is not None, "it describes neither a network nor trees.")
        assert trees is not None
        groups = attributes.groups if document.knows_groups else 1
        decider = decisions_from(tensors, trees, len(frontier), len(classes), groups)
    else:
        if trees is not None:
            require(isinstance(columns, TableEncoder), "a model of images has no trees.")
            assert isinstance(columns, TableEncoder)
            scores = scores_from(trees, columns.columns, len(classes), attributes.groups)
        decider = fit_from(
            document.fit, tensors, columns, classes, attributes, device, proxies, scores, number
        )
        members = len(decider.lambdas)
        require(len(frontier) == members, f"the frontier has {len(frontier)} lines for {members} members.")
    require(
        document.selected < len(frontier),
        f"member {document.selected} is selected, but there are {len(frontier)} members.",
    )
    judged = document.members
    if judged is not None:
        require(
            len(judged.members) == len(frontier),
            f"{len(judged.members)} members are described for {len(frontier)} on the frontier.",
        )
    return StoredModel(
        decider,
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
        number,
        judged,
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
