"""Custom risks: any function F(P_f, y, a) that passes the checks at registration."""

from __future__ import annotations

import importlib
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyro_fairvae.base.errors import InputError, choose, require
from pyro_fairvae.base.messages import first_line
from pyro_fairvae.base.seeds import seeded
from pyro_fairvae.risks.gaps import RISKS

Function = Callable[[Tensor, Tensor, Tensor], Tensor]
# A metric of decisions, called with y, decisions, a, number of classes, weight of each row.
OwnMetric = Callable[[np.ndarray, np.ndarray, np.ndarray, int, np.ndarray], float]
RESULT_NAMES = ("error", "positive_rate", "risk", "standard_error", "deo_floor")  # names used in results


@dataclass(frozen=True)
class CustomRisk:
    """A risk F(P_f, y, a) that is not a function of cell sums.

    F takes P_f, (members, 1, rows, classes), and draws y and a, (members, samples, rows) each, and returns
    (members, samples). ``bound`` is C of Theorem 1, or None. ``metric`` is the matching metric of
    decisions, used to select members: a function of labels, decisions and groups, (rows,) each, the number of
    classes and the weight of each row. Equal rows may be merged into one with their total weight. Without a
    metric, DEO is used.
    """

    name: str
    function: Function
    bound: float | None = None
    metric: OwnMetric | None = None


CUSTOM: dict[str, CustomRisk] = {}


def register(
    name: str, function: Function, bound: float | None = None, metric: OwnMetric | None = None
) -> CustomRisk:
    """Register a custom risk by name, after checking its shape, finiteness and gradient.

    Parameters
    ----------
    name : str
        Name that selects it in settings, ``RiskSettings(risk=name)`` or ``FairSSVAEClassifier(risk=name)``.
    function : callable
        F(P_f, y, a), which takes P_f, (members, 1, rows, classes), and draws y and a, (members, samples,
        rows) each, and returns (members, samples).
    bound : float, optional
        C of Theorem 1, the largest value that F takes.
    metric : callable, optional
        The metric of decisions by which a member is selected, a function of y, the decisions, a, the number
        of classes and the weights of rows; DEO unless given.

    Returns
    -------
    CustomRisk
        The registered risk.

    Raises
    ------
    InputError
        If the name is taken, or F fails on random draws: wrong shape, or a value or gradient that is invalid.

    Examples
    --------
    The variance over groups of the mean probability of the last class:

    >>> import torch
    >>> from pyro_fairvae import register_risk
    >>> def variance_between_groups(p, y, a):
    ...     of_group = torch.nn.functional.one_hot(a, 2).to(p)
    ...     means = (p[..., -1:] * of_group).sum(-2) / of_group.sum(-2).clamp(min=1)
    ...     return means.var(-1)
    >>> register_risk("variance_between_groups", variance_between_groups, bound=0.5).name
    'variance_between_groups'
    """
    require(name not in (*RISKS, *RESULT_NAMES), f"the risk {name!r} exists already; choose another name.")
    require(callable(function), f"the risk {name!r} must be a function, got {type(function).__name__}.")
    members, samples, rows, classes, groups = 2, 3, 40, 2, 2
    with seeded(0):
        logits = torch.randn(members, 1, rows, classes, requires_grad=True)
        y = torch.randint(classes, (members, samples, rows))
        a = torch.randint(groups, (members, samples, rows))
    value = _tried(f"the risk {name!r}", function, logits.softmax(-1), y, a)
    expected = (members, samples)
    require(
        isinstance(value, Tensor) and value.shape == expected,
        f"the risk {name!r} must return a tensor of shape {expected} (members, samples), but returned "
        f"{tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__}.",
    )
    require(bool(value.isfinite().all()), f"the risk {name!r} returned a value that is not finite: {value}.")
    require(
        value.requires_grad,
        f"the risk {name!r} has no gradient with respect to P_f; compute it from P_f in torch.",
    )
    (gradient,) = torch.autograd.grad(value.sum(), logits, allow_unused=True)
    require(
        gradient is not None and bool(gradient.isfinite().all()) and bool((gradient != 0).any()),
        f"the gradient of the risk {name!r} with respect to P_f is zero or not finite.",
    )
    if metric is not None:
        _check_metric(name, metric, y[0, 0].numpy(), a[0, 0].numpy(), classes)
    CUSTOM[name] = CustomRisk(name, function, bound, metric)
    return CUSTOM[name]


def _check_metric(name: str, metric: OwnMetric, y: np.ndarray, a: np.ndarray, classes: int) -> None:
    what = f"the metric of the risk {name!r}"
    require(callable(metric), f"{what} must be a function, got {type(metric).__name__}.")
    decided = np.arange(len(y)) % classes
    value = _tried(what, metric, y, decided, a, classes, np.ones(len(y)))
    try:
        finite = math.isfinite(value)
    except (TypeError, ValueError):
        finite = False
    require(finite, f"{what} must return a finite number, but returned {value!r}.")


def _tried(what: str, function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except Exception as reason:  # user code may raise anything
        raise InputError(
            f"{what} could not be evaluated: {type(reason).__name__}, {first_line(reason)}."
        ) from reason


def is_reference(name: str) -> bool:
    """Whether a risk is named as ``module:function``."""
    return ":" in name


def check_reference(name: str) -> None:
    """Raise unless ``name`` is ``module:function`` with valid Python names. Nothing is imported."""
    module, _, function = name.partition(":")
    require(
        function.isidentifier() and all(part.isidentifier() for part in module.split(".")),
        f"a risk of your own is named as module:function, such as my_risk:gap, got {name!r}.",
    )


def resolve(name: str) -> CustomRisk:
    """The risk ``module:function``, imported from the current directory or the path, and registered.

    Attributes ``metric`` and ``bound`` of the function, if present, are passed to :func:`register`.
    Importing runs the module's code, so use this only for names given by the user, not for names from a file.
    """
    if name in CUSTOM:
        return CUSTOM[name]
    check_reference(name)
    require(
        _imports_allowed.get(),
        f"the risk {name!r} refers to a module, which is not imported because the name comes from a file. "
        "Import it first by pyro_fairvae.risks.custom.resolve.",
    )
    module_name, _, attribute = name.partition(":")
    module = _imported(module_name)
    choose(f"function of {module_name}", attribute, [public for public in vars(module) if public[0] != "_"])
    function = getattr(module, attribute)
    return register(name, function, getattr(function, "bound", None), getattr(function, "metric", None))


_imports_allowed: ContextVar[bool] = ContextVar("imports_allowed", default=True)


@contextmanager
def without_imports() -> Iterator[None]:
    """Inside the ``with`` block :func:`resolve` does not import modules: for settings read from a file."""
    token = _imports_allowed.set(False)
    try:
        yield
    finally:
        _imports_allowed.reset(token)


def _imported(name: str) -> ModuleType:
    here = os.getcwd()
    sys.path.append(here)
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as reason:
        if reason.name is None or not f"{name}.".startswith(f"{reason.name}."):
            raise InputError(
                f"the module {name} of the risk cannot be imported: {first_line(reason)}."
            ) from reason
        raise InputError(
            f"there is no module {reason.name!r} in {here} or among the installed ones; a risk of your own "
            "is named as module:function."
        ) from reason
    except Exception as reason:  # user code may raise anything
        raise InputError(
            f"the module {name} of the risk cannot be imported: {type(reason).__name__}, "
            f"{first_line(reason)}."
        ) from reason
    finally:
        sys.path.remove(here)
