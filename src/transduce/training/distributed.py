"""Several processes that train one model together, started by `torchrun`.

Every rank reads the same batches in the same order and computes every world-th micro-batch of them; the gradients are
summed over the ranks. Dropout is keyed by row and the mean is over all tokens, so neither the order of the data nor,
but for the rounding of sums, the loss depends on the number of ranks. The first rank leads: it prepares, writes and
reports.

Gradients are summed here, not by DistributedDataParallel, which only hooks into `forward`: our models are called
through `encode` too.

A model that does not fit a device is sharded: FSDP2 (Zhao et al. 2023, arXiv 2304.11277). Each rank holds a shard of
every weight, of its gradient and of its optimizer state. A block is gathered right before it is used and freed
afterwards; its gradient is reduced over the ranks as soon as it is computed. So a rank needs memory for its shard of
the model, for what is outside the blocks, and for one or two blocks. On disk nothing is sharded: checkpoints and models
are the same files as without sharding. torch's modules for this take two seconds to import, so only sharded runs import
them.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, TypeGuard

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from transduce.errors import SettingsError, TransduceError
from transduce.models.interface import Model
from transduce.training.interruption import Interruption

PATIENCE = timedelta(hours=24)
"""Timeout of collective operations: a rank may prepare a large corpus. A rank that died is noticed at once, by its
closed connection."""
MEETING = "transduce"
"""Prefix of our keys in `torchrun`'s store."""
POLL_INTERVAL = 0.02
"""Seconds between two reads of the store."""
SHUTDOWN_DELAY = 0.2
"""Seconds that gloo's threads get before Python shuts down; they need microseconds, and a free core."""
BUCKET_BYTES = 2**26
"""Bytes of gradients that are sent in one message: many small messages cost more than copying them into a large one."""


STORES: list[Store] = []
"""The store of this process's group of ranks, for heartbeats."""


@dataclass(frozen=True)
class Ranks:
    """The rank of this process and the number of ranks."""

    rank: int = 0
    world: int = 1
    restarted: bool = False
    """Whether `torchrun` has restarted them; set on the leader only."""

    @property
    def leads(self) -> bool:
        """Whether this rank writes and reports."""
        return self.rank == 0

    def share(self, parts: Sequence[object]) -> range:
        """Return the indices of this rank's parts."""
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

    def any(self, condition: bool) -> bool:
        """Return whether a condition holds on any rank."""
        if self.world == 1:
            return condition
        found = torch.tensor([float(condition)], dtype=torch.float64)
        self.add_up([found])
        return bool(found)

    def from_leader(self, value: float) -> float:
        """Return the leader's value on every rank."""
        if self.world == 1:
            return value
        shared = torch.tensor([value], dtype=torch.float64)
        dist.broadcast(shared, src=0)
        return float(shared)

    def agree(self, interruption: Interruption) -> bool:
        """Return whether any rank received a signal to stop; then all stop, after the same update.

        A signal that arrives during this call counts at the next one: the other ranks do not know of it.
        """
        if self.world == 1:
            return interruption.wanted is not None
        signal = torch.tensor([interruption.wanted or 0])
        dist.all_reduce(signal, dist.ReduceOp.MAX)
        if int(signal):
            interruption.wanted = int(signal)
        return bool(signal)

    def wait(self) -> None:
        """Wait until all ranks have reached this point."""
        self.from_leader(0.0)

    @contextlib.contextmanager
    def monitored(self) -> Iterator[None]:
        """Exit if another rank stops responding inside the context; outside, a rank may be busy preparing a corpus."""
        with beating(Heartbeat(STORES[-1], self.rank, self.world)) if self.world > 1 else contextlib.nullcontext():
            yield


ALONE = Ranks()
"""A single process."""


@contextlib.contextmanager
def joined(device: str) -> Iterator[Ranks]:
    """Join the ranks that `torchrun` started, if it did.

    They stay joined until the process ends: a process group cannot be formed twice.
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
    """Form the process group; return whether `torchrun` has restarted the ranks.

    The store outlives the ranks: after a restart, early ones would find the addresses of dead ones. So every rank
    writes a unique name, the leader publishes a new prefix for the names that it has read, and continues when all
    ranks have found their own names there. A name ends in how often its agent has restarted its ranks: an agent that
    replaces a lost one counts from 0 again, and the leader may be one of its ranks.
    """
    store, rank, world = next(iter(rendezvous("env://", timeout=PATIENCE)))
    count = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    restarted = bool(store.check([MEETING]))
    name, place = f"{uuid.uuid4().hex}-{count}", uuid.uuid4().hex
    store.set(f"{MEETING}/{rank}", name)
    while rank == 0:
        names = [_read(store, f"{MEETING}/{other}") for other in range(world)]
        restarted = restarted or any(other is not None and not other.endswith("-0") for other in names)
        store.set(MEETING, json.dumps({"place": place, "names": names}))
        if store.check([f"{MEETING}/{place}/{other}" for other in range(1, world)] or [MEETING]):
            break
        time.sleep(POLL_INTERVAL)
    while rank > 0:
        found = json.loads(_read(store, MEETING) or "{}")
        if name in found.get("names", []):
            place = found["place"]
            store.set(f"{MEETING}/{place}/{rank}", name)
            break
        time.sleep(POLL_INTERVAL)
    private = PrefixStore(f"{MEETING}/{place}", store)
    # Heartbeats have their own connection: waiting for a key blocks all other uses of the store.
    STORES.append(private.clone())  # type: ignore[attr-defined]  # torch's stubs lack it
    dist.init_process_group(backend, store=private, rank=rank, world_size=world, timeout=PATIENCE)
    if backend == "gloo":
        atexit.register(_shut_down)
    return restarted and rank == 0


def _shut_down() -> None:
    """Let gloo's threads end before Python shuts down.

    Such a thread may hold the last reference to the tensor of a message that was sent, and releasing it takes Python's
    lock. During shutdown it does not get the lock, and the process aborts. torch keeps the group of a sharded model,
    and its threads: they get time to release it. NCCL is left alone: there shutting down takes all ranks, and one that
    failed would wait for the others.
    """
    time.sleep(SHUTDOWN_DELAY)
    if dist.is_initialized():
        with contextlib.suppress(RuntimeError):  # the others may be gone
            dist.destroy_process_group()


def _read(store: Store, key: str) -> str | None:
    return store.get(key).decode() if store.check([key]) else None


def launched() -> bool:
    """Whether `torchrun` started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def leads() -> bool:
    """Whether this process leads, before the process group is formed."""
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
    """Turn the library's errors about a closed connection into a `LostRank`."""
    try:
        yield
    except RuntimeError as error:
        message = str(error)
        if not isinstance(error, dist.DistError) and "gloo" not in message:
            raise
        raise LostRank(
            f"another rank is gone ({message.splitlines()[0][:120]}); restart all ranks with --resume"
        ) from None


# Heartbeats.

INTERVAL = 2.0
"""Seconds between two beats."""
MISSED_BEATS = 10
"""Beats without a new counter after which a rank counts as lost. They are counted, not timed: where all ranks are
suspended together, as by Ctrl-Z, none is missed."""
DONE = b"done"


class LostRank(TransduceError):
    """Another rank is gone; `torchrun` restarts all of them if it may."""

    exit_code = 75


class Heartbeat:
    """The heartbeats of the ranks: how each notices that another one hangs.

    A rank that died is noticed by its closed connection. One that is stuck, or whose host vanished, keeps it open: the
    others would wait for its gradients until the timeout. So each rank writes a counter to `torchrun`'s store every few
    seconds, and checks that those of the others change.
    """

    def __init__(self, store: Store, rank: int, world: int) -> None:
        self.store, self.rank = store, rank
        self._seen = {other: (b"", 0) for other in range(world) if other != rank}
        self._count = 0

    def beat(self) -> list[int]:
        """Write a new counter, read those of the others, and return the ranks that have missed too many beats."""
        self._count += 1
        self.store.set(f"heartbeat/{self.rank}", str(self._count))
        for other, (before, missed) in self._seen.items():
            found = self.store.get(f"heartbeat/{other}") if self.store.check([f"heartbeat/{other}"]) else b""
            self._seen[other] = found, 0 if found != before or found in (b"", DONE) else missed + 1
        return [other for other, (_, missed) in self._seen.items() if missed >= MISSED_BEATS]

    def end(self) -> None:
        """Mark this rank as finished."""
        self.store.set(f"heartbeat/{self.rank}", DONE.decode())


@contextlib.contextmanager
def beating(heartbeat: Heartbeat, on_loss: Callable[[list[int]], None] | None = None) -> Iterator[None]:
    """Beat inside the context. When a rank is lost the process exits, as if killed: the main thread waits where no
    exception reaches it, and everything up to the last checkpoint is on disk."""
    over, on_loss = threading.Event(), on_loss or _exit

    def beat() -> None:
        with contextlib.suppress(RuntimeError):  # the store is gone, and `torchrun` with it
            while not (lost := heartbeat.beat()):
                if over.wait(INTERVAL):
                    return
            on_loss(lost)

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        with contextlib.suppress(RuntimeError):
            heartbeat.end()


def _exit(lost: list[int]) -> None:
    names = ", ".join(map(str, lost))
    with contextlib.suppress(OSError):
        print(
            f"error: rank {names} has not responded for {INTERVAL * MISSED_BEATS:.0f} seconds; restart all ranks with "
            "--resume",
            file=sys.stderr,
            flush=True,
        )
    os._exit(LostRank.exit_code)


# Sharding.

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor


def shard(model: Model, device: str) -> Model:
    """Shard a model over all ranks, in place. Blocks move to the device one by one: it never holds all of them."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    blocks = [block for stack in model.children() if isinstance(stack, nn.ModuleList) for block in stack]
    if not blocks:
        raise SettingsError("training.shard: this model has no blocks to shard; leave it out")
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    for module in (*blocks, model):
        part = fully_shard(module, mesh=mesh)
        part.set_gradient_divide_factor(1.0)  # the loss is divided by the tokens of all ranks already
        part.set_force_sum_reduction_for_comms(True)
    if model.has_target:
        register_fsdp_forward_method(model, "encode")
    return model


def is_sharded(module: nn.Module) -> TypeGuard[FSDPModule]:
    """Whether a module is sharded."""
    return hasattr(module, "unshard")


def _is_spread(tensor: Tensor) -> TypeGuard[DTensor]:
    return hasattr(tensor, "full_tensor")


@contextlib.contextmanager
def whole(model: Model) -> Iterator[None]:
    """Gather a model on every rank inside the context, so that each can use it without the others.

    All ranks must enter. It takes the memory of the weights, a quarter of what training would take.
    """
    parts = [module for module in model.modules() if is_sharded(module)]
    for part in parts:
        part.set_reshard_after_forward(False, recurse=False)
        part.unshard()
    try:
        yield
    finally:
        for part in parts:
            part.reshard()
            part.set_reshard_after_forward(part is not parts[0], recurse=False)  # the first holds all but the blocks


def full(tensor: Tensor) -> Tensor:
    """Return a tensor gathered from all ranks, all of which must call; one that is not sharded as it is."""
    return tensor.full_tensor() if _is_spread(tensor) else tensor


def local(tensor: Tensor) -> Tensor:
    """Return this rank's shard of a tensor."""
    return tensor.to_local() if _is_spread(tensor) else tensor


def gathered(tensors: Mapping[str, Tensor], keep: bool = True) -> dict[str, Tensor]:
    """Return gathered tensors in main memory, one after the other; with `keep=False` this rank only takes part."""
    found = {}
    for name, tensor in tensors.items():
        together = full(tensor).cpu() if _is_spread(tensor) else tensor
        if keep:
            found[name] = together
    return found


def spread_like(value: Tensor, other: Tensor) -> Tensor:
    """Return this rank's shard of a tensor that all ranks have, if `other` is sharded; a scalar never is."""
    if not _is_spread(other) or not value.dim():
        return value.to(other.device)
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value.to(other.device), other.device_mesh, other.placements, src_data_rank=None)
