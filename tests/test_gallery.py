"""Every example of the gallery runs, here on few rows."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import matplotlib
import pyro
import pytest

from pyro_fairvae.risks.custom import CUSTOM

EXAMPLES = sorted((Path(__file__).parent.parent / "docs" / "gallery").glob("plot_*.py"))
SMALL = {"ROWS": 900, "EPOCHS": 2, "STEPS": 3, "LEVELS": 6, "FACES": 60}


def small(source: str) -> str:
    """The example with its sizes, the numbers in capitals on its first lines, made small."""
    line = re.findall(r"^(?:ROWS|FACES)\b.*$", source, flags=re.MULTILINE)[0]
    names = line.split(" = ")[0].split(", ")
    return source.replace(line, f"{', '.join(names)} = {', '.join(str(SMALL[name]) for name in names)}")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: str(path.stem))
def test_examples_run(example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib.pyplot as plt

    matplotlib.use("agg")
    before = dict(CUSTOM)
    try:
        with pyro.get_param_store().scope(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of tables that are this small
            exec(compile(small(example.read_text()), str(example), "exec"), found := dict[str, Any]())
        assert plt.get_fignums()
    finally:
        plt.close("all")
        CUSTOM.clear()
        CUSTOM.update(before)
    assert found


def test_examples_are_short() -> None:
    """Between 20 and 60 lines of code, but for a whole Pyro program."""
    for example in EXAMPLES:
        source = re.sub(r'^""".*?"""', "", example.read_text(), flags=re.DOTALL)
        lines = [line for line in source.splitlines() if line.strip() and not line.startswith("#")]
        assert 20 <= len(lines) <= (90 if example.stem == "plot_own_program" else 60), example.name
