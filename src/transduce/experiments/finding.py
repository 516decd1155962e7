"""The result of measuring a claim: a table, charts, and checks that the numbers pass or fail."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from transduce.rng import torch_generator
from transduce.training.optimizer import Schedule, linear

Cell = str | int | float
"""A table cell; a float is shown with three digits and stored with all."""
Outcome = Literal["holds", "holds in part", "does not hold"]
Report = Callable[[str, int], None]
"""Progress callback: (stage, count)."""


def silent(stage: str, count: int) -> None:
    """Report nothing."""


@dataclass(frozen=True)
class Series:
    """One line of a chart, or its points."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    """Lower ends of the intervals of y; empty for none."""
    high: tuple[float, ...] = ()
    """Upper ends."""
    names: tuple[str, ...] = ()
    """A name beside each point; empty for none."""
    joined: bool = True
    """Whether a line joins the points."""


@dataclass(frozen=True)
class Chart:
    """Lines or points over common axes."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    log_x: bool = False
    log_y: bool = False
    y_range: tuple[float, float] | None = None
    """Ends of the y axis; None for those of the values."""


@dataclass(frozen=True)
class ClaimCheck:
    """One statement that follows from the claim, with the measured numbers, and whether they confirm it."""

    statement: str
    passed: bool


@dataclass(frozen=True)
class Finding:
    """A claim and its measurements."""

    title: str
    claim: str
    """One sentence, as proponents of the claim would put it."""
    setting: Mapping[str, Cell]
    """Sizes used in the measurement."""
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    charts: tuple[Chart, ...]
    checks: tuple[ClaimCheck, ...]

    def __post_init__(self) -> None:
        assert self.checks and all(len(row) == len(self.columns) for row in self.rows)

    @property
    def outcome(self) -> Outcome:
        """The verdict that follows from the checks."""
        passed = sum(check.passed for check in self.checks)
        return "does not hold" if passed == 0 else "holds" if passed == len(self.checks) else "holds in part"

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; infinity and NaN (a loss that diverged) become null."""
        plain = _finite(asdict(self))
        assert isinstance(plain, dict)
        return {**plain, "outcome": self.outcome}


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Given(NamedTuple):
    """An existing model to measure a claim on: its run or model folder, and its input."""

    folder: Path
    texts: Sequence[str] | None = None
    """None for the default texts of the claim."""
    target_language: str | None = None
    """Target language of a multilingual model."""
    source_language: str | None = None
    """Source language of the texts."""


@dataclass(frozen=True)
class Conditions:
    """What an experiment is carried out with."""

    seed: int = 1
    threads: int = 1
    report: Report = silent
    quick: bool = False
    """The form that takes minutes: smaller models, less data, fewer seeds. Its figures are not the study's."""
    data: Path | None = None
    """Folder of a corpus to use instead of the study's default data."""
    folder: Path = Path("reproduced")
    """Where a study keeps its runs. Finished runs are reused, interrupted ones are resumed."""
    given: Given | None = None
    """An existing model to measure, instead of models trained for the experiment."""


# A minimal training loop for claims that train their own models: fresh batches, no files, no resuming.

REPORT_EVERY = 50
"""Updates between two progress reports."""


def fit(
    model: nn.Module,
    loss_of_batch: Callable[[torch.Generator], Tensor],
    updates: int,
    seed: int,
    report: Report,
    stage: str,
    schedule: Schedule | None = None,
    betas: tuple[float, float] = (0.9, 0.98),
    max_grad_norm: float | None = None,
    is_done: Callable[[int], bool] | None = None,
) -> int:
    """Minimise the loss of batches that are sampled from one generator; leave the model in evaluation mode.

    By default the learning rate warms up to 0.003 in a hundred updates and decays linearly; `max_grad_norm` is the
    maximum gradient norm. `is_done` is called after every update and may end the training. Return the updates made.
    """
    generator = torch_generator(seed)
    optimizer = torch.optim.Adam(model.parameters(), betas=betas)
    schedule = schedule or linear(0.003, min(100, updates), updates)
    model.train()
    update = 0
    for update in range(1, updates + 1):
        for group in optimizer.param_groups:
            group["lr"] = schedule(update)
        optimizer.zero_grad()
        loss_of_batch(generator).backward()  # type: ignore[no-untyped-call]
        if max_grad_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
        optimizer.step()
        if update % REPORT_EVERY == 0:
            report(stage, update)
        if is_done is not None and is_done(update):
            break
    model.eval()
    return update


KeyT = TypeVar("KeyT", bound=Hashable)


def shortest_times(works: Mapping[KeyT, Callable[[], object]], repeats: int) -> dict[KeyT, float]:
    """Return the shortest time of each work in seconds, measured in turn, after one untimed round.

    The works alternate, so that a slow moment of the machine does not hit one of them alone. With one thread, CPU time
    is measured, which excludes other processes.
    """
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    times: dict[KeyT, float] = {}
    for turn in range(repeats + 1):
        for key, work in works.items():
            began = clock()
            work()
            if turn:
                times[key] = min(times.get(key, math.inf), clock() - began)
    return times


def exponent(x: Sequence[float], y: Sequence[float]) -> float:
    """Return the slope of log y against log x by least squares: 2 where y grows with the square of x."""
    across, up = (torch.tensor(values, dtype=torch.float64).log() for values in (x, y))
    across, up = across - across.mean(), up - up.mean()
    return float((across @ up) / (across @ across))
