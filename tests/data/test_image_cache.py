"""Images are decoded once, to the right bytes, whatever goes wrong meanwhile."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pyro_fairvae.base import file_locks
from pyro_fairvae.base.errors import InputError
from pyro_fairvae.data import image_cache
from pyro_fairvae.data.image_cache import Cut, cached_images, decode
from pyro_fairvae.data.image_sources import open_images
from pyro_fairvae.data.mapped_store import cache_home
from tests.support import ROOT
from tests.support.pictures import NAMES, Counted, file_of, image_name, noise, solid, write_images

BUILD = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from pyro_fairvae.data import image_cache
from tests.support.pictures import NAMES, Counted, file_of, image_name, noise, solid, write_images
image_cache.IMAGES_AT_ONCE = 4
source = Counted()
die_at = int(sys.argv[3])
if die_at:
    source.then = lambda: os.kill(os.getpid(), signal.SIGKILL) if len(source.asked) == die_at else None
print("ready", flush=True)
sys.stdin.readline()
image_cache.cached_images(source, NAMES, 8, sys.argv[2])
print(len(source.asked))
"""


def truth(side: int = 8) -> torch.Tensor:
    rows = [decode(file_of(noise(row)), side) for row in range(len(NAMES))]
    return torch.tensor([list(row) for row in rows], dtype=torch.uint8)


def start(folder: Path, die_at: int = 0) -> subprocess.Popen[str]:
    """Another process that decodes the forty pictures when it is told to go on."""
    command = [sys.executable, "-c", BUILD, str(ROOT), str(folder), str(die_at)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.parametrize("form", ["images", "images.zip"])
def test_a_folder_and_a_zip_give_the_same_bytes_in_the_order_asked(form: str, tmp_path: Path) -> None:
    write_images(tmp_path / form, Counted().files, inside="some/folder")
    with open_images(tmp_path / form) as source:
        assert set(source.names()) == set(NAMES)
        found = cached_images(source, NAMES[::-1], 8, tmp_path / "cache")
    assert found.dtype == torch.uint8
    assert torch.equal(found, truth().flip(0))


def test_images_are_decoded_once(tmp_path: Path) -> None:
    source = Counted()
    first = cached_images(source, NAMES, 8, tmp_path)
    assert sorted(source.asked) == NAMES
    assert torch.equal(cached_images(source, NAMES, 8, tmp_path), first)
    assert len(source.asked) == len(NAMES)
    first.zero_()  # a mapping of the caller's own
    assert torch.equal(cached_images(source, NAMES, 8, tmp_path), truth())


def test_another_side_other_names_or_other_files_are_another_cache(tmp_path: Path) -> None:
    source = Counted()
    cached_images(source, NAMES, 8, tmp_path)
    assert torch.equal(cached_images(source, NAMES, 6, tmp_path), truth(6))
    corner = Cut(0.5, down=1.0)
    cut = [list(decode(file_of(noise(row)), 8, corner)) for row in range(len(NAMES))]
    assert cached_images(source, NAMES, 8, tmp_path, cut=corner).tolist() == cut != truth().tolist()
    assert torch.equal(cached_images(source, NAMES[5:9], 8, tmp_path), truth()[5:9])
    source.files[NAMES[0]] = file_of(solid((9, 9, 9)))
    assert (cached_images(source, NAMES, 8, tmp_path)[0] == 9).all()


@pytest.mark.parametrize("form", ["images", "images.zip"])
def test_a_changed_file_of_the_same_length_is_noticed(form: str, tmp_path: Path) -> None:
    found = []
    for shade in (10, 20):
        where = tmp_path / str(shade) / form
        where.parent.mkdir()
        picture = np.full((4, 4, 3), shade, dtype=np.uint8)
        write_images(where, {"a.jpg": file_of(picture, "BMP"), "b.jpg": file_of(picture, "BMP")})
        with open_images(where) as source:
            found.append(int(cached_images(source, ["a.jpg"], 2, tmp_path / "cache")[0, 0]))
    assert found == [10, 20]


def test_a_killed_decode_goes_on_where_it_stopped(tmp_path: Path) -> None:
    killed = start(tmp_path, die_at=19)
    output, _ = killed.communicate("go\n", timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert output == "ready\n"
    assert not list(tmp_path.glob("*.u8"))
    source = Counted()
    assert torch.equal(cached_images(source, NAMES, 8, tmp_path), truth())
    assert sorted(source.asked) == NAMES[16:]  # four chunks of four were recorded
    assert not list(tmp_path.glob("*.part"))


def test_an_interrupted_decode_goes_on_in_the_same_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_cache, "IMAGES_AT_ONCE", 8)
    source, record, calls = Counted(), image_cache._record, []

    def interrupted(*arguments: object) -> None:
        record(*arguments)  # type: ignore[arg-type]
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(image_cache, "_record", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cached_images(source, NAMES, 8, tmp_path)
    source.asked.clear()
    assert torch.equal(cached_images(source, NAMES, 8, tmp_path), truth())
    assert sorted(source.asked) == NAMES[24:]


def test_a_second_process_waits_for_the_first(tmp_path: Path) -> None:
    """It is told to start while this one is in the middle of its work, which goes on once the other waits."""
    other = start(tmp_path)
    assert other.stdin is not None
    assert other.stderr is not None
    source, started, go_on = Counted(), threading.Event(), threading.Event()

    def pause() -> None:
        started.set()
        go_on.wait(60)

    source.then = pause  # type: ignore[method-assign]
    own = threading.Thread(target=cached_images, args=(source, NAMES, 8, tmp_path))
    own.start()
    assert started.wait(60)
    other.stdin.write("go\n")
    other.stdin.flush()
    assert "Another process decodes the same images; waiting" in other.stderr.readline()
    go_on.set()
    own.join()
    output, errors = other.communicate(timeout=60)
    assert other.returncode == 0, errors
    assert output == "ready\n0\n"
    assert sorted(source.asked) == NAMES
    assert torch.equal(cached_images(source, NAMES, 8, tmp_path), truth())


def test_without_locks_each_builds_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_locks, "fcntl", None)
    assert torch.equal(cached_images(Counted(), NAMES, 8, tmp_path), truth())
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".lock", ".u8"]


@pytest.mark.parametrize("damage", ["shorter", "longer", "flipped", "no note", "bad note"])
def test_a_damaged_cache_is_made_anew(damage: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    cached_images(Counted(), NAMES, 8, tmp_path)
    (path,) = tmp_path.glob("*.u8")
    content = path.read_bytes()
    if damage == "no note":
        path.with_suffix(".json").unlink()
    elif damage == "bad note":
        path.with_suffix(".json").write_text("[1]")
    else:
        flipped = bytes([content[0] ^ 255]) + content[1:]
        path.write_bytes({"shorter": content[:-100], "longer": content + b"\1", "flipped": flipped}[damage])
    source = Counted()
    assert torch.equal(cached_images(source, NAMES, 8, tmp_path), truth())
    assert len(source.asked) == len(NAMES)
    assert "is broken or altered; decoding the images again" in capfd.readouterr().err


def test_a_copied_cache_is_read_after_its_checksum(tmp_path: Path) -> None:
    cached_images(Counted(), NAMES, 8, tmp_path / "here")
    shutil.copytree(tmp_path / "here", tmp_path / "there", copy_function=shutil.copyfile)
    source = Counted()
    assert torch.equal(cached_images(source, NAMES, 8, tmp_path / "there"), truth())
    assert source.asked == []


def test_a_part_of_another_size_is_not_gone_on_with(tmp_path: Path) -> None:
    cached_images(Counted(), NAMES, 8, tmp_path)
    (path,) = tmp_path.glob("*.u8")
    path.rename(path.with_suffix(".part"))
    with path.with_suffix(".part").open("ab") as file:
        file.write(b"\1")
    source = Counted()
    assert torch.equal(cached_images(source, NAMES, 8, tmp_path), truth())
    assert len(source.asked) == len(NAMES)


def test_rows_that_were_altered_while_decoding_was_interrupted_are_decoded_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    start(tmp_path, die_at=19).communicate("go\n", timeout=60)
    (part,) = tmp_path.glob("*.part")
    content = bytearray(part.read_bytes())
    for place in (3 * 192 + 5, 9 * 192, 40 * 192 + 4 * 16 + 7):  # of rows 3 and 9, and of the digest of row 4
        content[place] ^= 1
    part.write_bytes(content)
    source = Counted()
    assert torch.equal(cached_images(source, NAMES, 8, tmp_path), truth())
    assert sorted(source.asked) == [NAMES[3], NAMES[4], NAMES[9], *NAMES[16:]]
    assert "3 images decoded before are altered; decoding them again" in capfd.readouterr().err


def test_missing_images_are_counted_before_any_is_decoded(tmp_path: Path) -> None:
    source = Counted()
    for name in NAMES[2:7]:
        del source.files[name]
    with pytest.raises(
        InputError, match=r"5 of 40 images are not in memory: 000003\.jpg, .*\.\.\.\. Restore"
    ):
        cached_images(source, NAMES, 8, tmp_path)
    assert source.asked == []


@pytest.mark.parametrize("form", ["PNG", "JPEG"])
def test_all_broken_images_are_counted_not_only_the_first(form: str, tmp_path: Path) -> None:
    files = {name: file_of(noise(row, 60, 60), form) for row, name in enumerate(NAMES)}
    files[NAMES[3]] = files[NAMES[3]][:-300]
    files[NAMES[30]] = b"no image"
    source = Counted(files)
    for _ in range(2):  # the second time it does not go on behind them
        with pytest.raises(
            InputError, match=r"2 of 40 images in memory cannot be decoded: 000004\.jpg \(.*31\.jpg"
        ):
            cached_images(source, NAMES, 8, tmp_path)
        assert not list(tmp_path.glob("*.part"))
        assert not list(tmp_path.glob("*.u8"))


def test_a_damaged_file_in_a_zip_is_a_broken_image(tmp_path: Path) -> None:
    where = tmp_path / "images.zip"
    write_images(where, {"a.jpg": file_of(noise(0)), "b.jpg": file_of(noise(1))})
    content = bytearray(where.read_bytes())
    content[200] ^= 255
    where.write_bytes(content)
    with open_images(where) as source, pytest.raises(InputError, match=r"1 of 2 images .*a\.jpg \(Bad CRC"):
        cached_images(source, ["a.jpg", "b.jpg"], 4, tmp_path)


def test_a_truncated_zip_is_refused(tmp_path: Path) -> None:
    where = tmp_path / "images.zip"
    write_images(where, {"a.jpg": file_of(noise(0))})
    where.write_bytes(where.read_bytes()[:-40])
    with (
        pytest.raises(InputError, match=r"is not a complete zip .*a folder images beside it"),
        open_images(where),
    ):
        pass


def test_two_images_of_one_name_are_refused(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        write_images(tmp_path, {"a.jpg": file_of(noise(0)), ".a.jpg": b"", "notes.txt": b""}, inside=folder)
    with pytest.raises(InputError, match=r"holds two images called a\.jpg"), open_images(tmp_path):
        pass


def test_a_full_disk_is_told_before_decoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=7000))
    source = Counted()
    message = r"40 images to decode need 0\.8 MB in .*, but 0\.0 MB are free\. .*FAIRVAE_CACHE"
    with pytest.raises(InputError, match=message):
        cached_images(source, NAMES, 80, tmp_path)
    assert source.asked == []


def test_a_disk_that_fills_meanwhile_is_told_and_what_is_decoded_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_cache, "IMAGES_AT_ONCE", 8)
    source, sync, calls = Counted(), os.fsync, []

    def full(handle: int) -> None:
        calls.append(handle)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        sync(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        InputError, match=r"cannot write the image cache .*No space left on device\. .*FAIRVAE_CACHE"
    ):
        cached_images(source, NAMES, 8, tmp_path)
    source.asked.clear()
    assert torch.equal(cached_images(source, NAMES, 8, tmp_path), truth())
    assert sorted(source.asked) == NAMES[16:]


def test_a_cache_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        InputError, match=r"cannot write the image cache .*choose another folder .* FAIRVAE_CACHE"
    ):
        cached_images(Counted(), NAMES, 8, tmp_path / "file" / "cache")


@pytest.mark.parametrize(
    ("names", "side", "words"), [([], 8, "names is empty"), (NAMES, 0, "at least 1 pixel, got 0")]
)
def test_nothing_to_decode_is_refused(names: list[str], side: int, words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words):
        cached_images(Counted(), names, side, tmp_path)


def test_the_cache_is_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRVAE_CACHE", str(tmp_path))
    cached_images(Counted(), NAMES, 8)
    assert len(list((tmp_path / "images").glob("*.u8"))) == 1
    monkeypatch.delenv("FAIRVAE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    if sys.platform == "linux":
        assert cache_home() == tmp_path / "other" / "pyro_fairvae"


def test_progress_is_shown_when_asked(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    cached_images(Counted(), NAMES, 8, tmp_path / "silent")
    assert capfd.readouterr().err == ""
    cached_images(Counted(), NAMES, 8, tmp_path / "shown", progress=True)
    assert "40/40" in capfd.readouterr().err


def test_memory_does_not_grow_with_the_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve megabytes of images are decoded, and some read again, in much less."""
    monkeypatch.setattr(image_cache, "IMAGES_AT_ONCE", 64)
    names = [image_name(row) for row in range(1024)]
    source = Counted(dict.fromkeys(names, file_of(solid((1, 2, 3)))))
    tracemalloc.start()
    stored = cached_images(source, names, 64, tmp_path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert stored.numel() == 1024 * 3 * 64**2 > 12e6
    assert peak < 5e6


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc")
def test_reading_some_rows_does_not_load_all(tmp_path: Path) -> None:
    names = [image_name(row) for row in range(64)]
    source = Counted(dict.fromkeys(names, file_of(solid((1, 2, 3)))))
    cached_images(source, names, 512, tmp_path)  # 50 MB
    before = resident()
    stored = cached_images(source, names, 512, tmp_path)
    assert int(stored[[3, 40]].max()) == 3
    some = resident() - before
    assert int(stored.max()) == 3
    assert some < 10e6
    assert resident() - before > 40e6  # so that the measure sees what is loaded


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
