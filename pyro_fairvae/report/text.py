"""Tables of a run in plain text."""

from __future__ import annotations

import math
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit, logit

from pyro_fairvae.base.messages import in_one_line
from pyro_fairvae.channels.channel import Channel
from pyro_fairvae.evaluation.measures import AUDITED, in_unit, titled
from pyro_fairvae.posterior.channel_draws import ChannelDraws
from pyro_fairvae.posterior.summaries import EffectSummary, PosteriorSummary, withheld_groups
from pyro_fairvae.posterior.withholding_check import (
    MOST_SUGGESTED,
    CheckSummary,
    ColumnCheck,
    WithholdingCheck,
)
from pyro_fairvae.schema.attributes import UNAVAILABLE

WIDTH = 110
MOST_EFFECTS = 12  # lines of the table of effects in text


BY_LAMBDA = """
* the largest λ within one point of the smallest λ's validation error whose validation metric is
  within one standard error of the least"""
BY_TARGET = """
* the most accurate with a fifth of the disparity without a target, if it costs at most one point of
  validation error, else the fairest that does"""


def results_table(results: dict[str, Any]) -> str:
    """λ, and error and unfairness on test, a line for each member; the chosen one is starred."""
    chosen = results["metric"]
    metrics = tuple(dict.fromkeys(("error", chosen, "deo", "deo_floor", *AUDITED)))
    titles = [titled(name) for name in metrics]
    title, names = members_in_words(pd.DataFrame(results["members"]))
    lines = [[title, *titles, "validation error %", f"validation {titled(chosen)}", ""]]
    for k, member in enumerate(results["members"]):
        tested = [in_unit(name, member["test"][name]) for name in metrics]
        validated = [in_unit(name, member["val"][name]) for name in ("error", chosen)]
        star = "*" if k == results["selected"] else ""
        lines.append([names[k], *tested, *validated, star])
    return (
        align(lines)
        + "\ndeo floor: the mean DEO that chance alone gives a perfectly fair classifier on this test part"
        + (BY_LAMBDA if title == "λ" else BY_TARGET)
        + "\n  (validation: expected under the learned imputations, without reading hidden values)"
    )


def _percent(share: float) -> str:
    return "–" if math.isnan(share) else f"{100 * share:.2f}"


def check_in_words(check: CheckSummary, depends_on: Sequence[str] = (), again: str = "Fit") -> str:
    """What the check of the assumption on withholding says, with the flag that would mend it.

    ``depends_on`` is what withholding was allowed to depend on.
    """
    words, put, _ = check["says"].partition(" Put into ")
    if not put:
        return words
    named = shlex.quote(",".join([*depends_on, *check["suggestions"][:MOST_SUGGESTED]]))
    return f"{words} {again} again with --withholding-depends-on {named}."


def check_lines(check: CheckSummary | None, depends_on: Sequence[str] = ()) -> str:
    """The lines above the rates of withholding, between rules if the assumption is rejected; else nothing."""
    if check is None:
        return ""
    words = check_in_words(check, depends_on)
    return between_rules([words]) if check["rejected"] else f"{_filled(words)}\n"


def between_rules(lines: Sequence[str]) -> str:
    """Lines that must not be overlooked; nothing without any."""
    if not lines:
        return ""
    words = "\n".join(map(_filled, lines))
    return f"{'!' * WIDTH}\n{words}\n{'!' * WIDTH}\n"


def _filled(words: str) -> str:
    return textwrap.fill(words, WIDTH, break_on_hyphens=False, break_long_words=False)


def suggestion_table(check: CheckSummary | None) -> str:
    """Columns that withholding could depend on, those that explain most first: χ², and the worst category."""
    if check is None:
        return "Columns were not compared: the assumption on withholding was not checked."
    return f"{align(suggestion_lines(check))}\n({SUGGESTED})"


SUGGESTED = (
    "columns that withholding may depend on, ordered by χ² less its degrees of freedom, and of each the "
    "category furthest from what the rates predict; * speaks against the assumption"
)


def suggestion_lines(check: CheckSummary) -> list[list[str]]:
    """The lines of :func:`suggestion_table`, titles first."""
    checked = WithholdingCheck.of(check)
    lines = [["column", "χ²", "degrees", "p", "worst category", "recorded ∅", "predicted", "against"]]
    for column in checked.candidates():
        star = "*" if column.name in check["suggestions"] else ""
        lines.append([*_column_cells(column), star])
    return lines


def _column_cells(column: ColumnCheck) -> list[str]:
    worst = max(column.categories, key=lambda category: category.distance)
    return [
        column.words, f"{column.statistic:.1f}", str(column.degrees), f"{column.p_value:.2g}", worst.name,
        f"{worst.observed:.3f}", f"{worst.expected:.3f}",
    ]  # fmt: skip


def effect_lines(effects: Sequence[EffectSummary]) -> list[list[str]]:
    """What makes people withhold, the largest changes first, titles before them."""
    lines = [["what makes people withhold", "log-odds of ∅", "5 %", "95 %"]]
    for effect in ordered_effects(effects):
        numbers = [f"{value:+.3f}" for value in (effect["mean"], effect["q05"], effect["q95"])]
        lines.append([effect_name(effect, effects), *numbers])
    return lines


def ordered_effects(effects: Sequence[EffectSummary]) -> list[EffectSummary]:
    return sorted(effects, key=lambda effect: abs(effect["mean"]), reverse=True)


def effect_name(effect: EffectSummary, among: Sequence[EffectSummary]) -> str:
    """The column of an effect, with the attribute that is withheld where there are several."""
    several = len({other["attribute"] for other in among}) > 1
    return f"{effect['attribute']}: {effect['column']}" if several else effect["column"]


EFFECTS_MEAN = (
    "change in the log-odds of withholding, the same in every group, against the average of all people; a "
    "piece of a number: from its lower to its upper end"
)


def effects_table(effects: Sequence[EffectSummary]) -> str:
    """The largest effects on withholding with 90 % intervals; nothing if there are none."""
    if not effects:
        return ""
    lines = effect_lines(effects)
    rest = len(lines) - 1 - MOST_EFFECTS
    more = f"\n… and {rest} more" if rest > 0 else ""
    return f"{align(lines[: MOST_EFFECTS + 1])}{more}\n({EFFECTS_MEAN})"


def withholding_table(posterior: PosteriorSummary, depends_on: Sequence[str] = ()) -> str:
    """How often each group withholds: posterior mean, 90 % interval, and truth or yardstick where known.

    Above it what the check of the assumption says, below it what makes people withhold. ``depends_on`` is
    what withholding was allowed to depend on.
    """
    rows = withheld_groups(posterior)
    one_attribute = not any(": " in label for label in rows)
    greek = dict(zip(rows, "βα", strict=True)) if len(rows) == 2 and one_attribute else {}
    known = [key for key in ("truth", "yardstick") if any(key in row for row in rows.values())]
    lines = [["P(∅ | group)", "", "mean", "5 %", "95 %", *known]]
    for label, rate in reversed(rows.items()):
        numbers = [f"{value:.3f}" for value in (rate["mean"], rate["q05"], rate["q95"])]
        given: Mapping[str, Any] = rate
        numbers += [f"{given[key]:.3f}" if key in given else "–" for key in known]
        lines.append([label, greek.get(label, ""), *numbers])
    return with_check_and_effects(posterior, depends_on, align(lines))


def with_check_and_effects(posterior: PosteriorSummary, depends_on: Sequence[str], table: str) -> str:
    """A table of rates between what the check says, and notes, warnings and effects."""
    warnings = "".join(f"\nwarning: {words}" for words in posterior["warnings"])
    effects = effects_table(posterior["effects"])
    return (
        f"{check_lines(posterior['check'], depends_on)}{table}\n({posterior['describes']}){warnings}"
        + f"\n\n{effects}" * bool(effects)
    )


def members_in_words(frontier: pd.DataFrame) -> tuple[str, list[str]]:
    """What the members of a frontier differ in, target or λ, and its value for each of them."""
    if "lambda" not in frontier or ("target" in frontier and frontier["target"].notna().any()):
        return "target", ["none" if pd.isna(target) else f"{target:g}" for target in frontier["target"]]
    return "λ", [f"{weight:g}" for weight in frontier["lambda"]]


def rows_judged_on(summary: Mapping[str, Any]) -> str:
    """The rows that members of a frontier were compared on, in words, from a model's summary."""
    if summary["held_out_rows"]:
        return f"{summary['held_out_rows']} rows held out of training"
    return f"the {summary['training_rows']} rows of the table, each scored by trees not grown on it"


def frontier_table(
    frontier: pd.DataFrame, selected: int, metric: str, judged_on: str = "rows held out of training"
) -> str:
    """Error and disparity of each member, the chosen one starred; ``judged_on`` says on which rows."""
    title, names = members_in_words(frontier)
    spread, of_spread, note = spread_columns(frontier)
    paid = ["cost"] if "cost" in frontier else []
    lines = [[title, "error %", *paid, titled(metric), *of_spread, ""]]
    for k, (name, (_, member)) in enumerate(zip(names, frontier.iterrows(), strict=True)):
        numbers = [f"{member[column]:.4g}" for column in paid]
        numbers += [in_unit(metric, member[column]) for column in ("disparity", *spread)]
        lines.append([name, _percent(member["error"]), *numbers, "*" if k == selected else ""])
    return align(lines) + f"\n(on {judged_on}, groups as imputed; {note}; * is the member that decides)"


def spread_columns(frontier: pd.DataFrame) -> tuple[list[str], list[str], str]:
    """The columns that say how far disparities may be off, their titles, and a note on them."""
    if frontier["low"].isna().all():
        return ["standard_error"], ["± s.e."], "standard errors take the imputation as certain"
    note = "5 % and 95 %: ends of an audit's 90 % interval, which is anchored on rows that state their group"
    return ["low", "high"], ["5 %", "95 %"], note


def channels_table(
    channels: pd.DataFrame, posterior: PosteriorSummary, depends_on: Sequence[str] = ()
) -> str:
    """How often each group is withheld, and how often the label of each class.

    Check and effects are shown as in :func:`withholding_table`.
    """
    return with_check_and_effects(posterior, depends_on, align(rate_lines(channels)))


def rate_lines(channels: pd.DataFrame) -> list[list[str]]:
    """The lines of :func:`channels_table`, titles first."""
    lines = [["withheld by", "", "rate", "5 %", "95 %"]]
    for _, line in channels.iterrows():
        numbers = [f"{line[name]:.3f}" for name in ("withheld", "low", "high")]
        lines.append([str(line["what"]), str(line["of"]), *numbers])
    return lines


def posterior_table(rows: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """Every outcome of every row: prior, posterior, contraction, diagnostics of the chains, and the truth."""
    outcomes = [summary for row in rows.values() for summary in row.values()]
    titles = {"ess": "ESS", "r_hat": "R̂", "truth": "truth", "yardstick": "yardstick"}
    optional = [key for key in titles if any(key in summary for summary in outcomes)]
    lines = [["given", "says", "prior", "90 %", "posterior", "90 %", "contraction"]]
    lines[0] += [titles[key] for key in optional]
    for label, row in rows.items():
        for outcome, summary in row.items():
            before = summary["prior"]
            numbers = [
                f"{before['mean']:.3f}",
                _interval(before),
                f"{summary['mean']:.3f}",
                _interval(summary),
            ]
            digits = {key: ".0f" if key == "ess" else ".3f" for key in optional}
            extra = [format(summary[key], digits[key]) if key in summary else "" for key in optional]
            lines.append([label, outcome, *numbers, f"{summary['contraction']:.3f}", *extra])
    return align(lines)


def prior_table(channel: Channel, rows: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """Every outcome of every row of a prior: concentration, mean, 90 % interval; the weight of each row."""
    lines = [["given", "says", "mass", "mean", "90 %"]]
    for row in channel.rows:
        for outcome, mass in zip(row.outcomes, row.prior, strict=True):
            before = rows[row.label][outcome]["prior"]
            lines.append([row.label, outcome, f"{mass:g}", f"{before['mean']:.3f}", _interval(before)])
    worth = ", ".join(f"{row.label} {sum(row.prior):g}" for row in channel.rows)
    honest = "nobody can misstate" if channel.truthful else "people may misstate"
    return f"{align(lines)}\n(worth, in people: {worth}; {honest})"


def dependence_table(draws: ChannelDraws, names: Sequence[str], scale: float) -> str:
    """What a prior with w ~ N(0, scale²) implies for P(∅|a,v) where w·v is one standard deviation from 0."""
    lines = [["given", "at the mean of v", "90 %", "one s.d. less", "90 %", "one s.d. more", "90 %"]]
    for r, row in enumerate(draws.channel.rows):
        if UNAVAILABLE not in row.outcomes:
            continue
        rate = draws.of(r, UNAVAILABLE).ravel()
        cells = [row.label]
        for shift in (0.0, -scale, scale):
            shifted = expit(logit(rate) + shift)
            low, high = np.quantile(shifted, (0.05, 0.95))
            cells += [f"{shifted.mean():.3f}", f"[{low:.3f}, {high:.3f}]"]
        lines.append(cells)
    return (
        f"Withholding may also depend on {', '.join(names)}: each effect on the log-odds of ∅ is N(0, "
        f"{scale:g}²).\n{align(lines)}\n(P(∅ | given, v), where v moves the log-odds by one standard "
        f"deviation of an effect, {scale:g})"
    )


def _interval(summary: Mapping[str, Any]) -> str:
    return f"[{summary['q05']:.3f}, {summary['q95']:.3f}]"


def imputation_table(imputation: dict[str, Any]) -> str:
    """Scores of the imputations where the test part, masked like the training part, has ∅."""
    lines = [["hidden", "imputer", "accuracy %", "log score", "calibration error %"]]
    for what, by_imputer in imputation.items():
        for imputer, scores in by_imputer.items():
            shown = [
                _percent(scores["accuracy"]),
                f"{scores['log_score']:.3f}",
                _percent(scores["calibration"]),
            ]
            lines.append([what, imputer, *shown])
    return align(lines)


def decision_table(results: dict[str, Any]) -> str:
    """Objective and metrics of rounding and of the decided labels."""
    metrics = ("error", *AUDITED)
    lines = [["labels", "objective", *(f"{name} %" for name in metrics)]]
    for which in ("rounded", "decided"):
        numbers = [_percent(results["metrics"][which][name]) for name in metrics]
        lines.append([which, f"{results['objective'][which]:.5f}", *numbers])
    return (
        f"{results['part']} rows, member {results['member']}, λ = {results['lambda']:g}, "
        f"rule {results['rule']}: {results['changed']} labels differ from rounding\n{align(lines)}"
    )


def align(lines: list[list[str]]) -> str:
    """Columns of equal width; all but the first are right-aligned. A line break in a cell is escaped."""
    lines = [[in_one_line(cell) for cell in line] for line in lines]
    widths = [max(len(line[j]) for line in lines) for j in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if j == 0 else cell.rjust(width)
            for j, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
