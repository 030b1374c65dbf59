"""Priors on who states what: look at one (show), or see how results change with the prior (study)."""

from __future__ import annotations

import argparse
from pathlib import Path

from pyro_fairvae.run.command import add_options, add_place, given_options, prepare, progress_of

from pyro_fairvae.base.options import build, options_of
from pyro_fairvae.channels import priors
from pyro_fairvae.data import DEFAULT_DATASET
from pyro_fairvae.posterior.channel_draws import prior_draws
from pyro_fairvae.posterior.summaries import describe
from pyro_fairvae.report import (
    align,
    dependence_table,
    draw_channel,
    draw_prior_study,
    draw_study_metrics,
    prior_table,
)
from pyro_fairvae.schema.attributes import Attributes
from pyro_fairvae.studies.config import DataConfig
from pyro_fairvae.studies.prior_study import StudyConfig, metric_lines, rate_lines, study

STUDY = """Train under several priors, on several levels of missingness and numbers of rows, over seeds.

All levels and seeds of a prior and a number of rows are members of one run. Prints how the rates of
withholding, test error and DEO change with the prior, and writes rates.csv, metrics.csv and figures to --out.
Finished parts are kept there, so a killed study continues where it stopped.

Examples:
  fairvae priors study --priors truthful mar --levels sparse,dense --rows 500,4000 --seeds 5
  fairvae priors study --misstated 0.1 --priors flat '{rows: {every: {own: 8, other: 1, unavailable: 3}}}'
"""
SHOW = f"""Draw a prior, before any data.

{(priors.__doc__ or "").partition(chr(10) * 2)[2]}
Presets:
{chr(10).join(f"  {name:9} {preset.says}" for name, preset in priors.PRIOR_PRESETS.items())}

Examples:
  fairvae priors show paper
  fairvae priors show '{{preset: informed, strength: 50, rows: {{every: {{unavailable: 0.7}}}}}}'
  fairvae priors show flat --group race5 --figure flat.png
  fairvae priors show truthful --values Yes,No,Other
  fairvae priors show '{{preset: truthful, bend: 2}}' --group age --group-levels 8
  fairvae priors show '{{preset: truthful, strength: 20, given: [label]}}'
  fairvae priors show '{{preset: truthful, depends_on: [month, label], shrinkage: 0.5}}'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(metavar="show|study", required=True)
    raw = argparse.RawDescriptionHelpFormatter
    showing = commands.add_parser("show", help="look at a prior", description=SHOW, formatter_class=raw)
    showing.add_argument("prior", metavar="PRIOR", help="a preset, or a mapping in YAML")
    showing.add_argument(
        "--dataset", default=DEFAULT_DATASET, metavar="NAME",
        help="data set that has the group (default: %(default)s)",
    )  # fmt: skip
    showing.add_argument(
        "--group", metavar="NAME", help="gender, race, … as in fairvae train (default: the data set's first)"
    )
    showing.add_argument(
        "--values", metavar="WORD,…", help="values of an attribute of your own, separated by commas"
    )
    showing.add_argument(
        "--group-levels", type=int, metavar="N", help=options_of(DataConfig)["group_levels"].help
    )
    showing.add_argument(
        "--figure", type=Path, metavar="FILE", help="draw the densities here (.png, .pdf, .svg)"
    )
    showing.set_defaults(part=show)
    studying = commands.add_parser(
        "study", help="how results change with the prior", description=STUDY, formatter_class=raw
    )
    declared = options_of(StudyConfig)["priors"]
    studying.add_argument(
        "--priors",
        nargs="+",
        metavar="PRIOR",
        help=f"{declared.help} (default: {' '.join(declared.default)})",
    )
    add_place(studying, "runs/priors")
    add_options(studying, StudyConfig, leave_out=("priors",))
    studying.set_defaults(part=run_study)


def run(arguments: argparse.Namespace) -> None:
    arguments.part(arguments)


def show(arguments: argparse.Namespace) -> None:
    if arguments.values is not None:
        attributes = Attributes.single(tuple(arguments.values.split(",")))
    else:
        given = {"dataset": arguments.dataset, "group": arguments.group}
        attributes = build(DataConfig, given | {"group_levels": arguments.group_levels}).attributes
    channel = priors.sketched_channel(attributes, arguments.prior)
    draws = prior_draws(channel)
    print(prior_table(channel, describe(draws)))
    if channel.crossed:
        crossed = " and ".join(column.name for column in channel.crossed)
        print(f"(every value of {crossed} has rows of its own; those that are not named have the same)")
    if channel.ordered:
        learned = "" if channel.bend is not None else ", before it is learned from the rows"
        print(
            "(rows of neighbouring levels are alike: over the whole range of "
            f"{attributes.names[0]} the slope of logit P(∅ | level) changes by a random walk of standard "
            f"deviation {channel.first_bend:g}{learned})"
        )
    names, scale = priors.withholding_in(arguments.prior)
    if names:
        print(f"\n{dependence_table(draws, names, scale or 1.0)}")
    if arguments.figure is not None:
        draw_channel(arguments.figure, draws)
        print(f"\nDensities are in {arguments.figure}")


def run_study(arguments: argparse.Namespace) -> None:
    config = build(StudyConfig, given_options(arguments, StudyConfig))
    out = arguments.out
    rates, metrics = study(config, out, prepare(arguments), arguments.data_dir, progress_of(arguments))
    print(f"{align(rate_lines(rates))}\n\n{align(metric_lines(metrics))}")
    draw_prior_study(out / "rates.png", rates)
    draw_study_metrics(out / "metrics.png", metrics)
    print(f"\nTables and figures are in {out}: rates and metrics, as .csv and .png")
