"""Requests of the studio. Layers and heads count from 1, positions, words and tokens from 0.

The classes of views are checked twice: by the server before a job is made, and by the engine that reads the job.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from transduce.config import Config, Table
from transduce.serving.api.requests import Name
from transduce.serving.api.search_parameters import SearchParameters
from transduce.serving.job import RecordJob

Index = Annotated[int, Field(ge=0, le=1_000_000)]
Number = Annotated[int, Field(ge=1, le=1000)]
"""Of a layer or a head."""
Token = Annotated[int, Field(ge=0, le=10_000_000)]
Word = Annotated[str, Field(min_length=1, max_length=200)]
Kind = Literal["encoder", "decoder", "cross", "causal"]
Stack = Literal["encoder", "decoder"]

MAX_TOKENS = 1024
"""Tokens of a recorded pass on each side: attention is quadratic in them."""
MAX_PARTS = 1024
"""Heads, layers, words or tokens that are changed at a time."""


class RecordRequest(Config):
    """A text for a model, and how it is translated, continued or encoded."""

    model: Index
    """Index of the model in the list of models."""
    text: Annotated[str, Field(min_length=1)]
    """The source text, or the prompt."""
    second: Annotated[str, Field(min_length=1)] | None = None
    """The second text of a pair, for a text encoder."""
    search: SearchParameters | None = None
    """Search options that differ from the model's own."""
    forbid: Annotated[list[Word], Field(max_length=256)] = Field(default_factory=list)
    """Words that are never generated."""
    terms: dict[str, str] = Field(default_factory=dict)
    """Glossary: words of the source and how they are translated; needs beam search."""
    force: Annotated[list[Word], Field(max_length=64)] = Field(default_factory=list)
    """Words that the translation has; needs beam search."""
    prefix: Annotated[str, Field(min_length=1)] | None = None
    """What the translation begins with."""
    source_language: Name | None = None
    target_language: Name | None = None


class StudioTranslateRequest(RecordRequest):
    """A text of one or several sentences, to be translated as one watches."""

    split: bool = True
    """Whether a text of several sentences is translated sentence by sentence."""


class PassRequest(RecordRequest):
    """A text for one pass."""

    prefix_tokens: Annotated[list[Token], Field(max_length=MAX_TOKENS)] = Field(default_factory=list)
    """Tokens that the output begins with, exactly."""
    checkpoint: Index | None = None
    """Index of a checkpoint of the model's run, whose weights are used."""


class AttentionRequest(Config):
    """One layer of attention maps."""

    kind: Kind
    layer: Number


class NeuronRequest(Config):
    """One query of one head."""

    kind: Kind
    layer: Number
    head: Number
    row: Annotated[int, Field(ge=-1, lt=MAX_TOKENS)] = -1
    """Row of the attention map; -1 is the last."""


class LensRequest(Config):
    """The logit lens."""

    top: Annotated[int, Field(ge=1, le=20)] = 5
    """Likeliest tokens of each layer and step."""


class AttributionRequest(Config):
    """What one prediction depends on."""

    position: Annotated[int, Field(ge=-1, lt=MAX_TOKENS)] = -1
    """Row of the decoder's attention map; -1 is the last."""
    instead_of: Token | Word | None = None
    """Another token, by number or text: why was it not chosen?"""
    token: Token | None = None
    """A token to explain other than the one that was produced."""
    method: Literal["gradient_x_input", "value_zeroing"] = "gradient_x_input"


class BeamTreeRequest(Config):
    """A beam search, step by step; what is not given is as in the pass."""

    beam_size: Annotated[int, Field(ge=1, le=16)] | None = None
    length_penalty: Annotated[float, Field(ge=0.0, le=10.0)] | None = None
    prefix_tokens: Annotated[list[Token], Field(max_length=MAX_TOKENS)] | None = None
    """Tokens that every hypothesis begins with."""

    def changes(self, recorded: RecordJob) -> Table:
        """What differs from how the pass was recorded."""
        given = {"beam_size": self.beam_size, "length_penalty": self.length_penalty}
        search = {**recorded.search, **{name: value for name, value in given.items() if value is not None}}
        if self.prefix_tokens is None:
            return {"search": search}
        return {"search": search, "prefix": None, "prefix_tokens": self.prefix_tokens}


class ContinueRequest(Config):
    """Tokens to begin with."""

    tokens: Annotated[list[Token], Field(max_length=MAX_TOKENS)]
    n_best: Annotated[int, Field(ge=1, le=16)] = 1


HeadPlace = Annotated[tuple[Kind, Number, Number], Field(strict=False)]
AttentionPlace = Annotated[tuple[Kind, Number], Field(strict=False)]
StackPlace = Annotated[tuple[Stack, Number], Field(strict=False)]
"""Tuples may come as lists, as JSON has them; what is inside is strict."""
Places = Annotated[list[Index], Field(max_length=MAX_PARTS)]


class InterventionRequest(Config):
    """Parts of the model to switch off, and source tokens or words to mask."""

    heads: Annotated[list[HeadPlace], Field(max_length=MAX_PARTS)] = Field(default_factory=list)
    """(kind, layer, head) each."""
    attention: Annotated[list[AttentionPlace], Field(max_length=MAX_PARTS)] = Field(default_factory=list)
    """(kind, layer) each."""
    feed_forward: Annotated[list[StackPlace], Field(max_length=MAX_PARTS)] = Field(default_factory=list)
    """(stack, layer) each."""
    words: Places = Field(default_factory=list)
    tokens: Places = Field(default_factory=list)

    def parts(self) -> dict[str, Any]:
        """The arguments of `ablate`."""
        return {name: getattr(self, name) for name in type(self).model_fields}


class PatchRequest(Config):
    """Another text, and where its activations are put."""

    other: Annotated[str, Field(min_length=1, max_length=10_000)]
    where: Literal["memory"] | StackPlace | HeadPlace = "memory"
    """The encoder's output; (stack, layer) for the residual after a layer; (kind, layer, head) for a head."""
    words: Places | None = None
    tokens: Places | None = None
    steps: Places | None = None


class EmbeddingsRequest(Config):
    """Token embeddings and position encodings; there is nothing to choose."""


class HeadSummaryTexts(Config):
    """A sample of texts."""

    texts: Annotated[list[Annotated[str, Field(min_length=1, max_length=10_000)]], Field(min_length=1, max_length=64)]


class HeadSummaryRequest(Config):
    """A model, and a sample of texts on which its heads are measured."""

    model: Index
    texts: list[Annotated[str, Field(min_length=1, max_length=10_000)]] | None = None
    """At most 64; default: examples of the model."""


class RunRequest(Config):
    """Query of a run."""

    since: Annotated[str, Field(max_length=100)] | None = None
    """The `version` of an earlier response; unless the run has logged something since, only the version is returned."""
