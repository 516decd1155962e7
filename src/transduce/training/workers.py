"""Worker threads, each with its own copy of the model that shares the weights.

On a CPU several operations in parallel, one thread each, are faster than several threads inside each operation: nothing
waits for the slowest thread of every small product, and another program that takes a core does little harm. The work
is split without regard to the number of threads, and the results are combined in the order of the parts, so that
results do not depend on the number of threads, to the last bit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from transduce.models.interface import Model
from transduce.nn.hook import twin

Work = Callable[[Any, int], Any]
"""(model, number of the part) -> result."""


class Workers:
    """A fixed number of threads, including the calling one."""

    def __init__(self, model: Model, count: int) -> None:
        assert count >= 1
        self.models = [model] if count == 1 else [twin(model) for _ in range(count)]
        """One for each thread; with a single thread the model itself."""
        self._job: _Job | None = None
        self.active = count
        """Threads in use; fewer may be faster."""
        self._wanted, self._ended = threading.Semaphore(0), threading.Semaphore(0)
        self._threads: list[threading.Thread] = []

    def each(
        self, work: Work, parts: int, then: Callable[[Model, int], None] | None = None, train: bool = False
    ) -> Sequence[Any]:
        """Return work(model, part) for every part, in order.

        `then(model, part)` is called after each part, by its thread but in the order of the parts, never two at once:
        for summing. The first part that fails ends the others, and its error is raised here.
        """
        self._job = job = _Job(work, parts, then)
        for model in self.models:
            if model.training is not train:
                model.train(train)
        self._wake(self.active - 1)
        job.take_part(self.models[0])
        for _ in range(self.active - 1):
            self._ended.acquire()
        return job.outcome()

    def close(self) -> None:
        """End the threads."""
        self._job = None
        self._wake(len(self._threads))
        for thread in self._threads:
            thread.join()
        self._threads = []

    def _wake(self, count: int) -> None:
        if count and not self._threads:  # started with the first work: the process may be forked before
            self._threads = [
                threading.Thread(target=self._wait_for_work, args=(model,), daemon=True) for model in self.models[1:]
            ]
            for thread in self._threads:
                thread.start()
        if count:
            self._wanted.release(count)

    def _wait_for_work(self, model: Model) -> None:
        while True:
            self._wanted.acquire()
            if self._job is None:
                return
            self._job.take_part(model)
            self._ended.release()


class _Job:
    """One piece of work, whose parts several threads compute."""

    def __init__(self, work: Work, parts: int, then: Callable[[Model, int], None] | None) -> None:
        self.work, self.then = work, then
        self.results: list[Any] = [None] * parts
        self.next, self.done = 0, 0
        self.errors: dict[int, BaseException] = {}
        self.changed = threading.Condition()

    def take_part(self, model: Model) -> None:
        """Compute parts until none is left."""
        while (part := self._take()) is not None:
            try:
                self.results[part] = self.work(model, part)
                self._wait_for_turn(part)
                if self.then is not None and not self.errors:
                    self.then(model, part)
            except BaseException as error:  # the calling thread raises it
                self.errors[part] = error
            with self.changed:
                self.done = max(self.done, part + 1)
                self.changed.notify_all()

    def outcome(self) -> Sequence[Any]:
        """Return the results, or raise the first error."""
        if self.errors:
            raise self.errors[min(self.errors)]
        return self.results

    def _take(self) -> int | None:
        with self.changed:
            if self.errors or self.next >= len(self.results):
                return None
            self.next += 1
            return self.next - 1

    def _wait_for_turn(self, part: int) -> None:
        with self.changed:
            self.changed.wait_for(lambda: self.errors or self.done >= part)


# Calibration of the number of threads.


WARM_UP, ROUNDS = 2, 6
"""Updates that are not measured, since memory and threads are new, and measurements of each number of threads."""
AS_GOOD = 0.9
"""Fraction of the best speed that counts as equal: measurements are noisy, and more threads are the better guess."""


class Calibration:
    """Finds the fastest number of threads for this model on this machine, during the first updates.

    It measures all threads, half of them, a quarter … down to one, in turns, and keeps the most that are as fast.
    Results do not depend on the number of threads, so measuring costs nothing. More threads are not always faster:
    between two operations Python runs one thread at a time, which takes a larger part of the time of a smaller model.
    """

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        most = len(workers.models)
        counts = [most >> halvings for halvings in range(most.bit_length())]
        self._plan = [most] * WARM_UP + counts * ROUNDS if most > 1 else []
        self._done = 0
        self.speeds: dict[int, float] = {}
        """Best tokens per second by number of threads, since interference only slows down."""

    def observe(self, tokens: int, seconds: float) -> bool:
        """Record one update; return whether the measurement is complete."""
        if self._done >= len(self._plan):
            return False
        count = self._plan[self._done]
        if self._done >= WARM_UP:
            self.speeds[count] = max(self.speeds.get(count, 0.0), tokens / max(seconds, 1e-9))
        self._done += 1
        if self._done < len(self._plan):
            self._workers.active = self._plan[self._done]
            return False
        best = max(self.speeds.values())
        self._workers.active = max(count for count, speed in self.speeds.items() if speed >= AS_GOOD * best)
        return True
