"""How an engine divides a machine among workers and threads; it affects speed, not results."""

from __future__ import annotations

import os
from dataclasses import dataclass

BATCH_SIZE = 32
"""Sentences that CTranslate2 puts into one batch, after sorting them by length; with a beam of 5, 64 took longer."""


@dataclass(frozen=True)
class Parallelism:
    """Workers that translate in parallel, threads of each, and sentences that a worker takes at a time."""

    workers: int
    threads: int = 1
    batch_size: int = BATCH_SIZE


def available_cores() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_parallelism() -> Parallelism:
    """One worker per core with one thread: more threads slow down small matrix products."""
    return Parallelism(available_cores())
