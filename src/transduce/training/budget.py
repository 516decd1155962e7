"""From a time budget to a number of updates, by the speed of some trial updates on the real model and batches.

The number is saved with the run: a run stays a function of its recipe, and resumes exactly on any machine.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from transduce.data.batching import Batch
from transduce.data.order import START
from transduce.errors import SettingsError
from transduce.training.config import TrainingConfig
from transduce.training.memory import SMALLEST_MICRO_BATCH, ran_out_of_memory
from transduce.training.step import TrainStep
from transduce.training.task import BatchSource
from transduce.training.update import read
from transduce.training.validation import Validator

WARM_UP_UPDATES = 2
"""Trial updates that are not timed: memory, threads and kernels are new."""
FEWEST, MOST, ENOUGH_SECONDS = 3, 20, 6.0
"""Trial updates that are timed: at least three, then until there are enough seconds or updates."""
USED = 0.97
"""Fraction of the time that goes into updates and validations; the rest is checkpoints and the final model."""
AT_LEAST = 0.5
"""Fraction of the time that goes into updates, however long validations take."""
UNTRAINED = 0.3
"""What predictions of a trained model take, of those of an untrained one, which hardly ever ends a text."""
FINAL_VALIDATIONS = 2
"""Validations after the last update: of the best checkpoint and of an average."""
SEARCHES = 20
"""Greedy predictions that take as long as choosing the search options."""
SMALLEST_PLAN = 20
"""Updates below which nothing is learned, and a budget is an error."""
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def seconds_of(budget: str) -> float:
    """Return the seconds of 90s, 20m or 2h."""
    return float(budget[:-1]) * UNITS[budget[-1]]


@dataclass(frozen=True)
class Speed:
    """How long an update takes."""

    seconds: float
    """Mean time of an update."""
    validation: float = 0.0
    """Time of a validation."""
    predictions: float = 0.0
    """The part of it that predictions take."""

    def updates_within(self, config: TrainingConfig, elapsed: float, ranks: int = 1) -> int:
        """Return the updates that fit the time budget, of which some has elapsed."""
        assert config.time_budget is not None
        left = USED * (seconds_of(config.time_budget) - elapsed)
        updates = int(max(AT_LEAST * left, left - self.besides(config)) * ranks / self.seconds)
        if updates < SMALLEST_PLAN:
            raise SettingsError(
                f"training.time_budget = '{config.time_budget}': preparation took {elapsed:.0f} seconds and an update "
                f"takes {self.seconds:.1f}, so that {max(0, updates)} updates would be left; give more time, fewer "
                "training.batch_tokens or a smaller model"
            )
        return updates

    def besides(self, config: TrainingConfig) -> float:
        """Return the seconds of a run that are not updates."""
        every = config.validate_every
        validations = 1 / every if isinstance(every, float) else config.updates / every
        final = FINAL_VALIDATIONS * self.validation + (SEARCHES * self.predictions if config.tune_search else 0.0)
        return validations * self.validation + final

    def duration(self, config: TrainingConfig, ranks: int = 1) -> str:
        """Say how long a run takes, validation included."""
        seconds = (config.updates * self.seconds / ranks + self.besides(config)) / USED
        if seconds < 90:
            return f"about {seconds:.0f} seconds"
        return f"about {seconds / 60:.0f} minutes" if seconds < 90 * 60 else f"about {seconds / 3600:.1f} hours"


def measure_speed(train_step: TrainStep, source: BatchSource, validator: Validator | None = None) -> Speed:
    """Time some updates with a learning rate of zero, and a validation, and end the threads."""
    count = train_step.config.gradient_accumulation
    stream, times, size = source.starting(START), list[float](), train_step.config.micro_batch_size
    try:
        for update in range(1, WARM_UP_UPDATES + MOST + 1):
            start = time.perf_counter()
            batches = [batch for _, batch in islice(stream, count)]
            size = _run(train_step, batches, update, size)
            times.append(time.perf_counter() - start)
            timed = times[WARM_UP_UPDATES:]
            if len(timed) >= FEWEST and sum(timed) >= ENOUGH_SECONDS:
                break
        forced, predicted = (0.0, 0.0) if validator is None else validator.cost()
    finally:
        train_step.workers.close()
    timed = times[WARM_UP_UPDATES:]
    return Speed(sum(timed) / len(timed), forced + UNTRAINED * predicted, UNTRAINED * predicted)


def _run(train_step: TrainStep, batches: Sequence[Batch], update: int, size: int) -> int:
    """Make one update; where memory runs out, in smaller micro-batches. Return the size that fits."""
    while True:
        try:
            read([train_step.run(batches, update, 0.0, size)])  # waits for a GPU
            return size
        except (MemoryError, RuntimeError) as error:
            if not ran_out_of_memory(error) or size <= SMALLEST_MICRO_BATCH:
                raise
        size //= 2
