"""What measuring a claim gives: a table, pictures, and checks of the claim that the numbers pass or fail."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from transduce.rng import torch_generator
from transduce.training.optimizer import Schedule, linear

Cell = str | int | float
"""What stands in a table; a float is shown with three digits and kept with all."""
Outcome = Literal["holds", "holds in part", "does not hold"]
Report = Callable[[str, int], None]
"""(stage, how far it has come): for whoever waits."""


def silent(stage: str, count: int) -> None:
    """Report to nobody."""


@dataclass(frozen=True)
class Series:
    """One line of a chart."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True)
class Chart:
    """Lines over common axes."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True)
class ClaimCheck:
    """One sentence that follows from the claim, with the numbers that were measured, and whether they bear it out."""

    statement: str
    passed: bool


@dataclass(frozen=True)
class Finding:
    """A claim and what was measured about it."""

    title: str
    claim: str
    """One sentence, as its friends would put it."""
    setting: Mapping[str, Cell]
    """Sizes under which it was measured."""
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    charts: tuple[Chart, ...]
    checks: tuple[ClaimCheck, ...]

    def __post_init__(self) -> None:
        assert self.checks and all(len(row) == len(self.columns) for row in self.rows)

    @property
    def outcome(self) -> Outcome:
        """What the checks say of the claim."""
        passed = sum(check.passed for check in self.checks)
        return "does not hold" if passed == 0 else "holds" if passed == len(self.checks) else "holds in part"

    def to_json(self) -> dict[str, Any]:
        """Return plain values; what is no number (a loss that ran away) becomes null."""
        plain = _finite(asdict(self))
        assert isinstance(plain, dict)
        return {**plain, "outcome": self.outcome}


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# A model that somebody else has, for a claim to be measured on.


class Given(NamedTuple):
    """A run or model folder, and what its model is asked."""

    folder: Path
    texts: Sequence[str] | None = None
    """None for those that the claim brings along."""
    target_language: str | None = None
    """Target language; a multilingual model needs it."""
    source_language: str | None = None
    """Language of the texts."""


# Training in a few lines, for claims that need a model of their own: fresh batches, no files, nothing to resume.

REPORT_EVERY = 50
"""Updates between two words to whoever waits."""


def fit(
    model: nn.Module,
    loss_of_batch: Callable[[torch.Generator], Tensor],
    updates: int,
    seed: int,
    report: Report,
    stage: str,
    rate: Schedule | None = None,
    betas: tuple[float, float] = (0.9, 0.98),
    clip: float | None = None,
) -> None:
    """Minimise the loss of batches that are drawn from one generator, and leave the model ready to be used.

    By default the rate rises to 0.003 in a hundred updates and falls in a line; `clip` is the longest gradient.
    """
    generator = torch_generator(seed)
    optimizer = torch.optim.Adam(model.parameters(), betas=betas)
    rate = rate or linear(0.003, min(100, updates), updates)
    model.train()
    for update in range(1, updates + 1):
        for group in optimizer.param_groups:
            group["lr"] = rate(update)
        optimizer.zero_grad()
        loss_of_batch(generator).backward()  # type: ignore[no-untyped-call]
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        if update % REPORT_EVERY == 0:
            report(stage, update)
    model.eval()
