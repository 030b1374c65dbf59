"""A model card, as Markdown and as JSON, with the content of the model's page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pyro_fairvae import __version__
from pyro_fairvae.auditing import AUDITED, Audit, NumberAudit
from pyro_fairvae.auditing.number_audit import ASSUMED, WHAT
from pyro_fairvae.auditing.tables import plain
from pyro_fairvae.base.documents import check_document, sealed_content
from pyro_fairvae.base.errors import choose
from pyro_fairvae.base.files import json_text, write_whole
from pyro_fairvae.base.messages import in_one_line
from pyro_fairvae.evaluation.measures import in_unit, unit_of
from pyro_fairvae.posterior.summaries import withholding_rates
from pyro_fairvae.report.statements import (
    audit_command,
    depends_in_words,
    intended_use,
    limits_of,
    measure_in_words,
    opening_of,
    source_in_words,
    without_audit,
)
from pyro_fairvae.report.text import check_in_words, rows_judged_on
from pyro_fairvae.report.verdicts import named_members, unfairness, verdicts
from pyro_fairvae.schema.attributes import UNAVAILABLE
from pyro_fairvae.schema.documents import CardAudit, CardDocument, as_plain
from pyro_fairvae.storage.stored_model import StoredModel

NOT_CHECKED = "The assumption on withholding was not checked."
SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~$&!])")  # in Markdown


def write_card(path: Path, card: CardDocument) -> None:
    """Write a card as its file's name says: ``.md`` for people, ``.json`` for programs."""
    write_whole(path, CARD_KINDS[choose("ending of a model card", path.suffix, CARD_KINDS)](card))


def _as_json(card: CardDocument) -> str:
    return json_text(sealed_content(as_plain(card)))


def model_card(model: StoredModel, found: Audit | NumberAudit | None, name: str) -> CardDocument:
    """What the page of a model says, as a document."""
    content = {
        "format": "pyro_fairvae model card",
        "version": 1,
        "library": __version__,
        "model": name,
        "predicts": "classes" if model.number is None else "numbers",
        "what": opening_of(model),
        "first": verdicts(model, found),
        "intended_use": intended_use(model),
        "limits": list(limits_of(model)),
        "data": source_in_words(model),
        "contents": model.summary,
        "metric": model.metric,
        "measure": measure_in_words(model),
        "unit": "" if model.number is not None else unit_of(model.metric),
        "judged_on": rows_judged_on(model.summary),
        "members": _members(model, found),
        "withholding": _withholding(model),
        "audit": None if found is None else _audit(found),
        "missing": "" if found is not None else f"{without_audit(model)} {audit_command(model, name)}",
    }
    return check_document(plain(content), CardDocument, "the card", "a model card")


def _members(model: StoredModel, found: Audit | NumberAudit | None) -> list[dict[str, Any]]:
    names, frontier = named_members(model.frontier), model.frontier
    columns = ["error", "disparity", "standard_error", "low", "high"]
    return [
        {"name": name, "decides": k == model.selected, "not_fair": bool(unfairness(model, found, k))}
        | dict(zip(columns, map(float, frontier[columns].iloc[k]), strict=True))
        for k, name in enumerate(names)
    ]


def _withholding(model: StoredModel) -> dict[str, Any]:
    posterior, check = model.posterior, model.posterior["check"]
    rates = withholding_rates(posterior, model.knows_groups)
    return {
        "assumed": depends_in_words(model) if model.knows_groups else "No groups were given.",
        "rates": [
            {"what": line["what"], "of": line["of"], "rate": line["withheld"]}
            | {end: line[end] for end in ("low", "high")}
            for line in rates.to_dict("records")
        ],
        "describes": posterior["describes"],
        "check": NOT_CHECKED if check is None else check_in_words(check, model.depends_on),
        "rejected": None if check is None else check["rejected"],
        "effects": [dict(effect) for effect in posterior["effects"]],
        "warnings": list(posterior["warnings"]),
    }


def _audit(found: Audit | NumberAudit) -> dict[str, Any]:
    shared: dict[str, Any] = {
        "rows": found.rows, "confidence": found.confidence, "notes": list(found.notes), "rates": [],
        "means": [], "four_fifths": "", "findings": [], "tolerance": None, "check": NOT_CHECKED,
        "rejected": None,
    }  # fmt: skip
    if isinstance(found, NumberAudit):
        disparities = [
            {"measure": line["what"], "means": f"largest difference between groups: {WHAT[line['what']]}"}
            | {end: line[end] for end in ("estimate", "low", "high")}
            for line in found.differences.to_dict("records")
        ]
        means = found.means.to_dict("records")
        return shared | {"assumed": ASSUMED, "disparities": disparities, "means": means}
    ends = ("estimate", "low", "high", "bound_low", "bound_high")
    disparities = [
        {"measure": str(name), "means": AUDITED[str(name)].means if name in AUDITED else ""}
        | {end: line[end] for end in ends}
        for name, line in found.metrics.iterrows()
    ]
    content = found.to_dict()
    if found.check is not None:
        says = check_in_words(found.check, found.depends_on.split(", ")[1:], "Audit")
        shared |= {"check": says, "rejected": found.check["rejected"]}
    if found.by_gamma is not None:
        sensitivity = content["sensitivity"]
        shared |= {"findings": sensitivity["findings"], "tolerance": sensitivity["tolerance"]}
    if found.figures is not None:
        shared["four_fifths"] = found.figures.four_fifths_in_words()
    assumed = f"Assumed: whether a group is stated depends on the {found.depends_on} alone."
    return shared | {"assumed": assumed, "disparities": disparities, "rates": content["rates"]}


def card_in_markdown(card: CardDocument) -> str:
    """A card for people."""
    parts = [f"# Model {_text(card.model)}", _text(card.what)]
    parts += [f"> **{_text(words)}**" for words in card.first]
    parts += ["## Intended use", _text(card.intended_use)]
    parts += ["## Limits", "\n".join(f"- {_text(words)}" for words in card.limits)]
    parts += ["## Data", _text(card.data), *_contents(card)]
    parts += ["## Members", f"Disparity is {_text(card.measure)}. Judged on {_text(card.judged_on)}."]
    parts += [_table(_lines_of_members(card)), "## Who withholds", *_who_withholds(card)]
    parts += ["## Audit", *([_text(card.missing)] if card.audit is None else _audited(card, card.audit))]
    return "\n\n".join(part for part in parts if part) + "\n"


def _lines_of_members(card: CardDocument) -> list[list[str]]:
    numbers = card.predicts == "numbers"
    disparity = f"{card.metric.replace('_', ' ')} {card.unit}".rstrip()
    lines = [["member", "error" if numbers else "error %", disparity, "90 % interval", "decides", "not fair"]]
    for member in card.members:
        error = _error(member.error, numbers)
        value, low, high = (_disparity(v, card) for v in (member.disparity, member.low, member.high))
        ends = "–" if member.low is None else f"{low} to {high}"
        yes = ("yes" if said else "" for said in (member.decides, member.not_fair))
        lines.append([member.name, error, value, ends, *yes])
    return lines


def _who_withholds(card: CardDocument) -> list[str]:
    found = card.withholding
    rates = [["withheld", "of", "rate", "5 %", "95 %"]]
    rates += [[rate.what, rate.of, *map(_three, (rate.rate, rate.low, rate.high))] for rate in found.rates]
    effects = [["what makes people withhold", "log-odds", "5 %", "95 %"]]
    effects += [
        [f"{effect.attribute}: {effect.column}", *map(_three, (effect.mean, effect.q05, effect.q95))]
        for effect in found.effects
    ]
    return [
        _text(found.assumed),
        _text(found.check),
        _table(rates),
        f"{_text(found.describes)}.",
        *map(_text, found.warnings),
        _table(effects) if found.effects else "",
    ]


def _audited(card: CardDocument, found: CardAudit) -> list[str]:
    counts, shown = found.rows, f"{100 * found.confidence:g} %"
    numbers = card.predicts == "numbers"
    say = _four if numbers else _three

    def ends(low: float | None, high: float | None) -> str:
        return f"[{say(low)}, {say(high)}]"

    words = (
        f"{counts.rows} rows, of which {counts.stated} state their group and {counts.withheld} do not; "
        f"{counts.unlabelled} have no {'outcome' if numbers else 'label'}. {found.assumed}"
    )
    lines = [["disparity", "estimate", shown, "bounds", "what it is"]]
    for line in found.disparities:
        bounds = "–" if numbers else ends(line.bound_low, line.bound_high)
        lines.append([line.measure, say(line.estimate), ends(line.low, line.high), bounds, line.means])
    rates = [["rate", "group", "estimate", shown]]
    rates += [[rate.rate, rate.group, say(rate.estimate), ends(rate.low, rate.high)] for rate in found.rates]
    rates += [
        [WHAT[mean.what], mean.group, say(mean.estimate), ends(mean.low, mean.high)] for mean in found.means
    ]
    parts = [_text(words), "" if numbers else _text(found.check), _table(lines), _table(rates)]
    parts.append(_text(found.four_fifths))
    if found.findings:
        turns = [["measure", "found at Γ = 1", "overturned from Γ ="]]
        for finding in found.findings:
            turn = "–" if finding.overturns is None else f"{finding.overturns:.2f}"
            turns.append([finding.measure, finding.finding, "never" if finding.never else turn])
        parts += [
            "Γ: the odds of withholding may be so many times as high or as low as modelled.",
            _table(turns),
        ]
    return [*parts, *(f"Note: {_text(words)}" for words in found.notes)]


def _contents(card: CardDocument) -> list[str]:
    lines = [["what", "value", "rows"]]
    for what, counts in (("label", card.contents.labels), ("group", card.contents.groups)):
        lines += [
            [what, "not stated" if value == UNAVAILABLE else value, str(count)]
            for value, count in counts.items()
        ]
    columns = [["column", "kind", "values", "missing"]]
    columns += [[c.name, c.kind, str(c.values), str(c.missing)] for c in card.contents.columns]
    return [_table(lines), _table(columns) if len(columns) > 1 else ""]


def _error(value: float | None, numbers: bool) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if numbers else f"{100 * value:.2f}"


def _disparity(value: float | None, card: CardDocument) -> str:
    """As the page shows it."""
    if value is None:
        return "–"
    return f"{value:.4g}" if card.predicts == "numbers" else in_unit(card.metric, value)


def _three(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _four(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _table(lines: list[list[str]]) -> str:
    rows = [f"| {' | '.join(map(_text, line))} |" for line in lines]
    return "\n".join([rows[0], "|" + " --- |" * len(lines[0]), *rows[1:]])


def _text(words: str) -> str:
    """Text in which nothing is Markdown or HTML, in one line."""
    return SPECIAL.sub(r"\\\1", in_one_line(words))


CARD_KINDS = {".md": card_in_markdown, ".json": _as_json}
