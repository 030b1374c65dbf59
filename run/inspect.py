"""Look at who withholds: posteriors of the channels of models, beside their priors.

Prints every outcome of every row with prior, posterior, 90 % intervals, contraction (1 − variance of the
posterior / variance of the prior: how much was learned from the data) and the truth where it is known, and
draws the densities. Above them stands what the check of the assumption on withholding says, below them what
makes people withhold besides their group, if the model lets it. Several models are pooled with equal weight.

Examples:
  fairvae inspect runs/gender
  fairvae inspect runs/gender --lambda 0.4
  fairvae inspect model --suggest
  fairvae inspect runs/gender-0 runs/gender-1 runs/gender-2 --out pooled --arviz pooled/posterior.nc
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pyro_fairvae.run.command import add_options, add_suggest, given_options
from pyro_fairvae.run.user_table import check_writable

from pyro_fairvae.base.errors import require
from pyro_fairvae.base.files import make_folder
from pyro_fairvae.base.options import build
from pyro_fairvae.posterior.curves import withholding_curve
from pyro_fairvae.report import (
    CURVE_MEANS,
    check_lines,
    draw_channel,
    draw_check,
    draw_curve,
    draw_effects,
    effects_table,
    posterior_table,
    suggestion_table,
)
from pyro_fairvae.schema.attributes import EVERY, UNAVAILABLE
from pyro_fairvae.studies.inspecting import InspectConfig, inspect_models, write_inference_data

TITLES = {"a": "P(ã | a), what people state as their group", "y": "P(ỹ | y), what is recorded as the label"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "models", type=Path, nargs="+", metavar="MODEL", help="folder written by fairvae train or fit"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="folder for the figures (default: the folder of the model)"
    )
    parser.add_argument("--arviz", type=Path, metavar="FILE", help="write ArviZ InferenceData here (.nc)")
    add_suggest(parser)
    add_options(parser, InspectConfig, exclusive=("member", "lambda_"))


def run(arguments: argparse.Namespace) -> None:
    config = build(InspectConfig, given_options(arguments, InspectConfig))
    require(
        arguments.out is not None or len(arguments.models) == 1,
        f"{len(arguments.models)} models were given; name a folder for their figures with --out.",
    )
    if arguments.arviz is not None:
        for model in arguments.models:
            check_writable(arguments.arviz, model)
    inspected = inspect_models(arguments.models, config)
    out = arguments.out or arguments.models[0]
    make_folder(out)
    figures: list[Path] = []
    for number, (check, depends_on) in enumerate(inspected.checks):
        print(check_lines(check, depends_on))
        if arguments.suggest:
            print(f"{suggestion_table(check)}\n")
        figures.append(out / (f"check-{number}.png" if len(inspected.checks) > 1 else "check.png"))
        draw_check(figures[-1], check)
    if arguments.suggest and not inspected.checks:
        print(f"{suggestion_table(None)}\n")
    for name, draws in inspected.draws.items():
        rows, attributes = inspected.rows(name), draws.channel.attributes
        figures.append(out / f"channel-{name}.png")
        curve = None if set(rows) == {EVERY} else withholding_curve(rows, attributes)
        if curve is None:
            print(f"{TITLES[name]}\n{posterior_table(rows)}\n")
            truth = None if inspected.truth is None else inspected.truth.get(name)
            draw_channel(figures[-1], draws, truth)
        else:  # nobody misstates a number: what is not withheld is stated
            (column,) = attributes.names
            rows = {level: {UNAVAILABLE: row[UNAVAILABLE]} for level, row in rows.items()}
            print(f"P(∅ | {column}), who withholds along it\n{posterior_table(rows)}")
            print(f"({CURVE_MEANS.format(name=column)})\n")
            draw_curve(figures[-1], curve, column)
    print(f"({inspected.describes})")
    for words in inspected.warnings:
        print(f"warning: {words}")
    if inspected.effects:
        print(f"\n{effects_table(inspected.effects)}")
        figures.append(out / "effects.png")
        draw_effects(figures[-1], inspected.effects)
    if arguments.arviz is not None:
        write_inference_data(arguments.arviz, inspected)
        print(f"\nArviZ InferenceData is in {arguments.arviz}")
    print(f"\nFigures are in {' and '.join(map(str, figures))}")
