"""Priors of channels, written in a small language.

A prior is a word, or a mapping in YAML, in a file or in braces on the command line::

    truthful
    {preset: truthful, strength: 20}
    {preset: informed, strength: 100, rows: {Female: {unavailable: 0.8}, Male: {unavailable: 0.4}}}
    {rows: {Female: {Female: 2, Male: 0.2, unavailable: 8}, Male: {own: 6, unavailable: 4}}}
    {gender: {preset: truthful, given: [race]}, race: mar}
    {preset: truthful, depends_on: [month, label], shrinkage: 0.5}

``preset`` sets the initial masses of every row: ``truthful`` unless given. ``rows`` replaces rows by group
name, or all of them under ``every``: mass by outcome, that is a value, ``own``, ``other`` (each of the
others) or ``unavailable``; outcomes that are not named cannot happen. Masses are Dirichlet concentrations,
that is, numbers of people already seen, unless ``strength`` scales each row to that many people. For the
preset ``informed`` they are probabilities, the mean of the row, where the own value takes the remainder to 1;
the row is worth ``strength`` people.
With several attributes each has a prior, by name; ``given`` makes the rows of an attribute also depend on
other attributes, whose values are then named inside the row:
``rows: {Female: {White: {unavailable: 3, own: 1}}}``.
For groups ``given`` may also name columns of few categories, or the label: ``{preset: truthful,
given: [label]}``, ``{given: [month], rows: {Female: {May: {unavailable: 3, own: 1}}}}``.
``depends_on`` names features, and ``label``, that withholding may depend on besides the group; each of their
effects on the log-odds of ``unavailable`` is normal around 0 with the standard deviation ``shrinkage``, 1
unless given. Both are the same for all attributes.
Of a number, which is cut into levels, each level has a row, and rows of neighbouring levels are alike: the
slope of logit P(unavailable | level) changes by a random walk. ``bend`` is the standard deviation of its
change over the whole range; unless given, it is learned from the rows: ``{preset: truthful, bend: 2}``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from pyro_fairvae.base.documents import read_yaml
from pyro_fairvae.base.errors import choose, require
from pyro_fairvae.channels.channel import Channel, Crossed, Row
from pyro_fairvae.schema.attributes import EVERY, OTHER, OWN, UNAVAILABLE, Attributes


@dataclass(frozen=True)
class Preset:
    """Masses of a row, whether all groups share one row (``tied``), and a description (``says``)."""

    own: float
    other: float
    unavailable: float
    says: str
    tied: bool = False


PRIOR_PRESETS = {
    "truthful": Preset(1.0, 0.0, 1.0, "nobody misstates; every rate of withholding is equally likely"),
    "flat": Preset(1.0, 1.0, 1.0, "every channel is equally likely, misstatement included"),
    "paper": Preset(0.5, 0.1, 0.4, "the paper's Dir(.5, .1, .4) on own value, another value, ∅"),
    "mar": Preset(1.0, 0.0, 1.0, "nobody misstates, and all groups withhold at one rate", tied=True),
    "informed": Preset(1.0, 0.0, 1.0, "means by outcome, worth as many people as strength"),
}


@dataclass(frozen=True)
class PriorSpec:
    """The parsed prior of one attribute."""

    preset: str = "truthful"
    strength: Any = None
    rows: Mapping[str, Any] | None = None
    given: tuple[str, ...] = ()
    depends_on: tuple[str, ...] = ()
    shrinkage: Any = None
    bend: Any = None

    def __post_init__(self) -> None:
        choose("prior", self.preset, PRIOR_PRESETS)
        require(
            self.strength is None or 0 < _number(self.strength) < math.inf,
            f"strength of a prior is a number of people and must be positive, got {self.strength}.",
        )
        require(
            self.shrinkage is None or (bool(self.depends_on) and 0 < _number(self.shrinkage) < math.inf),
            "shrinkage of a prior is the standard deviation of the effects in depends_on, which it needs, "
            f"and must be positive; got {self.shrinkage} with depends_on {list(self.depends_on)}.",
        )
        require(
            self.bend is None or 0 < _number(self.bend) < math.inf,
            f"bend of a prior is a standard deviation and must be positive, got {self.bend}.",
        )
        require(
            self.rows is None or isinstance(self.rows, Mapping),
            f"rows of a prior must give masses by group name, got {self.rows!r}.",
        )
        require(
            self.preset != "informed" or (self.rows is not None and self.strength is not None),
            "the prior 'informed' needs rows (means by outcome) and strength (the people they are worth).",
        )
        require(
            not (PRIOR_PRESETS[self.preset].tied and (self.rows or self.given)),
            f"the prior {self.preset!r} has one row for all groups; it takes no rows and no given.",
        )


def parse(text: str | Mapping[str, Any]) -> PriorSpec | dict[str, PriorSpec]:
    """Parse a prior, or several by attribute."""
    content: Any = text
    if isinstance(text, str):  # strings only: Yes, No and 01 are names here
        content = read_yaml(text, f"the prior {text[:100]!r}", strings=True)
    if isinstance(content, str):
        return PriorSpec(content)
    require(
        isinstance(content, Mapping) and len(content) > 0,
        f"a prior is one of {', '.join(PRIOR_PRESETS)}, or a mapping such as {{preset: truthful, "
        f"strength: 20}}; got {content!r}.",
    )
    known = ("preset", "strength", "rows", "given", "depends_on", "shrinkage", "bend")
    if any(key in known for key in content):
        for key in content:
            choose("part of a prior", str(key), known)
        names = {
            "given": _names(content, "given", "the attributes that a prior depends on"),
            "depends_on": _names(content, "depends_on", "what withholding depends on besides the group"),
        }
        fields = dict(content) | names
        return PriorSpec(**{str(key): value for key, value in fields.items()})
    specs = {}
    for name, prior in content.items():
        spec = parse(prior)
        require(
            isinstance(spec, PriorSpec),
            f"the prior of attribute {name!r} must be a single prior, but is a mapping of several.",
        )
        assert isinstance(spec, PriorSpec)
        specs[str(name)] = spec
    return specs


def _names(content: Mapping[Any, Any], key: str, what: str) -> tuple[str, ...]:
    """The list of names under a key; a single name may stand alone."""
    names = content.get(key, [])
    names = [names] if isinstance(names, str) else names
    require(
        isinstance(names, list | tuple)
        and all(isinstance(name, str) for name in names)
        and len(set(names)) == len(names),
        f"{key} names {what}, each once, got {names!r}.",
    )
    return tuple(names)


def withholding_in(prior: str | Mapping[str, Any]) -> tuple[tuple[str, ...], float | None]:
    """What a prior lets withholding depend on besides the group, and its shrinkage if it gives one."""
    parsed = parse(prior)
    specs = [parsed] if isinstance(parsed, PriorSpec) else list(parsed.values())
    given = {
        (spec.depends_on, None if spec.shrinkage is None else _number(spec.shrinkage))
        for spec in specs
        if spec.depends_on
    }
    require(
        len(given) < 2,
        f"the prior gives attributes different depends_on or shrinkage; give the same to all: {prior!r}.",
    )
    return next(iter(given), ((), None))


def columns_given(attributes: Attributes, prior: str | Mapping[str, Any]) -> tuple[str, ...]:
    """What the rows of a prior depend on besides attributes: names of columns, or ``"label"``."""
    specs = _by_attribute(attributes, prior).values()
    return tuple(dict.fromkeys(p for spec in specs for p in spec.given if p not in attributes.names))


def sketched_channel(attributes: Attributes, prior: str | Mapping[str, Any]) -> Channel:
    """The channel of groups before a table is known; of columns, the values that the prior names."""
    named: dict[str, dict[str, None]] = {name: {} for name in columns_given(attributes, prior)}
    for spec in _by_attribute(attributes, prior).values():
        for depth, parent in enumerate(spec.given):
            if parent in named:
                named[parent] |= dict.fromkeys(_names_in(spec.rows, depth + 1))
    columns = [
        Crossed(name, (*values, "any other value" if values else "any value"))
        for name, values in named.items()
    ]
    return channel("a", attributes, prior, columns)


def channel(
    name: str,
    attributes: Attributes,
    prior: str | Mapping[str, Any] = "truthful",
    columns: Sequence[Crossed] = (),
) -> Channel:
    """Build the channel P(observed | latent) of some attributes from a prior.

    Parameters
    ----------
    name : str
        ``"a"`` for groups, ``"y"`` for labels; part of the names of Pyro sites.
    attributes : Attributes
        The latent values.
    prior : str or mapping
        ``truthful``, ``flat``, ``paper``, ``mar``, or a mapping, also as YAML, in the language of
        :mod:`pyro_fairvae.channels.priors`. A prior that is not given by attribute applies to all.
    columns : sequence of Crossed
        Columns that the prior is given besides attributes, :func:`columns_given`.

    Returns
    -------
    Channel
        A row for each value, with its support and its Dirichlet prior.

    Raises
    ------
    InputError
        If the prior cannot be parsed, or names an unknown attribute, value or outcome.

    Examples
    --------
    >>> from pyro_fairvae import Attributes, channel
    >>> sex = Attributes.single(("f", "m"), "sex")
    >>> prior = {"preset": "informed", "strength": 100, "rows": {"every": {"unavailable": 0.3}}}
    >>> [(row.label, row.outcomes, row.prior) for row in channel("a", sex, prior).rows]
    [('f', ('f', 'unavailable'), (70.0, 30.0)), ('m', ('m', 'unavailable'), (70.0, 30.0))]
    """
    specs = _by_attribute(attributes, prior)
    rows = [
        row
        for j, attribute in enumerate(attributes.names)
        for row in _rows(attributes, j, specs[attribute], columns)
    ]
    (bend,) = {spec.bend for spec in specs.values()} if attributes.levels is not None else (None,)
    made = Channel(name, attributes, tuple(rows), tuple(columns), None if bend is None else _number(bend))
    require(
        attributes.levels is not None or all(spec.bend is None for spec in specs.values()),
        "bend of a prior is for a number that is cut into levels, but values are groups; leave it out.",
    )
    require(
        attributes.levels is None or (made.truthful and not columns),
        "of a number nobody can misstate, and its rows are given no columns: use the prior 'truthful' or "
        "'mar', and depends_on for what else withholding depends on.",
    )
    return made


def _by_attribute(attributes: Attributes, prior: str | Mapping[str, Any]) -> dict[str, PriorSpec]:
    parsed = parse(prior)
    if isinstance(parsed, PriorSpec):
        return dict.fromkeys(attributes.names, parsed)
    for attribute in parsed:
        choose("attribute with a prior", attribute, attributes.names)
    return {attribute: parsed.get(attribute, PriorSpec()) for attribute in attributes.names}


def _rows(attributes: Attributes, j: int, spec: PriorSpec, columns: Sequence[Crossed]) -> list[Row]:
    """The rows of attribute ``j``: one for each of its values and of those that it depends on."""
    name, values = attributes.names[j], attributes.values[j]
    others = {
        other: of for other, of in zip(attributes.names, attributes.values, strict=True) if other != name
    }
    crossed = {column.name: k for k, column in enumerate(columns)}
    known = {column.name: column.values for column in columns} | others
    parents = [choose(f"attribute for {name} to depend on", p, known) for p in spec.given]
    _check_names(spec.rows, [values, *(known[p] for p in parents)])
    cells = np.array(list(product(*(range(len(column.values)) for column in columns))))  # (cells, columns)
    prefix = f"{name}: " if len(attributes.names) > 1 else ""
    if PRIOR_PRESETS[spec.preset].tied:
        masses = _masses(spec, values, 0, None)
        shared = {OWN: masses[values[0]], UNAVAILABLE: masses[UNAVAILABLE]}
        entry = np.full((attributes.groups, attributes.outcomes), -1)
        for v in range(len(values)):
            entry = np.maximum(entry, _entries(attributes, [(j, v)], j, {v: 0, len(values): 1}))
        every_cell = tuple(range(len(cells)))
        return [Row(prefix + EVERY, name, OWN, tuple(shared), tuple(shared.values()), entry, every_cell)]
    rows = []
    for v, *of_parents in product(range(len(values)), *(range(len(known[p])) for p in parents)):
        condition, inside, path, words = [(j, v)], np.ones(len(cells), dtype=bool), [values[v]], [values[v]]
        for parent, value in zip(parents, of_parents, strict=True):
            path.append(known[parent][value])
            if parent in others:
                condition.append((attributes.names.index(parent), value))
                words.append(path[-1])
            else:
                inside &= cells[:, crossed[parent]] == value
                words.append(f"{parent} = {path[-1]}")
        masses = _masses(spec, values, v, _find(spec.rows, path))
        kept = {outcome: mass for outcome, mass in masses.items() if mass > 0}
        places = {
            (len(values) if outcome == UNAVAILABLE else values.index(outcome)): e
            for e, outcome in enumerate(kept)
        }
        entry = _entries(attributes, condition, j, places)
        label, of_row = prefix + ", ".join(words), tuple(np.flatnonzero(inside).tolist())
        rows.append(Row(label, name, values[v], tuple(kept), tuple(kept.values()), entry, of_row))
    return rows


def _entries(
    attributes: Attributes, condition: list[tuple[int, int]], j: int, places: dict[int, int]
) -> np.ndarray:
    """Entry of P(o | a): by the value of attribute ``j`` in o, where a meets the condition; else −1."""
    meets = np.all([attributes.group_parts[:, k] == value for k, value in condition], axis=0)
    stated = attributes.outcome_parts[:, j]
    entry = np.array([places.get(int(value), -1) for value in stated])
    return np.where(meets[:, None], entry, -1)


def _check_names(rows: Mapping[str, Any] | None, levels: list[tuple[str, ...]]) -> None:
    """Raise unless the keys of rows are values, level by level."""
    if rows is None or not levels:
        return
    for key, inner in rows.items():
        choose("group of a prior", str(key), (*levels[0], EVERY))
        require(inner is not None, f"the prior gives {key} no masses; name some, or leave {key} out.")
        if (
            len(levels) > 1
            and isinstance(inner, Mapping)
            and all(isinstance(v, Mapping) for v in inner.values())
        ):
            _check_names(inner, levels[1:])


def _names_in(rows: Any, depth: int) -> list[str]:
    """The names that rows have at a depth, ``every`` apart."""
    if not isinstance(rows, Mapping) or not all(isinstance(inner, Mapping) for inner in rows.values()):
        return []
    if depth == 0:
        return [str(name) for name in rows if name != EVERY]
    return [name for inner in rows.values() for name in _names_in(inner, depth - 1)]


def _find(rows: Mapping[str, Any] | None, path: list[str]) -> Any:
    """The masses given for a value and the values it depends on; None if there are none."""
    written: Any = rows
    for key in path:
        if not isinstance(written, Mapping):
            return written
        if written is not rows and not all(isinstance(v, Mapping) for v in written.values()):
            break  # masses that hold for every value of the attributes it depends on
        by_name = {str(name): inner for name, inner in written.items()}
        written = by_name.get(key, by_name.get(EVERY))
    return written


def _masses(spec: PriorSpec, values: tuple[str, ...], own: int, written: Any) -> dict[str, float]:
    """Concentration by outcome name of the row of a value, 0 where it cannot happen."""
    preset = PRIOR_PRESETS[spec.preset]
    where = f"prior of {values[own]}"
    outcomes = (*values, UNAVAILABLE)
    if written is None:
        require(
            spec.preset != "informed",
            f"the prior 'informed' has no row for {values[own]}; add it to rows, or add a row {EVERY!r}.",
        )
        masses = {v: preset.own if k == own else preset.other for k, v in enumerate(values)}
        masses[UNAVAILABLE] = preset.unavailable
    else:
        require(
            isinstance(written, Mapping) and len(written) > 0,
            f"{where}: expected masses by outcome, such as {{unavailable: 2, own: 1}}, got {written!r}.",
        )
        masses = dict.fromkeys(outcomes, 0.0)
        for key, mass in written.items():
            choose(f"outcome in the {where}", str(key), (*outcomes, OWN, OTHER))
            require(
                0 <= _number(mass) < math.inf,
                f"{where}: the mass of {key} must be finite and not negative, got {mass}.",
            )
            named = {OWN: [values[own]], OTHER: [v for k, v in enumerate(values) if k != own]}
            for outcome in named.get(str(key), [str(key)]):
                masses[outcome] = _number(mass)
    total = sum(masses.values())
    if spec.preset == "informed" and written is not None:
        require(total <= 1 + 1e-9, f"{where}: means must not sum to more than 1, got {total:g}.")
        require(
            masses[values[own]] == 0 or total >= 1 - 1e-9,
            f"{where}: the means sum to {total:g}; make it 1, or omit the own value to give it the rest.",
        )
        masses[values[own]] += max(0.0, 1 - total)
        total = 1.0
    require(total > 0, f"{where}: every outcome has the mass 0; give positive masses to possible outcomes.")
    scale = 1.0 if spec.strength is None else _number(spec.strength) / total
    return {outcome: mass * scale for outcome, mass in masses.items()}


def _number(value: Any) -> float:
    """A number, also one written as a string; NaN for anything else."""
    try:
        return math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return math.nan
