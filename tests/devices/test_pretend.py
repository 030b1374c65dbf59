"""The pretend accelerator itself: it computes as the CPU, and raises and records what CUDA would."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pyro_fairvae.channels.channel import Channel
from pyro_fairvae.data import Splits
from pyro_fairvae.inference.training import fit
from tests.support.pretend import DevicesMixed, watched
from tests.support.small import small_settings


def test_it_computes_as_the_cpu(pretended: torch.device) -> None:
    def gradient(device: torch.device | str) -> tuple[Tensor, Tensor]:
        draw = torch.Generator(device).manual_seed(3)
        x = torch.randn(4, 3, generator=draw, device=device)
        weight = torch.arange(6.0, device=device).view(3, 2).requires_grad_()
        scores = torch.vmap(lambda row: torch.tanh(row @ weight))(x)
        part = scores.t()[0]
        (part[part > 0].square().sum() + scores[[0, 2]].sum()).backward()
        assert weight.grad is not None
        return scores, weight.grad

    for expected, found in zip(gradient("cpu"), gradient(pretended), strict=True):
        assert found.device == pretended
        assert found.shape == expected.shape
        assert torch.equal(found.cpu(), expected)


def test_views_share_memory(pretended: torch.device) -> None:
    whole = torch.zeros(2, 3, device=pretended)
    whole[0].add_(1)
    whole.t()[2] = 5
    assert whole.tolist() == [[1, 1, 5], [0, 0, 5]]
    assert whole.unsqueeze_(0).shape == (1, 2, 3)
    assert whole.held.shape == (1, 2, 3)


def test_a_network_is_moved(pretended: torch.device) -> None:
    network = nn.Linear(3, 2).to(pretended)
    assert all(isinstance(each, nn.Parameter) for each in network.parameters())
    assert {each.device for each in network.parameters()} == {pretended}
    assert network(torch.ones(1, 3, device=pretended)).shape == (1, 2)


@pytest.mark.parametrize(
    "mistake",
    [
        lambda x: x + torch.ones(3),
        lambda x: torch.cat([x, torch.zeros(1)]),
        lambda x: torch.stack([x[0], torch.tensor(1.0)]),
        lambda x: x[torch.tensor([0, 1])],
        lambda x: torch.zeros(3).add_(x),
        lambda x: torch.tensor(0.0).add_(x[0]),
        lambda x: x @ torch.ones(3),
        lambda x: torch.where(x > 0, x, torch.zeros(3)),
        lambda x: x.normal_(generator=torch.Generator()),
        lambda x: torch.randn(3, generator=torch.Generator(), device=x.device),
    ],
)
def test_devices_must_not_mix(mistake: Callable[[Tensor], Tensor], pretended: torch.device) -> None:
    with pytest.raises(DevicesMixed, match=r"on pretend:0, at tests/devices/test_pretend\.py:\d+"):
        mistake(torch.ones(3, device=pretended))


def test_a_number_may_come_from_anywhere(pretended: torch.device) -> None:
    assert (torch.ones(2, device=pretended) * torch.tensor(3.0)).tolist() == [3, 3]


def test_numpy_needs_a_copy(pretended: torch.device) -> None:
    x = torch.ones(3, device=pretended)
    for convert in (lambda tensor: tensor.numpy(), np.asarray, lambda tensor: np.add(tensor, 1)):
        with pytest.raises(TypeError, match="copy it by cpu"):
            convert(x)
    assert x.cpu().numpy().sum() == 3


@pytest.mark.parametrize(
    ("operation", "copies", "waits"),
    [
        (lambda x: x * 2 + x.sum(), 0, 0),
        (lambda x: torch.zeros(3, device=x.device), 0, 0),
        (lambda x: torch.arange(3, device=x.device) + x, 0, 0),
        (lambda x: x.where(x > 0, 0.0), 0, 0),
        (lambda x: torch.tensor([1.0, 2.0], device=x.device), 1, 0),
        (lambda x: x.new_tensor([1.0, 2.0]), 1, 0),
        (lambda x: torch.ones(3).to(x), 1, 0),
        (lambda x: x[[0, 2]], 1, 0),
        (lambda x: x.copy_(torch.ones(3)), 1, 0),
        (lambda x: x.to(torch.float64), 0, 0),
        (lambda x: x.sum().item(), 0, 1),
        (lambda x: bool((x > 0).all()), 0, 1),
        (lambda x: float(x[0]), 0, 1),
        (lambda x: x.cpu(), 0, 1),
        (lambda x: x.tolist(), 0, 1),
        (lambda x: x[x > 0], 0, 1),
        (lambda x: torch.nonzero(x), 0, 1),
        (lambda x: torch.equal(x, x), 0, 1),
        (lambda x: torch.linalg.cholesky(torch.outer(x, x).diag().diag()), 0, 1),
    ],
)
def test_copies_and_waits(
    operation: Callable[[Tensor], object], copies: int, waits: int, pretended: torch.device
) -> None:
    x = torch.tensor([1.0, 2.0, 3.0], device=pretended)
    with watched() as traffic:
        operation(x)
    assert (len(traffic.copies), len(traffic.waits)) == (copies, waits), str(traffic)
    assert not traffic.unordered


@pytest.mark.parametrize(("places", "unordered"), [([0, 1, 2], 0), ([0, 1, 1], 1)])
def test_sums_in_no_fixed_order(places: list[int], unordered: int, pretended: torch.device) -> None:
    x, index = torch.ones(3, device=pretended), torch.tensor(places, device=pretended)
    for add in (
        lambda: torch.zeros_like(x).scatter_add(0, index, x),
        lambda: torch.zeros_like(x).index_add(0, index, x),
        lambda: torch.zeros_like(x).index_put((index,), x),
        lambda: x.clone().requires_grad_().index_select(0, index).sum().backward(),
        lambda: x.clone().requires_grad_().gather(0, index).sum().backward(),
    ):
        with watched() as traffic:
            add()
        assert len(traffic.unordered) == unordered
    with watched() as traffic:  # CUDA sorts these first
        x.clone().requires_grad_()[index].sum().backward()
    assert not traffic.unordered


def test_a_mistake_in_a_fit_is_found(
    splits: Splits, pretended: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix = Channel.matrix
    monkeypatch.setattr(Channel, "matrix", lambda channel, draws: matrix(channel, draws).cpu())
    with pytest.raises(
        DevicesMixed, match=r"is on the CPU, another is on pretend:0, at (guides|models|pyro)"
    ):
        fit(splits.train, splits.validation, (1.0,), small_settings(epochs=1), device=pretended)
