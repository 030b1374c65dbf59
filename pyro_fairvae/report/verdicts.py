"""What must be said first about a model: that the member that decides is not fair, or decides alike for all.

A member is called *not fair* where the lower end of a 90 % interval of its disparity is above what is
allowed, so that chance alone hardly explains it. Allowed is

- its target, or the ``max_disparity`` that the model was fitted with, if there is one;
- else, where the disparity is a difference between rates, :data:`TOLERANCE`, five points, which is what the
  sensitivity of findings takes for fair as well;
- else :data:`FAR` times the upper end of the fairest member's interval: then it is far above the others'.

Intervals are those of the frontier, on rows held out of training, which an audit anchors on the rows that
state their group (where audits have none for the measure, 1.645 standard errors on either side), and those of
an audit of further rows, if there is one. Either may say so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from pyro_fairvae.auditing import Audit, NumberAudit
from pyro_fairvae.auditing.members import decided_alike
from pyro_fairvae.auditing.sensitivity import TOLERANCE
from pyro_fairvae.evaluation.measures import in_unit, unit_of
from pyro_fairvae.report.text import members_in_words, rows_judged_on
from pyro_fairvae.schema.documents import MembersDocument
from pyro_fairvae.storage.stored_model import StoredModel

FAR = 2.0  # "twice" in words
WITHIN = 1.645  # standard errors of a 90 % interval


@dataclass(frozen=True)
class Verdict:
    """That a member is not fair, by the interval of its disparity on some rows."""

    estimate: float
    low: float
    high: float
    allowed: float
    targeted: bool  # whether that is a target, of the member or asked for
    rows: str
    fairest: int | None  # a member that is surely fairer


def verdicts(model: StoredModel, found: Audit | NumberAudit | None = None) -> list[str]:
    """What must be said first about a model, a line each; nothing if all is well."""
    words = [unfairness_in_words(model, verdict) for verdict in unfairness(model, found)[:1]]
    return words + one_class(model, found)


def unfairness(
    model: StoredModel, found: Audit | NumberAudit | None = None, member: int | None = None
) -> list[Verdict]:
    """By which rows a member, the one that decides, is not fair: those of the frontier, those of an audit."""
    if not model.knows_groups:
        return []
    member = model.selected if member is None else member
    frontier, metric = model.frontier, model.metric
    evidence = [(rows_judged_on(model.summary), _ends(frontier))]
    if isinstance(found, Audit) and metric in found.metrics.index:
        evidence.append((f"the {found.rows['rows']} rows of the audit", _audited_ends(model, found)))
    judged = [_judged(model, member, rows, ends) for rows, ends in evidence]
    return [verdict for verdict in judged if verdict is not None]


def _judged(model: StoredModel, member: int, rows: str, ends: np.ndarray) -> Verdict | None:
    estimate, low, high = ends[member]
    target = float(model.frontier["target"].iloc[member]) if "target" in model.frontier else np.nan
    asked = (model.parameters or {}).get("max_disparity")
    target = float(asked) if asked is not None and np.isnan(target) else target
    others = np.delete(ends, member, axis=0)
    targeted = not np.isnan(target)
    if targeted:
        allowed = target
    elif model.number is None and unit_of(model.metric) == "%":
        allowed = TOLERANCE
    else:
        allowed = FAR * float(np.nanmin(others[:, 2], initial=np.inf))  # infinite without others
    if not low > allowed:
        return None
    surely = np.flatnonzero(ends[:, 2] < low)
    fairest = int(surely[np.argmin(ends[surely, 0])]) if len(surely) else None
    return Verdict(estimate, low, high, allowed, targeted, rows, fairest)


def _ends(frontier: pd.DataFrame) -> np.ndarray:
    """Disparity of each member and the ends of its interval, (members, 3)."""
    disparity, error = (frontier[name].to_numpy(float) for name in ("disparity", "standard_error"))
    low, high = (frontier[name].to_numpy(float) for name in ("low", "high"))
    known = ~np.isnan(low)
    ends = (disparity - WITHIN * error, disparity + WITHIN * error)
    return np.c_[disparity, np.where(known, low, ends[0]), np.where(known, high, ends[1])]


def _audited_ends(model: StoredModel, found: Audit) -> np.ndarray:
    """The same by an audit, of the member that it is of, and of others as far as it judged them."""
    ends = np.full((len(model.frontier), 3), np.nan)
    if (members := members_of(model, found)) is not None:
        for k, member in enumerate(members.members):
            for line in member.measures:
                if line.measure == model.metric:
                    ends[k] = [np.nan if v is None else v for v in (line.estimate, line.low, line.high)]
        return ends
    ends[model.selected] = found.metrics.loc[model.metric, ["estimate", "low", "high"]].to_numpy(float)
    return ends


def members_of(model: StoredModel, found: Audit | NumberAudit | None) -> MembersDocument | None:
    """The members side by side in an audit, unless it is of another frontier."""
    if found is None or found.members is None:
        return None
    return found.members if len(found.members.members) == len(model.frontier) else None


def unfairness_in_words(model: StoredModel, verdict: Verdict) -> str:
    """One plain line."""
    names = named_members(model.frontier)
    words = (
        f"Not fair: the member that {deciding(model)} ({names[model.selected]}) has a "
        f"{model.metric.replace('_', ' ')} of {shown(model, verdict.estimate)}, 90 % interval "
        f"{interval_shown(model, verdict.low, verdict.high)}, on {verdict.rows}; "
        f"{allowed_in_words(model, verdict)}"
    )
    if verdict.fairest is not None:
        error = float(model.frontier["error"].iloc[verdict.fairest])
        words += f". Fairer is {names[verdict.fairest]}, at an error of {error_shown(model, error)}"
    return f"{words}."


def allowed_in_words(model: StoredModel, verdict: Verdict) -> str:
    """What the member is above."""
    allowed = shown(model, verdict.allowed)
    if verdict.targeted:
        return f"its target is {allowed}"
    if model.number is None and unit_of(model.metric) == "%":
        return f"at most {allowed} counts as fair"
    return "that is more than twice what the fairest member's interval reaches"


def one_class(model: StoredModel, found: Audit | NumberAudit | None = None) -> list[str]:
    """A line if the member that decides gives everybody the same class, by all rows that are known."""
    alike = decided_alike(model.selected, model.members, members_of(model, found))
    if alike is None:
        return []
    word, count = alike
    name = named_members(model.frontier)[model.selected]
    return [
        f"Everybody gets one class: the member that decides ({name}) decides {word} for all "
        f"{count} rows that it was judged on."
    ]


def deciding(model: StoredModel) -> str:
    return "decides" if model.number is None else "predicts"


def named_members(frontier: pd.DataFrame) -> list[str]:
    """Each member by its target or its λ."""
    title, names = members_in_words(frontier)
    if title == "target":
        return ["no target" if name == "none" else f"target {name}" for name in names]
    return [f"λ = {name}" for name in names]


def shown(model: StoredModel, value: float) -> str:
    """A disparity with its unit."""
    if model.number is not None:
        return "–" if np.isnan(value) else f"{value:.4g}"
    return f"{in_unit(model.metric, value)} {unit_of(model.metric)}".rstrip()


def error_shown(model: StoredModel, value: float) -> str:
    """An error, in per cent, or in the unit of the outcome."""
    if np.isnan(value):
        return "–"
    return f"{100 * value:.2f} %" if model.number is None else f"{value:.4g}"


def interval_shown(model: StoredModel, low: float, high: float) -> str:
    """The ends of an interval of a disparity, with their unit."""
    first, last = shown(model, low), shown(model, high)
    return f"{first.removesuffix(' %') if last.endswith(' %') else first} to {last}"
