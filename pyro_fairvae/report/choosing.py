"""The part of a model's page by which a member is chosen: a slider, and what each member does to whom."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.ticker import MaxNLocator

from pyro_fairvae.auditing import Audit, NumberAudit
from pyro_fairvae.auditing.number_audit import WHAT
from pyro_fairvae.base.documents import finite_or_nan
from pyro_fairvae.evaluation.measures import unit_of
from pyro_fairvae.report.drawings import Bar, Plane, Point
from pyro_fairvae.report.page import (
    Bars,
    Block,
    Choice,
    Chooser,
    Command,
    Grid,
    Notice,
    Tile,
    Tiles,
)
from pyro_fairvae.report.statements import measure_in_words
from pyro_fairvae.report.text import members_in_words, rows_judged_on
from pyro_fairvae.report.verdicts import (
    allowed_in_words,
    deciding,
    error_shown,
    interval_shown,
    members_of,
    named_members,
    shown,
    unfairness,
)
from pyro_fairvae.schema.documents import MemberFigures, MemberMeasure, MemberRate, MembersDocument
from pyro_fairvae.storage.stored_model import StoredModel

FEW = 20  # stating rows below which a rate is marked


@dataclass(frozen=True)
class SideBySide:
    """The members' figures that a page shows, and the rows that they are of, in words."""

    document: MembersDocument
    rows: str

    @staticmethod
    def of(model: StoredModel, found: Audit | NumberAudit | None) -> SideBySide | None:
        """Those of the audit, whose rows no member was chosen by, or else those kept in the model."""
        if (audited := members_of(model, found)) is not None:
            return SideBySide(audited, f"the {audited.rows.rows} rows of the audit")
        return None if model.members is None else SideBySide(model.members, rows_judged_on(model.summary))


def choosing(model: StoredModel, found: Audit | NumberAudit | None, word: str) -> list[Block]:
    """The slider, and a table of what it shows; ``word`` is the model's folder, quoted for commands."""
    title, _ = members_in_words(model.frontier)
    sides, order = SideBySide.of(model, found), in_order(model)
    names = named_members(model.frontier)
    choices = [_choice(model, found, sides, k, word) for k in order]
    label = (
        "Target: the largest disparity that is allowed" if title == "target" else "λ: the weight of fairness"
    )
    back = f"Back to {names[model.selected]}"
    blocks: list[Block] = [
        "What each member would do, on people whom it was not trained on. Disparity is "
        f"{measure_in_words(model)}."
    ]
    if len(choices) > 1:
        blocks.append(
            Chooser(
                f"{label} ({len(choices)} members)",
                ("no fairness" if _has_unfair(model) else "least fair", "fairest"),
                back,
                choices,
                order.index(model.selected),
                _plane(model, order),
            )
        )
    else:
        blocks += [f"The model has one member, {names[0]}.", choices[0].words, *choices[0].blocks]
    if sides is None:
        return [*blocks, _lacking(model)]
    if len(choices) > 1:
        blocks.append(every_member(model, sides, order))
    return blocks


def in_order(model: StoredModel) -> list[int]:
    """Members from the one without fairness to the fairest by target or λ."""
    frontier = model.frontier
    if members_in_words(frontier)[0] == "target":
        strict = frontier["target"].fillna(np.inf).to_numpy(float)
        return [int(k) for k in np.argsort(-strict, kind="stable")]
    return [int(k) for k in np.argsort(frontier["lambda"].to_numpy(float), kind="stable")]


def _has_unfair(model: StoredModel) -> bool:
    """Whether one of the members was made without fairness."""
    frontier = model.frontier
    if members_in_words(frontier)[0] == "target":
        return bool(frontier["target"].isna().any())
    return bool((frontier["lambda"] == 0).any())


def _lacking(model: StoredModel) -> str:
    if not model.knows_groups:
        return "The model was fitted without groups, so there are no rates by group."
    return (
        "This model keeps no rates by group of its members, nor who gains and who loses a decision: it was "
        "written by an earlier version, or nobody among the held-out rows states a group. An audit adds them."
    )


def _choice(
    model: StoredModel,
    found: Audit | NumberAudit | None,
    sides: SideBySide | None,
    k: int,
    word: str,
) -> Choice:
    name = named_members(model.frontier)[k] + f" ({deciding(model)})" * (k == model.selected)
    blocks: list[Block] = []
    verdict = next(iter(unfairness(model, found, k)), None)
    if verdict is not None:
        words = f"Not fair: on {verdict.rows} its disparity is {shown(model, verdict.estimate)}, 90 % "
        words += f"interval {interval_shown(model, verdict.low, verdict.high)}; "
        blocks.append(Notice(f"{words}{allowed_in_words(model, verdict)}."))
    blocks.append(Tiles(_tiles(model, sides, k)))
    if sides is not None:
        blocks += _rates(model, sides, k)
    title, names = members_in_words(model.frontier)
    if names[k] != "none" and len(names) > 1:
        flag = "max-disparity" if title == "target" else "lambda"
        command = f"fairvae predict {word} DATA --{flag} {names[k]}"
        blocks.append(Command(f"To {deciding(model)[:-1]} by it:", command))
    return Choice(name, _in_a_sentence(model, k), blocks)


def _in_a_sentence(model: StoredModel, k: int) -> str:
    """Error and disparity, as a screen reader tells them where the slider moves."""
    member, name = model.frontier.iloc[k], named_members(model.frontier)[k]
    start = name[0].upper() if name[0].isascii() else name[0]  # not of λ
    words = (
        f"{start}{name[1:]}: error {error_shown(model, member['error'])}, "
        f"{model.metric.replace('_', ' ')} {shown(model, member['disparity'])}"
    )
    if not math.isnan(member["low"]):
        words += f" ({interval_shown(model, member['low'], member['high'])})"
    return f"{words}."


def _who_gains(model: StoredModel, document: MembersDocument, k: int) -> str:
    """Who gains and who loses, in a sentence; nothing where there are several kinds of gains."""
    changes, against = document.members[k].changes, named_members(model.frontier)[document.against]
    if model.number is not None:
        changed = [f"{line.group} {_signed(line.estimate)}" for line in changes]
        return f"Mean change of predictions against {against}: {', '.join(changed)}."
    if len({line.rate for line in changes}) != 2:  # several classes
        return ""
    gained, lost = changes[: len(changes) // 2], changes[len(changes) // 2 :]
    told = [
        f"{gain.group}, {_per_thousand(gain.estimate)} gain and {_per_thousand(loss.estimate)} lose it"
        for gain, loss in zip(gained, lost, strict=False)
    ]
    decision = gained[0].rate.removeprefix("gain the ")
    return f"Of 1,000 people of each group, against {against}, the {decision}: {'; '.join(told)}."


def _tiles(model: StoredModel, sides: SideBySide | None, k: int) -> list[Tile]:
    member = model.frontier.iloc[k]
    held_out = rows_judged_on(model.summary)
    tiles = [Tile(f"error on {held_out}", error_shown(model, member["error"]), _cost(model, sides, k))]
    if not math.isnan(member["disparity"]):
        low, high, kind = member["low"], member["high"], "90 % interval"
        if math.isnan(low):
            error = member["standard_error"]
            low, high, kind = member["disparity"] - error, member["disparity"] + error, "± one standard error"
        note = "" if math.isnan(low) else f"{kind}: {interval_shown(model, max(low, 0.0), high)}"
        title = f"{model.metric.replace('_', ' ')} on the same rows, groups as imputed"
        tiles.append(Tile(title, shown(model, member["disparity"]), note))
    if sides is None:
        return tiles
    figures = sides.document.members[k]
    interval = f"{100 * sides.document.confidence:g} % interval"
    if "audit" in sides.rows and figures.error is not None:
        tiles.append(Tile(f"error on {sides.rows}", error_shown(model, figures.error)))
    for line in figures.measures:
        estimate, low, high = map(finite_or_nan, (line.estimate, line.low, line.high))
        if math.isnan(estimate):
            continue
        if model.number is not None:
            value, ends = f"{estimate:.4g}", f"{low:.4g} to {high:.4g}"
            name = f"{WHAT.get(line.measure, line.measure)}, largest difference between groups,"
        else:
            value, ends = f"{100 * estimate:.2f} %", f"{100 * low:.2f} to {100 * high:.2f} %"
            name = line.measure
        tiles.append(Tile(f"{name} by {_by(sides)}", value, f"{interval}: {ends}"))
    return tiles


def _by(sides: SideBySide) -> str:
    return "the audit" if "audit" in sides.rows else "an audit of these rows"


def _cost(model: StoredModel, sides: SideBySide | None, k: int) -> str:
    """What a member's fairness costs in error."""
    if sides is None or k == sides.document.against:
        return ""
    against = sides.document.against
    more = float(model.frontier["error"].iloc[k] - model.frontier["error"].iloc[against])
    if math.isnan(more):
        return ""
    words = f"{100 * more:+.2f} points" if model.number is None else f"{more:+.4g}"
    return f"{words} against {named_members(model.frontier)[against]}".replace("-", "−")


def _rates(model: StoredModel, sides: SideBySide, k: int) -> list[Block]:
    """Rates of each group under a member, and who gains and who loses."""
    document = sides.document
    figures, others = document.members[k], document.members
    shown_as = f"{100 * document.confidence:g} % intervals"
    few = f"; * fewer than {FEW} rows state the group" * any(line.stated_rows < FEW for line in figures.rates)
    number = model.number is not None
    caption = f"{'Means' if number else 'Rates'} by group on {sides.rows}, with {shown_as}{few}"
    blocks: list[Block] = [
        Bars(caption, _bars(figures.rates, number), ends=_axes(others, "rates") if number else None)
    ]
    if k == document.against:
        return [*blocks, "Gains and losses of the other members are against this one."]
    against = named_members(model.frontier)[document.against]
    axes = _axes(others, "changes")
    if told := _who_gains(model, document, k):
        blocks.insert(0, told)
    who = "How predictions change" if number else "Who gains and who loses a decision"
    blocks.append(
        Bars(
            f"{who} against {against}, on the same rows, with {shown_as}",
            _bars(figures.changes, number),
            ends=axes,
        )
    )
    return blocks


def _bars(lines: Sequence[MemberRate], number: bool) -> list[Bar]:
    bars = []
    for line in lines:
        value, low, high = map(finite_or_nan, (line.estimate, line.low, line.high))
        words, ends = "–", ""
        if not math.isnan(value):
            words = _plain(value) if number else f"{100 * value:.1f} %"
            ends = f"[{_plain(low)}, {_plain(high)}]" if number else f"[{100 * low:.1f}, {100 * high:.1f}]"
        name = line.group + " *" * (line.stated_rows < FEW)
        bars.append(Bar(line.rate, name, value, low, high, words, ends))
    return bars


def _axes(members: Sequence[MemberFigures], what: str) -> dict[str, tuple[float, float]]:
    """The same ends for all members, so that bars can be compared as the slider moves."""
    ends: dict[str, tuple[float, float]] = {}
    for member in members:
        for line in getattr(member, what):
            known = [value for value in (line.low, line.high, line.estimate) if value is not None]
            low, high = ends.get(line.rate, (0.0, 0.0) if what == "changes" else (math.inf, -math.inf))
            ends[line.rate] = (min([low, *known]), max([high, *known]))
    if what == "changes":  # gains and losses of the same size look the same
        least, most = min(low for low, _ in ends.values()), max(high for _, high in ends.values())
        return dict.fromkeys(ends, (least, most if least < 0 else max(most, 0.1)))
    return {kind: pair if pair[0] <= pair[1] else (0.0, 1.0) for kind, pair in ends.items()}


def every_member(model: StoredModel, sides: SideBySide, order: Sequence[int]) -> Grid:
    """What the slider shows, of all members, side by side for each figure."""
    title, names = members_in_words(model.frontier)
    document, number = sides.document, model.number is not None
    lines = [["what", "group", title, "estimate", f"{100 * document.confidence:g} %", "stated rows"]]

    def add(what: str, group: str, k: int, found: MemberRate | MemberMeasure, stated: str) -> None:
        values = [finite_or_nan(value) for value in (found.estimate, found.low, found.high)]
        cells = ["–" if math.isnan(v) else _plain(v) if number else f"{100 * v:.1f}" for v in values]
        lines.append([what, group, names[k], cells[0], f"[{cells[1]}, {cells[2]}]", stated])

    members = document.members
    for j, measure in enumerate(members[0].measures):
        for k in order:
            what = WHAT.get(measure.measure, measure.measure) if number else measure.measure
            add(what, "largest difference", k, members[k].measures[j], "–")
    for kind in ("rates", "changes"):
        for j, line in enumerate(getattr(members[0], kind)):
            for k in order:
                found: MemberRate = getattr(members[k], kind)[j]
                if kind == "rates" or k != document.against:
                    add(line.rate, line.group, k, found, str(found.stated_rows))
    unit = "" if number else ", in per cent"
    note = f"On {sides.rows}{unit}; gains, losses and changes are against {names[document.against]}."
    return Grid("Groups under every member", lines, note, heading=2)


def _plane(model: StoredModel, order: Sequence[int]) -> Plane | None:
    frontier = model.frontier.iloc[list(order)]
    disparity, error = (frontier[name].to_numpy(float) for name in ("disparity", "error"))
    if not np.isfinite(disparity).any() or not np.isfinite(error).any():
        return None
    spread = frontier["standard_error"].to_numpy(float)
    low, high = (frontier[name].to_numpy(float) for name in ("low", "high"))
    known = ~np.isnan(low)
    low, high = np.where(known, low, disparity - spread), np.where(known, high, disparity + spread)
    points = [
        Point(*map(float, point)) for point in zip(disparity, error, np.maximum(low, 0), high, strict=True)
    ]
    percent = model.number is None
    return Plane(
        points,
        f"{model.metric.replace('_', ' ')} on held-out rows",
        "error on held-out rows",
        _ticks(np.r_[0.0, disparity, high], percent and unit_of(model.metric) == "%"),
        _ticks(error, percent),
    )


def _ticks(values: np.ndarray, percent: bool) -> list[tuple[float, str]]:
    known = values[np.isfinite(values)]
    low, high = float(known.min()), float(known.max())
    least = 0.01 if percent else 0.01 * max(abs(low), abs(high), 1e-9)  # that an axis is long
    aside = max(least - (high - low), 0.0) / 2
    ticks = MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]).tick_values(max(low - aside, 0.0), high + aside)
    return [(float(tick), f"{100 * tick:.4g} %" if percent else f"{tick:.4g}") for tick in ticks]


def _plain(value: float) -> str:
    return f"{value:.4g}".replace("-", "−")


def _per_thousand(value: float | None) -> str:
    return "–" if value is None else f"{1000 * value:.0f}"


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.4g}".replace("-", "−")
