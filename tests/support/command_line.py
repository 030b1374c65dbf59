"""Commands as a person gives them, at sizes that take a moment."""

from __future__ import annotations

from pathlib import Path

from pyro_fairvae.run.__main__ import main

from tests.support import small

TINY = [
    *("--rows", "400", "--epochs", "2", "--batch", "140", "--hidden", "8", "--latent", "2"),
    *("--decoder-hidden", "8", "--samples", "5", "--lambdas", "0,0.5", "--device", "cpu", "--quiet"),
    *("--intervals", "given_h"),  # so few rows would take the longest chains
    *(f"--{name.replace('_', '-')}={steps}" for name, steps in small.FEW_STEPS.items()),
]
FEW_STEPS = tuple(word for name, steps in small.FEW_STEPS.items() for word in ("--set", f"{name}={steps}"))
SYNTHETIC = ["train", "--dataset", "synthetic", *TINY]


def run(*arguments: str | Path) -> int:
    return main([str(argument) for argument in arguments])
