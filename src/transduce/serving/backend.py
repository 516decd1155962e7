"""A model that answers jobs, as the HTTP front sees it."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from transduce.serving.job import Job, ModelInfo, Result

BackendState = Literal["loading", "ready", "restarting", "stopped"]


@dataclass(frozen=True)
class Statistics:
    """Counters of one engine since it was started, for `/metrics`."""

    queue_tokens: int = 0
    """Tokens that waiting requests have reserved."""
    waiting: int = 0
    """Requests that wait."""
    active: int = 0
    """Requests that are being decoded."""
    rows: int = 0
    """Rows of the last step."""
    steps: int = 0
    stepped_rows: int = 0
    """Sum of the rows of all steps."""
    step_seconds: float = 0.0
    encoded_tokens: int = 0
    written_tokens: int = 0
    restarts: int = 0
    """How often the engine's process was started again."""
    resident_bytes: int = 0
    extra: dict[str, float] = field(default_factory=dict)

    @classmethod
    def sum(cls, several: Sequence[Statistics]) -> Statistics:
        """The counters of several engines together."""
        names = [name for name in vars(cls()) if name != "extra"]
        extra = sum((Counter(one.extra) for one in several), Counter[str]())
        return cls(**{name: sum(getattr(one, name) for one in several) for name in names}, extra=dict(extra))


class Backend(Protocol):
    """One model."""

    @property
    def info(self) -> ModelInfo:
        """What it serves."""

    @property
    def state(self) -> BackendState:
        """Whether it takes jobs."""

    async def run(self, job: Job, client: str, timeout: float) -> Result:
        """Carry out a job; raises JobError. Cancelling the task cancels the job: its rows are free from the next step.

        `client` is whom the work is counted for (fairness): a key's or an address's name.
        """

    def stream(self, job: Job, client: str, timeout: float) -> AsyncIterator[str | Result]:
        """Carry out a job of one text and yield its text piece by piece, then the result; raises JobError.

        A piece is final: it will not change. Closing the iterator cancels the job.
        """

    def statistics(self) -> Statistics:
        """The newest counters."""
