"""A loss that runs away: a fast average far above a slow one (as Marian watches for it)."""

from __future__ import annotations

import math
from dataclasses import dataclass

FAST, SLOW = 0.1, 0.01
"""How much the newest loss counts in each average."""
SIGMAS = 6.0
"""Standard deviations of the loss that the fast average must stand above the slow one."""
OUTLIER = 4.0
"""Standard deviations that one loss counts for at most: one odd batch is not a trend."""
SETTLED = 100
"""Updates before anything is said: at first the loss falls fast and means little."""


@dataclass
class Divergence:
    """Watches the loss per token of one update after the other; saved with the run, so that a resumed one goes on."""

    seen: int = 0
    fast: float = 0.0
    slow: float = 0.0
    last: float = 0.0
    variance: float = 0.0
    """Of the loss around its trend, from the differences of neighbours: a loss that falls is not a loss that shakes."""
    alarmed: bool = False
    """Whether an alarm was given and the loss has not come down since: one alarm for one spike."""

    def observe(self, loss: float) -> bool:
        """Take one loss in; return whether this is the moment that it ran away."""
        self.seen += 1
        if self.seen == 1:
            self.fast = self.slow = self.last = loss
            return False
        # Early on the averages are plain means of what was seen, so that the first losses do not linger.
        fast, slow = max(FAST, 1 / self.seen), max(SLOW, 1 / self.seen)
        sigma = math.sqrt(self.variance)
        counted = min(loss, self.slow + OUTLIER * sigma) if self.seen > SETTLED else loss
        self.fast += fast * (counted - self.fast)
        bound = SIGMAS * sigma * math.sqrt(FAST / (2 - FAST)) + 1e-3
        if not self.alarmed:  # a spike must not widen the band that it is judged by
            self.variance += slow * ((loss - self.last) ** 2 / 2 - self.variance)
        above = self.fast - self.slow
        alarm = self.seen > SETTLED and above > (bound / 2 if self.alarmed else bound)
        self.slow += slow * (loss - self.slow)
        self.last = loss
        new, self.alarmed = alarm and not self.alarmed, alarm
        return new
