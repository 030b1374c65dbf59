"""Typed schemas of the files of a model, a run, an audit and a grid.

They are read by :func:`pyro_fairvae.base.documents.read_document`. A number that is not finite is null.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, field

NumberOrNull = float | None
Natural = Annotated[int, Meta(ge=0)]
Plain = bool | int | float | str | None
OptionValue = Plain | list[Plain]


class _Strict(Struct, forbid_unknown_fields=True):
    """A document whose fields are all known."""


class RateInterval(_Strict):
    """Mean and 90 % interval of a rate."""

    mean: NumberOrNull
    q05: NumberOrNull
    q95: NumberOrNull


class Rate(_Strict):
    """Posterior summary of one outcome of a row of a channel."""

    mean: NumberOrNull
    q05: NumberOrNull
    q95: NumberOrNull
    prior: RateInterval | None = None
    contraction: NumberOrNull = None
    r_hat: NumberOrNull = None
    ess: NumberOrNull = None
    truth: NumberOrNull = None
    yardstick: NumberOrNull = None


ChannelRates = dict[str, dict[str, Rate]]


class MemberPosteriorDocument(_Strict, kw_only=True):
    """The guide's posterior of one member."""

    lambda_: float = field(name="lambda")
    epoch: Natural
    a: ChannelRates
    y: ChannelRates


class EffectDocument(_Strict):
    """What a column of v does to withholding."""

    attribute: str
    column: str
    mean: float
    q05: float
    q95: float


class CategoryCheckDocument(_Strict):
    """The share of people who withhold in a category, as recorded and as predicted."""

    name: str
    rows: int
    observed: NumberOrNull
    expected: NumberOrNull
    standard_error: NumberOrNull


class ColumnCheckDocument(_Strict):
    """How well withholding within the categories of a column is predicted."""

    name: str
    statistic: NumberOrNull
    degrees: int
    p_value: NumberOrNull
    categories: list[CategoryCheckDocument]
    in_v: bool = False
    attribute: str = ""


class CheckDocument(_Strict):
    """A check of the assumption on withholding."""

    says: str
    rejected: bool
    p_value: NumberOrNull
    suggestions: list[str]
    columns: list[ColumnCheckDocument]


class PosteriorDocument(_Strict):
    """``posterior.json``: who withholds."""

    describes: str
    a: ChannelRates
    y: ChannelRates
    warnings: list[str]
    members: list[MemberPosteriorDocument]
    effects: list[EffectDocument] = []
    check: CheckDocument | None = None
    population: dict[str, RateInterval] = {}


class MemberResults(_Strict, kw_only=True):
    """Metrics of one member, by name."""

    lambda_: float = field(name="lambda")
    target: NumberOrNull = None
    val: dict[str, NumberOrNull]
    test: dict[str, NumberOrNull]
    group_accuracy: NumberOrNull = None
    thresholds: list[float] = []  # that were learned


class ResultsDocument(_Strict):
    """``results.json``: how good and how fair each member is."""

    members: list[MemberResults]
    metric: str
    selected: Natural
    imputation: dict[str, dict[str, dict[str, NumberOrNull]]] = {}


class Frontier(_Strict, kw_only=True):
    """Error and disparity of each member on rows held out of training."""

    lambda_: list[float] = field(name="lambda", default_factory=list)
    target: list[NumberOrNull] = []  # in place of λ, where decisions were settled to targets
    error: list[NumberOrNull]
    cost: list[NumberOrNull] = []  # where errors have costs
    disparity: list[NumberOrNull]
    standard_error: list[NumberOrNull]
    low: list[NumberOrNull] = []  # ends of an interval of the disparity
    high: list[NumberOrNull] = []


class NumberColumn(_Strict):
    """A column of numbers."""

    name: str
    median: float
    mean: float
    deviation: float
    gaps: bool
    kind: Literal["numbers", "dates", "durations"] = "numbers"


class CategoryColumn(_Strict):
    """A column of categories."""

    name: str
    values: list[str]
    others: bool
    gaps: bool


class TableColumns(_Strict, tag="table"):
    """How the columns of a table become features."""

    names: list[str]
    numbers: list[NumberColumn]
    categories: list[CategoryColumn]
    left_out: list[str]


class ImageColumns(_Strict, tag="images"):
    """Columns that are pixels."""

    channels: Annotated[int, Meta(ge=1, le=16)]
    side: Annotated[int, Meta(ge=8, le=1024)]


class Classes(_Strict):
    """Classes in order, and the type of the array that holds them."""

    kind: Literal["bool", "int", "float", "str"]
    values: list[bool | int | float | str]
    dtype: str


class NumberLevels(_Strict):
    """Levels of a number: their inner edges, and the mean in each."""

    edges: list[float]
    centres: list[float]


class OutcomeDocument(_Strict):
    """An outcome that is a number: its unit, its levels, and the bin of each."""

    mean: float
    deviation: float
    levels: NumberLevels
    bins: list[Natural]


class GroupAttributes(_Strict):
    """Attributes with their values; combinations of these are the groups. Values of a number are levels."""

    names: list[str]
    values: list[list[str]]
    levels: NumberLevels | None = None


class FitDocument(_Strict):
    """A fit without its tensors."""

    settings: dict[str, OptionValue]
    lambdas: list[float]
    chosen_epoch: list[Natural]
    history: list[dict[str, int | float | None]]
    targets: list[float | None] = []


class TreesOfFolds(_Strict):
    """Boosted trees of each fold as text, and the shares of values where there are none."""

    shares: list[float]
    folds: list[str]


class TreesDocument(_Strict):
    """``trees.json``: boosted trees whose scores are columns of a model's rows, or which decide.

    The latter have no trees of groups if none were given.
    """

    labels: TreesOfFolds
    groups: TreesOfFolds | None = None


class ColumnSummary(_Strict):
    """A column of the table that a model was fitted to."""

    name: str
    kind: str
    missing: Natural
    values: Natural


class DataSummary(_Strict):
    """The table that a model was fitted to, in counts."""

    rows: Natural
    labels: dict[str, Natural]
    groups: dict[str, Natural]
    columns: list[ColumnSummary]
    training_rows: Natural
    held_out_rows: Natural


class SourceDocument(_Strict):
    """Where the rows of a model came from, and how its file was read; all empty for rows given in Python."""

    label: str = ""
    groups: list[str] = []
    missing: list[str] = []
    values: list[str] = []
    data: str = ""
    withholding_depends_on: list[str] = []
    proxies: list[str] = []
    proxy_proba: dict[str, str] = {}  # the column with the probabilities of each group
    weights: str = ""  # the column with weights of rows


class RowCounts(_Strict):
    """How many rows were audited, and how many state what."""

    rows: Natural
    stated: Natural
    withheld: Natural
    unlabelled: Natural


class MemberMeasure(_Strict):
    """A disparity of a member's decisions, with its interval."""

    measure: str
    estimate: NumberOrNull
    low: NumberOrNull
    high: NumberOrNull


class MemberRate(_Strict):
    """A rate, or a mean, of a group under a member, with its interval."""

    rate: str
    group: str
    estimate: NumberOrNull
    low: NumberOrNull
    high: NumberOrNull
    stated_rows: Natural


class MemberFigures(_Strict):
    """What a member's decisions about some rows are like, and how they differ from another one's."""

    error: NumberOrNull  # share, or root mean square
    decided: dict[str, Natural]  # rows by decision; empty where numbers are predicted
    measures: list[MemberMeasure]
    rates: list[MemberRate]
    changes: list[MemberRate]  # shares that gain and lose a decision, or mean changes of predictions


class MembersDocument(_Strict):
    """The members of a frontier side by side, on rows that none of them was trained on."""

    rows: RowCounts
    confidence: Annotated[float, Meta(gt=0, lt=1)]
    against: Natural  # the member that changes are against: the one without fairness
    members: Annotated[list[MemberFigures], Meta(min_length=1)]
    audited: Natural | None = None  # the member that the audit beside it is of

    def __post_init__(self) -> None:
        """All members have the same figures, so that they can stand side by side."""
        kinds = {
            (
                tuple(line.measure for line in member.measures),
                tuple((line.rate, line.group) for line in member.rates),
                tuple((line.rate, line.group) for line in member.changes),
            )
            for member in self.members
        }
        if len(kinds) > 1:
            raise ValueError("members of a frontier have different figures")
        if max(self.against, self.audited or 0) >= len(self.members):
            raise ValueError(f"one of {len(self.members)} members is named that is not there")


class ModelDocument(_Strict):
    """``model.json``: a model without its tensors."""

    format: Literal["pyro_fairvae model"]
    version: Literal[2]
    library: str
    sha256: dict[str, str]
    classes: Classes
    attributes: GroupAttributes
    knows_groups: bool
    columns: TableColumns | ImageColumns
    fit: FitDocument | None  # none where boosted trees decide
    selected: Natural
    metric: str
    frontier: Frontier
    posterior: PosteriorDocument
    summary: DataSummary
    source: SourceDocument
    parameters: dict[str, Any] | None  # of the estimator that was fitted
    feature_names: list[str]
    proxies: TableColumns | None = None
    outcome: OutcomeDocument | None = None  # where it is a number, whose levels are then the classes
    members: MembersDocument | None = None


class MetricLine(_Strict):
    """A metric of an audit: with its interval, from stated rows alone, and bounds without assumption."""

    metric: str
    estimate: NumberOrNull
    low: NumberOrNull
    high: NumberOrNull
    stated_estimate: NumberOrNull
    stated_low: NumberOrNull
    stated_high: NumberOrNull
    bound_low: NumberOrNull
    bound_high: NumberOrNull


class RateLine(_Strict):
    """A rate of a group: with its interval, and from stated rows alone."""

    rate: str
    group: str
    estimate: NumberOrNull
    low: NumberOrNull
    high: NumberOrNull
    stated_estimate: NumberOrNull
    stated_low: NumberOrNull
    stated_high: NumberOrNull
    stated_rows: Natural


class GroupLine(_Strict):
    """How many of a group state it, and how many withhold it."""

    group: str
    stated: Natural
    withhold: NumberOrNull
    withhold_low: NumberOrNull
    withhold_high: NumberOrNull
    withheld: NumberOrNull


class DisparityLine(_Strict):
    """A disparity: with its interval, and from stated rows alone."""

    measure: str
    estimate: NumberOrNull
    low: NumberOrNull
    high: NumberOrNull
    stated_estimate: NumberOrNull
    stated_low: NumberOrNull
    stated_high: NumberOrNull


class MeasureLine(_Strict):
    """A figure of a group: with its interval, and from stated rows alone."""

    measure: str
    group: str
    estimate: NumberOrNull
    low: NumberOrNull
    high: NumberOrNull
    stated_estimate: NumberOrNull
    stated_low: NumberOrNull
    stated_high: NumberOrNull
    stated_rows: Natural


class FourFifths(_Strict):
    """Whether the four-fifths rule is broken, and between which groups."""

    least: str | None
    largest: str | None
    broken: bool | None
    probability: NumberOrNull


class CurveLine(_Strict):
    """A part of the calibration curve of a group."""

    group: str
    start: float
    end: float
    score: NumberOrNull
    share: NumberOrNull
    low: NumberOrNull
    high: NumberOrNull
    stated_rows: Natural


class FiguresDocument(_Strict):
    """What regulators ask of decisions."""

    positive: str
    by_group: list[MeasureLine]
    disparities: list[DisparityLine]
    four_fifths: FourFifths
    calibration: list[CurveLine]


class LawLine(_Strict):
    """A category in the table of Local Law 144, and the same with those unknown taken in."""

    category: str
    applicants: Natural
    selected: Natural
    rate: NumberOrNull
    impact_ratio: NumberOrNull
    excluded: bool
    estimated_rate: NumberOrNull
    rate_low: NumberOrNull
    rate_high: NumberOrNull
    estimated_ratio: NumberOrNull
    ratio_low: NumberOrNull
    ratio_high: NumberOrNull
    shrunk_rate: NumberOrNull = None  # of small intersections
    shrunk_low: NumberOrNull = None
    shrunk_high: NumberOrNull = None


class LawTable(_Strict):
    """The categories of one attribute, or of several together."""

    name: str
    unknown: Natural
    lines: list[LawLine]


class LocalLawDocument(_Strict):
    """The tables of New York's Local Law 144."""

    rate: str
    rows: Natural
    confidence: Annotated[float, Meta(gt=0, lt=1)]
    exclude_below: Annotated[float, Meta(ge=0, lt=1)]
    tables: list[LawTable]


class GammaLine(_Strict):
    """The range and the interval of a disparity where odds of withholding may be Γ times as modelled."""

    measure: str
    gamma: Annotated[float, Meta(ge=1)] | None  # none: any
    least: NumberOrNull
    most: NumberOrNull
    low: NumberOrNull
    high: NumberOrNull


class FindingLine(_Strict):
    """What is found of a disparity, and the smallest Γ that overturns it."""

    measure: str
    finding: str
    overturns: NumberOrNull
    never: bool


class SensitivityDocument(_Strict):
    """How far withholding may depart from the model before findings turn."""

    curves: Annotated[list[GammaLine], Meta(min_length=1)]
    findings: Annotated[list[FindingLine], Meta(min_length=1)]
    tolerance: Annotated[float, Meta(ge=0, lt=1)]
    confidence: Annotated[float, Meta(gt=0, lt=1)]


class DesignDocument(_Strict):
    """How the rows of an audit were sampled."""

    effective_rows: Annotated[float, Meta(gt=0)]
    clusters: Natural | None = None


class IntersectionLine(_Strict):
    """A rate of an intersection of several attributes, by itself and shrunk towards their additive model."""

    rate: str
    group: str
    raw: NumberOrNull
    estimate: NumberOrNull
    low: NumberOrNull
    high: NumberOrNull
    own: NumberOrNull
    stated_rows: Natural


class AuditDocument(_Strict):
    """``audit.json``: the results of an audit."""

    metrics: Annotated[list[MetricLine], Meta(min_length=1)]
    rates: Annotated[list[RateLine], Meta(min_length=1)]
    groups: Annotated[list[GroupLine], Meta(min_length=1)]
    rows: RowCounts
    depends_on: str
    confidence: Annotated[float, Meta(gt=0, lt=1)]
    notes: list[str]
    check: CheckDocument | None = None
    figures: FiguresDocument | None = None
    local_law: LocalLawDocument | None = None
    sensitivity: SensitivityDocument | None = None
    design: DesignDocument | None = None
    intersections: list[IntersectionLine] = []
    members: MembersDocument | None = None


class NumberDifference(_Strict):
    """The largest difference between groups of a mean, with its interval."""

    what: Literal["prediction", "error", "absolute_error"]
    estimate: float
    low: float
    high: float
    higher: str
    lower: str


class NumberMean(_Strict):
    """A mean of a group, with its interval."""

    what: Literal["prediction", "error", "absolute_error"]
    group: str
    estimate: float
    low: float
    high: float
    rows: Natural


class NumberAuditDocument(_Strict):
    """``audit.json`` of a model that predicts a number."""

    kind: Literal["numbers"]
    differences: Annotated[list[NumberDifference], Meta(min_length=1)]
    means: Annotated[list[NumberMean], Meta(min_length=1)]
    rows: RowCounts
    confidence: Annotated[float, Meta(gt=0, lt=1)]
    notes: list[str]
    design: DesignDocument | None = None
    members: MembersDocument | None = None


class CardMember(_Strict):
    """A member of the frontier on a model card."""

    name: str
    error: NumberOrNull
    disparity: NumberOrNull
    standard_error: NumberOrNull
    low: NumberOrNull
    high: NumberOrNull
    decides: bool
    not_fair: bool


class CardRate(_Strict):
    """How often a group, or a label, is withheld, with a 90 % interval."""

    what: str
    of: str
    rate: NumberOrNull
    low: NumberOrNull
    high: NumberOrNull


class CardWithholding(_Strict):
    """Who withholds, and whether what was recorded agrees with the assumption on it."""

    assumed: str
    rates: list[CardRate]
    describes: str
    check: str
    rejected: bool | None  # none: it was not checked
    effects: list[EffectDocument]
    warnings: list[str]


class CardDisparity(_Strict):
    """A disparity by the audit; bounds hold whoever withholds."""

    measure: str
    means: str
    estimate: NumberOrNull
    low: NumberOrNull
    high: NumberOrNull
    bound_low: NumberOrNull = None
    bound_high: NumberOrNull = None


class CardAudit(_Strict):
    """What an audit of the decisions, or predictions, found."""

    rows: RowCounts
    assumed: str
    confidence: Annotated[float, Meta(gt=0, lt=1)]
    disparities: list[CardDisparity]
    rates: list[RateLine]
    means: list[NumberMean]
    check: str
    rejected: bool | None
    four_fifths: str
    findings: list[FindingLine]  # and the least Γ that overturns each
    tolerance: NumberOrNull
    notes: list[str]


class CardDocument(_Strict):
    """A model card: what its page says, for other programs."""

    format: Literal["pyro_fairvae model card"]
    version: Literal[1]
    library: str
    model: str
    predicts: Literal["classes", "numbers"]
    what: str
    first: list[str]  # what must be said first
    intended_use: str
    limits: list[str]
    data: str
    contents: DataSummary
    metric: str  # of disparities; errors are shares, or have the unit of the outcome
    measure: str  # the metric, and what it is
    unit: str
    judged_on: str
    members: list[CardMember]
    withholding: CardWithholding
    audit: CardAudit | None
    missing: str  # without an audit


class CheckpointHeader(_Strict):
    """The settings of the fit that a checkpoint belongs to."""

    config: dict[str, OptionValue]


class VersionMark(_Strict):
    """The version of the package that ran the jobs of a folder."""

    version: str


class JobRecord(_Strict):
    """The result of one job of a grid, with its configuration."""

    version: str
    name: str
    config: dict[str, Any]
    seconds: float
    record: dict[str, Any]


class StudyRows(_Strict):
    """The rows of one part of a study, with the options used."""

    options: dict[str, Any]
    rows: list[dict[str, Plain]]


def as_plain(document: Any) -> Any:
    """A document as dictionaries and lists, ready to be written as JSON."""
    return msgspec.to_builtins(document)
