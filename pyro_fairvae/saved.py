"""Models as folders of JSON and safetensors, which hold numbers and words and no code."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as read_tensors
from safetensors.torch import save as pack_tensors
from torch import Tensor

from pyro_fairvae import __version__
from pyro_fairvae.attributes import Attributes
from pyro_fairvae.batch import Columns, Observed
from pyro_fairvae.checkpoint import make_folder, write_json, write_whole
from pyro_fairvae.errors import InputError, require
from pyro_fairvae.fitted import Fit
from pyro_fairvae.options import build, flatten
from pyro_fairvae.program import Program, Settings

DOCUMENT, TENSORS = "model.json", "weights.safetensors"
FORMAT, VERSION = "pyro_fairvae model", 1
KINDS: dict[str, type] = {"bool": bool, "int": int, "float": float, "str": str}


def write_model(
    folder: Path, document: Mapping[str, Any], tensors: dict[str, Tensor], overwrite: bool = False
) -> None:
    """Write a model; the document, which vouches for the tensors, comes last."""
    require(
        overwrite or not (folder / DOCUMENT).exists(),
        f"{folder} already holds a model; replace it by overwrite (--overwrite), or choose another folder.",
    )
    make_folder(folder)
    packed = pack_tensors({name: each.contiguous() for name, each in tensors.items()})
    head = {
        "format": FORMAT,
        "version": VERSION,
        "library": __version__,
        "sha256": hashlib.sha256(packed).hexdigest(),
    }
    (folder / DOCUMENT).unlink(missing_ok=True)
    write_whole(folder / TENSORS, packed)
    write_json(folder / DOCUMENT, {**head, **document})


def read_model(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The document and the tensors of a model, or an error that says what is wrong with the folder."""
    for name in (DOCUMENT, TENSORS):
        require((folder / name).is_file(), f"{folder} is not the folder of a model: it has no {name}.")
    try:
        document = json.loads((folder / DOCUMENT).read_text(encoding="utf-8"))
    except (OSError, ValueError) as reason:
        raise InputError(f"{folder / DOCUMENT} cannot be read, or is broken: {reason}.") from reason
    require(
        isinstance(document, dict) and document.get("format") == FORMAT,
        f"{folder / DOCUMENT} does not describe a model of pyro_fairvae.",
    )
    require(
        document.get("version") == VERSION,
        f"{folder} has version {document.get('version')} of the format, written by pyro_fairvae "
        f"{document.get('library')}; this is pyro_fairvae {__version__}, which reads version {VERSION}.",
    )
    packed = (folder / TENSORS).read_bytes()
    require(
        hashlib.sha256(packed).hexdigest() == document.get("sha256"),
        f"{folder / TENSORS} is damaged, or of another model: it is not what {DOCUMENT} says it is.",
    )
    try:
        return document, read_tensors(packed)
    except SafetensorError as reason:
        raise InputError(f"{folder / TENSORS} is damaged: {reason}.") from reason


def fit_content(fitted: Fit) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A fit as what JSON has and as tensors by name."""
    tensors = {
        f"{part}/{name}": value.detach().cpu().contiguous()
        for part, state in (("program", fitted.program.state()), ("chosen", fitted.chosen))
        for name, value in state.items()
    }
    if fitted.tilt is not None:
        tensors["tilt"] = fitted.tilt.detach().cpu().contiguous()
    document = {
        "settings": flatten(dataclasses.asdict(fitted.settings)),
        "weights": list(fitted.weights_of_risk),
        "chosen_epoch": list(fitted.chosen_epoch),
        "history": fitted.history,
    }
    return document, tensors


def fit_from(
    document: dict[str, Any],
    tensors: dict[str, Tensor],
    columns: Columns,
    class_names: tuple[str, ...],
    attributes: Attributes,
    device: torch.device,
) -> Fit:
    """The fit of :func:`fit_content`, for rows with these columns, classes and groups."""
    settings = build(Settings, document["settings"])
    weights = tuple(map(float, document["weights"]))
    # Rows of nothing, from which a program of the right shape is made.
    empty = Observed(
        torch.zeros(2, columns.width),
        torch.full((2,), len(class_names)),
        torch.full((2,), attributes.outcomes - 1),
        columns,
        len(class_names),
        attributes.groups,
        attributes,
        class_names,
    )
    program = Program(empty, settings, [0] * len(weights)).to(device, torch.float32)
    parts: dict[str, dict[str, Tensor]] = {"program": {}, "chosen": {}}
    for name, value in tensors.items():
        part, _, rest = name.partition("/")
        if rest:
            parts[part][rest] = value.to(device)
    shapes = {name: value.shape for name, value in program.state().items()}
    for part, state in parts.items():
        require(
            {name: value.shape for name, value in state.items()} == shapes,
            f"the tensors of {part!r} do not fit what {DOCUMENT} describes; the model is damaged.",
        )
    program.load_state(parts["program"])
    tilt = tensors["tilt"].to(device) if "tilt" in tensors else None
    return Fit(
        program, parts["chosen"], document["chosen_epoch"], weights, settings, document["history"], tilt
    )


def classes_content(classes: np.ndarray) -> dict[str, Any]:
    """Classes as JSON has them, with their kind."""
    values = classes.tolist()
    kinds = {type(value).__name__ for value in values}
    require(
        len(kinds) == 1 and kinds <= KINDS.keys(),
        f"classes of the kind {', '.join(sorted(kinds))} cannot be saved; expected {', '.join(KINDS)}.",
    )
    return {
        "kind": kinds.pop(),
        "values": values,
        "dtype": classes.dtype.str if classes.dtype != object else "O",
    }


def classes_from(content: dict[str, Any]) -> np.ndarray:
    kind = KINDS[content["kind"]]
    return np.array([kind(value) for value in content["values"]], dtype=content["dtype"])


def is_plain(value: Any) -> bool:
    """Whether JSON has the like of a value."""
    if isinstance(value, (list, tuple)):
        return all(map(is_plain, value))
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and is_plain(each) for key, each in value.items())
    return value is None or isinstance(value, (bool, int, float, str))
