"""What a run reports while it trains; the loop returns values, a reporter prints them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

EXTRA = "extra_"
"""Prefix of the measures of `data.extra_validation`."""


@dataclass(frozen=True)
class Plan:
    """The run that is about to begin."""

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
    """Estimated peak memory of this process in bytes."""
    rows: str = "pairs"
    """What is counted: pairs, blocks or examples."""
    is_over: bool = False
    """Whether the run has made all its updates, or stopped early, before it was resumed."""


@dataclass(frozen=True)
class Step:
    """One update."""

    update: int
    epoch: int
    loss: float
    """Per token, with label smoothing, as minimised."""
    learning_rate: float
    gradient_norm: float
    tokens: int
    """Real target tokens of this update."""
    seconds: float


@dataclass(frozen=True)
class Sample:
    """One validation pair with the model's translation; for plain text, a prompt and its continuation."""

    source: str
    reference: str
    translation: str


@dataclass(frozen=True)
class Validation:
    """Scores on data that the model is not trained on."""

    update: int
    loss: float
    """Negative log-likelihood per token, without label smoothing."""
    perplexity: float
    accuracy: float
    """Fraction of target tokens that the model predicts, given the reference tokens before them."""
    scores: dict[str, float]
    """Scores of the predictions, by metric."""
    samples: tuple[Sample, ...]
    signatures: tuple[str, ...] = ()
    """How each score was computed."""
    best: bool = False
    bits_per_byte: float | None = None
    """For language models: bits per byte of text, if the model were used to compress it."""
    extra: Validation | None = None
    """The same on `data.extra_validation`."""

    def __str__(self) -> str:
        """Say what the model is worth, on one line."""
        from transduce.evaluation.metrics import show_score  # slow to import; `translate` imports us

        own = {"loss": f"{self.loss:.4f}", "perplexity": f"{self.perplexity:.2f}"}
        own["accuracy"] = f"{100 * self.accuracy:.1f} %"
        if self.bits_per_byte is not None:
            own["bits per byte"] = f"{self.bits_per_byte:.3f}"
        shown = own | {name: show_score(name, value) for name, value in self.scores.items()}
        line = f"validation {', '.join(f'{name} {value}' for name, value in shown.items())}"
        return line if self.extra is None else f"{line}; extra {self.extra}"

    def measures(self) -> dict[str, float]:
        """Return all single numbers by name, with those of the extra validation."""
        own = {"loss": self.loss, "accuracy": self.accuracy, **self.measured_scores}
        extra = {} if self.extra is None else self.extra.measures()
        return {**own, **{f"{EXTRA}{name}": value for name, value in extra.items()}}

    @property
    def measured_scores(self) -> dict[str, float]:
        """What the journal records besides loss, perplexity and accuracy."""
        return self.scores if self.bits_per_byte is None else {"bits_per_byte": self.bits_per_byte, **self.scores}


class Reporter(Protocol):
    """Follows a run."""

    def preparing(self, stage: str, count: int) -> None: ...
    def begin(self, plan: Plan) -> None: ...
    def step(self, step: Step) -> None: ...
    def validation(self, validation: Validation) -> None: ...
    def warn(self, message: str) -> None: ...
    def end(self, message: str) -> None: ...


class Callback:
    """Follows a run: subclass it and override what you need.

    Every method may raise `StopTraining`. Any other exception ends the run with that exception; it can be resumed from
    its last checkpoint. With several processes, only the first one calls callbacks.
    """

    def preparing(self, stage: str, count: int) -> None:
        """Called while the corpus is prepared: what is being done, and how many lines or pairs it has done."""

    def begin(self, plan: Plan) -> None:
        """Called before the first update: the sizes of the model and of the corpus, and the number of updates."""

    def step(self, step: Step) -> None:
        """Called after every update: its number, loss, learning rate, gradient norm, tokens and seconds."""

    def validation(self, validation: Validation) -> None:
        """Called after every validation: loss, perplexity, accuracy, scores by metric, and sample translations."""

    def warn(self, message: str) -> None:
        """Called with everything else that a user should know, such as what was chosen, and why."""

    def end(self, message: str) -> None:
        """Called when the model is saved; the message is the run folder."""


class Silent(Callback):
    """Ignores all reports."""
