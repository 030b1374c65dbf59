"""Settings and data that tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pyro
import pytest
import torch

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.data import Missingness, Splits, Table, load, split, synthetic
from pyro_fairvae.inference.settings import Settings
from tests.support import pretend
from tests.support.small import small_settings

torch.set_num_threads(1)
pretend.register()  # before the first gradient, when PyTorch starts a thread for each device

PROGRAMS = ("models", "inference")  # whose tests run with Pyro's checks on, a tenth of a step's time
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.fixture(autouse=True)
def _clean_pyro(request: pytest.FixtureRequest) -> Iterator[None]:
    pyro.clear_param_store()
    pyro.enable_validation(request.path.parent.name in PROGRAMS)
    pyro.set_rng_seed(0)
    yield
    pyro.enable_validation(False)


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def small() -> Settings:
    return small_settings(epochs=2)


@pytest.fixture
def splits() -> Splits:
    return split(synthetic(rows=300, seed=3), Missingness(), seed=5)


@pytest.fixture(scope="session")
def adult() -> Table:
    try:
        return load("adult", "gender")
    except InputError as reason:
        pytest.skip(f"Adult is not to be had here: {reason}")
