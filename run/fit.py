"""Fit a fair classifier, or a fair predictor of a number, to your own table, in which groups and labels may
have gaps.

The folder given by --out receives the model (JSON and safetensors files, which hold no code) and
audit.json, an audit of rows that were kept out of fitting. The values of a column decide whether it is
numeric or categorical. Run the same command again to continue a fit that was interrupted.

Examples:
  fairvae fit people.csv --label income --group sex --out model
  fairvae fit people.csv --label income --group sex,race --missing "?,prefer not to say" --out model
  fairvae fit people.parquet --label hired --group gender --drop id --max-disparity 0.05 --out model
  fairvae fit people.csv --label income --group sex --estimator boosting --out model
  fairvae fit folder_of_parquet --label income --group sex --streaming always --out model
  fairvae fit people.csv --label income --group age --group-levels 16 --out model
  fairvae fit people.csv --label income --group sex --lambdas 0,0.4,1.6 --set refine_decisions=0 --out model
  fairvae fit people.csv --label hired --group race --withholding-depends-on month,label --proxy district \\
      --proxy-proba "White=p_white,Black=p_black" --out model
  fairvae fit people.csv --label reoffends --group race --costs 3,1 --out model
  fairvae fit survey.csv --label employed --group sex --weights person_weight --out model
  fairvae fit people.csv --label hours-per-week --group sex --task regression --out model
  torchrun --nproc-per-node 2 -m pyro_fairvae.run fit people.csv --label income --group sex --out model
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyro_fairvae.run.command import add_machine, add_processes, add_quiet, add_suggest, prepare, report
from pyro_fairvae.run.user_table import TABLES, Estimator, listed, warnings_in_words, withholding_depends_on

from pyro_fairvae.base.documents import read_yaml
from pyro_fairvae.base.errors import InputError, require
from pyro_fairvae.base.options import options_of
from pyro_fairvae.base.ranks import current
from pyro_fairvae.decisions.targets import DEPENDENCE_TARGETS, TARGETS
from pyro_fairvae.estimator.classifier import FairSSVAEClassifier
from pyro_fairvae.estimator.fair_decisions import FairDecisions
from pyro_fairvae.estimator.regressor import FairSSVAERegressor
from pyro_fairvae.estimator.table_classifier import DEFAULT_RISK
from pyro_fairvae.nn.trunks import trunk_names
from pyro_fairvae.report import (
    align,
    between_rules,
    channels_table,
    curve_table,
    frontier_table,
    number_frontier_table,
    rate_lines,
    rows_judged_on,
    suggestion_table,
    verdicts,
)
from pyro_fairvae.risks import NUMBER_RISKS
from pyro_fairvae.risks.gaps import RISK_OF_NUMBERS
from pyro_fairvae.studies.config import TrainConfig
from pyro_fairvae.studies.streamed_fit import AUDITED, IN_MEMORY, STREAMING
from pyro_fairvae.studies.user_fit import fit_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    defaults, trained = FairSSVAEClassifier(), options_of(TrainConfig)
    parser.add_argument("data", type=Path, metavar="DATA", help=TABLES)
    parser.add_argument("--label", required=True, metavar="COLUMN", help="what to predict")
    parser.add_argument(
        "--group", required=True, metavar="COLUMN,…", help="the group to be fair to; several are combined"
    )
    parser.add_argument(
        "--group-levels", type=int, metavar="N",
        help="the group is a number, such as age: cut it into at most N levels, along which withholding "
        "changes smoothly (16 suits most; default: values are groups)",
    )  # fmt: skip
    parser.add_argument(
        "--task", default="classification", choices=("classification", "regression"),
        help="whether the label has classes or is a number (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the model")
    parser.add_argument("--missing", default="", metavar="WORD,…", help="further words that mean not stated")
    parser.add_argument(
        "--values", default="", metavar="WORD,…",
        help="words that are values in this table although they usually mean a gap, such as None",
    )  # fmt: skip
    parser.add_argument("--drop", default="", metavar="COLUMN,…", help="columns that are not features")
    parser.add_argument(
        "--withholding-depends-on", default="", metavar="COLUMN,…",
        help=trained["withholding_depends_on"].help,
    )  # fmt: skip
    add_suggest(parser)
    parser.add_argument(
        "--estimator", default="vae", choices=tuple(ESTIMATORS),
        help="what decides: vae, a network that also sees scores of boosted trees, or boosting, the trees "
        "alone, in less time (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--proxy", default="", metavar="COLUMN,…",
        help="columns that tell of the group but must not decide; fairvae predict does not need them",
    )  # fmt: skip
    parser.add_argument(
        "--proxy-proba", default="", metavar="GROUP=COLUMN,…",
        help="columns with given probabilities of all groups, as surname geocoding produces; not features",
    )  # fmt: skip
    parser.add_argument(
        "--weights", metavar="COLUMN",
        help="column with weights of rows, such as a survey's: of how many people each is; not a feature",
    )  # fmt: skip
    parser.add_argument(
        "--risk", metavar="NAME",
        help=f"{trained['risk'].help} (default: {DEFAULT_RISK}, or {RISK_OF_NUMBERS} with --group-levels); "
        f"of labels that are numbers {', '.join(NUMBER_RISKS)} (default: {FairSSVAERegressor().risk})",
    )  # fmt: skip
    members = parser.add_mutually_exclusive_group()
    members.add_argument(
        "--targets", metavar="X,…",
        help="largest differences between groups that are allowed, a member for each (default: "
        f"{_words(TARGETS)}; of mutual information and χ², in their own unit: {_words(DEPENDENCE_TARGETS)})",
    )  # fmt: skip
    members.add_argument(
        "--lambdas", metavar="X,…", help=f"{trained['lambdas'].help}, instead of targets"
    )  # fmt: skip
    parser.add_argument(
        "--max-disparity", type=float, metavar="X",
        help="decide at the largest target up to this one, or, with --lambdas, by the most accurate member "
        "with at most this disparity (default: a fifth of the disparity without a target, if it costs at "
        "most one point of accuracy)",
    )  # fmt: skip
    parser.add_argument(
        "--costs", metavar="FP,FN",
        help="what a false positive and a false negative cost, such as 5,1: decisions minimise the expected "
        "cost under the targets, in place of the error (two classes, of which the last in order is positive)",
    )  # fmt: skip
    parser.add_argument(
        "--trunk", choices=trunk_names(images=False),
        help=f"whether the network sees scores of boosted trees (default: {defaults.trunk})",
    )  # fmt: skip
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", dest="options",
        help="any other option of fairvae train by name, such as refine_decisions=0; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--epochs", type=int, metavar="N", help="passes over the training rows (default: by their number)"
    )
    parser.add_argument(
        "--holdout", type=float, default=0.2, metavar="X",
        help="share of rows that are only audited, of rows on disk at most "
        f"{AUDITED:,} (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N",
        help="seed of held-out rows, initial weights and noise (default: 0)",
    )  # fmt: skip
    parser.add_argument(
        "--streaming", default=STREAMING[0], choices=STREAMING,
        help="whether rows of Parquet stay on disk: auto, where they would take more than "
        f"{IN_MEMORY / 1e9:g} GB of memory; always; never (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--overwrite", action="store_true", help="replace a model that --out already holds")
    add_quiet(parser)
    add_processes(parser)
    add_machine(parser)


def run(arguments: argparse.Namespace) -> None:
    device = prepare(arguments)
    numbers = arguments.task == "regression"
    model = (_regressor if numbers else ESTIMATORS[arguments.estimator])(arguments, str(device))
    with warnings_in_words():
        fitted = fit_table(
            arguments.data,
            arguments.label,
            listed(arguments.group),
            arguments.out,
            model=model,
            missing=listed(arguments.missing),
            values=listed(arguments.values),
            drop=listed(arguments.drop),
            proxy_proba=_columns_of_groups(arguments.proxy_proba),
            weights=arguments.weights,
            holdout=arguments.holdout,
            seed=arguments.seed,
            overwrite=arguments.overwrite,
            streaming=arguments.streaming,
            report=report,
            report_gaps=_report_gaps,
        )
    if not current().is_first:
        return
    print(between_rules(verdicts(model.stored(), fitted.audit)), end="")
    table = number_frontier_table if numbers else frontier_table
    print(table(fitted.frontier, model.selected_, model.metric_, rows_judged_on(model.summary_)))
    print(f"\n{_withholding(model)}")
    if arguments.suggest:
        print(f"\n{suggestion_table(model.posterior_['check'])}")
    if fitted.audit is not None:
        print(f"\nAudit of {fitted.audited_rows} rows that were kept out of fitting\n{fitted.audit}")
    print(f"\nThe model is in {arguments.out}; fairvae report {arguments.out} writes a page about it.")


def _withholding(model: Estimator) -> str:
    """Who withholds: by group, or along a number, and by label."""
    channels, curve = model.channels_, model.withholding_curve_
    said = model.posterior_, withholding_depends_on(model)
    if curve is None:
        return channels_table(channels, *said)
    (name,) = model.attributes_.names
    labels = align(rate_lines(channels[channels["what"] == "label"]))
    return f"{curve_table(curve, name, *said)}\n\n{labels}"


def _words(numbers: Sequence[float]) -> str:
    return ",".join(f"{number:g}" for number in numbers)


def _regressor(arguments: argparse.Namespace, device: str) -> FairSSVAERegressor:
    named = ("--targets", "--trunk", "--group-levels", "--costs")
    given = [flag for flag in named if getattr(arguments, flag[2:].replace("-", "_"))]
    given += ["--estimator"] if arguments.estimator != "vae" else []
    require(not given, f"{', '.join(given)}: for labels with classes only; leave out with --task regression.")
    weights, defaults = _numbers("lambdas", arguments.lambdas), FairSSVAERegressor()
    return FairSSVAERegressor(
        **({} if arguments.risk is None else {"risk": arguments.risk}),
        lambdas=defaults.lambdas if weights is None else weights,
        max_disparity=arguments.max_disparity,
        epochs=arguments.epochs,
        withholding_depends_on=tuple(listed(arguments.withholding_depends_on)),
        proxies=tuple(listed(arguments.proxy)),
        options=_options(arguments.options) or None,
        device=device,
        verbose=int(not arguments.quiet),
    )


def _network(arguments: argparse.Namespace, device: str) -> FairSSVAEClassifier:
    return FairSSVAEClassifier(
        risk=arguments.risk or FairSSVAEClassifier().risk,
        targets=_numbers("targets", arguments.targets),
        lambdas=_numbers("lambdas", arguments.lambdas),
        max_disparity=arguments.max_disparity,
        costs=_numbers("costs", arguments.costs),
        epochs=arguments.epochs,
        withholding_depends_on=tuple(listed(arguments.withholding_depends_on)),
        proxies=tuple(listed(arguments.proxy)),
        group_levels=arguments.group_levels,
        options=_options(arguments.options) or None,
        device=device,
        verbose=int(not arguments.quiet),
        **({} if arguments.trunk is None else {"trunk": arguments.trunk}),
    )


def _boosting(arguments: argparse.Namespace, _: str) -> FairDecisions:
    given = [flag for flag, name in OF_NETWORKS.items() if getattr(arguments, name)]
    require(
        not given,
        f"{', '.join(given)}: for networks only; leave out, or use --estimator vae.",
    )
    return FairDecisions(
        risk=arguments.risk or FairDecisions().risk,
        targets=_numbers("targets", arguments.targets),
        max_disparity=arguments.max_disparity,
        costs=_numbers("costs", arguments.costs),
        withholding_depends_on=tuple(listed(arguments.withholding_depends_on)),
        proxies=tuple(listed(arguments.proxy)),
        group_levels=arguments.group_levels,
    )


ESTIMATORS: dict[str, Callable[[argparse.Namespace, str], Estimator]] = {
    "vae": _network,
    "boosting": _boosting,
}
# Flags without a meaning for boosted trees, and where their values are.
OF_NETWORKS = {
    "--lambdas": "lambdas",
    "--trunk": "trunk",
    "--epochs": "epochs",
    "--set": "options",
}


def _report_gaps(column: str, counts: Mapping[str, int]) -> None:
    words = ", ".join(f"{word!r} in {count} rows" for word, count in counts.items())
    report(f"{column}: not stated, {words} (--values keeps a word that is a value).")


def _columns_of_groups(words: str) -> dict[str, str]:
    """The column of each group in GROUP=COLUMN,…; names of combined groups, such as "f, no", have commas."""
    columns: dict[str, str] = {}
    group = ""
    for part in words.split(",") if words.strip() else []:
        name, equals, column = part.rpartition("=")
        group += name if equals else f"{part},"
        if equals:
            group, column = group.strip(), column.strip()
            require(bool(group and column), f"--proxy-proba expects GROUP=COLUMN,…, got {words!r}.")
            require(group not in columns, f"--proxy-proba gives {group!r} more than once; give it once.")
            columns[group], group = column, ""
    require(not group, f"--proxy-proba expects GROUP=COLUMN,…, got {words!r}.")
    return columns


def _numbers(name: str, words: str | None) -> tuple[float, ...] | None:
    try:
        return None if words is None else tuple(map(float, listed(words)))
    except ValueError as reason:
        raise InputError(f"--{name} expects numbers separated by commas, got {words!r}.") from reason


def _options(given: Sequence[str]) -> dict[str, Any]:
    """Options by name, their values read as in a config file."""
    options: dict[str, Any] = {}
    for words in given:
        name, equals, value = words.partition("=")
        require(bool(name and equals), f"--set expects NAME=VALUE, got {words!r}.")
        require(name not in options, f"--set gives {name} more than once; give it once.")
        options[name] = read_yaml(value, f"--set {name}: {value[:100]!r}")
    return options
