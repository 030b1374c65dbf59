"""Devices by name, and constants on them."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from pyro_fairvae.run.command import device_of

from pyro_fairvae.base import devices
from pyro_fairvae.base.devices import Constant, chosen_of_several, resolve_device
from pyro_fairvae.base.errors import InputError
from pyro_fairvae.data import Splits
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.inference.training import fit


def with_gpus(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(devices.ACCELERATORS, "cuda", lambda: count)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Pretty Fast 3000")


@pytest.mark.parametrize(
    ("count", "name", "device"),
    [
        (0, "auto", "cpu"), (0, "cpu", "cpu"), (1, "auto", "cuda:0"), (3, "auto", "cuda:0"),
        (1, "cuda", "cuda:0"), (3, "cuda", "cuda:0"), (3, "cuda:2", "cuda:2"), (3, "cpu", "cpu"),
    ],
)  # fmt: skip
def test_names(count: int, name: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpus(count, monkeypatch)
    assert resolve_device(name) == torch.device(device)


@pytest.mark.parametrize(
    ("count", "name", "words"),
    [
        (0, "cuda", "device 'cuda' was requested, but 0 CUDA devices are available"),
        (0, "cuda:1", "use cpu or auto"),
        (1, "cuda:3", "but 1 CUDA device is available, cuda:0; use one of these, cpu or auto"),
        (2, "cuda:3", "but 2 CUDA devices are available, cuda:0 and cuda:1; use one of these"),
        (8, "cuda:8", "cuda:0 to cuda:7"),
        (2, "mps", "device 'mps' is not supported; use auto, cpu, cuda or cuda:N"),
        (2, "cuda:x", "unknown device 'cuda:x'; expected auto, cpu, cuda or cuda:N"),
        (2, "gpu", "unknown device 'gpu'"),
    ],
)
def test_names_of_no_device(count: int, name: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpus(count, monkeypatch)
    with pytest.raises(InputError) as raised:
        resolve_device(name)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("count", "name", "words"),
    [
        (3, "cuda", "3 CUDA devices are available, and cuda:0 (Pretty Fast 3000) is used."),
        (3, "auto", "3 CUDA devices are available, and cuda:0 (Pretty Fast 3000) is used."),
        (3, "cuda:0", None), (1, "cuda", None), (3, "cpu", None), (0, "auto", None),
    ],
)  # fmt: skip
def test_which_of_several_is_said(
    count: int, name: str, words: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_gpus(count, monkeypatch)
    assert chosen_of_several(name, resolve_device(name)) == words


def test_a_command_says_it_unless_it_is_quiet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_gpus(3, monkeypatch)
    assert device_of("auto") == device_of("cuda:0") == torch.device("cuda", 0)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("and cuda:0 (Pretty Fast 3000) is used. --device cuda:N takes another.")
    assert device_of("cuda", quiet=True) == torch.device("cuda", 0)
    assert not capsys.readouterr().err


def test_convolutions_sum_in_a_fixed_order_in_a_fit(splits: Splits, small: Settings) -> None:
    seen = []
    before = torch.backends.cudnn.deterministic
    fit(splits.train, splits.validation, settings=small,
        after_epoch=lambda _: seen.append(torch.backends.cudnn.deterministic))  # fmt: skip
    assert seen == [True, True]
    assert torch.backends.cudnn.deterministic == before


def test_a_constant_is_copied_to_a_device_once() -> None:
    constant = Constant(np.array([0.1, 0.2]))
    like = torch.zeros(3, device="meta")
    assert constant.like(like) is constant.like(like + 1)
    assert constant.like(like).device.type == "meta"
    found = constant.like(torch.zeros(3))
    assert found.dtype == torch.float32
    assert torch.equal(found, torch.tensor([0.1, 0.2]))
    assert constant.on(torch.device("cpu")).dtype == torch.float64
    assert copy.deepcopy(constant) is constant
    again = pickle.loads(pickle.dumps(constant))
    assert torch.equal(again.like(torch.zeros(1)), found)


def test_a_constant_that_was_first_used_in_inference_has_a_gradient_through_it() -> None:
    constant = Constant(np.array([2.0]))
    with torch.inference_mode():
        constant.like(torch.zeros(1))
    weight = torch.ones(1, requires_grad=True)
    (weight * constant.like(weight)).sum().backward()
    assert weight.grad is not None
    assert weight.grad.item() == 2
