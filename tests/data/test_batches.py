"""What goes to the processes that read images ahead."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from pyro_fairvae.data import batches as module
from pyro_fairvae.schema.image_rows import PixelRows, Pixels
from pyro_fairvae.schema.observed import Observed


class Elsewhere(Tensor):
    """A tensor that only :meth:`cpu` brings to where other processes may read it."""

    def cpu(self, *_: Any, **__: Any) -> Tensor:
        return self.as_subclass(Tensor)


def pictures(members: int | None = None) -> Observed:
    pixels = Pixels(1, 8)
    stored = torch.arange(10 * pixels.width).remainder(251).to(torch.uint8).view(10, -1)
    shape = (10,) if members is None else (members, 10)
    index, codes = torch.arange(10).expand(shape), torch.arange(10).remainder(3).expand(shape)
    return Observed(PixelRows(stored, index), codes, codes, pixels, 2, 2)


@pytest.mark.parametrize("members", [None, 2])
def test_loaders_are_given_rows_and_indices_on_the_cpu(
    members: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed: list[Any] = []

    def loader(dataset: Any, **_: Any) -> Any:
        handed.append(dataset)
        return map(dataset.__getitem__, range(len(dataset)))

    monkeypatch.setattr(module, "DataLoader", loader)
    table = pictures(members)
    shape = (4,) if members is None else (members, 4)
    index = torch.arange(4).expand(shape)
    (batch,) = module.batches(table, [index.as_subclass(Elsewhere)])
    (dataset,) = handed
    for key in dataset.keys:
        parts = key if isinstance(key, tuple) else (key,)
        assert all(type(part) is Tensor and part.device.type == "cpu" for part in parts)
    expected = table.batch(index)
    assert torch.equal(batch.x, expected.x)
    assert torch.equal(batch.y_obs.as_subclass(Tensor), expected.y_obs)


def test_rows_of_another_device_are_read_on_the_cpu_first(monkeypatch: pytest.MonkeyPatch) -> None:
    handed: list[Any] = []

    def loader(dataset: Any, **options: Any) -> Any:
        handed.append((dataset, options["pin_memory"]))
        return map(dataset.__getitem__, range(len(dataset)))

    monkeypatch.setattr(module, "DataLoader", loader)
    table = pictures()
    away = Observed(table.x.to("meta"), table.y_obs, table.a_obs, table.columns, 2, 2)
    (batch,) = module.batches(away, [torch.arange(4)])
    ((dataset, pinned),) = handed
    assert dataset.x.device.type == "cpu"
    assert dataset[0].device.type == "cpu"
    assert not pinned
    assert batch.x.device.type == "meta"
