"""A pretend accelerator: a device of its own, with values on the CPU, that raises where devices mix.

``torch.zeros(3, device="pretend")`` and ``x.to("pretend")`` give tensors that say they are on
``pretend:0``, PyTorch's backend for private use. Every operation on them is checked as CUDA would, and more
strictly: all tensors must be on the device, indices as well (or be numbers of no dimension in a pointwise
operation), and so must generators. :func:`watched` records what costs time on a GPU, copies to the device and
waiting for it, and sums whose order, and so their rounding, varies from run to run there.
"""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

from pyro_fairvae.base.devices import ACCELERATORS

NAME = "pretend"
ROOT = f"{Path(__file__).parents[2]}/"

# Operations that a GPU must finish before the program goes on, since values or the size of the result are
# looked at; copies to the CPU and indices by a mask are others.
WAITING = frozenset(
    f"aten::{name}"
    for name in (
        "_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select", "bincount", "_unique2",
        "unique_dim", "unique_consecutive", "repeat_interleave", "_linalg_check_errors", "argwhere", "histc",
    )
)  # fmt: skip
BY_INDEX = frozenset(f"aten::{name}" for name in ("index", "index_put", "index_put_", "_unsafe_index"))
# Sums in an order that differs between runs on CUDA, if several numbers go to one place.
UNORDERED = frozenset(
    f"aten::{name}"
    for name in (
        "scatter_add", "scatter_add_", "index_add", "index_add_", "index_put", "index_put_", "put_",
        "bincount", "histc", "adaptive_avg_pool2d_backward", "_adaptive_avg_pool2d_backward",
        "upsample_bilinear2d_backward", "reflection_pad2d_backward", "replication_pad2d_backward",
    )
)  # fmt: skip

# PyTorch makes these of an empty tensor, whose size the pretended one would keep.
RESIZED = (
    "eye", "eye.m", "arange", "arange.start", "arange.start_step", "linspace", "randperm",
    "randperm.generator", "tril_indices", "triu_indices",
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
    """The innermost line of the project that is running, this file aside."""
    frame: FrameType | None = sys._getframe(above)
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(ROOT) and path != __file__ and "site-packages" not in path:
            return f"{path.removeprefix(ROOT)}:{frame.f_lineno}"
        frame = frame.f_back
    return "a gradient"  # which PyTorch computes in a thread of its own


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

    _known: ClassVar[weakref.WeakValueDictionary[int, torch.Generator]] = weakref.WeakValueDictionary()

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


@dataclass(frozen=True)
class _Operation:
    """What the schema of an operation says."""

    name: str
    written: tuple[int | str, ...]  # arguments that it writes to, by place or by name
    returns_written: bool
    pointwise: bool
    reshapes: bool  # in place


@cache
def _known(func: Any) -> _Operation:
    schema = func._schema
    return _Operation(
        schema.name,
        tuple(
            argument.name if argument.kwarg_only else place
            for place, argument in enumerate(schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        ),
        any(of.alias_info is not None and of.alias_info.is_write for of in schema.returns),
        torch.Tag.pointwise in func.tags,
        torch.Tag.inplace_view in func.tags and schema.name != "aten::resize_",
    )


def _compute(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Check an operation, run it on the values held, and put its results on the device."""
    of, name = _known(func), _known(func).name
    tensors: list[Tensor] = []
    real_args = [_held(value, tensors) for value in args]
    real_kwargs = {key: _held(value, tensors) for key, value in kwargs.items()}
    on_device = [isinstance(value, Pretended) for value in tensors]
    target = kwargs.get("device")
    here = any(on_device) if target is None else torch.device(target).type == NAME
    if name in ("aten::_to_copy", "aten::copy_"):
        here = on_device[0] if name == "aten::copy_" else here
        if on_device[-1] != here:
            _note("copies" if here else "waits", name)
    else:
        _check(of, args, kwargs, tensors, on_device, here)
        if name in WAITING or (name in BY_INDEX and _by_mask(*args[1:3])):
            _note("waits", name)
        if name in UNORDERED and _collides(name, real_args):
            _note("unordered", name)
    if target is not None:
        real_kwargs["device"] = torch.device("cpu")
    found = func(*real_args, **real_kwargs)
    if of.reshapes:
        with torch._C._DisableTorchDispatch():  # the same to the size that it says it has
            func(*args, **kwargs)
    if of.returns_written:
        first = of.written[0]
        return kwargs[first] if isinstance(first, str) else args[first]
    return _wrapped(found) if here else found


def _held(value: Any, tensors: list[Tensor]) -> Any:
    """An argument with the values of its tensors, which are added to ``tensors``."""
    if isinstance(value, Tensor):
        tensors.append(value)
        return value.held if isinstance(value, Pretended) else value
    if isinstance(value, (list, tuple)):
        return [_held(part, tensors) for part in value]
    return value


def _wrapped(found: Any) -> Any:
    if isinstance(found, Tensor):
        return Pretended(found)
    return type(found)(map(_wrapped, found)) if isinstance(found, (list, tuple)) else found


def _check(
    of: _Operation,
    args: Any,
    kwargs: dict[str, Any],
    tensors: list[Tensor],
    on_device: list[bool],
    here: bool,
) -> None:
    generator = kwargs.get("generator")
    if here and generator is not None and not PretendedGenerator.has(generator):
        raise DevicesMixed(f"{of.name}: a generator on the CPU draws for a tensor on {NAME}:0, at {_line()}")
    if all(on_device) or not any(on_device):
        return
    written = {id(kwargs.get(place) if isinstance(place, str) else args[place]) for place in of.written}
    for tensor, there in zip(tensors, on_device, strict=True):
        # PyTorch takes a number of no dimension from anywhere.
        if not there and not (of.pointwise and tensor.dim() == 0 and id(tensor) not in written):
            raise DevicesMixed(
                f"{of.name}: a tensor of shape {tuple(tensor.shape)} is on the CPU, another is on {NAME}:0, "
                f"at {_line()}"
            )


def _by_mask(index: Any, values: Tensor | None = None) -> bool:
    """Whether the rows of a mask must be counted first: not where a single number fills them."""
    filled = values is not None and values.numel() == 1
    return not filled and any(of is not None and of.dtype in (torch.bool, torch.uint8) for of in index)


def _collides(name: str, args: list[Any]) -> bool:
    """Whether several numbers go to one place, in an order that CUDA does not fix."""
    if name.startswith("aten::index_put"):
        # CUDA sorts the places before it sums; what is written last without a sum, it does not say.
        places = [of for of in args[1] if of is not None]
        if (len(args) > 3 and args[3]) or args[2].numel() == 1 or places[0].dtype == torch.bool:
            return False
        where = torch.stack(torch.broadcast_tensors(*places), -1)
        return len(where.flatten(0, -2).unique(dim=0)) < where[..., 0].numel()
    if name.startswith(("aten::scatter_add", "aten::index_add")):
        index = args[2].sort(args[1] if args[2].dim() > 1 else 0).values
        dim = args[1] if index.dim() > 1 else 0
        return bool((index.diff(dim=dim) == 0).any())
    return name != "aten::bincount" or (len(args) > 1 and args[1] is not None)


def _copy_from(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    """What ``torch.tensor(…, device=…)`` calls, without a dispatch to tensors' classes."""
    return _compute(torch.ops.aten.copy_.default, (target, source), {})  # type: ignore[no-any-return]


def _factory(name: str) -> Callable[..., Any]:
    operation, _, overload = name.partition(".")
    func = getattr(getattr(torch.ops.aten, operation), overload or "default")
    return lambda *args, **kwargs: _compute(func, args, kwargs)


class _Module(_DummyBackendModule):
    """What ``torch.pretend`` has."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16]


@cache
def register() -> None:
    """Make ``pretend`` a device of PyTorch, once in a process."""
    _setup_privateuseone_for_python_backend(NAME, backend_module=_Module())
    library = torch.library.Library("_", "IMPL")
    # What has no tensor on the device to dispatch on: factories, and copies that PyTorch makes by itself.
    library.fallback(lambda func, *args, **kwargs: _compute(func, args, kwargs), "PrivateUse1")
    copies = torch.library.Library("aten", "IMPL")
    copies.impl("_copy_from", _copy_from, "PrivateUse1")
    for name in RESIZED:
        copies.impl(name, _factory(name), "PrivateUse1")
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
