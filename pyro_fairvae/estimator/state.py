"""A fitted estimator as a model that can be stored, and back."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch

from pyro_fairvae.base.documents import check_document
from pyro_fairvae.base.errors import choose, require
from pyro_fairvae.base.options import flatten
from pyro_fairvae.data.table_encoder import TableEncoder
from pyro_fairvae.inference.fit_result import Fit
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.schema.documents import FitDocument
from pyro_fairvae.storage.contents import TreeDecisions, fit_from, is_plain
from pyro_fairvae.storage.stored_model import StoredModel

# Parameters that are not stored, nor taken from a folder: it must not say which files a later fit writes.
NOT_STORED = ("callback", "checkpoint", "random_state", "device")
# Settings that are parameters.
OF_SETTINGS = (
    "risk",
    "epochs",
    "batch",
    "hidden",
    "layers",
    "trunk",
    "intervals",
    "withholding_depends_on",
    "costs",
)


def stored_model(model: Any, decider: Fit | TreeDecisions) -> StoredModel:
    """The fitted estimator, whose decisions are those of ``decider``, as a model that can be stored."""
    parameters = {
        name: _plain(name, value)
        for name, value in model.get_params(deep=False).items()
        if name not in NOT_STORED
    }
    return StoredModel(
        decider,
        model.encoder_,
        model.classes_,
        model.attributes_,
        model.knows_groups_,
        model.selected_,
        model.metric_,
        model.frontier_,
        model.posterior_,
        model.summary_,
        model.source_,
        model.draws_,
        parameters,
        tuple(getattr(model, "feature_names_in_", ())),
        getattr(model, "proxy_encoder_", None),
        getattr(model, "scores_", None),
        getattr(model, "number_", None),
        getattr(model, "members_", None),
    )


def _plain(name: str, value: Any) -> Any:
    """A parameter as plain JSON types, with lists in place of arrays and tuples."""
    if isinstance(value, tuple):
        value = list(value)
    elif isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    require(is_plain(value), f"the parameter {name} = {value!r} cannot be saved; give numbers and strings.")
    return value


def restore_estimator(model: Any, stored: StoredModel) -> None:
    """Set a new estimator to the state of a stored model, which may come from a run without one."""
    require(
        isinstance(stored.columns, TableEncoder),
        "it is a model of images, which the estimator does not support; use its folder with the commands "
        "inspect, decide and report.",
    )
    parameters = stored.parameters if stored.parameters is not None else _parameters_of(stored)
    known = model.get_params(deep=False).keys() - set(NOT_STORED)
    for name in parameters:
        choose("parameter", name, known)
    model.set_params(**parameters)
    model.encoder_ = stored.columns
    model.classes_, model.attributes_ = stored.classes, stored.attributes
    model.knows_groups_ = stored.knows_groups
    if stored.feature_names:
        model.feature_names_in_ = np.array(stored.feature_names, dtype=object)
    model.n_features_in_ = len(model.encoder_.names)
    model.selected_, model.metric_, model.frontier_ = stored.selected, stored.metric, stored.frontier
    model.posterior_, model.summary_, model.draws_ = stored.posterior, stored.summary, stored.draws
    model.source_, model.members_ = stored.source, stored.members


def _parameters_of(stored: StoredModel) -> dict[str, Any]:
    """Parameters of the estimator that correspond to the settings of a run."""
    fit, proxies = stored.fit, stored.proxies
    settings, defaults = (flatten(dataclasses.asdict(source)) for source in (fit.settings, Settings()))
    parameters = {name: settings.pop(name) for name in OF_SETTINGS if settings[name] is not None}
    options = {name: value for name, value in settings.items() if value != defaults[name]}
    parameters["proxies"] = [] if proxies is None else list(proxies.names)
    levels = stored.attributes.levels
    parameters["group_levels"] = None if levels is None else len(levels.centres)
    members: dict[str, Any] = {"lambdas": list(fit.lambdas)}
    if fit.targets is not None:
        members = {"targets": [target for target in fit.targets if target is not None]}
    return parameters | members | {"options": options or None}


def restored_fit(
    model: Any, content: dict[str, Any], tensors: dict[str, torch.Tensor], device: torch.device
) -> Fit:
    """The fit of an estimator whose columns, classes and groups are set."""
    document = check_document(content, FitDocument, "the pickled estimator", "one of this version")
    described = (model.encoder_, model.classes_, model.attributes_)
    return fit_from(document, tensors, *described, device, model.proxy_encoder_, model.scores_, model.number_)
