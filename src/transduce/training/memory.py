"""Memory of training: measured before it begins, the micro-batch that fits, and out-of-memory errors.

glibc returns large blocks to the system at every free and requests fresh, zeroed pages the next time; in training
these are the same blocks at every update, and a quarter of the time. All threads share one heap: the arenas that
glibc gives to other threads are too small for our blocks.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import torch

from transduce.data.batching import Batch
from transduce.training.distributed import local
from transduce.training.optimizer import state_values, step_values

if TYPE_CHECKING:
    from transduce.training.step import TrainStep

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8
_LARGE = 2**31 - 1


def keep_freed_memory() -> bool:
    """Make glibc keep freed memory for reuse; return whether there is a glibc."""
    mallopt = _glibc("mallopt")
    if mallopt is None:
        return False
    wanted = {_MMAP_MAX: 0, _TRIM_THRESHOLD: _LARGE, _TOP_PAD: 2**26, _ARENA_MAX: 1}
    return all(mallopt(option, value) for option, value in wanted.items())


def give_back_freed_memory() -> None:
    """Return freed memory to the system, so that only memory in use is held."""
    malloc_trim = _glibc("malloc_trim")
    if malloc_trim is not None:
        malloc_trim(0)


def _glibc(name: str) -> Any:
    """Return a function of glibc; None where there is none."""
    if sys.platform != "linux":
        return None
    try:
        return getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError):
        return None


_STATM = Path("/proc/self/statm")


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes, or its peak (macOS), or 0 (Windows)."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        if sys.platform == "win32":
            return 0
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def physical_bytes() -> int:
    """Return the memory of this machine in bytes; 0 where the system does not report it (Windows)."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0


class SharedShortage(MemoryError):
    """One of several ranks ran out of memory, and all ranks know."""


def ran_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that memory ran out."""
    message = str(error).lower()
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and ("can't allocate memory" in message or "out of memory" in message)
    )


FLOAT_BYTES = torch.float32.itemsize
SMALLEST_MICRO_BATCH = 16
"""Tokens of a micro-batch below which halving it saves no more memory."""
USABLE = 0.8
"""Fraction of the free memory that training may use."""
CONTAINERS = (
    (Path("/sys/fs/cgroup"), "memory.max", "memory.current", "inactive_file"),
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""Where Linux states a container's limit, its usage and its reclaimable memory: cgroup v2, then v1."""
MEMBERSHIP = Path("/proc/self/cgroup")
"""Where it states the groups of this process."""
SMALLEST_BATCH, LARGEST_BATCH = 1024, 32_768
"""Range of `training.batch_tokens = "auto"`, in target tokens; the paper's batches have 25,000."""


def batch_for(corpus_tokens: int) -> int:
    """Return a batch size for a corpus of this many tokens: a hundred batches or more per epoch."""
    tokens = SMALLEST_BATCH
    while tokens < LARGEST_BATCH and 200 * tokens <= corpus_tokens:
        tokens *= 2
    return tokens


def available_bytes(device: torch.device) -> int:
    """Return the free memory of the training device, divided among the ranks on this machine."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    alike = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # as `torchrun` has it
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        free = physical_bytes() or sys.maxsize
    return int(min(free, _left_in_container()) / max(1, alike))


def _left_in_container() -> float:
    """Return what the tightest limit of a container, a batch job or a service, and of its parents, leaves.

    /proc/meminfo does not include it; infinite where there is none.
    """
    left = math.inf
    for root, limit, used, cached in CONTAINERS:
        for folder in {root / group for group in _groups()}:
            try:
                most, held = (int((folder / name).read_text(encoding="ascii")) for name in (limit, used))
                stat = dict(line.split() for line in (folder / "memory.stat").read_text(encoding="ascii").splitlines())
                left = min(left, max(0, most - held + int(stat[cached])))
            except (OSError, ValueError, KeyError):  # another system, or no limit: "max"
                continue
    return left


def _groups() -> Iterator[PurePosixPath]:
    """The cgroups of this process and their parents, as folders below the mount."""
    try:
        lines = MEMBERSHIP.read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for path in ("/", *(line.split(":", 2)[2] for line in lines if line.count(":") > 1)):
        inner = PurePosixPath(path.lstrip("/"))
        yield from (inner, *inner.parents)


def expected_peak(train_step: TrainStep, largest_batch: Callable[[int], Batch], micro_batch_tokens: int) -> int:
    """Return the bytes that training will hold at its peak, from a dry run with the longest rows of the corpus.

    Freed memory is kept by the process, so what the dry run adds to the memory in use is what one micro-batch takes.
    """
    _forget_trials(train_step.device)
    before = _held(train_step.device)
    train_step.dry_run(largest_batch(micro_batch_tokens), micro_batch_tokens)
    one = max(0, _held(train_step.device) - before)
    parts = [(local(parameter).nbytes, parameter.requires_grad) for parameter in train_step.model.parameters()]
    gradients = sum(size for size, learns in parts if learns)
    held = bool(train_step.optimizer.state)  # allocated already
    moments = 0 if held else FLOAT_BYTES * state_values(train_step.model, train_step.optimizer)
    step = FLOAT_BYTES * step_values(train_step.optimizer)
    # a copy of the weights is kept while the moving average is in their place
    copied = sum(size for size, _ in parts) if train_step.config.ema_decay else 0
    return before + max(len(train_step.workers.models) * max(0, one - gradients), step) + gradients + moments + copied


def _forget_trials(device: torch.device) -> None:
    """Release unused memory: a smaller dry run after a larger one would seem to take nothing."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    give_back_freed_memory()


def _held(device: torch.device) -> int:
    """Bytes held on the training device."""
    return torch.cuda.max_memory_reserved(device) if device.type == "cuda" else resident_bytes()


def fitting_micro_batch(train_step: TrainStep, largest_batch: Callable[[int], Batch], micro_batch_tokens: int) -> int:
    """Halve a micro-batch until training fits the free memory."""
    free = available_bytes(train_step.device)
    while micro_batch_tokens > SMALLEST_MICRO_BATCH:
        held = _held(train_step.device)
        try:
            if expected_peak(train_step, largest_batch, micro_batch_tokens) - held <= USABLE * free:
                break
        except (MemoryError, RuntimeError) as error:
            if not ran_out_of_memory(error):
                raise
        micro_batch_tokens //= 2
    return micro_batch_tokens
