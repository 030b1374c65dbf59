r"""Several processes that train one fit together, by PyTorch's own ``torch.distributed``.

Processes are started by ``torchrun`` and are called ranks, counted from 0. All run the same program on the
same rows, each computes its part, and what they compute is added up, so that all hold the same numbers at
every step. The first rank alone prints and writes files. In a run of one process, :data:`ALONE`, every method
is what it says for one rank, and costs nothing.

*Rows in parts.* Rank r of R takes every R-th row of a batch from the r-th one, so that the first m rows of a
batch are spread over all ranks, too. A function of sums over rows, such as a risk, is evaluated by every rank
at the sums over all ranks (:meth:`Ranks.total`), with the gradient of the rank's own rows; gradients are
added up before a step (:meth:`Ranks.add_up`). The result is the gradient of the whole batch, which averaged
gradients of ranks would not be.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from pyro_fairvae.base.errors import DivergedError, InputError, choose, require
from pyro_fairvae.base.messages import first_line, one_line

T = TypeVar("T")

SHARDINGS = ("auto", "members", "rows")
TIMEOUT = 1800.0  # seconds
ANSWER = 3.0  # seconds in which a rank says why it ends
LOST, ENDED = "lost contact", "ended by SIGTERM"  # what a rank says that ends because of another
AGAIN = "What is saved stays: run the same command again to continue (train needs --resume)."


class LostContactError(RuntimeError):
    """Another rank has ended, or does not answer in time."""


class _Terminated(BaseException):
    """The process was asked to end by SIGTERM, as ``torchrun`` does when another has ended."""


@dataclass(frozen=True)
class Ranks:
    """The processes of a run, as one of them sees them.

    Parameters
    ----------
    rank, count : int
        Which process this is, from 0, and how many there are.
    sharding : str
        What is divided between them in training: ``"members"``, which need no communication, ``"rows"``, or
        ``"auto"``: members if there are at least as many of them as ranks.
    """

    rank: int = 0
    count: int = 1
    sharding: str = SHARDINGS[0]
    words: Any = None  # the group that sends objects, on CPUs

    @property
    def is_first(self) -> bool:
        """Whether this rank prints and writes."""
        return self.rank == 0

    @property
    def name(self) -> str:
        return self.name_of(self.rank)

    def name_of(self, rank: int) -> str:
        return f"rank {rank} of {self.count}"

    def shares_members(self, members: int) -> bool:
        """Whether so many members are divided between the ranks, and not rows."""
        if self.count == 1:
            return False
        require(
            self.sharding != "members" or members >= self.count,
            f"{members} member{'s'[: members != 1]} cannot be divided between {self.count} processes: start "
            f"at most {members}, or divide rows.",
            "shard",
        )
        return self.sharding == "members" or (self.sharding == "auto" and members >= self.count)

    def block(self, total: int) -> range:
        """This rank's members, side by side, of ``total``."""
        size, more = divmod(total, self.count)
        start = self.rank * size + min(self.rank, more)
        return range(start, start + size + (self.rank < more))

    def for_rows(self, rows: int) -> Ranks:
        """These ranks, or, where rows are too few for each to have one, one that has them all."""
        return self if rows >= self.count else ALONE

    def part(self, rows: Tensor, dim: int = -1) -> Tensor:
        """This rank's rows of a tensor: every ``count``-th along ``dim``."""
        if self.count == 1:
            return rows
        dim %= rows.dim()
        return rows[(slice(None),) * dim + (slice(self.rank, None, self.count),)]

    def size(self, total: int, rank: int | None = None) -> int:
        """How many of ``total`` rows are in a rank's part."""
        return len(range(self.rank if rank is None else rank, total, self.count))

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors, in place, by their sums over all ranks."""
        if self.count == 1 or not tensors:
            return
        flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
        with _contact():
            dist.all_reduce(flat)
        sizes = [tensor.numel() for tensor in tensors]
        with torch.no_grad():
            for tensor, total in zip(tensors, flat.split(sizes), strict=True):
                tensor.copy_(total.view_as(tensor))

    def total(self, tensor: Tensor) -> Tensor:
        """The sum over all ranks, whose gradient is that of this rank's summand."""
        if self.count == 1:
            return tensor
        summed: Tensor = _Total.apply(tensor, self)
        return summed

    def whole(self, part: Tensor, total: int, dim: int = -1) -> Tensor:
        """All ``total`` rows in order, of which each rank has its :meth:`part`, with the gradient of that."""
        if self.count == 1:
            return part
        gathered: Tensor = _Whole.apply(part, self, total, dim % part.dim())
        return gathered

    def gather(self, content: T) -> list[T]:
        """What each rank has, in their order."""
        if self.count == 1:
            return [content]
        gathered: list[Any] = [None] * self.count
        with _contact():
            dist.all_gather_object(gathered, content, group=self.words)
        return gathered

    def from_first(self, compute: Callable[[], T]) -> T:
        """What the first rank computes; all others wait for it. Its error is an error of all."""
        if self.count == 1:
            return compute()
        error, found, sent = None, None, [b""]
        if self.is_first:
            try:
                found = compute()
            except Exception as reason:
                error = _agreed(reason)
            sent = [_packed((found, error))]
        with _contact():
            dist.broadcast_object_list(sent, src=0, group=self.words)
        if not self.is_first:
            found, error = _unpacked(sent[0])
        if error is not None:
            raise error
        return found  # type: ignore[return-value]

    def everywhere(self, compute: Callable[[], T]) -> T:
        """What this rank computes. An error of one rank is an error of all, and names the rank."""
        if self.count == 1:
            return compute()
        error, found = None, None
        try:
            found = compute()
        except Exception as reason:
            error = _agreed(reason)
        errors = self.gather(error)
        failed = [rank for rank, error in enumerate(errors) if error is not None]
        if failed:
            first = errors[failed[0]]
            assert first is not None
            if len({str(error) for error in errors}) > 1 and isinstance(first, InputError | DivergedError):
                first.args = (f"{self.name_of(failed[0])}: {first}",)
            raise first
        return found  # type: ignore[return-value]

    def check_same(self, what: str, *content: Any) -> None:
        """Raise on every rank unless all have the same content: tensors, or what JSON can hold."""
        if self.count == 1:
            return
        digests = self.gather(digest_of(*content))
        other = [rank for rank, digest in enumerate(digests) if digest != digests[0]]
        names = ", ".join(map(str, other))
        if other:
            self.fail(
                f"rank{'s'[: len(other) > 1]} {names} of {self.count} ha{'ve' if len(other) > 1 else 's'} "
                f"other {what} than rank 0: give every process the same files, options and versions."
            )

    def fail(self, message: str) -> None:
        """Raise, on every rank, what all of them know."""
        raise _agreed(InputError(message))

    def agreed(self, tensor: Tensor) -> Tensor:
        """What the first rank has, on all ranks: what each computed may differ in its last digits."""
        if self.count > 1:
            tensor = tensor.contiguous()
            with _contact():
                dist.broadcast(tensor, src=0)
        return tensor


ALONE = Ranks()
_current = ALONE


def current() -> Ranks:
    """The processes of this run; :data:`ALONE` outside of :func:`joined`."""
    return _current


class _Total(torch.autograd.Function):
    """The sum over ranks; gradients of all ranks are added up later, so each passes its own."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, ranks: Ranks) -> Tensor:
        summed = tensor.detach().clone(memory_format=torch.contiguous_format)
        ranks.add_up([summed])
        return summed

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0], None


class _Whole(torch.autograd.Function):
    """The rows of all ranks in one order; a rank passes the gradient of its own."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, ranks: Ranks, total: int, dim: int) -> Tensor:
        ctx.ranks, ctx.dim = ranks, dim
        rows = part.detach().movedim(dim, 0)
        most = ranks.size(total, 0)
        padded = rows.new_zeros(most, *rows.shape[1:])
        padded[: len(rows)] = rows
        gathered = [torch.empty_like(padded) for _ in range(ranks.count)]
        with _contact():
            dist.all_gather(gathered, padded)
        return torch.stack(gathered, dim=1).flatten(0, 1)[:total].movedim(0, dim).contiguous()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        return ctx.ranks.part(grads[0], ctx.dim), None, None, None


def digest_of(*content: Any) -> str:
    """SHA-256 of tensors, and of whatever else JSON can hold, or shows in words."""
    digest = hashlib.sha256()
    for part in content:
        if isinstance(part, Tensor):
            digest.update(f"{part.dtype} {tuple(part.shape)}".encode())
            digest.update(part.detach().cpu().contiguous().numpy().data)
        else:
            digest.update(json.dumps(part, sort_keys=True, default=str).encode())
    return digest.hexdigest()


def _agreed(error: Exception) -> Exception:
    """An error that all ranks raise: the first one prints it."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # an error of another library may be anything
        error = RuntimeError(f"{type(error).__name__}: {first_line(error)}")
    error.agreed = True  # type: ignore[attr-defined]
    return error


def _packed(content: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def _unpacked(sent: bytes) -> Any:
    """What another rank of this run has packed; its tensors on a GPU are on this rank's."""

    def place(storage: Any, location: str) -> Any:
        return storage.cuda() if location.startswith("cuda") else storage

    return torch.load(io.BytesIO(sent), map_location=place, weights_only=False)


@contextmanager
def _contact() -> Iterator[None]:
    """What other ranks do not answer is a :class:`LostContactError`."""
    try:
        yield
    except RuntimeError as reason:
        raise LostContactError(first_line(reason)) from reason


def are_several() -> bool:
    """Whether this process was started as one of several, by ``torchrun`` or another launcher."""
    return os.environ.get("WORLD_SIZE", "1") not in ("", "1") and "RANK" in os.environ


def local_rank() -> int:
    """Which process of its machine this is, from 0."""
    return int(os.environ.get("LOCAL_RANK", "0"))


@contextmanager
def joined(sharding: str = SHARDINGS[0], timeout: float = TIMEOUT) -> Iterator[Ranks]:
    """Let the processes that ``torchrun`` started work as one inside the ``with`` block.

    :func:`~pyro_fairvae.fit`, what calibrates its posteriors, and the estimators divide their work between
    them. All processes must do the same. Ranks other than the first print nothing. If one ends, all do: with
    the same error, or, where it was killed, with a line that says so.

    Parameters
    ----------
    sharding : str
        What is divided, as in :class:`Ranks`.
    timeout : float
        Seconds after which a rank that does not answer counts as lost. The first rank alone grows trees and
        draws posteriors, while the others wait for it.

    Yields
    ------
    Ranks
        The processes; :data:`ALONE` where there is only this one.
    """
    global _current
    choose("sharding", sharding, SHARDINGS)
    require(timeout > 0, f"the timeout must be positive, got {timeout} seconds.")
    if not are_several() or _current.count > 1:
        yield _current
        return
    board, ranks = _meet(sharding, timeout)
    well = False
    with _interrupted_by_sigterm():
        try:
            with _silent(not ranks.is_first):
                _current = ranks
                yield ranks
            well = True
        except BaseException as error:
            raise board.verdict(error) from error
        finally:
            _current = ALONE
            if well or dist.get_backend() == "gloo":  # NCCL would wait for ranks that are gone
                dist.destroy_process_group()


def _meet(sharding: str, timeout: float) -> tuple[_Board, Ranks]:
    limit = timedelta(seconds=timeout)
    on_gpus = torch.cuda.is_available() and dist.is_nccl_available()
    try:
        store, rank, count = next(iter(rendezvous("env://", timeout=limit)))
        store.set_timeout(limit)
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if on_gpus else "gloo",
            store=dist.PrefixStore("ranks", store), rank=rank, world_size=count, timeout=limit,
        )  # fmt: skip
        words = dist.new_group(backend="gloo", timeout=limit)
        if on_gpus and local_rank() < torch.cuda.device_count():
            torch.cuda.set_device(local_rank())
    except (RuntimeError, ValueError) as reason:
        raise InputError(
            f"rank {os.environ.get('RANK')} of {os.environ.get('WORLD_SIZE')} cannot meet the others "
            f"({first_line(reason)}): start all of them, each with the same address and port of the first."
        ) from reason
    board = _Board(dist.PrefixStore("fairvae", store), rank, count)
    return board, Ranks(rank, count, sharding, words)


@contextmanager
def _silent(silent: bool) -> Iterator[None]:
    if not silent:
        yield
        return
    with (
        open(os.devnull, "w", encoding="utf-8") as nowhere,
        redirect_stdout(nowhere),
        redirect_stderr(nowhere),
    ):
        yield


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """SIGTERM is an exception inside the ``with`` block, so that the process can say why it ends."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: Any) -> None:
        raise _Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Board:
    """Where ranks leave the reason why they end, so that one of them prints it."""

    def __init__(self, store: Any, rank: int, count: int) -> None:
        self.store, self.rank, self.count = store, rank, count

    def verdict(self, error: BaseException) -> BaseException:
        """What to raise in place of ``error``: an error to be printed, or a silent end."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the reason is looked for, and that takes seconds
        lost = isinstance(error, (LostContactError, _Terminated))
        if not lost and getattr(error, "agreed", False):
            return error if self.rank == 0 else SystemExit(2)
        if not lost:
            interrupted = isinstance(error, KeyboardInterrupt)
            heard = self._post("interrupted." if interrupted else one_line(error) or type(error).__name__)
            if self.rank == 0 or not heard:
                return error
            self._wait(lambda reasons: 0 in reasons, ANSWER / 3)
            return SystemExit(2)
        self._post(ENDED if isinstance(error, _Terminated) else LOST)
        reasons = self._wait(lambda reasons: len(reasons) == self.count or self._told(reasons), ANSWER)
        told = self._told(reasons)
        speakers = [rank for rank, words in reasons.items() if words in (LOST, ENDED)]
        if 0 in told or self.rank != min(speakers, default=self.rank):
            return SystemExit(2)
        if told:
            rank = min(told)
            return InputError(f"rank {rank} of {self.count}: {told[rank]}")
        dead = self._named([rank for rank in range(self.count) if rank not in reasons])
        if isinstance(error, _Terminated):
            return InputError(
                f"rank {self.rank} of {self.count} was {ENDED}, as torchrun does when another process has "
                f"ended{dead and f'; {dead} gave no reason'}. {AGAIN}"
            )
        if dead and "timed out" in one_line(error).lower():
            return InputError(
                f"{dead} did not answer in time (stopped, or its machine is lost; a longer --timeout waits "
                f"for one that is only slow), and all others ended with it. {AGAIN}"
            )
        if dead:
            return InputError(
                f"{dead} ended without a word (killed, out of memory, or its machine is lost), and all "
                f"others with it. {AGAIN}"
            )
        ended = self._named([rank for rank, words in reasons.items() if words == ENDED])
        if ended:
            return InputError(f"{ended} was {ENDED}, and all others with it. {AGAIN}")
        return InputError(f"the processes have lost contact: {one_line(error)}. {AGAIN}")

    def _named(self, ranks: Sequence[int]) -> str:
        """Ranks in words, none if there are none."""
        names = ", ".join(map(str, sorted(ranks)))
        return names and f"rank{'s'[: len(ranks) > 1]} {names} of {self.count}"

    @staticmethod
    def _told(reasons: dict[int, str]) -> dict[int, str]:
        return {rank: words for rank, words in reasons.items() if words not in (LOST, ENDED)}

    def _post(self, words: str) -> bool:
        with suppress(RuntimeError):
            self.store.set(str(self.rank), words)
            return True
        return False

    def _wait(self, enough: Callable[[dict[int, str]], Any], seconds: float) -> dict[int, str]:
        """The reasons that are there, after some time at most."""
        reasons = {self.rank: LOST}
        until = time.monotonic() + seconds
        with suppress(RuntimeError):  # the rank that keeps the board may be gone
            while True:
                for rank in range(self.count):
                    if rank not in reasons and self.store.check([str(rank)]):
                        reasons[rank] = self.store.get(str(rank)).decode()
                if enough(reasons) or time.monotonic() > until:
                    break
                time.sleep(0.05)
        return reasons
