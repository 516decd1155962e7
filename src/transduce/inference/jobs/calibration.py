"""How a machine is shared out best, for this model and this text: tried out on the first lines, for a few seconds.

Threads inside one small product cost more than they give, and a large model has other needs than a small one; nobody
can know that beforehand. It is a matter of speed alone, so what cannot be told apart stays as it usually is.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from transduce.inference.answerer import Counts
from transduce.inference.jobs.window import Answering
from transduce.inference.pace import Pace, cores, usual

BATCHES = (64, 128)
"""Sizes that are tried besides the usual one."""
TRIAL = 0.5
"""Seconds that a trial should take at least; a shorter one is noise."""
GLANCE = 8
"""The share of a trial, one in so many lines, by which it is seen whether it is worth its time …"""
HOPELESS = 2.0
"""… which it is not where it takes so many times what others did."""
BUDGET = 5.0
"""Seconds after which no further trial begins."""
WORTH = 60.0
"""Seconds that the whole translation must take for a calibration to be worth it."""
AS_GOOD = 0.9
"""Share of the best speed that is as good: what is measured here is noisy."""
SAMPLE = 4096
"""The most lines that are tried out."""

Seconds = Callable[[Pace, Sequence[str]], float]
"""Translates lines at a pace; returns how long that took, without what is done once."""


class Choice(NamedTuple):
    """A pace, and whether others were tried."""

    pace: Pace
    tried: bool


def usual_pace(fast: bool) -> Pace:
    """How CTranslate2 (`fast`) or PyTorch shares out the machine unless something better is known."""
    return usual() if fast else Pace(1, torch.get_num_threads())


def wished_pace(fast: bool, workers: int | None, threads: int | None) -> Pace:
    """Return the pace that somebody asked for; what was left open takes the cores that remain."""
    if not fast:
        return Pace(1, threads or torch.get_num_threads())
    return Pace(workers or max(1, cores() // (threads or 1)), threads or max(1, cores() // (workers or 1)))


def set_pace(answering: Answering, pace: Pace) -> None:
    """Let whichever engine answers go at a pace."""
    if answering.fast:
        answering.translator.engine.set_pace(pace)
    else:
        torch.set_num_threads(pace.threads)


def found_pace(
    answering: Answering, sample: Sequence[str], lines: float, clock: Callable[[], float] = time.perf_counter
) -> Choice:
    """Try out what is fastest for about so many lines like those of a sample, and go on like that."""
    engine = answering.translator.engine

    def time_of(pace: Pace, some: Sequence[str]) -> float:
        set_pace(answering, pace)
        engine.load(answering.fast)
        began = clock()
        answering.translator.answer(some, answering.options, split=answering.split, counts=Counts())
        return clock() - began

    first = usual_pace(answering.fast)
    with engine.exported() if answering.fast else contextlib.nullcontext():
        best = calibrate(sample, lines, ways(first, answering.fast), BATCHES if answering.fast else (), time_of)
        set_pace(answering, best.pace)
        engine.load(answering.fast)
    return best


def ways(first: Pace, fast: bool) -> list[Pace]:
    """What there is to try, the usual way first: all ways to share cores among workers, or one thread and all."""
    if not fast:
        return [first, *([Pace(1, 1)] if first.threads > 1 else [])]
    fewer = [workers for workers in range(first.workers - 1, 0, -1) if first.workers % workers == 0]
    return [first, *(Pace(workers, first.workers // workers) for workers in fewer)]


def calibrate(
    sample: Sequence[str], lines: float, ways: Sequence[Pace], batches: Sequence[int], time_of: Seconds
) -> Choice:
    """Return the fastest of several paces, the first of which is the usual one; then the best of several batches.

    `lines` is about how many there are in all. Where they are soon translated, the usual pace it is.
    """
    first = ways[0]
    some = sample[: first.workers * first.threads]
    if not some or len(ways) + len(batches) == 1:
        return Choice(first, tried=False)
    trials = _Trials(time_of)
    while True:
        took = trials.take(first, some)
        if took / len(some) * lines < WORTH:
            return Choice(first, tried=False)
        if took >= TRIAL or len(some) == len(sample):
            break
        some = sample[: 2 * len(some)]
    best = trials.fastest(first, ways[1:], some)
    enough = [batch for batch in batches if 2 * best.workers * batch <= len(some)]
    return Choice(trials.fastest(best, [replace(best, batch=batch) for batch in enough], some), tried=True)


class _Trials:
    """What was tried, and how long it took."""

    def __init__(self, time_of: Seconds) -> None:
        self._time_of, self._took = time_of, dict[tuple[Pace, int], float]()

    def take(self, pace: Pace, lines: Sequence[str]) -> float:
        """Try something; return how long it took."""
        spread = replace(pace, batch=max(1, min(pace.batch, -(-len(lines) // pace.workers))))  # all workers get some
        self._took[pace, len(lines)] = took = max(self._time_of(spread, lines), 1e-9)
        return took

    def fastest(self, first: Pace, others: Sequence[Pace], lines: Sequence[str]) -> Pace:
        """The fastest, or the first one, which was tried before, if that is as good."""
        usually = self._took[first, len(lines)]
        took = {pace: self.take(pace, lines) for pace in others if self._has_time() and self._is_promising(pace, lines)}
        best = min(took, key=lambda pace: took[pace], default=first)
        return best if took.get(best, usually) < AS_GOOD * usually else first

    def _has_time(self) -> bool:
        return sum(self._took.values()) < BUDGET

    def _is_promising(self, pace: Pace, lines: Sequence[str]) -> bool:
        """Whether a glance at fewer lines does not show already that it is far slower than others were with them."""
        few = len(lines) // GLANCE
        known = [took for (_, count), took in self._took.items() if count == few]
        return not known or self.take(pace, lines[:few]) < HOPELESS * min(known)
