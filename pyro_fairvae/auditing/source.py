"""What an audit was made of, from which its further tables are made when they are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pyro_fairvae.auditing.control_variates import AuditedRows, ControlVariates
from pyro_fairvae.base.errors import InputError
from pyro_fairvae.schema.attributes import Attributes


@dataclass(frozen=True)
class AuditCall:
    """What :func:`~pyro_fairvae.audit` was given, as far as other groups of the same rows need it."""

    y_true: Any
    y_pred: Any
    sensitive_features: Any
    X: Any  # where withholding depends on columns of it
    depends_on: str
    names: tuple[str, ...]
    confidence: float
    missing_values: tuple[Any, ...]
    sample_weight: np.ndarray | None = None  # with the mean 1
    clusters: Any = None
    kind: str | None = None  # of frame that it was given, if not of pandas


@dataclass(frozen=True)
class AuditSource:
    """Rows and estimates of an audit; ``everyone`` has the rows that it left out, too."""

    estimates: ControlVariates
    everyone: AuditedRows
    positive: int
    words: tuple[str, ...]  # of the classes
    attributes: Attributes
    imputed: np.ndarray | None  # P(a | row) of everyone
    scores: np.ndarray | None  # of everyone
    call: AuditCall


def source_of(source: AuditSource | None, what: str) -> AuditSource:
    """The rows of an audit, which one that was read from a file, or sent to another process, lacks."""
    if source is None:
        raise InputError(
            f"this audit was stored, and holds no rows to make {what} of; call it on what audit(...) "
            "returns, or ask fairvae audit for it."
        )
    return source
