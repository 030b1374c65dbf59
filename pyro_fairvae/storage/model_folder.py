"""Models as folders of JSON and safetensors, which hold numbers and text and no code.

``model.json`` describes a model and holds the SHA-256 of the files beside it: ``weights.safetensors`` and, if
there are any, the draws of its posterior, ``draws.safetensors``, and boosted trees, ``trees.json``.
``fairvae train`` and ``fairvae fit`` write the same folder, and every other command reads it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
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
from pyro_fairvae.base.documents import as_read, check_document, digest_of, read_bytes, read_json
from pyro_fairvae.base.errors import InputError, require
from pyro_fairvae.base.files import json_text
from pyro_fairvae.base.folders import alone_in, is_current_file, read_current, write_together
from pyro_fairvae.base.messages import first_line
from pyro_fairvae.schema.documents import ModelDocument, TreesDocument
from pyro_fairvae.storage import version_1

DOCUMENT, TENSORS, DRAWS = "model.json", "weights.safetensors", "draws.safetensors"
TREES = "trees.json"
# Files about a model beside it, of ``fairvae train`` and of other commands.
CONFIG, HISTORY, RESULTS, POSTERIOR = RUN = "config.json", "history.csv", "results.json", "posterior.json"
AUDIT, PAGE = "audit.json", "report.html"
FRONTIER_FIGURE, POSTERIOR_FIGURE, TRAINING_FIGURE = "frontier.png", "posterior.png", "training.png"
FACES_FIGURE = "faces.png"
CHECK_FIGURE, EFFECTS_FIGURE = "check.png", "effects.png"  # of withholding
FIGURES = (
    FRONTIER_FIGURE, POSTERIOR_FIGURE, TRAINING_FIGURE, FACES_FIGURE, CHECK_FIGURE, EFFECTS_FIGURE,
)  # fmt: skip
ABOUT = (*RUN, AUDIT, PAGE, *FIGURES)
MODEL = (DOCUMENT, TENSORS, DRAWS, TREES)
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
    about: Mapping[str, bytes | str] | None = None,
    gone: Collection[str] = (),
) -> None:
    """Write a model, and files ``about`` it, in the place of a previous model and of what is about that.

    The previous one is there until the new one is whole, wherever writing may end. Files named in ``gone``
    are deleted with it.
    """
    packed = {TENSORS: pack_tensors({name: tensor.contiguous() for name, tensor in tensors.items()})}
    if draws:
        packed[DRAWS] = pack_arrays({name: np.ascontiguousarray(array) for name, array in draws.items()})
    if trees is not None:
        packed[TREES] = json.dumps(trees).encode()
    # Through JSON and back, so that the digest is the same when the document is read again.
    body = as_read(body)
    head = {
        "format": MODEL_FORMAT,
        "version": VERSION,
        "library": __version__,
        "sha256": {DOCUMENT: digest_of(body)}
        | {name: hashlib.sha256(content).hexdigest() for name, content in packed.items()},
    }
    document = json_text({**head, **body})
    with alone_in(folder):
        check_free(folder, overwrite)
        write_together(folder, {**packed, **(about or {}), DOCUMENT: document}, gone=(*MODEL, *ABOUT, *gone))


def check_free(folder: Path, overwrite: bool = False) -> None:
    """Raise if a folder holds a model that is not to be replaced."""
    require(
        overwrite or not is_current_file(folder / DOCUMENT),
        f"{folder} already holds a model; pass overwrite=True to replace it, or choose another folder.",
        "overwrite",
        "out",
    )


def read_model(
    folder: Path,
) -> tuple[ModelDocument, dict[str, Tensor], dict[str, np.ndarray], TreesDocument | None]:
    """The document, tensors, draws and trees of a model; raises an error that states what is wrong."""
    while True:
        document = _bytes_of(folder, DOCUMENT)
        try:
            _bytes_of(folder, TENSORS)
            return _read(folder)
        except InputError:
            if _bytes_of(folder, DOCUMENT) == document:
                raise
            # Another model has taken the place of the one that was being read.


def _bytes_of(folder: Path, name: str) -> bytes:
    """The content of a file that every model has."""
    try:
        return read_current(folder / name)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as reason:
        raise InputError(f"{folder} is not the folder of a model: it has no {name}.") from reason
    except OSError as reason:
        raise InputError(f"cannot read {folder / name}: {reason.strerror}.") from reason


def _read(
    folder: Path,
) -> tuple[ModelDocument, dict[str, Tensor], dict[str, np.ndarray], TreesDocument | None]:
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
        digest = digest_of({name: value for name, value in content.items() if name not in HEAD})
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
