"""Checkpoints: the state of training after an epoch, from which a fit can resume."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import torch

from pyro_fairvae.base.documents import check_document
from pyro_fairvae.base.errors import InputError, require
from pyro_fairvae.base.files import write_whole
from pyro_fairvae.schema.documents import CheckpointHeader

CHECKPOINT = "checkpoint.pt"  # its name in a folder
A_CHECKPOINT = "a checkpoint"
MAGIC = b"checkpoint of pyro_fairvae, SHA-256 "
REMEDY = "Delete it to start anew."
ABSENT = "no option"  # of the version that wrote a config: its default may mean something else in this one


class OtherConfig(InputError):
    """The checkpoint was written with other options or other rows."""


def save(path: Path, config: dict[str, Any], state: dict[str, Any]) -> None:
    """Write a checkpoint of ``state`` together with the config that it belongs to."""
    buffer = io.BytesIO()
    torch.save({"config": config, "state": state}, buffer)
    content = buffer.getvalue()
    write_whole(path, MAGIC + hashlib.sha256(content).hexdigest().encode() + b"\n" + content)


def _checked(path: Path) -> bytes:
    """The content of a checkpoint, which must match its SHA-256."""
    head, _, content = path.read_bytes().partition(b"\n")
    require(
        head == MAGIC + hashlib.sha256(content).hexdigest().encode(),
        f"{path} is not {A_CHECKPOINT}, is damaged, or is of an earlier version: it does not match its "
        f"SHA-256. {REMEDY}",
    )
    return content


def load(path: Path, config: dict[str, Any]) -> dict[str, Any]:
    """The state of a checkpoint, which must have the same config, on the CPU. Runs no code from the file."""
    try:
        content = torch.load(io.BytesIO(_checked(path)), map_location="cpu", weights_only=True)
        header, state = {"config": content["config"]}, dict(content["state"])
    except InputError:
        raise
    except Exception as reason:  # a damaged file can raise almost any exception
        raise InputError(f"{path} is not {A_CHECKPOINT}, or is damaged. {REMEDY}") from reason
    saved = check_document(header, CheckpointHeader, str(path), A_CHECKPOINT, REMEDY).config
    differing = [
        f"{key} was {saved.get(key, ABSENT)!r}, now {config.get(key, ABSENT)!r}"
        for key in sorted(saved.keys() | config.keys())
        if saved.get(key, ABSENT) != config.get(key, ABSENT)
    ]
    if differing:
        raise OtherConfig(
            f"{path} is a checkpoint of another config: {'; '.join(differing)}. Resume with the same options "
            "and the same rows, delete it to start anew, or choose another folder.",
            "out",
        )
    return state
