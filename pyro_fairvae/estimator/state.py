"""A fitted estimator as what JSON has and as tensors by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from pyro_fairvae.base.errors import require
from pyro_fairvae.data.coded_columns import word_of
from pyro_fairvae.data.table_encoder import FrameEncoder
from pyro_fairvae.inference.fit_result import Fit
from pyro_fairvae.schema.attributes import Attributes
from pyro_fairvae.storage.model_folder import classes_content, classes_from, fit_content, fit_from, is_plain


def estimator_content(model: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The fitted model as what JSON has and as tensors by name."""
    parameters = {
        name: _plain(name, value)
        for name, value in model.get_params(deep=False).items()
        if name not in ("callback", "checkpoint", "random_state", "device")
    }
    fitted, tensors = fit_content(model.fit_)
    document = {
        "parameters": parameters,
        "classes": classes_content(model.classes_),
        "attributes": {"names": model.attributes_.names, "values": model.attributes_.values},
        "knows_groups": model.knows_groups_,
        "columns": model.encoder_.to_dict(),
        "feature_names": list(getattr(model, "feature_names_in_", [])),
        "features": model.n_features_in_,
        "fit": fitted,
        "selected": model.selected_,
        "metric": model.metric_,
        "frontier": model.frontier_.to_dict("list"),
        "posterior": model.posterior_,
        "summary": model.summary_,
        "source": model.source_,
    }
    return document, tensors


def _plain(name: str, value: Any) -> Any:
    """A parameter as what JSON has, lists in place of arrays and tuples."""
    if isinstance(value, tuple):
        value = list(value)
    elif isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    require(is_plain(value), f"the parameter {name} = {value!r} cannot be saved; give numbers and words.")
    return value


def restore_estimator(
    model: Any, document: dict[str, Any], tensors: dict[str, Tensor], device: torch.device
) -> None:
    """Make of a new estimator the one that :func:`estimator_content` describes."""
    model.set_params(**document["parameters"])
    model.classes_ = classes_from(document["classes"])
    given = document["attributes"]
    model.attributes_ = Attributes(tuple(given["names"]), tuple(map(tuple, given["values"])))
    model.knows_groups_ = bool(document["knows_groups"])
    model.encoder_ = FrameEncoder.from_dict(document["columns"])
    if document["feature_names"]:
        model.feature_names_in_ = np.array(document["feature_names"], dtype=object)
    model.n_features_in_ = int(document["features"])
    model.fit_ = restored_fit(model, document["fit"], tensors, device)
    model.selected_ = int(document["selected"])
    members = len(model.fit_.lambdas)
    require(0 <= model.selected_ < members, f"member {model.selected_} is selected, of {members} members.")
    model.metric_ = document["metric"]
    model.frontier_ = pd.DataFrame(document["frontier"]).astype(float)  # null becomes NaN
    model.posterior_, model.summary_ = document["posterior"], document["summary"]
    model.source_ = document["source"]


def restored_fit(
    model: Any, content: dict[str, Any], tensors: dict[str, Tensor], device: torch.device
) -> Fit:
    """The fit of an estimator whose columns, classes and groups are there."""
    names = tuple(map(word_of, model.classes_))
    return fit_from(content, tensors, model.encoder_.columns, names, model.attributes_, device)
