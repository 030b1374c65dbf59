"""One file, written whole or not at all, and nothing but a file of one's own replaced."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pyro_fairvae.base import file_locks
from pyro_fairvae.base.errors import InputError
from pyro_fairvae.base.files import TEMPORARY, check_replaceable, write_whole

DIE = """
import os, sys
from pathlib import Path
from pyro_fairvae.base.files import write_whole
if sys.argv[2] == "die":
    os.fsync = lambda handle: os.kill(os.getpid(), 9)
else:
    os.fsync = lambda handle: (print("writing", flush=True), sys.stdin.readline())
write_whole(Path(sys.argv[1]), b"theirs")
"""


def other_process(path: Path, how: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", DIE, str(path), how], stdin=pipe, stdout=pipe, text=True)


@pytest.fixture
def umask() -> int:
    before = os.umask(0o027)
    yield 0o027
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_permissions_are_those_of_the_umask_or_of_the_file_that_is_replaced(tmp_path: Path) -> None:
    write_whole(tmp_path / "new", "1")
    assert (tmp_path / "new").stat().st_mode & 0o7777 == 0o640
    for mode in (0o600, 0o664, 0o444):
        (tmp_path / "new").chmod(mode)
        write_whole(tmp_path / "new", "2")
        assert (tmp_path / "new").stat().st_mode & 0o7777 == mode
    assert os.listdir(tmp_path) == ["new"]


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        ("a symbolic link", lambda path: path.symlink_to("target")),
        ("a FIFO", os.mkfifo),
        ("a folder", os.mkdir),
        ("a device", lambda path: path.symlink_to("/dev/null")),
    ],
)
def test_what_is_no_file_is_never_replaced(kind: str, make: Callable[[Path], None], tmp_path: Path) -> None:
    (tmp_path / "target").write_text("before")
    path = tmp_path / "out"
    make(path)
    device = Path("/dev/null") if kind == "a device" else path
    with pytest.raises(InputError, match=f"cannot write {device}: it is {kind}; name a file"):
        write_whole(device, "after")
    assert (tmp_path / "target").read_text() == "before"
    assert sorted(os.listdir(tmp_path)) == ["out", "target"]


def test_what_is_read_is_not_replaced_by_whatever_name(tmp_path: Path) -> None:
    read, other = tmp_path / "read.csv", tmp_path / "other.csv"
    read.write_text("1")
    other.hardlink_to(read)
    for path in (read, other, tmp_path / "." / "read.csv"):
        with pytest.raises(InputError, match="which is read; name another file"):
            check_replaceable(path, read)
    check_replaceable(tmp_path / "new.csv", read, tmp_path / "missing.csv")


def test_a_full_disk_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").write_text("before")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match=r"No space left on device\. Free some space"):
        write_whole(tmp_path / "out", "after")
    assert (tmp_path / "out").read_text() == "before"
    assert os.listdir(tmp_path) == ["out"]


def test_leftovers_of_dead_writers_are_deleted_and_those_of_living_ones_are_not(tmp_path: Path) -> None:
    path = tmp_path / "out"
    (tmp_path / f"{TEMPORARY}folder").mkdir()
    dead = other_process(path, "die")
    dead.communicate()
    assert dead.returncode == -9
    (left,) = (name for name in os.listdir(tmp_path) if not name.endswith("folder"))
    living = other_process(path, "wait")
    assert living.stdout is not None
    assert living.stdout.readline() == "writing\n"
    assert left not in os.listdir(tmp_path)  # by the next writer
    assert len(os.listdir(tmp_path)) == 2
    write_whole(path, "mine")
    assert len(os.listdir(tmp_path)) == 3  # theirs, still being written
    living.communicate("go on\n")
    assert path.read_text() == "theirs"
    assert sorted(os.listdir(tmp_path)) == [f"{TEMPORARY}folder", "out"]


def test_a_file_is_written_where_there_are_no_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_locks, "fcntl", None)
    (tmp_path / f"{TEMPORARY}0").touch()
    write_whole(tmp_path / "out", "1")
    assert sorted(os.listdir(tmp_path)) == [f"{TEMPORARY}0", "out"]


def test_long_names_are_written(tmp_path: Path) -> None:
    write_whole(tmp_path / ("n" * 255), "1")
    with pytest.raises(InputError, match="File name too long"):
        write_whole(tmp_path / ("n" * 256), "1")
