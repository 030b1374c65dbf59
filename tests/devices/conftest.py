"""The accelerators of these tests: a pretended one, and CUDA where there is a GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.support import pretend

ACCELERATORS = [pretend.NAME, *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.fixture(params=ACCELERATORS)
def accelerator(request: pytest.FixtureRequest) -> Iterator[torch.device]:
    if request.param == "cuda":
        yield torch.device("cuda", 0)
        return
    with pretend.available() as device:
        yield device


@pytest.fixture
def pretended() -> Iterator[torch.device]:
    with pretend.available() as device:
        yield device
