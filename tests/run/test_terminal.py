"""What commands write: in any encoding, to any stream, whatever names hold."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from pyro_fairvae.run.terminal import ShownText

from tests.support.command_line import run

FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full here")


def written(encoding: str, text: str) -> str:
    buffer = io.BytesIO()
    stream = io.TextIOWrapper(buffer, encoding=encoding)
    ShownText(stream, results=True).write(text)
    stream.flush()
    return buffer.getvalue().decode(encoding)


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [
        ("utf-8", "λ Ŷ ∅ é ± \\udc80"),
        ("utf-16", "λ Ŷ ∅ é ± \\udc80"),
        ("cp1252", "lambda Y^ none é ± \\udc80"),
        ("latin-1", "lambda Y^ none é ± \\udc80"),
        ("ascii", "lambda Y^ none \\xe9 +/- \\udc80"),
    ],
)
def test_letters_are_kept_where_the_terminal_has_them(encoding: str, shown: str) -> None:
    assert written(encoding, "λ Ŷ ∅ é ± \udc80") == shown


def test_names_do_not_command_the_terminal_and_a_progress_bar_may_return() -> None:
    assert written("utf-8", "\x1b[2J\x07 a\rb\n") == "\\x1b[2J\\x07 a\\rb\n"
    assert written("utf-8", "\r 3/5 \x1b") == "\r 3/5 \\x1b"
    assert written("utf-8", "\r     \r") == "\r     \r"


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1", "ascii"])
def test_a_command_prints_its_letters_anywhere(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = io.BytesIO()
    stream = io.TextIOWrapper(buffer, encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    assert run("priors", "show", "{preset: truthful, depends_on: [month]}") == 0
    stream.flush()
    assert "log-odds of none" in buffer.getvalue().decode(encoding)


@needs_full
def test_a_full_device_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with FULL.open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert run("priors", "show", "paper") == 2
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(sys, "stderr", full)
            assert run("priors", "show", "nothing") == 2
    assert capfd.readouterr().err == "fairvae: cannot write to stdout: No space left on device.\n"


@needs_full
def test_closed_and_full_streams_of_a_process() -> None:
    """What the interpreter writes when it ends, too."""
    command = f"{sys.executable} -m pyro_fairvae.run"
    script = f"{command} priors show paper >&- 2>&- <&-; echo $?; {command} --help >/dev/full; echo $?"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "2"]
    assert done.stderr == "fairvae: cannot write to stdout: No space left on device.\n"
