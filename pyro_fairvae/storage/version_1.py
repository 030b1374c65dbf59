"""Models of version 1 of the format, as ``fairvae fit`` of 0.1.0 wrote them, converted to version 2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

OPTIONS = {"estimator": "risk_estimator", "settle": "refine_decisions", "field_every": "propagation_every"}
VALUES = {
    ("risk_estimator", "envelope"): "smoothed",
    ("imputer", "anchored"): "control_variate",
    ("labeller", "field"): "propagation",
}


def upgraded(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document of a model converted to version 2; raises an error if it is not one of version 1."""
    content = dict(document)
    fit, parameters = dict(content["fit"]), dict(content["parameters"])
    fit["settings"] = _options(fit["settings"])
    fit["lambdas"] = fit.pop("weights")
    fit["history"] = [_lambda(row) for row in fit["history"]]
    parameters["lambdas"] = parameters.pop("weights")
    if parameters.get("options") is not None:
        parameters["options"] = _options(parameters["options"])
    posterior = dict(content["posterior"])
    posterior["members"] = [_lambda(member) for member in posterior["members"]]
    del content["features"]  # the number of columns, which ``columns`` determines
    return content | {
        "version": 2,
        "columns": {"type": "table", **content["columns"]},
        "fit": fit,
        "parameters": parameters,
        "frontier": _lambda(content["frontier"]),
        "posterior": posterior,
    }


def renamed(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors by their names in version 2."""
    return {"adjustment" if name == "tilt" else name: value for name, value in tensors.items()}


def _options(options: Mapping[str, Any]) -> dict[str, Any]:
    names = {OPTIONS.get(name, name): value for name, value in options.items()}
    return {
        name: VALUES.get((name, value), value) if isinstance(value, str) else value
        for name, value in names.items()
    }


def _lambda(line: Mapping[str, Any]) -> dict[str, Any]:
    return {"lambda" if name == "weight" else name: value for name, value in line.items()}
