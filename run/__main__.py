"""``fairvae COMMAND``: all commands under one name."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from pyro_fairvae.run import (
    audit,
    decide,
    fit,
    inspect,
    ladder,
    monitor,
    predict,
    priors,
    recover,
    report,
    reproduce,
    train,
)
from pyro_fairvae.run.command import run_command

from pyro_fairvae import __version__

COMMANDS = {
    "fit": fit,
    "predict": predict,
    "audit": audit,
    "monitor": monitor,
    "report": report,
    "train": train,
    "decide": decide,
    "inspect": inspect,
    "priors": priors,
    "recover": recover,
    "reproduce": reproduce,
    "ladder": ladder,
}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="fairvae", description="Fair classification when some people do not state their group."
    )
    parser.add_argument("--version", action="version", version=f"pyro_fairvae {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, module in COMMANDS.items():
        summary, _, details = (module.__doc__ or "").partition("\n")
        command = commands.add_parser(name, help=summary, description=f"{summary}\n{details}",
                                      formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
        module.add_arguments(command)
        command.set_defaults(action=module.run)
    return run_command(parser, argv)


if __name__ == "__main__":
    raise SystemExit(main())
