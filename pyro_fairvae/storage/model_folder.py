"""Models as folders of JSON and safetensors, which hold numbers and text and no code.

``model.json`` describes a model and holds the SHA-256 of the files beside it: ``weights.safetensors`` and, if
there are any, the draws of its posterior, ``draws.safetensors``, and boosted trees, ``trees.json``.
``fairvae train`` and ``fairvae fit`` write the same folder, and every other command reads it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as read_arrays
from safetensors.numpy import save as pack_arrays
from safetensors.torch import load as read_tensors
from safetensors.torch import save as pack_tensors
from torch import Tensor

from pyro_fairvae import __version__
from pyro_fairvae.base.documents import check_document, read_bytes, read_json
from pyro_fairvae.base.errors import InputError, require
from pyro_fairvae.base.files import make_folder, write_json, write_whole
from pyro_fairvae.base.messages import first_line
from pyro_fairvae.schema.documents import ModelDocument, TreesDocument
from pyro_fairvae.storage import version_1

DOCUMENT, TENSORS, DRAWS = "model.json", "weights.safetensors", "draws.safetensors"
TREES = "trees.json"
AUDIT, PAGE = ABOUT = "audit.json", "report.html"  # files about a model that commands write beside it
MODEL_FORMAT, VERSION = "pyro_fairvae model", 2
HEAD = ("format", "version", "library", "sha256")
A_MODEL = "the description of a model of pyro_fairvae"


def write_model(
    folder: Path,
    body: Mapping[str, Any],
    tensors: dict[str, Tensor],
    draws: Mapping[str, np.ndarray],
    trees: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> None:
    """Write a model; the document, which holds the digests of the tensors, is written last.

    Files about a previous model in the folder, ABOUT, are deleted.
    """
    require(
        overwrite or not (folder / DOCUMENT).exists(),
        f"{folder} already holds a model; pass overwrite=True to replace it, or choose another folder.",
        "overwrite",
        "out",
    )
    make_folder(folder)
    packed = {TENSORS: pack_tensors({name: tensor.contiguous() for name, tensor in tensors.items()})}
    if draws:
        packed[DRAWS] = pack_arrays({name: np.ascontiguousarray(array) for name, array in draws.items()})
    if trees is not None:
        packed[TREES] = json.dumps(trees).encode()
    # Through JSON and back, so that the digest is the same when the document is read again.
    body = json.loads(json.dumps(body), parse_constant=lambda _: None)
    head = {
        "format": MODEL_FORMAT,
        "version": VERSION,
        "library": __version__,
        "sha256": {DOCUMENT: _digest(body)}
        | {name: hashlib.sha256(content).hexdigest() for name, content in packed.items()},
    }
    for name in (DOCUMENT, DRAWS, TREES, *ABOUT):
        (folder / name).unlink(missing_ok=True)
    for name, content in packed.items():
        write_whole(folder / name, content)
    write_json(folder / DOCUMENT, {**head, **body})


def _digest(body: Mapping[str, Any]) -> str:
    """The SHA-256 of a document without its head."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def read_model(
    folder: Path,
) -> tuple[ModelDocument, dict[str, Tensor], dict[str, np.ndarray], TreesDocument | None]:
    """The document, tensors, draws and trees of a model; raises an error that states what is wrong."""
    for name in (DOCUMENT, TENSORS):
        require((folder / name).is_file(), f"{folder} is not the folder of a model: it has no {name}.")
    path = folder / DOCUMENT
    content = read_json(path, A_MODEL)
    require(
        isinstance(content, dict) and content.get("format") == MODEL_FORMAT,
        f"{path} does not describe a model of pyro_fairvae.",
    )
    version = content.get("version")
    require(
        version in (1, VERSION) and not isinstance(version, bool),
        f"{folder} has version {version} of the format, written by pyro_fairvae {content.get('library')}; "
        f"this is pyro_fairvae {__version__}, which reads versions 1 and {VERSION}.",
    )
    digests = content.get("sha256")
    expected = digests if isinstance(digests, dict) else {}
    try:
        digest = _digest({name: value for name, value in content.items() if name not in HEAD})
    except (RecursionError, UnicodeError) as reason:
        raise InputError(f"{path} is not {A_MODEL}, or is damaged: {first_line(reason)}.") from reason
    require(
        expected.get(DOCUMENT) == digest,
        f"{path} is damaged, or was changed by hand: its content does not match its SHA-256.",
    )
    tensors = _unpack(folder / TENSORS, expected, read_tensors)
    draws = _unpack(folder / DRAWS, expected, read_arrays) if DRAWS in expected else {}
    trees = None
    if TREES in expected:
        content_of_trees = _unpack(folder / TREES, expected, json.loads)
        trees = check_document(content_of_trees, TreesDocument, str(folder / TREES), A_MODEL)
    if version == 1:
        try:
            content, tensors = version_1.upgraded(content), version_1.renamed(tensors)
        except (LookupError, TypeError, ValueError, AttributeError) as reason:
            raise InputError(
                f"{path} is not {A_MODEL}, or is damaged: {type(reason).__name__}, {first_line(reason)}."
            ) from reason
    return check_document(content, ModelDocument, str(path), A_MODEL), tensors, draws, trees


def _unpack(path: Path, expected: Mapping[str, Any], read: Any) -> Any:
    """The tensors of a file, which must have the SHA-256 that the document states."""
    try:
        packed = read_bytes(path)
    except OSError as reason:
        raise InputError(f"cannot read {path}: {reason.strerror}.") from reason
    require(
        expected.get(path.name) == hashlib.sha256(packed).hexdigest(),
        f"{path} is damaged, or of another model: its SHA-256 is not the one in {DOCUMENT}.",
    )
    try:
        return read(packed)
    except (SafetensorError, KeyError, ValueError, RuntimeError, TypeError, OverflowError) as reason:
        raise InputError(f"{path} is damaged: {first_line(reason)}.") from reason
