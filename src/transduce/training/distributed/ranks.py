"""Several processes that train one model together, started by `torchrun`.

Every rank reads the same batches in the same order, computes every world-th slice of them, and adds its gradient to
the others'. Dropout is keyed by row and the mean is over all tokens, so neither the order of the data nor, but for the
rounding of sums, the loss depends on how many ranks there are. The first rank leads: it prepares, writes and reports.

We add up gradients ourselves instead of wrapping the model in DistributedDataParallel: that watches `forward` alone,
and our models are read through `encode` too.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from transduce.training.distributed.heartbeat import LostRank, Pulse, beating
from transduce.training.interruption import Interruption

PATIENCE = timedelta(hours=24)
"""How long ranks wait for each other: one may prepare a large corpus. A rank that died is noticed at once, by its
closed connection."""
MEETING = "transduce"
"""Where in `torchrun`'s store ranks look for each other."""
EYE_BLINK = 0.02
"""Seconds between two looks."""
LETTING_GO = 0.2
"""Seconds that gloo's threads get before Python is torn down; they need microseconds, and their turn on a busy core."""
BUCKET_BYTES = 2**26
"""Gradients that are sent together: many small messages cost more than copying them into a large one."""


NOTES: list[Store] = []
"""Where the ranks of this process's meeting leave each other notes, once they have met."""


@dataclass(frozen=True)
class Ranks:
    """Which of how many processes this is."""

    rank: int = 0
    world: int = 1
    restarted: bool = False
    """Whether `torchrun` has started them before; the leader knows."""

    @property
    def leads(self) -> bool:
        """Whether this is the one that writes and reports."""
        return self.rank == 0

    def share(self, parts: Sequence[object]) -> range:
        """Return which of the parts are this rank's."""
        return range(self.rank, len(parts), self.world)

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by their sums over all ranks, in place, the same on each to the last bit."""
        if self.world == 1:
            return
        for bucket in _buckets(tensors):
            flat = torch.cat([tensor.flatten() for tensor in bucket])
            dist.all_reduce(flat)
            parts = torch.split(flat, [tensor.numel() for tensor in bucket])
            for tensor, part in zip(bucket, parts, strict=True):
                tensor.copy_(part.view_as(tensor))

    def from_leader(self, value: float) -> float:
        """Return the leader's value on every rank."""
        if self.world == 1:
            return value
        told = torch.tensor([value], dtype=torch.float64)
        dist.broadcast(told, src=0)
        return float(told)

    def agree(self, interruption: Interruption) -> bool:
        """Whether any rank was asked to stop; then all stop, after the same update.

        A wish that comes while they ask each other is kept for the next time: nobody else has heard of it.
        """
        if self.world == 1:
            return interruption.wanted is not None
        heard = torch.tensor([interruption.wanted or 0])
        dist.all_reduce(heard, dist.ReduceOp.MAX)
        if int(heard):
            interruption.wanted = int(heard)
        return bool(heard)

    def wait(self) -> None:
        """Go on when all ranks have come this far."""
        self.from_leader(0.0)

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Notice while inside when another rank falls silent, and end then; not outside, where one may be busy with a
        corpus and nothing else."""
        with beating(Pulse(NOTES[-1], self.rank, self.world)) if self.world > 1 else contextlib.nullcontext():
            yield


ALONE = Ranks()
"""One process, as usual."""


@contextlib.contextmanager
def joined(device: str) -> Iterator[Ranks]:
    """Join the ranks that `torchrun` started, if it did.

    They stay joined for as long as the process lives: ranks cannot meet a second time.
    """
    if not launched():
        yield ALONE
        return
    if device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    with _lost():
        restarted = not dist.is_initialized() and _meet("cpu:gloo,cuda:nccl" if device == "cuda" else "gloo")
        yield Ranks(dist.get_rank(), dist.get_world_size(), restarted)


def _meet(backend: str) -> bool:
    """Let the ranks find each other; return whether others met here before, of whom `torchrun` lost one.

    The store in which they leave their addresses outlives them: who came early would find those of the dead. So every
    rank leaves a name that nobody had before, the leader answers with a place to meet for those whose names it has
    read, and goes there when all of them have seen their own.
    """
    store, rank, world = next(iter(rendezvous("env://", timeout=PATIENCE)))
    restarted = store.check([MEETING]) or os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    name, place = uuid.uuid4().hex, uuid.uuid4().hex
    store.set(f"{MEETING}/{rank}", name)
    while rank == 0:
        names = [_read(store, f"{MEETING}/{other}") for other in range(world)]
        store.set(MEETING, json.dumps({"place": place, "names": names}))
        if store.check([f"{MEETING}/{place}/{other}" for other in range(1, world)] or [MEETING]):
            break
        time.sleep(EYE_BLINK)
    while rank > 0:
        found = json.loads(_read(store, MEETING) or "{}")
        if name in found.get("names", []):
            place = found["place"]
            store.set(f"{MEETING}/{place}/{rank}", name)
            break
        time.sleep(EYE_BLINK)
    private = PrefixStore(f"{MEETING}/{place}", store)
    # Notes have a connection of their own: who waits for one keeps everybody else from the store.
    NOTES.append(private.clone())  # type: ignore[attr-defined]  # torch's stubs lack it
    dist.init_process_group(backend, store=private, rank=rank, world_size=world, timeout=PATIENCE)
    if backend == "gloo":
        atexit.register(_part)
    return restarted and rank == 0


def _part() -> None:
    """Let gloo's threads end while Python is still there.

    Such a thread may be the last to hold the tensor of a message that has long been sent, and letting go of it takes
    Python's lock. From a Python that is being torn down it does not get that, and the whole process aborts. torch keeps
    the group of a sharded model, and with it the threads, whatever one does: they get time to let go. NCCL is left
    alone: there parting takes all ranks, and one that failed would wait for the others.
    """
    time.sleep(LETTING_GO)
    if dist.is_initialized():
        with contextlib.suppress(RuntimeError):  # the others may be gone already
            dist.destroy_process_group()


def _read(store: Store, key: str) -> str | None:
    return store.get(key).decode() if store.check([key]) else None


def launched() -> bool:
    """Whether `torchrun` started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def leads() -> bool:
    """Whether this process is the one that speaks, asked before the ranks have met."""
    return not launched() or os.environ.get("RANK", "0") == "0"


def _buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    bucket: list[Tensor] = []
    size = 0
    for tensor in tensors:
        if bucket and size + tensor.nbytes > BUCKET_BYTES:
            yield bucket
            bucket, size = [], 0
        bucket.append(tensor)
        size += tensor.nbytes
    if bucket:
        yield bucket


@contextlib.contextmanager
def _lost() -> Iterator[None]:
    """Turn what the library says about a closed connection, wherever it was used, into a sentence."""
    try:
        yield
    except RuntimeError as error:
        said = str(error)
        if not isinstance(error, dist.DistError) and "gloo" not in said:
            raise
        raise LostRank(
            f"another rank has gone ({said.splitlines()[0][:120]}); all must be started again, with --resume"
        ) from None
