"""How many threads are fastest on this machine, for this model: tried out while the first updates are made.

Results do not depend on the number of threads, so trying costs nothing. More threads are not always faster: Python runs
one thread at a time between two operations, and the smaller a model the more of its time that is.
"""

from __future__ import annotations

from transduce.training.workers import Workers

WARM_UP, ROUNDS = 2, 6
"""Updates that are not counted, since memory and threads are new in them, and how often each number has its turn."""
AS_GOOD = 0.9
"""Share of the best speed that is as good: what is measured here is noisy, and more threads are the better guess."""


class Calibration:
    """Tries all threads, half of them, a quarter … down to one, in turns, and stays with the most that are as fast."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        most = len(workers.models)
        counts = [most >> halvings for halvings in range(most.bit_length())]
        self._plan = [most] * WARM_UP + counts * ROUNDS if most > 1 else []
        self._done = 0
        self.speeds: dict[int, float] = {}
        """Tokens per second by number of threads: of the best turn, since a disturbance only ever slows down."""

    def observe(self, tokens: int, seconds: float) -> bool:
        """Take in one update; return whether the choice was made by it."""
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
