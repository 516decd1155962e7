"""How an engine shares out a machine: a matter of speed alone."""

from __future__ import annotations

import os
from dataclasses import dataclass

BATCH = 32
"""Sentences that CTranslate2 puts into one batch, after sorting them by length; with a beam of 5, 64 took longer."""


@dataclass(frozen=True)
class Pace:
    """Workers that answer side by side, threads inside each, and sentences that a worker takes at a time."""

    workers: int
    threads: int = 1
    batch: int = BATCH


def cores() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def usual() -> Pace:
    """One worker per core, one thread each: threads inside small products cost more than they give."""
    return Pace(cores())
