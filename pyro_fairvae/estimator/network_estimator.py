"""Estimators of tables that are networks: training, who withholds, imputed groups, and their state."""

from __future__ import annotations

import math
import sys
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from tqdm import tqdm

from pyro_fairvae.base.devices import resolve_device
from pyro_fairvae.base.errors import InputError, require
from pyro_fairvae.base.files import make_folder
from pyro_fairvae.base.options import build
from pyro_fairvae.base.ranks import current
from pyro_fairvae.boosting.scores import BoostedScores
from pyro_fairvae.data.coded_columns import code_labels
from pyro_fairvae.data.given_rows import in_one_order
from pyro_fairvae.data.table_encoder import names_of
from pyro_fairvae.data.user_table import stated_rows
from pyro_fairvae.estimator.state import restored_fit
from pyro_fairvae.estimator.table_classifier import TableEstimator
from pyro_fairvae.inference import checkpoint
from pyro_fairvae.inference.fit_result import Fit
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.inference.settling import fit_to_targets
from pyro_fairvae.inference.training import Progress, check_lambdas, fit
from pyro_fairvae.posterior.calibration import Calibrated, calibrate_fit
from pyro_fairvae.posterior.stored_draws import keep_draws
from pyro_fairvae.posterior.summaries import PosteriorSummary, summarise
from pyro_fairvae.schema.number_outcome import NumberOutcome
from pyro_fairvae.schema.observed import SAMPLED, Columns, Imputation, Observed
from pyro_fairvae.storage.contents import fit_content
from pyro_fairvae.storage.stored_model import StoredModel, load_model

BATCHES = 24  # fewest in an epoch, given enough rows
# If epochs is not given, the fewest, and the fewest steps of a fit. Trees leave less to learn: more epochs
# overfit.
EPOCHS = {"mlp": (25, 600), "boosted": (10, 240)}
MOST_EPOCHS = 200
ENOUGH = 40  # training rows from which intervals can be cross-fitted
MOST_INPUTS = 8192  # of a network; tables with more columns than that have no numbers in pieces


def weights_of(lambdas: Sequence[float]) -> tuple[float, ...]:
    """λ of each member, as numbers that can be trained with."""
    try:
        weights = tuple(map(float, lambdas))
    except (TypeError, ValueError) as reason:
        raise InputError(f"lambdas must be numbers, one for each member, got {lambdas!r}.") from reason
    check_lambdas(weights)
    return weights


@dataclass(frozen=True)
class EncodedRows:
    """Rows that a model has encoded, which its predictions take in place of X."""

    x: torch.Tensor


class NetworkEstimator(TableEstimator):
    """An estimator whose members are those of a :class:`~pyro_fairvae.Fit`."""

    fit_: Fit
    selected_: int
    scores_: BoostedScores | None
    number_: NumberOutcome | None = None  # of an outcome that is a number
    other_defaults: ClassVar[dict[str, Any]] = {}  # of settings that are no parameters
    trunk: str
    epochs: int | None
    batch: int | None
    hidden: int
    layers: int
    intervals: str
    options: Mapping[str, Any] | None
    verbose: int
    checkpoint: str | Path | None
    callback: Callable[[Progress], None] | None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags

    def _train(
        self,
        train: Observed,
        validation: Observed,
        targets: tuple[float, ...],
        lambdas: tuple[float, ...],
        fold: torch.Tensor,
        settings: Settings,
        seed: int,
        device: torch.device,
        config: dict[str, Any],
        imputation: Imputation | None,
    ) -> Fit:
        """Train with a progress bar and, if requested, a checkpoint, which stores ``config``."""
        path, ranks = None if self.checkpoint is None else Path(self.checkpoint), current()
        state = None

        def loaded(path: Path) -> dict[str, Any] | None:
            make_folder(path.parent)
            return checkpoint.load(path, config) if path.exists() else None

        if path is not None:
            state = ranks.from_first(partial(loaded, path))

        def after_epoch(done: Progress) -> None:
            if path is not None:
                reached = done.state()
                if ranks.is_first:
                    checkpoint.save(path, config, reached)
            bar.update()
            if self.callback is not None:
                self.callback(done)

        with tqdm(
            total=settings.epochs, initial=state["epoch"] if state else 0, unit="epoch", desc="fitting",
            disable=not self.verbose, file=sys.stderr,
        ) as bar:  # fmt: skip
            if targets:
                return fit_to_targets(
                    train, validation, targets, fold, settings, seed, device, after_epoch, state,
                    imputation=imputation,
                )  # fmt: skip
            return fit(
                train, validation, lambdas, settings, seed, device, after_epoch=after_epoch, state=state,
                imputation=imputation,
            )  # fmt: skip

    def _settings(self, rows: int, columns: Columns) -> Settings:
        power = 2 ** round(math.log2(max(rows / BATCHES, 1)))
        batch = min(max(power, 32), 1024) if self.batch is None else self.batch
        steps = math.ceil(rows / max(batch, 1))
        fewest, fewest_steps = EPOCHS.get(self.trunk, EPOCHS["mlp"])
        epochs = min(max(fewest, math.ceil(fewest_steps / steps)), MOST_EPOCHS)
        parameters = {
            "risk": self._chosen_risk(),
            "epochs": epochs if self.epochs is None else self.epochs,
            "batch": batch,
            "hidden": self.hidden,
            "layers": self.layers,
            "trunk": self.trunk,
            "pieces": min(Settings().pieces, max(0, MOST_INPUTS - columns.width) // max(columns.numbers, 1)),
            "intervals": self.intervals,
            "withholding_depends_on": names_of(self.withholding_depends_on),
        }
        parameters |= self._further_settings(given := dict(self.options or {}))
        twice = sorted((parameters.keys() - {"pieces"}) & given.keys())
        require(
            not twice,
            f"{', '.join(twice)} given in options, but is a parameter of the estimator; set the parameter.",
        )
        return build(Settings, self.other_defaults | parameters | given)

    def _further_settings(self, given: dict[str, Any]) -> dict[str, Any]:
        """Settings by parameters of one estimator alone; those that it takes from ``given`` are removed."""
        return {}

    def _posterior(
        self, train: Observed, seed: int, withholding: dict[str, Calibrated] | None
    ) -> tuple[PosteriorSummary, dict[str, np.ndarray]]:
        """Who withholds, unless it is known; intervals are cross-fitted if this is requested and possible."""
        wanted = self.fit_.settings.kind_of_intervals == "calibrated"
        reason = ""
        if train.rows < ENOUGH:
            reason = f"there are {train.rows} training rows, and cross-fitting needs {ENOUGH}"
        elif not bool((train.a_obs < train.group_attributes.outcomes - 1).any()):
            reason = "no training row states a group"
        calibrated = withholding if wanted else None
        if calibrated is None and wanted and not reason:
            calibrated = calibrate_fit(self.fit_, train.sampled(), [seed])
        posterior = summarise(self.fit_, calibrated)
        if calibrated is not None and train.on_disk and train.rows > SAMPLED:
            seen = math.ceil(train.rows / train.every(SAMPLED))
            posterior["describes"] += f", from {seen} evenly spaced rows of {train.rows}"
        if wanted and reason:
            posterior["describes"] += ", which are taken as certain: intervals are too narrow"
            posterior["warnings"].append(
                f"intervals take h(a|x) and g(y|x) as certain and are too narrow: {reason}."
            )
        return posterior, keep_draws(self.fit_, calibrated)

    def _with_lambda(self, lambda_: float) -> int:
        """The member with this λ."""
        known = list(self.fit_.lambdas)
        require(lambda_ in known, f"no member has λ = {lambda_}; there are {known}.")
        return known.index(lambda_)

    def _weighed_within(self, limit: float, or_fairest: bool) -> int:
        """Of members with λ, the most accurate with at most this disparity, or the fairest if allowed."""
        disparity = self.frontier_["disparity"].fillna(np.inf)
        within = self.frontier_[disparity <= limit]
        if len(within):
            return int(within["error"].idxmin())
        fairest = int(disparity.idxmin())
        least = f"{disparity[fairest]:.3f}" if np.isfinite(disparity[fairest]) else "an unknown disparity"
        require(
            or_fairest,
            f"no member has a disparity of at most {limit} on held-out rows; the fairest, at λ = "
            f"{self.frontier_['lambda'][fairest]:g}, has {least}. Fit with larger lambdas.",
        )
        warnings.warn(
            f"no member has a disparity of at most {limit} on held-out rows; the fairest is selected, with "
            f"{least}.",
            stacklevel=5,
        )
        return fairest

    @torch.no_grad()
    def predict_groups_proba(self, X: Any, sensitive_features: Any = None) -> Any:
        """P(a|x), or P(a|x, ã), by the features alone: proxies are not looked at.

        Parameters
        ----------
        X : DataFrame or array-like, (rows, columns)
            Features, with the same columns as in ``fit``.
        sensitive_features : array-like or DataFrame, optional
            The stated groups ã, with gaps. With them, withholding is informative, too: P(a|x, ã) ∝ P(a|x)
            P(ã|a), and stated groups are certain.

        Returns
        -------
        ndarray, (rows, groups)
            In the order of ``groups_``; where X is a frame of another library than pandas, such as polars, a
            frame of that library with a column for each group.

        Raises
        ------
        InputError
            If the model was fitted without groups, or a stated group is unknown to it.
        """
        model = self._as_fitted()
        model._require_groups()
        given = X
        X, sensitive_features = in_one_order(X=X, sensitive_features=sensitive_features)
        x, member = model._encoded(X), model.selected_
        program = model.fit_.at_chosen_epoch()
        if sensitive_features is None:
            scores = [heads.group_logits[member].softmax(-1) for heads in program.heads(x)]
            return model._by_group(torch.cat(scores).double().cpu().numpy(), given)
        table = model._observed(x, None, sensitive_features).to(model.fit_.device, model.fit_.dtype)
        pieces = [encoding.log_joint_a[member].softmax(-1) for _, encoding in program.encode(table)]
        return model._by_group(torch.cat(pieces).double().cpu().numpy(), given)

    def observed(self, X: Any, y: Any = None, sensitive_features: Any = None) -> Observed:
        """Rows in the form that ``fit_`` takes, with labels and groups if they are given.

        Labels and groups have gaps where none is stated; if they are not given, no row states one. Proxies
        are left out.
        """
        X, y, sensitive_features = in_one_order(X=X, y=y, sensitive_features=sensitive_features)
        return self._observed(self._encoded(X), y, sensitive_features)

    def _observed(self, x: torch.Tensor, y: Any, sensitive_features: Any) -> Observed:
        table = stated_rows(
            x, sensitive_features, self.encoder_, self.classes_, self.attributes_, self.missing_values,
            None if y is None else self._recorded(y), self.number_,
        )  # fmt: skip
        return table if self.scores_ is None else replace(table, x=x, columns=self.scores_.with_scores)

    def encoded(self, X: Any) -> EncodedRows:
        """X, encoded once for several predictions: scores of trees take most of their time."""
        return EncodedRows(self._encoded(X))

    def _encoded(self, X: Any) -> torch.Tensor:
        check_is_fitted(self)
        if isinstance(X, EncodedRows):
            return X.x
        x = torch.from_numpy(self.encoder_.encode(self._frame(self._features(X))))
        return x if self.scores_ is None else self.scores_.to_rows(x)

    def _recorded(self, y: Any) -> tuple[np.ndarray, np.ndarray | None]:
        """Codes of labels of new rows; of a number its levels, and itself, standardised."""
        return code_labels(y, self.classes_)[0], None

    def _decider(self) -> Fit:
        return self.fit_

    @classmethod
    @abstractmethod
    def restored(cls, stored: StoredModel, folder: Path) -> Self:
        """The model that was read from a folder."""

    @classmethod
    def load(cls, folder: str | Path, device: str = "auto") -> Self:
        """The model of a folder; no code from the folder is run, and nothing is trained.

        Parameters
        ----------
        folder : path
            Written by :meth:`save`, ``fairvae fit`` or ``fairvae train``.
        device : str
            ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.

        Returns
        -------
        FairSSVAEClassifier
            The fitted model.

        Raises
        ------
        InputError
            If the folder holds no model, a damaged one, or one of images.
        """
        return cls.restored(load_model(Path(folder), resolve_device(device)), Path(folder))

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        if "fit_" not in state:
            return dict(state)
        content, tensors = fit_content(self.fit_)
        return {**state, "fit_": (content, {name: tensor.numpy() for name, tensor in tensors.items()})}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if isinstance(state.get("fit_"), tuple):
            content, arrays = state["fit_"]
            tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
            self.fit_ = restored_fit(self, content, tensors, torch.device("cpu"))
