"""What a run tells while it goes on; the loop returns values, whoever listens prints them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

WATCHED = "watched_"
"""Before the name of a measure of pairs that are watched."""


@dataclass(frozen=True)
class Plan:
    """What is about to happen."""

    parameters: int
    train_pairs: int
    validation_pairs: int
    updates: int
    first_update: int
    updates_per_epoch: float
    threads: int
    ranks: int
    device: str
    memory: int
    """Bytes that this process will hold at its peak, about."""
    rows: str = "pairs"
    """What is counted: pairs, or blocks of plain text."""


@dataclass(frozen=True)
class Step:
    """One update."""

    update: int
    epoch: int
    loss: float
    """Per token, smoothed, as minimised."""
    learning_rate: float
    gradient_norm: float
    tokens: int
    """Real target tokens of this update."""
    seconds: float


@dataclass(frozen=True)
class Sample:
    """One validation pair as the model translates it now; of plain text, a beginning and how it goes on."""

    source: str
    reference: str
    translation: str


@dataclass(frozen=True)
class Validation:
    """How good the model is on pairs it does not learn from."""

    update: int
    loss: float
    """Negative log-likelihood per token, not smoothed."""
    perplexity: float
    accuracy: float
    """Share of tokens the model would have said itself, given the true ones before."""
    scores: dict[str, float]
    """Of the translations, by metric."""
    samples: tuple[Sample, ...]
    signatures: tuple[str, ...] = ()
    """How each score was computed."""
    best: bool = False
    bits_per_byte: float | None = None
    """Of a language model: how many bits the text would take if it were packed by it, for each byte that it has."""
    watched: Validation | None = None
    """The same of the pairs that are watched, of what the model could do before."""

    def measures(self) -> dict[str, float]:
        """Everything that is one number, by name; what is watched beside it."""
        own = {"loss": self.loss, "accuracy": self.accuracy, **self.measured_scores}
        watched = {} if self.watched is None else self.watched.measures()
        return {**own, **{f"{WATCHED}{name}": value for name, value in watched.items()}}

    @property
    def measured_scores(self) -> dict[str, float]:
        """What the journal says besides loss, perplexity and accuracy."""
        return self.scores if self.bits_per_byte is None else {"bits_per_byte": self.bits_per_byte, **self.scores}


class Reporter(Protocol):
    """Whoever wants to follow a run."""

    def begin(self, plan: Plan) -> None: ...
    def step(self, step: Step) -> None: ...
    def validation(self, validation: Validation) -> None: ...
    def warn(self, message: str) -> None: ...
    def end(self, message: str) -> None: ...


class Silent:
    """Listens to nothing."""

    def begin(self, plan: Plan) -> None: ...
    def step(self, step: Step) -> None: ...
    def validation(self, validation: Validation) -> None: ...
    def warn(self, message: str) -> None: ...
    def end(self, message: str) -> None: ...
