"""The form of OpenAI's answers, for the OpenAPI document; openai_answer.py makes them."""

from __future__ import annotations

from typing import Literal

from transduce.config import Config

Finish = Literal["stop", "length"]


class TokenUsage(Config):
    """Tokens that a request took."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class CompletionChoice(Config):
    """One continuation."""

    index: int
    text: str
    logprobs: None
    finish_reason: Finish
    """stop: it ended by itself or at a stop string; length: the maximum length cut it off."""


class CompletionResponse(Config):
    """Continuations of prompts: n of the first, n of the second, …"""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: TokenUsage


class AssistantMessage(Config):
    """What the model wrote."""

    role: Literal["assistant"]
    content: str
    refusal: None


class ChatChoice(Config):
    """One translation or continuation."""

    index: int
    message: AssistantMessage
    logprobs: None
    finish_reason: Finish
    """stop: it ended by itself or at a stop string; length: the maximum length cut it off."""


class ChatResponse(Config):
    """Translations or continuations of a message."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: TokenUsage


class Embedding(Config):
    """The vector of a text."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str
    """Numbers, or base64 of little-endian float32."""


class EmbeddingUsage(Config):
    """Tokens that a request took."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingResponse(Config):
    """Vectors of length one, one for each text."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage


class ModelDescription(Config):
    """A model of the server."""

    id: str
    """The name by which requests choose it."""
    object: Literal["model"]
    created: int
    """When the server was started."""
    owned_by: str


class ModelList(Config):
    """The models of the server."""

    object: Literal["list"]
    data: list[ModelDescription]
