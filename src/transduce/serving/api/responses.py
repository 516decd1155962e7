"""Answers of transduce's own API; job.py has the results that they are made of."""

from __future__ import annotations

import base64
import struct
from typing import Any

from transduce.config import Config, Table
from transduce.serving.job import Result


class Usage(Config):
    """Tokens that a request took."""

    input_tokens: int
    output_tokens: int


class Translation(Config):
    """One translation."""

    text: str
    score: float
    """Log-probability divided by the length penalty."""
    ended: bool
    """False if the maximum length cut it off."""
    missing_terms: list[str]
    """Terms of the glossary that it lacks all the same."""
    alignment: list[list[int]] | None = None
    """Pairs of a word of the source and a word of the translation, where requested."""
    alternatives: list[Translation] | None = None
    """The next best translations, where n_best is above 1."""


class TranslateResponse(Config):
    """Translations, one for each text."""

    model: str
    translations: list[Translation]
    usage: Usage


class Continuation(Config):
    """How a language model continues a prompt."""

    text: str
    score: float
    log_probability: float
    tokens: int
    ended: bool
    alternatives: list[Continuation] | None = None


class GenerateResponse(Config):
    """Continuations, one for each prompt."""

    model: str
    continuations: list[Continuation]
    usage: Usage


class PredictResponse(Config):
    """Predictions of a text encoder's head, one for each text; their form depends on the head."""

    model: str
    predictions: list[Any]
    usage: Usage


class EmbedResponse(Config):
    """Vectors, one for each text."""

    model: str
    embeddings: list[list[float]] | list[str]
    """Numbers, or base64 of little-endian 32-bit floats."""
    dimensions: int
    usage: Usage


def translate_response(model: str, result: Result, n_best: int, align: bool) -> Table:
    """The answer of a translation."""
    translations = [_with_alternatives([_translation(one, align) for one in ranked], n_best)
                    for ranked in result["translations"]]  # fmt: skip
    return {
        "model": model,
        "translations": translations,
        "usage": _usage(result["source_tokens"], result["target_tokens"]),
    }


def generate_response(model: str, result: Result, n_best: int) -> Table:
    """The answer of a language model."""
    names = ("text", "score", "log_probability", "tokens", "ended")
    continuations = [[{name: one[name] for name in names} for one in ranked] for ranked in result["continuations"]]
    return {
        "model": model,
        "continuations": [_with_alternatives(ranked, n_best) for ranked in continuations],
        "usage": _usage(result["prompt_tokens"], result["written_tokens"]),
    }


def predict_response(model: str, result: Result) -> Table:
    """The answer of a text encoder's head."""
    return {"model": model, "predictions": result["predictions"], "usage": _usage(result["tokens"], 0)}


def embed_response(model: str, result: Result, encoding: str) -> Table:
    """Vectors as numbers or as they are sent by the engine, in base64."""
    vectors = result["vectors"]
    return {
        "model": model,
        "embeddings": vectors if encoding == "base64" else [_numbers(vector) for vector in vectors],
        "dimensions": result["dimensions"],
        "usage": _usage(result["tokens"], 0),
    }


def _translation(one: Table, align: bool) -> Table:
    given = {"text": one["text"], "score": one["score"], "ended": one["ended"], "missing_terms": one["missing"]}
    return {**given, "alignment": one["links"]} if align else given


def _with_alternatives(ranked: list[Table], n_best: int) -> Table:
    best, *others = ranked
    return {**best, "alternatives": others} if n_best > 1 else best


def _usage(read: int, written: int) -> Table:
    return {"input_tokens": read, "output_tokens": written}


def _numbers(vector: str) -> list[float]:
    data = base64.b64decode(vector)
    return list(struct.unpack(f"<{len(data) // 4}f", data))
