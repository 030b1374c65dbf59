"""Models as folders of JSON and safetensors, which hold numbers and words and no code."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as read_tensors
from safetensors.torch import save as pack_tensors
from torch import Tensor

from pyro_fairvae import __version__
from pyro_fairvae.base.errors import InputError, choose, require
from pyro_fairvae.base.files import make_folder, write_json, write_whole
from pyro_fairvae.base.options import build, flatten
from pyro_fairvae.inference.fit_result import Fit
from pyro_fairvae.inference.program import Program, Settings
from pyro_fairvae.nn.trunks import chosen_trunk
from pyro_fairvae.schema.attributes import Attributes
from pyro_fairvae.schema.observed import Columns, Observed

DOCUMENT, TENSORS = "model.json", "weights.safetensors"
AUDIT, PAGE = ABOUT = "audit.json", "report.html"  # what commands write beside them
MODEL_FORMAT, VERSION = "pyro_fairvae model", 1
HEAD = ("format", "version", "library", "sha256")
CLASS_KINDS: dict[str, tuple[type, str]] = {  # of classes, and of arrays that hold them
    "bool": (bool, "bO"),
    "int": (int, "iuO"),
    "float": (float, "fO"),
    "str": (str, "UO"),
}


def write_model(
    folder: Path, document: Mapping[str, Any], tensors: dict[str, Tensor], overwrite: bool = False
) -> None:
    """Write a model; the document, which vouches for the tensors, comes last.

    What the folder holds about another model, ABOUT, goes.
    """
    require(
        overwrite or not (folder / DOCUMENT).exists(),
        f"{folder} already holds a model; replace it by overwrite (--overwrite), or choose another folder.",
    )
    make_folder(folder)
    packed = pack_tensors({name: each.contiguous() for name, each in tensors.items()})
    # As it will be read again, so that its digest is, too.
    body = json.loads(json.dumps(document), parse_constant=lambda _: None)
    head = {
        "format": MODEL_FORMAT,
        "version": VERSION,
        "library": __version__,
        "sha256": {DOCUMENT: _digest(body), TENSORS: hashlib.sha256(packed).hexdigest()},
    }
    for name in (DOCUMENT, *ABOUT):
        (folder / name).unlink(missing_ok=True)
    write_whole(folder / TENSORS, packed)
    write_json(folder / DOCUMENT, {**head, **body})


def _digest(body: Mapping[str, Any]) -> str:
    """A fingerprint of a document without its head."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def read_model(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The document and the tensors of a model, or an error that says what is wrong with the folder."""
    for name in (DOCUMENT, TENSORS):
        require((folder / name).is_file(), f"{folder} is not the folder of a model: it has no {name}.")
    try:
        document = json.loads((folder / DOCUMENT).read_text(encoding="utf-8"))
        packed = (folder / TENSORS).read_bytes()
    except OSError as reason:
        raise InputError(f"cannot read the model in {folder}: {reason}.") from reason
    except (ValueError, RecursionError) as reason:
        raise InputError(f"{folder / DOCUMENT} cannot be read, or is broken: {reason}.") from reason
    require(
        isinstance(document, dict) and document.get("format") == MODEL_FORMAT,
        f"{folder / DOCUMENT} does not describe a model of pyro_fairvae.",
    )
    require(
        document.get("version") == VERSION,
        f"{folder} has version {document.get('version')} of the format, written by pyro_fairvae "
        f"{document.get('library')}; this is pyro_fairvae {__version__}, which reads version {VERSION}.",
    )
    body = {name: each for name, each in document.items() if name not in HEAD}
    digests = document.get("sha256")
    vouched = digests if isinstance(digests, dict) else {}
    require(
        vouched.get(DOCUMENT) == _digest(body),
        f"{folder / DOCUMENT} is damaged, or was changed by hand: its content is not what was written.",
    )
    require(
        vouched.get(TENSORS) == hashlib.sha256(packed).hexdigest(),
        f"{folder / TENSORS} is damaged, or of another model: it is not what {DOCUMENT} says it is.",
    )
    try:
        return document, read_tensors(packed)
    except (SafetensorError, KeyError, ValueError, RuntimeError) as reason:
        raise InputError(f"{folder / TENSORS} is damaged: {reason}.") from reason


@contextmanager
def restoring(folder: Path) -> Iterator[None]:
    """What goes wrong inside is the fault of a model's document, which somebody else may have written."""
    try:
        yield
    except InputError as reason:
        raise InputError(f"{folder / DOCUMENT} cannot be used: {reason}") from reason
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError) as reason:
        raise InputError(
            f"{folder / DOCUMENT} does not describe a model of use: {type(reason).__name__}, {reason}."
        ) from reason


def fit_content(fitted: Fit) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A fit as what JSON has and as tensors by name."""
    tensors = {
        f"{part}/{name}": value.detach().cpu().contiguous()
        for part, state in (("program", fitted.program.state()), ("chosen", fitted.chosen))
        for name, value in state.items()
    }
    if fitted.adjustment is not None:
        tensors["adjustment"] = fitted.adjustment.detach().cpu().contiguous()
    document = {
        "settings": flatten(dataclasses.asdict(fitted.settings)),
        "weights": list(fitted.lambdas),
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
    _check_sizes(settings, len(weights), columns, attributes, tensors)
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
    adjustment = tensors["adjustment"].to(device) if "adjustment" in tensors else None
    parts: dict[str, dict[str, Tensor]] = {"program": {}, "chosen": {}}
    for name, value in tensors.items():
        part, _, rest = name.partition("/")
        if name != "adjustment":
            require(part in parts, f"{TENSORS} holds {name!r}, which is no part of a model.")
            parts[part][rest] = value.to(device)
    made = {name: (value.shape, value.dtype) for name, value in program.state().items()}
    for part, state in parts.items():
        require(
            {name: (value.shape, value.dtype) for name, value in state.items()} == made,
            f"the tensors of {part!r} do not fit what {DOCUMENT} describes; the model is damaged.",
        )
    shape = (len(weights), len(class_names), len(class_names), attributes.groups)
    if adjustment is not None:
        require(
            adjustment.shape == shape,
            f"'adjustment' has the shape {tuple(adjustment.shape)}, expected {shape}.",
        )
    chosen = [int(epoch) for epoch in document["chosen_epoch"]]
    require(len(chosen) == len(weights), f"{len(chosen)} epochs were chosen for {len(weights)} members.")
    # A number that is not finite is null in JSON.
    history = [
        {name: math.nan if value is None else value for name, value in row.items()}
        for row in document["history"]
    ]
    program.load_state(parts["program"])
    return Fit(program, parts["chosen"], chosen, weights, settings, history, adjustment)


def _check_sizes(
    settings: Settings, members: int, columns: Columns, attributes: Attributes, tensors: dict[str, Tensor]
) -> None:
    """Refuse a network that has more weights than the tensors hold, before memory is taken for it."""
    held = sum(value.numel() for name, value in tensors.items() if name.startswith("program/"))
    trunk = chosen_trunk(columns, settings).weights(columns, settings)
    encoder = trunk + settings.hidden * attributes.groups
    decoder = settings.decoder_hidden * (settings.latent + columns.width)
    require(
        0 < members * (encoder + decoder) <= held,
        f"{DOCUMENT} describes a network with {members * (encoder + decoder)} weights or more, but {TENSORS} "
        f"holds {held}.",
    )


def classes_content(classes: np.ndarray) -> dict[str, Any]:
    """Classes as JSON has them, with their kind."""
    values = classes.tolist()
    kinds = {type(value).__name__ for value in values}
    require(
        len(kinds) == 1 and kinds <= CLASS_KINDS.keys(),
        f"classes of the kind {', '.join(sorted(kinds))} cannot be saved; expected {', '.join(CLASS_KINDS)}.",
    )
    return {
        "kind": kinds.pop(),
        "values": values,
        "dtype": classes.dtype.str if classes.dtype != object else "O",
    }


def classes_from(content: dict[str, Any]) -> np.ndarray:
    """The classes of :func:`classes_content`, or an error where they are others than was written."""
    kind, arrays = CLASS_KINDS[choose("kind of classes", content["kind"], CLASS_KINDS)]
    values, dtype = list(content["values"]), np.dtype(content["dtype"])
    require(
        dtype.kind in arrays and dtype.itemsize < 1 << 20 and all(type(value) is kind for value in values),
        f"classes {values} are not of the kind {content['kind']}, or cannot be held by {content['dtype']!r}.",
    )
    classes = np.array(values, dtype=dtype)
    require(
        classes.tolist() == values and len(set(values)) == len(values) > 1,
        f"classes {values} must be two or more, and different.",
    )
    return classes


def is_plain(value: Any) -> bool:
    """Whether JSON has the like of a value."""
    if isinstance(value, (list, tuple)):
        return all(map(is_plain, value))
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and is_plain(each) for key, each in value.items())
    return value is None or isinstance(value, (bool, int, float, str))
