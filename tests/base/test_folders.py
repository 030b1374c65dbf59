"""Folders of one run at a time, and files that change together or not at all, wherever a writer dies."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.base.folders import LOCK, alone_in, is_current_file, read_current, write_together

OLD = {"a": b"old a", "b": b"old b", "gone": b"old"}
NEW = {"a": b"new a", "b": b"new b", "c": b"new c"}
HOLD = """
import sys
from pathlib import Path
from pyro_fairvae.base.folders import alone_in
with alone_in(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""
REPLACE = """
import os, sys
from pathlib import Path
from pyro_fairvae.base.folders import alone_in, write_together
steps, die_at = 0, int(sys.argv[2])
def counted(function):
    def step(*given, **named):
        global steps
        steps += 1
        if steps == die_at:
            os.kill(os.getpid(), 9)
        return function(*given, **named)
    return step
for name in ("open", "fsync", "replace", "mkdir", "unlink", "rmdir"):
    setattr(os, name, counted(getattr(os, name)))
with alone_in(Path(sys.argv[1])):
    write_together(Path(sys.argv[1]), {"a": b"new a", "b": b"new b", "c": b"new c"}, gone=("gone", "never"))
print(steps)
"""


def current(folder: Path) -> dict[str, bytes]:
    return {
        name: read_current(folder / name)
        for name in ("a", "b", "c", "gone")
        if is_current_file(folder / name)
    }


def old(folder: Path) -> Path:
    folder.mkdir()
    for name, content in OLD.items():
        (folder / name).write_bytes(content)
    return folder


def start(code: str, *given: object) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, given)], stdin=pipe, stdout=pipe, text=True
    )


def test_wherever_a_writer_dies_readers_find_the_old_files_or_the_new_ones(tmp_path: Path) -> None:
    whole = start(REPLACE, old(tmp_path / "whole"), 0)
    steps = int(whole.communicate()[0])
    assert current(tmp_path / "whole") == NEW
    assert sorted(os.listdir(tmp_path / "whole")) == ["a", "b", "c"]
    assert steps > 12
    found = []
    running = [start(REPLACE, old(tmp_path / str(step)), step) for step in range(1, steps + 1)]
    for step, process in enumerate(running, 1):
        process.communicate()
        assert process.returncode == -9
        folder = tmp_path / str(step)
        found.append(current(folder))
        assert found[-1] in (OLD, NEW), step
        with alone_in(folder):  # the next run puts everything in its place
            assert {name: (folder / name).read_bytes() for name in found[-1]} == found[-1]
            write_together(folder, NEW, gone=("gone",))
        assert sorted(os.listdir(folder)) == ["a", "b", "c"]
    assert found == sorted(found, key=NEW.__eq__)  # once new, never old again
    assert OLD in found
    assert NEW in found


@pytest.mark.parametrize("call", range(1, 4))
def test_a_full_disk_leaves_the_old_files(call: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, calls = old(tmp_path / "model"), []

    def full(_: int) -> None:
        calls.append(1)
        if len(calls) == call:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with alone_in(folder), pytest.raises(InputError, match=r"cannot write .*model/[abc]: No space left"):
        write_together(folder, NEW, gone=("gone",))
    assert current(folder) == OLD
    assert sorted(os.listdir(folder)) == ["a", "b", "gone"]


def test_permissions_of_files_that_change_together_are_kept(tmp_path: Path) -> None:
    folder = old(tmp_path / "model")
    (folder / "a").chmod(0o600)
    with alone_in(folder):
        write_together(folder, NEW)
    assert (folder / "a").stat().st_mode & 0o777 == 0o600
    (folder / "b").unlink()
    (folder / "b").symlink_to("a")
    with alone_in(folder), pytest.raises(InputError, match="b: it is a symbolic link"):
        write_together(folder, OLD)
    assert (folder / "a").read_bytes() == b"new a"


def test_a_folder_is_one_run_s_until_that_has_ended_or_died(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "one"
    for end in ("end", "die"):
        other = start(HOLD, folder)
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        message = f"another run, process {other.pid}, is writing to {folder}; wait"
        with pytest.raises(InputError, match=message) as refused, alone_in(folder):
            pass
        assert refused.value.parameters == ("out",)
        if end == "die":
            other.kill()
        other.communicate("go on\n")
        assert (folder / LOCK).exists() == (end == "die")
        with alone_in(folder), alone_in(folder / ".." / "one"):
            (folder / "result").touch()
    assert os.listdir(folder) == ["result"]


def test_threads_are_kept_apart_and_forks_do_not_keep_the_lock(tmp_path: Path) -> None:
    refused: list[str] = []

    def intrude() -> None:
        try:
            with alone_in(tmp_path):
                pass
        except InputError as reason:
            refused.append(str(reason))

    with alone_in(tmp_path):
        other = threading.Thread(target=intrude)
        other.start()
        other.join()
        leave, stay = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(stay)
            os.read(leave, 1)  # until the parent has ended the block
            os._exit(0)
        os.close(leave)
    assert len(refused) == 1
    assert f"process {os.getpid()}" in refused[0]
    with alone_in(tmp_path):
        pass
    os.close(stay)
    os.waitpid(child, 0)


def test_a_folder_that_was_made_for_nothing_is_removed(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), alone_in(tmp_path / "new"):
        raise RuntimeError
    assert os.listdir(tmp_path) == []
    shutil.rmtree(tmp_path)
    tmp_path.write_text("a file")
    with pytest.raises(InputError, match="cannot make the folder"), alone_in(tmp_path):
        pass
