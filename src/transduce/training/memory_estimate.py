"""How much memory training takes, found out before it begins, and what to do when there is too little."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import numpy as np
import torch

from transduce.data.batches import Batch
from transduce.data.prepared import Prepared
from transduce.tasks.text_encoding.batches import ReadingBatch
from transduce.tasks.text_encoding.config import Objective, TextEncodingConfig
from transduce.training.distributed.sharding import local
from transduce.training.objective import AnyBatch
from transduce.training.step import Updater
from transduce.training.system_memory import give_back_freed_memory, ran_out_of_memory, resident_bytes

SMALLEST_MICRO_BATCH = 16
"""Tokens of a slice below which halving it frees nothing any more."""
USABLE = 0.8
"""Share of the free memory that may be planned with."""
CONTAINERS = (
    (Path("/sys/fs/cgroup"), "memory.max", "memory.current", "inactive_file"),
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""Where Linux says what a container may take, holds, and could give back; the second as older ones have it."""
MEMBERSHIP = Path("/proc/self/cgroup")
"""Where it says which of them this process is in."""
SMALLEST_BATCH, LARGEST_BATCH = 1024, 32_768
"""What is chosen between, in target tokens; the paper's batches have 25,000."""


def batch_for(corpus_tokens: int) -> int:
    """Return the tokens of a batch that suits a corpus of so many: a hundred batches or more in an epoch."""
    tokens = SMALLEST_BATCH
    while tokens < LARGEST_BATCH and 200 * tokens <= corpus_tokens:
        tokens *= 2
    return tokens


def available_bytes(device: torch.device) -> int:
    """Memory that this process could still take where training happens, beside its likes on the same machine."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    alike = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # as `torchrun` has it
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(min(free, _left_in_container()) / max(1, alike))


def _left_in_container() -> float:
    """What the tightest limit leaves of a container, a batch job or a service, and of all that these stand in.

    The system's own figures do not know of it; infinite where there is none.
    """
    left = math.inf
    for root, limit, used, cached in CONTAINERS:
        for folder in {root / group for group in _groups()}:
            try:
                most, held = (int((folder / name).read_text(encoding="ascii")) for name in (limit, used))
                facts = dict(line.split() for line in (folder / "memory.stat").read_text(encoding="ascii").splitlines())
                left = min(left, max(0, most - held + int(facts[cached])))
            except (OSError, ValueError, KeyError):  # another system, or no limit: "max"
                continue
    return left


def _groups() -> Iterator[PurePosixPath]:
    """The groups that Linux counts this process in, and those around them, as folders below the mount."""
    try:
        lines = MEMBERSHIP.read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for path in ("/", *(line.split(":", 2)[2] for line in lines if line.count(":") > 1)):
        inner = PurePosixPath(path.lstrip("/"))
        yield from (inner, *inner.parents)


def expected_peak(updater: Updater, corpus: Prepared, micro_batch_tokens: int) -> int:
    """Return the bytes that training will hold at its peak, from a trial with the longest pair of the corpus.

    Memory that was used once is kept, so that what the trial adds to what is in use is what one slice takes.
    """
    _forget_trials(updater.device)
    before = _held(updater.device)
    updater.try_out(_longest(corpus, micro_batch_tokens), micro_batch_tokens)
    one = max(0, _held(updater.device) - before)
    parts = [(local(parameter).nbytes, parameter.requires_grad) for parameter in updater.model.parameters()]
    gradients = sum(size for size, learns in parts if learns)
    no_moments = updater.optimizer.state or isinstance(updater.optimizer, torch.optim.SGD)  # held already, or never
    moments = 0 if no_moments else 2 * gradients
    aside = sum(size for size, _ in parts) if updater.config.ema_decay else 0  # while the average stands in their place
    return before + len(updater.workers.models) * max(0, one - gradients) + gradients + moments + aside


def _forget_trials(device: torch.device) -> None:
    """Hold nothing but what is in use: a smaller trial after a larger one would seem to take nothing."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    give_back_freed_memory()


def _held(device: torch.device) -> int:
    """Bytes held where training happens."""
    return torch.cuda.max_memory_reserved(device) if device.type == "cuda" else resident_bytes()


def fitting_micro_batch(updater: Updater, corpus: Prepared, micro_batch_tokens: int) -> int:
    """Halve a slice until training with it fits the memory that there is."""
    free = available_bytes(updater.device)
    while micro_batch_tokens > SMALLEST_MICRO_BATCH:
        held = _held(updater.device)
        try:
            if expected_peak(updater, corpus, micro_batch_tokens) - held <= USABLE * free:
                break
        except (MemoryError, RuntimeError) as error:
            if not ran_out_of_memory(error):
                raise
        micro_batch_tokens //= 2
    return micro_batch_tokens


def _longest(corpus: Prepared, tokens: int) -> AnyBatch:
    """One slice of pairs as long as the longest; what they say does not matter."""
    if isinstance(corpus.data, TextEncodingConfig):
        return _longest_reading(corpus.data.objective, corpus.report.train.source.longest + 2, tokens)
    longest_source, longest_target = corpus.longest
    rows = max(1, tokens // (1 + max(longest_source, longest_target)))
    source = torch.full((rows, longest_source + 1), corpus.source_tokenizer.end)
    target = torch.full((rows, longest_target + 2), corpus.target_tokenizer.end)
    return Batch(
        source=source,
        source_allowed=torch.ones_like(source, dtype=torch.bool),
        target=target,
        target_lengths=torch.full((rows,), longest_target + 1),
        num_target_tokens=rows * (longest_target + 1),
        rows=torch.zeros(rows, dtype=torch.int64).numpy(),
    )


def _longest_reading(task: Objective, length: int, tokens: int) -> ReadingBatch:
    """The same for a reader; of every seventh piece something is wanted, as of hidden ones."""
    rows = max(1, tokens // length)
    texts = torch.zeros(rows, length, dtype=torch.int64)
    wanted = texts[:, : {"classify": 1, "answer": 2}.get(task, length)].clone()
    if task == "mask":
        wanted[:, 1:] = torch.where(torch.arange(1, length) % 7 == 0, 0, -1)
    return ReadingBatch(
        tokens=texts,
        allowed=torch.ones_like(texts, dtype=torch.bool),
        segments=texts,
        wanted=wanted,
        num_target_tokens=rows,
        num_rows=rows,
        rows=np.zeros(rows, dtype=np.int64),
    )
