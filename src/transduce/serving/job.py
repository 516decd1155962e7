"""What a client asks of a model, and what it gets: plain values that travel to the engine's process as JSON.

An API turns an HTTP request into a job, the engine's process carries it out. Nothing here imports torch.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, TypeAdapter

from transduce.config import Config, Table
from transduce.errors import TransduceError

Task = Literal["translation", "language_modeling", "text_encoding"]


class TranslateJob(Config):
    """Translate texts."""

    kind: Literal["translate"] = "translate"
    texts: list[str]
    source_language: str | None = None
    target_language: str | None = None
    search: Table = Field(default_factory=dict)
    """Search options that differ from the model's own: beam_size, n_best, length_penalty, method, …"""
    prefix: str | None = None
    """What every translation begins with."""
    forbid: list[str] = Field(default_factory=list)
    """Words that are never generated."""
    terms: dict[str, str] = Field(default_factory=dict)
    """Glossary: words of the source and how they are translated."""
    placeholders: bool = False
    """Whether {names}, %s, <tags> and URLs are copied unchanged."""
    stop: list[str] = Field(default_factory=list)
    """Translations end before any of these texts."""
    split: bool = True
    """Whether a text of several sentences is translated sentence by sentence."""
    align: bool = False
    """Whether translations come with their word alignment."""


class GenerateJob(Config):
    """Continue prompts with a language model."""

    kind: Literal["generate"] = "generate"
    prompts: list[str]
    search: Table = Field(default_factory=dict)
    forbid: list[str] = Field(default_factory=list)
    stop: list[str] = Field(default_factory=list)


class PredictJob(Config):
    """Predict with the head of a text encoder: a label, a tag per word, an answer, or masked words."""

    kind: Literal["predict"] = "predict"
    texts: list[str | list[str]]
    """Texts, or pairs of texts."""


class EmbedJob(Config):
    """Compute a vector for each text."""

    kind: Literal["embed"] = "embed"
    texts: list[str | list[str]]
    pool: Literal["mean", "first", "pooled"] = "mean"
    normalize: bool = False


View = Literal[
    "attention",
    "neuron",
    "lens",
    "attribution",
    "beam-tree",
    "continue",
    "intervention",
    "patch",
    "embeddings",
    "head-summary",
]
"""What the studio shows of a recorded pass; of the head summary, of a model."""


class RecordJob(Config):
    """Translate a text, continue a prompt or encode a text, and record the pass for the studio."""

    kind: Literal["record"] = "record"
    text: str
    second: str | None = None
    """The second text of a pair, for a text encoder."""
    source_language: str | None = None
    target_language: str | None = None
    search: Table = Field(default_factory=dict)
    """Search options that differ from the model's own."""
    prefix: str | None = None
    """What the translation begins with."""
    prefix_tokens: list[int] = Field(default_factory=list)
    """Tokens that the output begins with, exactly."""
    forbid: list[str] = Field(default_factory=list)
    terms: dict[str, str] = Field(default_factory=dict)
    require: list[str] = Field(default_factory=list)
    """Words that the translation has."""
    split: bool = False
    """Whether a text of several sentences becomes several passes; a stream only."""
    checkpoint: int | None = None
    """Update of the checkpoint whose weights are used; None for the model."""


class InspectJob(Config):
    """Compute a view of a recorded pass. Nothing is kept between two jobs: the pass is replayed or searched again."""

    kind: Literal["inspect"] = "inspect"
    view: View
    recorded: RecordJob
    """How the pass was recorded."""
    source_tokens: list[int] = Field(default_factory=list)
    """What the encoder read."""
    target_tokens: list[int] = Field(default_factory=list)
    """The first token that the decoder read, and all that were produced; of a language model, all that it read."""
    parameters: Table = Field(default_factory=dict)
    """Of the view; `serving.studio.requests` has a class for each."""


Job = TranslateJob | GenerateJob | PredictJob | EmbedJob | RecordJob | InspectJob
JOB: TypeAdapter[Job] = TypeAdapter(Annotated[Job, Field(discriminator="kind")])
"""Reads a job from plain values."""

JOBS_OF_TASK: dict[Task, tuple[str, ...]] = {
    "translation": ("translate", "record", "inspect"),
    "language_modeling": ("generate", "record", "inspect"),
    "text_encoding": ("predict", "embed", "record", "inspect"),
}
"""The kinds of job that a model of each task can do."""


# Results are JSON objects, one form for each kind of job:
#
#   translate  {"translations": [[{"text", "score", "ended", "missing", "links"}, … n_best], … texts],
#               "source_tokens", "target_tokens"}
#   generate   {"continuations": [[{"text", "score", "log_probability", "tokens", "ended"}, … n_best], … prompts],
#               "prompt_tokens", "written_tokens"}
#   predict    {"predictions": [… one per text, as `transduce predict --format json` prints it], "tokens"}
#   embed      {"vectors": [base64 of little-endian float32, … one per text], "dimensions", "tokens"}
#   record     {"pass": {… as the studio shows it}, "source_tokens", "target_tokens"}; in a stream, each piece is an
#              event of the studio as JSON, and the result is {"text", "source_tokens", "target_tokens"}
#   inspect    {"value": {… `to_json` of what the view shows}}; for "attention" {"shape", "shares16": base64}
Result = Table


@dataclass(frozen=True)
class ModelInfo:
    """What a server knows of a model without loading it itself."""

    name: str
    """The name by which requests choose it: that of its folder, or the run's."""
    task: Task
    engine: str
    """torch or ctranslate2."""
    precision: str
    """float32 or int8."""
    parameters: int
    source_languages: tuple[str, ...] = ()
    """Empty where the model's languages are not known."""
    target_languages: tuple[str, ...] = ()
    default_source: str | None = None
    default_target: str | None = None
    head: str | None = None
    """Of a text encoder: labels, tags, span, language or none."""
    architecture: str = ""
    """transformer, rnn, …"""
    max_source: int | None = None
    """Maximum source length in tokens, if the model has one."""
    max_target: int | None = None
    memory_bytes: int = 0
    """Bound of what the engine's process needs: weights, packed weights and the caches of all admitted requests."""
    inspection: Table = field(default_factory=dict)
    """What the studio can show of it: kinds of attention, feed-forward networks, views, search options, settings."""

    def to_json(self) -> Table:
        return asdict(self)

    @classmethod
    def from_json(cls, table: Table) -> ModelInfo:
        """Read what `to_json` gave; JSON has no tuples."""
        languages = {name: tuple(table[name]) for name in ("source_languages", "target_languages")}
        return cls(**{**table, **languages})


Reason = Literal["invalid", "busy", "deadline", "unavailable", "failed"]


class JobError(TransduceError):
    """A job that was not carried out. The message may be shown to the client.

    invalid: the job cannot be done by this model (HTTP 422). busy: the queue is full (429). deadline: it took too long
    (504). unavailable: the engine is starting or stopping (503). failed: an error of the server (500).
    """

    STATUS: ClassVar[dict[Reason, int]] = {
        "invalid": 422,
        "busy": 429,
        "deadline": 504,
        "unavailable": 503,
        "failed": 500,
    }

    def __init__(self, reason: Reason, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.reason: Reason = reason
        self.retry_after = retry_after
        """Seconds after which to try again, where that makes sense."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.STATUS[self.reason]

    def to_json(self) -> Table:
        return {"reason": self.reason, "message": str(self), "retry_after": self.retry_after}

    @classmethod
    def from_json(cls, table: dict[str, Any]) -> JobError:
        return cls(table["reason"], table["message"], table["retry_after"])
