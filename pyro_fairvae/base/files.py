"""Atomic writes of files: text, JSON, CSV and arrays."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.base.formulas import are_escaped, as_cell


def write_whole(path: Path, content: bytes | str) -> None:
    """Write a file so that a reader sees the old one or the new one, never a part."""
    data = content.encode() if isinstance(content, str) else content
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as reason:
        raise InputError(f"cannot write {path}: {reason.strerror}.") from reason
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as reason:
        raise InputError(
            f"cannot write {path}: {reason.strerror}. Free some space, or choose another folder.", "out"
        ) from reason
    finally:
        Path(temporary).unlink(missing_ok=True)


def make_folder(path: Path) -> None:
    """Create a folder and its parents, unless it exists."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as reason:
        raise InputError(
            f"cannot make the folder {path}: {reason.strerror}. Choose another.", "out"
        ) from reason


def write_json(path: Path, content: Any) -> None:
    """Write JSON; a number that is not finite becomes ``null``, since JSON cannot represent it."""
    write_whole(path, json.dumps(_finite(content), indent=2, ensure_ascii=False) + "\n")


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays by name, as numpy's ``.npz``."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)
    write_whole(path, buffer.getvalue())


def write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write rows as CSV; the header holds the names of the first row."""
    text = _Lines()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]) if rows else [], lineterminator="\r\n")
    writer.writerow({name: as_cell(name) for name in writer.fieldnames})
    writer.writerows({name: as_cell(value) for name, value in row.items()} for row in rows)
    write_whole(path, text.getvalue())


def write_frame(path: Path, frame: pd.DataFrame) -> None:
    """Write a table as CSV, without its index."""
    cells = frame.map(as_cell).rename(columns=as_cell) if are_escaped() else frame
    text = _Lines()
    cells.to_csv(text, index=False, lineterminator="\r\n")
    write_whole(path, text.getvalue())


class _Lines(io.StringIO):
    """Lines that end in a line feed alone, from a writer that must quote a carriage return inside of them."""

    def write(self, line: str) -> int:
        return super().write(line.removesuffix("\r\n") + "\n")


def _finite(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, list):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
