"""Commands with input that means harm, or that nobody thought of: one line, exit code 2, no traceback."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyro_fairvae.run import priors

from tests.support.command_line import run

LONG = "x" * 5000
NESTED = "[" * 1500
BOMB = "{a: &a [1, 1], b: &b [*a, *a], c: [*b, *b]}"
TRAIN = ["train", "--dataset", "synthetic", "--rows", "100", "--out", "out"]


def message(capsys: pytest.CaptureFixture[str]) -> str:
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("fairvae: ")
    assert lines[0].isprintable()
    return lines[0].removeprefix("fairvae: ")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["report", LONG], "cannot read x+.*: File name too long"),
        (["predict", LONG, f"{LONG}.csv"], "File name too long"),
        (["inspect", "."], "not the folder of a model"),
        (["train", "--config", "/dev/zero", "--out", "out"], "it is a device"),
        ([*TRAIN[:-1], "/dev/null/out"], "cannot make the folder|cannot use"),
        ([*TRAIN, "--prior-a", NESTED], "nested too deeply"),
        ([*TRAIN, "--prior-a", BOMB], r"references \(& and \*\) are not supported in line 1"),
        ([*TRAIN, "--seed", str(2**63)], "up to 9223372036854775807, got"),
        ([*TRAIN, "--seed", "-1"], "seed must be within"),
        ([*TRAIN, "--epochs", "9" * 5000], "epochs expects a whole number"),
        ([*TRAIN, "--rows", str(2**62)], "rows were requested"),
        ([*TRAIN, "--threads", "9" * 12], "at most 1024"),
        ([*TRAIN, "--risk", "a\udc80"], "not text in the encoding"),
        (["priors", "show", "a\x1b[31m\nb"], r"the prior .*\\x1b\[31m\\nb"),
        (["priors", "show", "paper", "--figure", f"{LONG}.png"], "File name too long"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_one_line_and_exit_code_2(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert run(*words) == 2
    found = message(capsys)
    assert len(found) < 2100

    assert re.search(told, found), found


@pytest.mark.parametrize("name", ["a.yaml", "a.json"])
@pytest.mark.parametrize(
    "content", [NESTED, '{"a": ' * 3000, BOMB, "2020-99-99", "!!binary x", "1" * 5000, "\0"]
)
def test_hostile_config_files(
    name: str, content: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    assert run("train", "--config", tmp_path / name, "--out", tmp_path / "out") == 2
    assert name in message(capsys)


@pytest.mark.parametrize(
    ("reason", "code", "told"),
    [
        (
            PermissionError(13, "Permission denied", "/some/file"),
            2,
            "cannot use /some/file: Permission denied.",
        ),
        (OSError("odd"), 2, "cannot use: odd."),
        (
            MemoryError("Unable to allocate 9 TiB"),
            2,
            "not enough memory: Unable to allocate 9 TiB. Give fewer",
        ),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory\nmore"), 2, "not enough memory: Default"),
        (RecursionError("deep"), 2, "nested too deeply"),
        (KeyError("odd"), 1, "a fault of the program: KeyError, 'odd'. Please report it"),
    ],
)
def test_whatever_goes_wrong_is_one_line(
    reason: Exception,
    code: int,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(_: Any) -> None:
        raise reason

    monkeypatch.setattr(priors, "prior_table", lambda *_: fail(_))
    monkeypatch.delenv("FAIRVAE_TRACEBACK", raising=False)
    assert run("priors", "show", "paper") == code
    assert told in message(capsys)
    monkeypatch.setenv("FAIRVAE_TRACEBACK", "1")
    assert run("priors", "show", "paper") == code
    assert ("Traceback" in capsys.readouterr().err) == (code == 1)
