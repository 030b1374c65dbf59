"""Checkpoints: what is resumed from is what was written, byte by byte."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.inference import checkpoint

CONFIG = {"lr": 0.1}


def test_a_checkpoint_of_which_any_byte_was_altered_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    state = {"weights": torch.arange(6.0), "epoch": 3}
    checkpoint.save(path, CONFIG, state)
    read = checkpoint.load(path, CONFIG)
    assert torch.equal(read["weights"], state["weights"])
    assert read["epoch"] == 3
    content = path.read_bytes()
    places = np.random.default_rng(0).choice(len(content), size=100, replace=False)
    altered = [bytes([*content[:k], content[k] ^ 1, *content[k + 1 :]]) for k in (*range(20), *places)]
    for damaged in (*altered, content[:-1], content + b"\0", content.partition(b"\n")[2], b""):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=r"not a checkpoint, is damaged.* Delete it to start anew"):
            checkpoint.load(path, CONFIG)
