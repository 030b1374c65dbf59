"""Settings and data that tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pyro
import pytest
import torch

from pyro_fairvae.batch import Observed
from pyro_fairvae.data import Missingness, Splits, Table, load, split, synthetic
from pyro_fairvae.errors import InputError
from pyro_fairvae.options import build
from pyro_fairvae.program import Settings

torch.set_num_threads(1)

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
SMALL = {"hidden": 8, "layers": 2, "pieces": 3, "latent": 3, "decoder_hidden": 8, "samples": 7, "batch": 32}


@pytest.fixture(autouse=True)
def _clean_pyro() -> Iterator[None]:
    pyro.clear_param_store()
    pyro.enable_validation(True)
    pyro.set_rng_seed(0)
    yield
    pyro.enable_validation(False)


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def small_settings(**changes: object) -> Settings:
    """Settings for a fit that takes a moment, with options changed by their flat names."""
    return build(Settings, SMALL | changes)


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


def three_groups(rows: int = 90, seed: int = 0) -> Observed:
    """An observed table with three groups and three classes, some of each withheld."""
    missing = Missingness((0.2, 0.5, 0.3), (0.0, 0.0, 0.0), (0.3, 0.1, 0.2))
    return split(synthetic(rows=rows, seed=seed, groups=3, classes=3), missing, seed).train
