"""A pretend accelerator: a device of its own, with values on the CPU, that raises where devices mix.

``torch.zeros(3, device="pretend")`` and ``x.to("pretend")`` give tensors that say they are on ``pretend:0``, PyTorch's
backend for private use. Every operation on them is checked as CUDA would: all tensors must be on the device (or be
numbers of no dimension in a pointwise operation), and so must generators. :func:`watched` records what costs time on
a GPU: copies to the device, synchronisations with it, and operations whose result varies from run to run there.
"""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from pyro_fairvae.base.devices import ACCELERATORS

NAME = "pretend"
FOLDERS = ("pyro_fairvae", "models", "guides", "run", "tests")  # whose lines a record names

# Operations that a GPU must finish before the program goes on, besides copies to the CPU. Those with a mask are among
# them as well, since the size of the result depends on its values.
WAITING = frozenset(
    f"aten::{name}"
    for name in (
        "_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select", "bincount", "_unique2",
        "unique_dim", "unique_consecutive", "repeat_interleave", "_linalg_check_errors", "argwhere", "histc",
    )
)  # fmt: skip
BY_INDEX = frozenset(f"aten::{name}" for name in ("index", "index_put", "index_put_", "_unsafe_index"))
# Sums in an order that differs between runs on CUDA, as torch.use_deterministic_algorithms lists them.
UNORDERED = frozenset(
    f"aten::{name}"
    for name in (
        "scatter_add", "scatter_add_", "index_add", "index_add_", "put_", "bincount", "histc", "kthvalue",
        "embedding_dense_backward", "adaptive_avg_pool2d_backward", "_adaptive_avg_pool2d_backward",
        "upsample_bilinear2d_backward", "reflection_pad2d_backward", "replication_pad2d_backward",
    )
)  # fmt: skip


@dataclass
class Traffic:
    """What was recorded: operations with the line of the project that asked for them."""

    copies: list[str] = field(default_factory=list)  # to the device
    waits: list[str] = field(default_factory=list)  # for the device
    unordered: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join(
            f"{count} × {kind} {what}"
            for kind in ("copies", "waits", "unordered")
            for what, count in Counter(getattr(self, kind)).most_common()
        )


_WATCHING: list[Traffic] = []


@contextmanager
def watched() -> Iterator[Traffic]:
    """Record the traffic inside the ``with`` block."""
    traffic = Traffic()
    _WATCHING.append(traffic)
    try:
        yield traffic
    finally:
        _WATCHING.remove(traffic)


def _note(kind: str, name: str) -> None:
    if _WATCHING:
        what = f"{name} at {_line()}"
        for traffic in _WATCHING:
            getattr(traffic, kind).append(what)


def _line(above: int = 3) -> str:
    """The innermost line of the project that is running."""
    frame, outer = sys._getframe(above), ""
    while frame is not None:
        path = frame.f_code.co_filename
        if path != __file__ and "site-packages" not in path:
            parts = path.split("/")
            inside = [i for i, part in enumerate(parts) if part in FOLDERS]
            if inside:
                return f"{'/'.join(parts[inside[-1] if parts[inside[-1]] != 'tests' else inside[0]:])}:{frame.f_lineno}"
        elif not outer and "/torch/" not in path and path != __file__:
            outer = f"{path.rpartition('site-packages/')[2]}:{frame.f_lineno}"
        frame = frame.f_back
    return outer or "a gradient"


class Pretended(Tensor):
    """A tensor on the pretend device; ``held`` has its values."""

    held: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, real: Tensor) -> Pretended:
        made = Tensor._make_wrapper_subclass(
            cls, real.shape, strides=real.stride(), storage_offset=real.storage_offset(), dtype=real.dtype,
            device=f"{NAME}:0",
        )  # fmt: skip
        made.held = real
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _compute(func, args, kwargs or {})

    def numpy(self, *_: Any, **__: Any) -> Any:
        raise TypeError(f"a tensor on {NAME}:0 has no NumPy array, at {_line(1)}; copy it by cpu() first.")

    def tolist(self) -> Any:  # which PyTorch does not do for classes of tensors
        return self.cpu().tolist()

    def __repr__(self) -> str:  # type: ignore[override]
        return f"{self.held!r} on {NAME}"


class PretendedGenerator(torch.Generator):
    """A generator on the pretend device."""

    _known: weakref.WeakValueDictionary[int, torch.Generator] = weakref.WeakValueDictionary()

    def __new__(cls, device: torch.device | str = "cpu") -> Any:
        if torch.device(device).type != NAME:
            return _GENERATOR(device)
        made = super().__new__(cls)
        cls._known[made._cdata] = made
        return made

    def __init__(self, device: torch.device | str = "cpu") -> None:
        pass

    @property
    def device(self) -> torch.device:
        return torch.device(NAME, 0)

    @classmethod
    def has(cls, generator: torch.Generator) -> bool:
        """Whether a generator is on the device; PyTorch passes operations another object of the same one."""
        return generator._cdata in cls._known


_GENERATOR = torch.Generator


class DevicesMixed(RuntimeError):
    """An operation has tensors on the CPU and on the pretend device."""


@cache
def _written(func: Any) -> tuple[int | str, ...]:
    """The arguments that an operation writes to, by place or by name."""
    return tuple(
        argument.name if argument.kwarg_only else place
        for place, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )


@cache
def _returns_written(func: Any) -> bool:
    returned = [of.alias_info is not None and of.alias_info.is_write for of in func._schema.returns]
    return any(returned)


def _compute(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Check an operation, run it on the real values, and put its results on the device."""
    name = func._schema.name
    given, spec = tree_flatten((args, kwargs))
    tensors = [value for value in given if isinstance(value, Tensor)]
    on_device = [isinstance(value, Pretended) for value in tensors]
    target = kwargs.get("device")
    here = any(on_device) if target is None else torch.device(target).type == NAME
    if name in ("aten::_to_copy", "aten::copy_"):
        if name == "aten::copy_":
            here = on_device[0]
        if on_device[-1] != here:
            _note("copies" if here else "waits", name)
    else:
        _check(func, name, args, kwargs, tensors, on_device)
        if name in WAITING or (name in BY_INDEX and _by_mask(*args[1:3])):
            _note("waits", name)
        if name in UNORDERED or (name == "aten::index_put_" and len(args) > 3 and args[3]):
            _note("unordered", name)
    real = [value.held if isinstance(value, Pretended) else value for value in given]
    real = [torch.device("cpu") if isinstance(v, torch.device) and v.type == NAME else v for v in real]
    real_args, real_kwargs = tree_unflatten(real, spec)
    if isinstance(real_kwargs.get("device"), str):
        real_kwargs["device"] = "cpu"
    found = func(*real_args, **real_kwargs)
    if _returns_written(func):
        first = _written(func)[0]
        return kwargs[first] if isinstance(first, str) else args[first]
    if not here:
        return found
    results, shape = tree_flatten(found)
    return tree_unflatten([Pretended(r) if isinstance(r, Tensor) else r for r in results], shape)


def _check(
    func: Any, name: str, args: Any, kwargs: dict[str, Any], tensors: list[Tensor], on_device: list[bool]
) -> None:
    generator = kwargs.get("generator")
    if generator is not None and any(on_device) and not PretendedGenerator.has(generator):
        raise DevicesMixed(f"{name}: a generator on the CPU was given for a tensor on {NAME}:0, at {_line()}")
    if not any(on_device) or all(on_device):
        return
    numbers = torch.Tag.pointwise in func.tags
    written = {id(kwargs[of] if isinstance(of, str) else args[of]) for of in _written(func)}
    for tensor, there in zip(tensors, on_device, strict=True):
        if not there and not (numbers and tensor.dim() == 0 and id(tensor) not in written):
            raise DevicesMixed(
                f"{name}: a tensor of shape {tuple(tensor.shape)} is on the CPU, another is on {NAME}:0, at {_line()}"
            )


def _by_mask(index: Any, values: Tensor | None = None) -> bool:
    """Whether a mask must be counted first: not where a single number fills it."""
    filled = values is not None and values.numel() == 1
    return not filled and any(of is not None and of.dtype in (torch.bool, torch.uint8) for of in index)


def _copy_from(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    """What ``torch.tensor(…, device=…)`` calls, without a dispatch to tensors' classes."""
    return _compute(torch.ops.aten.copy_.default, (target, source), {})  # type: ignore[no-any-return]


@cache
def register() -> None:
    """Make ``pretend`` a device of PyTorch, once in a process."""
    _setup_privateuseone_for_python_backend(NAME)
    library = torch.library.Library("_", "IMPL")
    # What has no tensor on the device to dispatch on: factories, and copies that PyTorch makes by itself.
    library.fallback(lambda func, *args, **kwargs: _compute(func, args, kwargs), "PrivateUse1")
    copies = torch.library.Library("aten", "IMPL")
    copies.impl("_copy_from", _copy_from, "PrivateUse1")
    _LIBRARIES.extend((library, copies))  # in force for as long as they live


_LIBRARIES: list[torch.library.Library] = []


@contextmanager
def available() -> Iterator[torch.device]:
    """The device is one of those that a name may ask for inside the ``with`` block."""
    register()
    torch.Generator = PretendedGenerator  # type: ignore[misc]
    ACCELERATORS[NAME] = lambda: 1
    try:
        yield torch.device(NAME, 0)
    finally:
        torch.Generator = _GENERATOR  # type: ignore[misc]
        del ACCELERATORS[NAME]
