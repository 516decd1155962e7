"""Calibration: find the fastest number of workers and threads for this model and text, on the first lines.

Threads inside small matrix products slow them down, and large models differ from small ones, so it is measured. It
affects speed only; the default stays unless something is clearly faster.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import torch

from transduce.inference.ctranslate2.engine import Parallelism, available_cores, default_parallelism
from transduce.inference.segment import TranslationCounts

if TYPE_CHECKING:
    from transduce.inference.jobs.job import TranslationJob

BATCH_SIZES = (64, 128)
"""Batch sizes that are tried besides the default."""
MIN_TRIAL_SECONDS = 0.5
"""Shortest trial; a shorter one is noise."""
QUICK_SHARE = 8
"""A trial starts with one in this many lines, which show whether it is worth its time …"""
HOPELESS = 2.0
"""… which it is not if it takes this many times as long as others."""
MAX_SECONDS = 5.0
"""No further trial begins after this time."""
MIN_JOB_SECONDS = 60.0
"""Shortest job that is worth a calibration."""
CLEARLY_FASTER = 0.9
"""Share of the default's time below which something is faster: measurements are noisy."""
MAX_SAMPLE = 4096
"""Maximum number of lines to try."""

Timer = Callable[[Parallelism, Sequence[str]], float]
"""Translates lines; returns the seconds it took, without loading."""


class CalibrationResult(NamedTuple):
    """The parallelism to use, and whether others were tried."""

    parallelism: Parallelism
    tried: bool


def job_default(ctranslate2: bool) -> Parallelism:
    """The default of CTranslate2 or PyTorch."""
    return default_parallelism() if ctranslate2 else Parallelism(1, torch.get_num_threads())


def requested_parallelism(ctranslate2: bool, workers: int | None, threads: int | None) -> Parallelism:
    """Return what the user requested; what was left open takes the cores that remain."""
    if not ctranslate2:
        return Parallelism(1, threads or torch.get_num_threads())
    cores = available_cores()
    return Parallelism(workers or max(1, cores // (threads or 1)), threads or max(1, cores // (workers or 1)))


def apply_parallelism(job: TranslationJob, parallelism: Parallelism) -> None:
    """Set the parallelism of the engine that a job uses."""
    if job.uses_ctranslate2:
        job.translator.engine.set_parallelism(parallelism)
    else:
        torch.set_num_threads(parallelism.threads)


def calibrate_job(
    job: TranslationJob, sample: Sequence[str], lines: float, clock: Callable[[], float] = time.perf_counter
) -> CalibrationResult:
    """Find out what is fastest for about `lines` lines like those of a sample, and apply it."""
    engine, ctranslate2 = job.translator.engine, job.uses_ctranslate2
    plain = replace(
        job.translation, constraints=job.translator.constraints(), align=False, rerank=list
    )  # trials need no constraints

    def seconds(parallelism: Parallelism, some: Sequence[str]) -> float:
        apply_parallelism(job, parallelism)
        if ctranslate2:
            engine.load()
        began = clock()
        job.translator.translate_lines(some, plain, TranslationCounts())
        return clock() - began

    with engine.exported() if ctranslate2 else contextlib.nullcontext():
        choices = parallelism_choices(job_default(ctranslate2), ctranslate2)
        best = calibrate(sample, lines, choices, BATCH_SIZES if ctranslate2 else (), seconds)
        apply_parallelism(job, best.parallelism)
        if ctranslate2:
            engine.load()
    engine.fallbacks = 0  # trials do not count
    return best


def parallelism_choices(first: Parallelism, ctranslate2: bool) -> list[Parallelism]:
    """What to try, the default first: all divisions of the cores among workers; for PyTorch, one thread and all."""
    if not ctranslate2:
        return [first, *([Parallelism(1, 1)] if first.threads > 1 else [])]
    fewer = [workers for workers in range(first.workers - 1, 0, -1) if first.workers % workers == 0]
    return [first, *(Parallelism(workers, first.workers // workers) for workers in fewer)]


def calibrate(
    sample: Sequence[str], lines: float, choices: Sequence[Parallelism], batch_sizes: Sequence[int], timer: Timer
) -> CalibrationResult:
    """Return the fastest of several choices, the first of which is the default; then the best of several batch sizes.

    `lines` is about how many there are in all; the default is used for a short job.
    """
    first = choices[0]
    some = sample[: first.workers * first.threads]
    if not some or len(choices) + len(batch_sizes) == 1:
        return CalibrationResult(first, tried=False)
    trials = _Trials(timer)
    while True:
        took = trials.take(first, some)
        if took / len(some) * lines < MIN_JOB_SECONDS:
            return CalibrationResult(first, tried=False)
        if took >= MIN_TRIAL_SECONDS or len(some) == len(sample):
            break
        some = sample[: 2 * len(some)]
    best = trials.fastest(first, choices[1:], some)
    sizes = [size for size in batch_sizes if 2 * best.workers * size <= len(some)]
    return CalibrationResult(trials.fastest(best, [replace(best, batch_size=size) for size in sizes], some), tried=True)


class _Trials:
    """What was tried, and the seconds it took."""

    def __init__(self, timer: Timer) -> None:
        self._timer, self._took = timer, dict[tuple[Parallelism, int], float]()

    def take(self, choice: Parallelism, lines: Sequence[str]) -> float:
        """Try a choice; return the seconds it took."""
        per_worker = -(-len(lines) // choice.workers)
        spread = replace(choice, batch_size=max(1, min(choice.batch_size, per_worker)))  # work for all workers
        self._took[choice, len(lines)] = took = max(self._timer(spread, lines), 1e-9)
        return took

    def fastest(self, first: Parallelism, others: Sequence[Parallelism], lines: Sequence[str]) -> Parallelism:
        """The fastest, or the first one, which was tried before, unless another is clearly faster."""
        before = self._took[first, len(lines)]
        took = {one: self.take(one, lines) for one in others if self._has_time() and self._is_promising(one, lines)}
        best = min(took, key=lambda one: took[one], default=first)
        return best if took.get(best, before) < CLEARLY_FASTER * before else first

    def _has_time(self) -> bool:
        return sum(self._took.values()) < MAX_SECONDS

    def _is_promising(self, choice: Parallelism, lines: Sequence[str]) -> bool:
        """Whether a few lines do not show already that it is far slower than others were with them."""
        few = len(lines) // QUICK_SHARE
        known = [took for (_, count), took in self._took.items() if count == few]
        return not known or self.take(choice, lines[:few]) < HOPELESS * min(known)
