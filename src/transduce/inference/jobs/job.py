"""One translation from its beginning, or from where it was interrupted, to its end."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import torch

from transduce.inference.answerer import Counts
from transduce.inference.jobs.calibration import SAMPLE, found_pace, set_pace, usual_pace, wished_pace
from transduce.inference.jobs.output import Done
from transduce.inference.jobs.source import Source, is_file
from transduce.inference.jobs.window import Answered, Answering
from transduce.inference.pace import Pace, cores

SLOW_LINES = 512
"""Of a window that PyTorch answers: some seconds of work, which are what an interruption costs."""
FAST_LINES = (1024, 8192)
"""The fewest and the most of a window that CTranslate2 answers."""
BATCHES_PER_WORKER = 32
"""In a window: enough that those at its end, which are of unlike lengths, hardly count."""
PACKED = 3
"""How much larger a gzip file's text is than the file, about."""


class Sink(Protocol):
    """Where windows go, in order."""

    done: Done

    def refuse_other(self, digest: str) -> None: ...
    def begin(self, pace: Pace) -> None: ...
    def write(self, answered: Answered) -> None: ...


class Watcher(Protocol):
    """Is told what happens."""

    def goes_on(self, segments: int) -> None: ...
    def chose(self, pace: Pace, fast: bool) -> None: ...
    def begins(self, read: int) -> None: ...
    def wrote(self, lines: int, read: int) -> None: ...


@dataclass(frozen=True)
class Wish:
    """What somebody asked about the machine; None leaves it open."""

    workers: int | None = None
    threads: int | None = None


def translate(answering: Answering, source: Source, sink: Sink, watcher: Watcher, path: str, wish: Wish) -> Counts:
    """Translate what is left of a document; return what happened to all of its lines.

    What comes from no file is answered as it comes. Two windows of a file are on their way where CTranslate2 answers,
    whose workers then find work at the end of the first; one where PyTorch does, whose threads all work on it.
    """
    sink.refuse_other(source.skip(sink.done.segments))
    answering.constraints.skip(sink.done.counts.lines)
    if sink.done.segments:
        watcher.goes_on(sink.done.segments)
    with _threads_as_before():
        pace = _pace(answering, source, sink.done.pace, watcher, path, wish)
        sink.begin(pace)
        watcher.begins(source.read)
        with contextlib.closing(_answers(answering, source, pace, is_file(path))) as answers:
            for answered in answers:
                sink.write(answered)
                watcher.wrote(answered.counts.lines, answered.read)
    return sink.done.counts


def _answers(answering: Answering, source: Source, pace: Pace, whole: bool) -> Generator[Answered]:
    if not whole:
        return (answering(window) for window in source.windows_as_they_come())
    windows = source.windows(window_lines(pace, answering.fast))
    return in_order(answering, windows, threads=2 if answering.fast else 1)


def window_lines(pace: Pace, fast: bool) -> int:
    """How many lines are answered together: enough for all workers, and not more than is bearable to lose."""
    fewest, most = FAST_LINES
    return min(most, max(fewest, BATCHES_PER_WORKER * pace.workers * pace.batch)) if fast else SLOW_LINES


def _pace(answering: Answering, source: Source, before: Pace | None, watcher: Watcher, path: str, wish: Wish) -> Pace:
    """As was asked, or as it was before an interruption, or as turns out to be fastest for a file."""
    same_machine = before is not None and (not answering.fast or before.workers * before.threads == cores())
    if wish != Wish():
        pace = wished_pace(answering.fast, wish.workers, wish.threads)
    elif before is not None and same_machine:
        pace = before  # the same windows and batches, so the same answers to the last bit
    elif answering.prefixed or answering.told or not is_file(path):  # a trial has no prefixes and asks for nothing
        pace = usual_pace(answering.fast)
    else:
        sample = source.sample(SAMPLE)
        mean = sum(len(line.encode("utf-8", "surrogatepass")) + 1 for line in sample) / max(1, len(sample))
        packed = PACKED if path.endswith(".gz") else 1
        pace, tried = found_pace(answering, sample, Path(path).stat().st_size * packed / max(1.0, mean))
        if tried:
            watcher.chose(pace, answering.fast)
        return pace
    set_pace(answering, pace)
    answering.translator.engine.load(answering.fast and is_file(path))
    return pace


@contextlib.contextmanager
def _threads_as_before() -> Iterator[None]:
    """PyTorch's number of threads is the whole process's; leave it as it was."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


# Several windows on their way at once, and out in the order in which they went in.
#
# Reading ahead, answering and whatever is done with the answers overlap, so that engines do not wait. How much is on
# its way is bounded at each place: memory does not depend on the length of the file.

T = TypeVar("T")
R = TypeVar("R")


def in_order(work: Callable[[T], R], items: Iterator[T], threads: int) -> Generator[R]:
    """Yield what `work` makes of each item, in order; so many are worked on at a time, one more waits, one is read.

    An error of reading comes after all that was read before it. Whoever stops early closes the generator: nobody waits
    then for what is being worked on.
    """
    reader = ThreadPoolExecutor(1, thread_name_prefix="reading")
    workers = ThreadPoolExecutor(threads, thread_name_prefix="answering")
    begun: deque[Future[R]] = deque()
    failure: Exception | None = None
    coming: Future[T | None] | None = reader.submit(next, items, None)
    try:
        while coming is not None or begun:
            while coming is not None and len(begun) <= threads:
                try:
                    item = coming.result()
                except Exception as error:
                    failure, item = error, None
                coming = None if item is None else reader.submit(next, items, None)
                if item is not None:
                    begun.append(workers.submit(work, item))
            if begun:
                yield begun.popleft().result()
    finally:
        for pool in (reader, workers):
            pool.shutdown(wait=False, cancel_futures=True)
    if failure is not None:
        raise failure
