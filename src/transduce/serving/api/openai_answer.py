"""Answers of OpenAI's API: completions and chats, whole or as a stream of chunks."""

from __future__ import annotations

import json
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from transduce.config import Table
from transduce.serving.http import RequestError, close
from transduce.serving.job import JobError, Result

_TYPES = {401: "invalid_request_error", 403: "permission_error", 404: "invalid_request_error", 429: "rate_limit_error"}
_CODES = {401: "invalid_api_key", 429: "rate_limit_exceeded"}


def error_body(status: int, message: str, parameter: str | None) -> Table:
    """OpenAI's form of an error."""
    kind = _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    code = "model_not_found" if status == 404 and parameter == "model" else _CODES.get(status)
    return {"error": {"message": message, "type": kind, "param": parameter, "code": code}}


def finish_reason(hypothesis: Table) -> str:
    """Whether a text ended by itself or at a stop string, or was cut at the maximum length."""
    return "stop" if hypothesis["ended"] else "length"


def usage(result: Result) -> Table:
    """The numbers of tokens read and written."""
    read = int(result["prompt_tokens"] if "prompt_tokens" in result else result["source_tokens"])
    written = int(result["written_tokens"] if "written_tokens" in result else result["target_tokens"])
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def hypotheses_of(result: Result) -> list[list[Table]]:
    """The texts of a result, best first, for each prompt or source."""
    found: list[list[Table]] = result["continuations"] if "continuations" in result else result["translations"]
    return found


class Answer(ABC):
    """One answer: its id and time, and the form of its choices."""

    object: str
    chunk_object: str
    id_prefix: str

    def __init__(self, model: str) -> None:
        self.id = f"{self.id_prefix}-{uuid.uuid4().hex}"
        self.created = int(time.time())
        self.model = model

    @abstractmethod
    def choice(self, index: int, text: str, finish: str) -> Table:
        """One text of a whole answer."""

    @abstractmethod
    def delta(self, text: str | None, finish: str | None) -> Table:
        """A piece of the text of a stream; None for the end."""

    def opening(self) -> list[Table]:
        """The choices of chunks before the first piece."""
        return []

    def whole(self, texts: Sequence[tuple[str, str]], result: Result) -> Table:
        """The answer with its texts and why each of them ended."""
        choices = [self.choice(index, text, finish) for index, (text, finish) in enumerate(texts)]
        return {**self._head(self.object), "choices": choices, "usage": usage(result)}

    async def events(
        self, pieces: AsyncGenerator[str | Result, None], include_usage: bool
    ) -> AsyncGenerator[str, None]:
        """The data of a stream's events. An error after the beginning is an event of its own, and the last."""
        empty = {"usage": None} if include_usage else {}
        try:
            for choice in self.opening():
                yield self._chunk([choice], empty)
            async for piece in pieces:
                if isinstance(piece, str):
                    yield self._chunk([self.delta(piece, None)], empty)
                    continue
                yield self._chunk([self.delta(None, finish_reason(hypotheses_of(piece)[0][0]))], empty)
                if include_usage:
                    yield self._chunk([], {"usage": usage(piece)})
            yield "[DONE]"
        except (JobError, RequestError) as error:
            yield _dump(error_body(error.status, str(error), None))
        except Exception:
            yield _dump(error_body(500, "internal error", None))
            raise  # for the server's log
        finally:
            await close(pieces)

    def _head(self, kind: str) -> Table:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    def _chunk(self, choices: list[Table], more: Table) -> str:
        return _dump({**self._head(self.chunk_object), "choices": choices, **more})


class Completion(Answer):
    """The continuation of a prompt."""

    object = chunk_object = "text_completion"
    id_prefix = "cmpl"

    def __init__(self, model: str, echo: str = "") -> None:
        """`echo` is the prompt, if a stream begins with it."""
        super().__init__(model)
        self._echo = echo

    def choice(self, index: int, text: str, finish: str | None) -> Table:
        return {"index": index, "text": text, "logprobs": None, "finish_reason": finish}

    def delta(self, text: str | None, finish: str | None) -> Table:
        return self.choice(0, text or "", finish)

    def opening(self) -> list[Table]:
        return [self.delta(self._echo, None)] if self._echo else []


class Chat(Answer):
    """The assistant's message."""

    object = "chat.completion"
    chunk_object = "chat.completion.chunk"
    id_prefix = "chatcmpl"

    def choice(self, index: int, text: str, finish: str) -> Table:
        message = {"role": "assistant", "content": text, "refusal": None}
        return {"index": index, "message": message, "logprobs": None, "finish_reason": finish}

    def delta(self, text: str | None, finish: str | None) -> Table:
        return self._delta({} if text is None else {"content": text}, finish)

    def opening(self) -> list[Table]:
        return [self._delta({"role": "assistant", "content": ""}, None)]

    def _delta(self, delta: dict[str, Any], finish: str | None) -> Table:
        return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}


def _dump(value: Table) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
