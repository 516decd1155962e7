"""Requests of transduce's own API and the checks that need the server's limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field

from transduce.config import Config, Table
from transduce.serving.api.search_parameters import SearchParameters
from transduce.serving.http import RequestError, check_texts
from transduce.serving.limits import Limits

Name = Annotated[str, Field(min_length=1, max_length=200)]
Pair = Annotated[list[str], Field(min_length=2, max_length=2)]


class TranslateRequest(SearchParameters):
    """Texts to translate, and how."""

    text: str | list[str]
    """One text or several."""
    model: Name | None = None
    """Name of a model of `/v1/models`; default: the first that translates between the languages."""
    source_language: Name | None = None
    """Language of the texts, for models that know their languages."""
    target_language: Name | None = None
    """Language to translate into."""
    prefix: Annotated[str, Field(min_length=1)] | None = None
    """What every translation begins with."""
    glossary: dict[str, str] = Field(default_factory=dict)
    """Words of the source and how they are translated; needs beam search."""
    forbid: list[str] = Field(default_factory=list)
    """Words that are never generated."""
    placeholders: bool = False
    """Whether {names}, %s, <tags> and URLs are copied unchanged."""
    stop: list[str] = Field(default_factory=list)
    """Translations end before any of these texts."""
    split: bool = True
    """Whether a text of several sentences is translated sentence by sentence."""
    alignment: bool = False
    """Whether translations come with their word alignment."""
    stream: bool = False
    """Whether to stream server-sent events while the translation is written; for one text."""


class GenerateRequest(SearchParameters):
    """Prompts for a language model to continue, and how."""

    prompt: str | list[str]
    """One prompt or several."""
    model: Name | None = None
    forbid: list[str] = Field(default_factory=list)
    """Words that are never generated."""
    stop: list[str] = Field(default_factory=list)
    """Continuations end before any of these texts."""
    stream: bool = False
    """Whether to stream server-sent events while the text is written; for one prompt."""


class PredictRequest(Config):
    """Texts for the head of a text encoder."""

    text: str | list[str | Pair]
    """One text or several; each a string or a pair of strings."""
    model: Name | None = None


class EmbedRequest(Config):
    """Texts to compute vectors of."""

    text: str | list[str | Pair]
    """One text or several; each a string or a pair of strings."""
    model: Name | None = None
    pool: Literal["mean", "first", "pooled"] = "mean"
    """What the vector is: the mean of the token vectors, the first one, or the encoder's pooled output."""
    normalize: bool = False
    """Whether vectors are scaled to length 1."""
    encoding: Literal["float", "base64"] = "float"
    """Numbers, or base64 of little-endian 32-bit floats."""


def without_null(table: Table) -> Table:
    """Leave out parameters that are null: many clients write null for what is not given."""
    return {name: value for name, value in table.items() if value is not None}


def as_texts(text: str | Sequence[str], limits: Limits, parameter: str) -> list[str]:
    """Return a text or texts as a list within the limits."""
    texts = [text] if isinstance(text, str) else list(text)
    check_texts(texts, limits, parameter)
    return texts


def as_inputs(text: str | Sequence[str | list[str]], limits: Limits) -> list[str | list[str]]:
    """Return texts and pairs of texts as a list within the limits."""
    inputs: list[str | list[str]] = [text] if isinstance(text, str) else list(text)
    if len(inputs) > limits.max_texts:
        raise RequestError(422, f"text has {len(inputs):,} texts; at most {limits.max_texts:,} are allowed", "text")
    joined = ["".join(one) for one in inputs]
    check_texts(joined, limits, "text")
    return inputs


def check_words(parameter: str, words: Sequence[str] | Mapping[str, str], limits: Limits) -> None:
    """Check a glossary or a list of words: their number, that none is empty, their characters."""
    if len(words) > limits.max_terms:
        raise RequestError(
            422, f"{parameter} has {len(words):,} entries; at most {limits.max_terms:,} are allowed", parameter
        )
    each = [*words, *words.values()] if isinstance(words, Mapping) else list(words)
    if not all(word.strip() if parameter != "stop" else word for word in each):
        raise RequestError(422, f"{parameter} has an empty entry; leave it out", parameter)
    if sum(map(len, each)) > limits.max_characters:
        raise RequestError(413, f"{parameter} has more than {limits.max_characters:,} characters", parameter)
