"""Requests of OpenAI's API: their parameters, those that are not supported, and the search options that they mean."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from transduce.config import Config, Table
from transduce.serving.api.compatible import Unsupported, at_most
from transduce.serving.http import RequestError
from transduce.serving.limits import Limits

StopString = Annotated[str, StringConstraints(min_length=1)]
Label = Annotated[str, StringConstraints(max_length=512)]
Penalty = Annotated[float, Field(ge=-2.0, le=2.0)]

UNSUPPORTED: Unsupported = {"logit_bias": (None, {}), "metadata": (None, {})}
"""Parameters of completions and chats that are not supported, with the values that change nothing."""
UNSUPPORTED_COMPLETION: Unsupported = {**UNSUPPORTED, "logprobs": (None,), "suffix": (None, "")}
UNSUPPORTED_CHAT: Unsupported = {
    **UNSUPPORTED,
    "audio": (None,),
    "function_call": (None, "none"),
    "functions": (None, []),
    "logprobs": (None, False),
    "modalities": (None, ["text"]),
    "moderation": (None,),
    "parallel_tool_calls": (None,),
    "prediction": (None,),
    "prompt_cache_key": (None,),
    "prompt_cache_options": (None,),
    "prompt_cache_retention": (None,),
    "reasoning_effort": (None, "none"),
    "response_format": (None, {"type": "text"}),
    "service_tier": (None, "auto", "default"),
    "store": (None, False),
    "tool_choice": (None, "none", "auto"),
    "tools": (None, []),
    "top_logprobs": (None,),
    "verbosity": (None, "medium"),
    "web_search_options": (None,),
}


class StreamOptions(Config):
    """Options of a stream."""

    include_usage: bool | None = False
    """Whether the numbers of tokens come in a chunk before the end."""
    include_obfuscation: Literal[False] | None = None
    """Chunks are never padded with random characters."""


class GenerationRequest(Config):
    """What completions and chats have in common."""

    model: str
    """The name of a model; GET /v1/models lists them."""
    temperature: Annotated[float, Field(ge=0.0, le=2.0)] | None = None
    """Sampling temperature; 0 does not sample but searches the likeliest text. Default: the model's own search."""
    top_p: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    """Sample from the smallest set of likeliest tokens with this total probability."""
    n: Annotated[int, Field(ge=1)] | None = 1
    """How many texts to return for each prompt."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    """Makes samples repeatable."""
    stop: StopString | Annotated[list[StopString], Field(max_length=4)] | None = None
    """Texts before which the generated text ends, at most four."""
    presence_penalty: Penalty | None = 0.0
    """Subtracted from the logit of every token that was written before."""
    frequency_penalty: Penalty | None = 0.0
    """Subtracted from the logit of a token for each time it was written."""
    stream: bool | None = False
    """Whether to stream server-sent events."""
    stream_options: StreamOptions | None = None
    """Options of the stream."""
    user: Label | None = None
    """A label of the client's own; it changes nothing."""

    @property
    def stop_strings(self) -> list[str]:
        """The stop strings as a list."""
        return [self.stop] if isinstance(self.stop, str) else self.stop or []

    def check_stream(self, several: bool) -> None:
        """Check the options of a stream: it has one text."""
        if self.stream and several:
            raise RequestError(
                400, "a stream has one text; send one prompt with n = 1, or set stream to false", "stream"
            )
        if self.stream_options is not None and not self.stream:
            raise RequestError(400, "stream_options needs stream = true", "stream_options")


class CompletionRequest(GenerationRequest):
    """Prompts that a language model continues."""

    prompt: str | list[str]
    """A prompt, or a list of prompts."""
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """Maximum number of tokens to write. Default: the model's own."""
    best_of: Annotated[int, Field(ge=1)] | None = None
    """How many texts to sample for each prompt; the n with the highest log-probability per token are returned."""
    echo: bool | None = False
    """Whether a text begins with its prompt."""

    @property
    def prompts(self) -> list[str]:
        """The prompts as a list."""
        return [self.prompt] if isinstance(self.prompt, str) else self.prompt

    def search(self, limits: Limits) -> Table:
        """The search options that the parameters mean, where they differ from the model's."""
        drawn = max(self.best_of or 1, self.n or 1)
        if self.best_of is not None and self.best_of < (self.n or 1):
            raise RequestError(400, f"best_of = {self.best_of} is below n = {self.n}", "best_of")
        at_most(self.best_of, limits.max_n_best, "best_of")
        return _search(self, self.max_tokens, drawn, "greedy", limits)


class TextPart(Config):
    """A part of a message."""

    type: Literal["text"]
    """Pictures, sounds and files are not supported."""
    text: str
    """The text."""


class Message(Config):
    """One turn of a chat."""

    role: Literal["user", "assistant", "system", "developer", "tool", "function"]
    """Whose message; a model that does not follow instructions has no use for system messages and rejects them."""
    content: str | list[TextPart] | None = None
    """The text."""
    name: Label | None = None
    """A label of the client's own; it changes nothing."""
    refusal: None = None
    """Part of the responses that clients send back."""

    @property
    def text(self) -> str:
        """The text of all parts."""
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""


class ChatRequest(GenerationRequest):
    """A message that a translation model translates, or that a language model continues."""

    messages: Annotated[list[Message], Field(min_length=1)]
    """The last one is the text; it must be the user's."""
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """The older name of max_completion_tokens."""
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    """Maximum number of tokens to write; of a translation, for each sentence. Default: the model's own."""
    safety_identifier: Label | None = None
    """A label of the client's own; it changes nothing."""
    source_language: str | None = None
    """Not OpenAI's: the language of the text, for a translation model that needs it."""
    target_language: str | None = None
    """Not OpenAI's: the language to translate into, for a translation model with several."""

    def text(self, translation: bool) -> str:
        """The text to translate or to continue; raises RequestError for messages that would have no effect."""
        *earlier, last = self.messages
        if last.role != "user" or last.content is None:
            raise RequestError(400, "the last message must be the user's, with the text as its content", "messages")
        other = next((one.role for one in earlier if one.role not in ("user", "assistant")), None)
        if other is not None:
            raise RequestError(
                400, f"this model follows no instructions; leave out the message with the role '{other}'", "messages"
            )
        if earlier and not translation:
            raise RequestError(400, "this model has no chat template: send one message, which it continues", "messages")
        return last.text

    def search(self, translation: bool, limits: Limits) -> Table:
        """The search options that the parameters mean, where they differ from the model's."""
        given = {self.max_tokens, self.max_completion_tokens} - {None}
        if len(given) > 1:
            raise RequestError(400, "max_tokens is the older name of max_completion_tokens; give one", "max_tokens")
        most = self.max_completion_tokens or self.max_tokens
        return _search(self, most, self.n or 1, "beam" if translation else "greedy", limits)


class EmbeddingRequest(Config):
    """Texts to compute vectors of."""

    model: str
    """The name of a text encoder."""
    input: str | list[str]
    """A text, or a list of texts."""
    encoding_format: Literal["float", "base64"] | None = "float"
    """Lists of numbers, or base64 of little-endian float32."""
    dimensions: Annotated[int, Field(ge=1)] | None = None
    """Only the model's own dimension is supported."""
    user: Label | None = None
    """A label of the client's own; it changes nothing."""

    @property
    def texts(self) -> list[str]:
        """The texts as a list."""
        return [self.input] if isinstance(self.input, str) else self.input


def reject_tokens(table: Table, name: str) -> None:
    """Reject token ids in place of text with a message that says so."""
    value = table.get(name)
    if isinstance(value, list) and any(not isinstance(one, str) for one in value):
        raise RequestError(400, f"{name} must be a text or a list of texts; token ids are not supported", name)


def _search(
    asked: GenerationRequest,
    max_length: int | None,
    drawn: int,
    deterministic: Literal["greedy", "beam"],
    limits: Limits,
) -> Table:
    """`deterministic` is the method for temperature 0; beam search returns several texts, greedy search one."""
    at_most(asked.n, limits.max_n_best, "n")
    at_most(max_length, limits.max_length, "max_tokens")
    beam = deterministic == "beam"
    if asked.temperature == 0.0 or asked.top_p == 0.0:
        if drawn > 1 and not beam:
            raise RequestError(
                400, "without sampling all texts would be the same; set temperature above 0, or n = 1", "n"
            )
        options: Table = {"method": deterministic}
    else:
        sampling = {"temperature": asked.temperature, "top_p": None if asked.top_p == 1.0 else asked.top_p}
        if not beam or asked.temperature is not None:  # beam search is repeatable without a seed
            sampling["seed"] = asked.seed
        options = {name: value for name, value in sampling.items() if value is not None}
        if options or (drawn > 1 and not beam):
            options["method"] = "sample"
    if drawn > 1:
        options["n_best"] = drawn
    penalties = {"presence_penalty": asked.presence_penalty, "frequency_penalty": asked.frequency_penalty}
    options.update({name: value for name, value in penalties.items() if value})
    return options if max_length is None else {**options, "max_length": max_length}
