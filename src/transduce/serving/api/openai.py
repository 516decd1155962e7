"""OpenAI's API: /v1/models, /v1/completions, /v1/chat/completions, /v1/embeddings.

Language models complete, text encoders embed, and translation models translate the last message of a chat. Errors of a
request have the status 400, as OpenAI's: its clients raise BadRequestError.
"""

from __future__ import annotations

import base64
import sys
import time
from array import array

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from transduce.config import Table
from transduce.serving.api.compatible import bad_request, supported
from transduce.serving.api.openai_answer import Answer, Chat, Completion, error_body, finish_reason, hypotheses_of
from transduce.serving.api.openai_request import (
    UNSUPPORTED_CHAT,
    UNSUPPORTED_COMPLETION,
    ChatRequest,
    CompletionRequest,
    EmbeddingRequest,
    GenerationRequest,
    reject_tokens,
)
from transduce.serving.api.openai_response import (
    ChatResponse,
    CompletionResponse,
    EmbeddingResponse,
    ModelDescription,
    ModelList,
)
from transduce.serving.backend import Backend
from transduce.serving.body import read_json
from transduce.serving.http import (
    Api,
    Operation,
    RequestError,
    check_texts,
    parse,
    run_job,
    sse,
    stream_job,
)
from transduce.serving.job import EmbedJob, GenerateJob, Task, TranslateJob
from transduce.serving.language import matching
from transduce.serving.large_work import json_response
from transduce.serving.service import Service


class _Endpoints:
    def __init__(self, service: Service) -> None:
        self.service = service
        self.limits = service.limits
        self.started = int(time.time())

    async def models(self, request: Request) -> Response:
        """List the models."""
        return JSONResponse({"object": "list", "data": [self._model(name) for name in self.service.backends]})

    async def model(self, request: Request) -> Response:
        """Describe a model."""
        return JSONResponse(self._model(self._find(request.path_params["model"]).info.name))

    async def completions(self, request: Request) -> Response:
        """Continue prompts with a language model."""
        table = supported(await read_json(request, self.limits), UNSUPPORTED_COMPLETION)
        reject_tokens(table, "prompt")
        asked = parse(CompletionRequest, table, self.limits)
        check_texts(asked.prompts, self.limits, "prompt")
        asked.check_stream(len(asked.prompts) > 1 or max(asked.n or 1, asked.best_of or 1) > 1)
        backend = self._find(asked.model, "language_modeling")
        job = GenerateJob(prompts=asked.prompts, search=asked.search(self.limits), stop=asked.stop_strings)
        echoed = asked.prompts if asked.echo else [""] * len(asked.prompts)
        answer = Completion(asked.model, echoed[0])
        if asked.stream:
            return await self._stream(request, backend, job, answer, asked)
        result = await run_job(request, self.service, backend, job)
        texts = [
            (prompt + one["text"], finish_reason(one))
            for prompt, several in zip(echoed, hypotheses_of(result), strict=True)
            for one in _best(several, asked.n or 1, asked.best_of)
        ]
        return await json_response(request, answer.whole(texts, result))

    async def chat(self, request: Request) -> Response:
        """Translate a message with a translation model, or continue it with a language model."""
        table = supported(await read_json(request, self.limits), UNSUPPORTED_CHAT)
        asked = parse(ChatRequest, table, self.limits)
        asked.check_stream((asked.n or 1) > 1)
        backend = self._find(asked.model, "translation", "language_modeling")
        translation = backend.info.task == "translation"
        text, search = asked.text(translation), asked.search(translation, self.limits)
        check_texts([text], self.limits, "messages")
        source, target = _languages(backend, asked)
        job = (
            TranslateJob(
                texts=[text], source_language=source, target_language=target, search=search, stop=asked.stop_strings
            )
            if translation
            else GenerateJob(prompts=[text], search=search, stop=asked.stop_strings)
        )
        answer = Chat(asked.model)
        if asked.stream:
            return await self._stream(request, backend, job, answer, asked)
        result = await run_job(request, self.service, backend, job)
        texts = [(str(one["text"]), finish_reason(one)) for one in hypotheses_of(result)[0][: asked.n or 1]]
        return await json_response(request, answer.whole(texts, result))

    async def embeddings(self, request: Request) -> Response:
        """Compute a vector of length one for each text."""
        table = await read_json(request, self.limits)
        reject_tokens(table, "input")
        asked = parse(EmbeddingRequest, table, self.limits)
        check_texts(asked.texts, self.limits, "input")
        backend = self._find(asked.model, "text_encoding")
        result = await run_job(request, self.service, backend, EmbedJob(texts=list(asked.texts), normalize=True))
        if asked.dimensions not in (None, result["dimensions"]):
            raise RequestError(400, f"dimensions must be the model's own, {result['dimensions']}", "dimensions")
        encoded: list[str] = result["vectors"]
        vectors = encoded if asked.encoding_format == "base64" else [_floats(vector) for vector in encoded]
        data = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in enumerate(vectors)]
        used = {"prompt_tokens": result["tokens"], "total_tokens": result["tokens"]}
        return await json_response(request, {"object": "list", "data": data, "model": asked.model, "usage": used})

    async def _stream(
        self,
        request: Request,
        backend: Backend,
        job: TranslateJob | GenerateJob,
        answer: Answer,
        asked: GenerationRequest,
    ) -> Response:
        options = asked.stream_options
        pieces = await stream_job(request, self.service, backend, job)
        return sse(answer.events(pieces, bool(options and options.include_usage)))

    def _find(self, name: str, *tasks: Task) -> Backend:
        """Return a model of one of these tasks, of any task if there are none; raises RequestError (404 or 400)."""
        backend = self.service.backends.get(name)
        if backend is None:
            raise RequestError(404, f"there is no model '{name[:80]}'; GET /v1/models lists the models", "model")
        if tasks and backend.info.task not in tasks:
            task = backend.info.task.replace("_", " ")
            raise RequestError(400, f"the model '{name}' is for {task}; use its own route, see /docs", "model")
        return backend

    def _model(self, name: str) -> Table:
        return {"id": name, "object": "model", "created": self.started, "owned_by": "transduce"}


def _languages(backend: Backend, asked: ChatRequest) -> tuple[str | None, str | None]:
    """The languages of a chat as the model spells them; raises RequestError for those that it does not have."""
    info = backend.info
    found: list[str | None] = []
    for wanted, parameter, known, default in (
        (asked.source_language, "source_language", info.source_languages, info.default_source),
        (asked.target_language, "target_language", info.target_languages, info.default_target),
    ):
        codes = matching(wanted, known) if wanted is not None else []
        if wanted is not None and len(codes) != 1:
            choices = ", ".join(codes or known) or "nothing: the model does not state its languages"
            raise RequestError(
                400, f"{parameter} '{wanted[:40]}' is not a language of '{info.name}'; choose from {choices}", parameter
            )
        found.append(None if not codes or codes[0] == default else codes[0])
    return found[0], found[1]


def _best(hypotheses: list[Table], n: int, best_of: int | None) -> list[Table]:
    """The n texts with the highest log-probability per token, if more were sampled than are returned."""
    if best_of is None:
        return hypotheses[:n]
    return sorted(hypotheses, key=lambda one: -float(one["log_probability"]) / max(1, int(one["tokens"])))[:n]


def _floats(encoded: str) -> list[float]:
    """Read base64 of little-endian float32."""
    values = array("f", base64.b64decode(encoded))
    if sys.byteorder == "big":
        values.byteswap()
    return values.tolist()


def routes(service: Service) -> list[Route]:
    """The routes of the API."""
    endpoints = _Endpoints(service)
    return [
        Route("/v1/models", endpoints.models, methods=["GET"]),
        Route("/v1/models/{model:path}", endpoints.model, methods=["GET"]),
        Route("/v1/completions", bad_request(endpoints.completions), methods=["POST"]),
        Route("/v1/chat/completions", bad_request(endpoints.chat), methods=["POST"]),
        Route("/v1/embeddings", bad_request(endpoints.embeddings), methods=["POST"]),
    ]


API = Api(
    name="OpenAI",
    routes=routes,
    error_body=error_body,
    invalid=400,
    operations={
        "/v1/models": Operation(response=ModelList),
        "/v1/models/{model:path}": Operation(response=ModelDescription),
        "/v1/completions": Operation(
            CompletionRequest,
            CompletionResponse,
            stream=True,
            example={"model": "gpt", "prompt": "Once upon a time", "max_tokens": 20},
        ),
        "/v1/chat/completions": Operation(
            ChatRequest,
            ChatResponse,
            stream=True,
            example={"model": "de-en", "messages": [{"role": "user", "content": "Guten Morgen"}]},
        ),
        "/v1/embeddings": Operation(
            EmbeddingRequest, EmbeddingResponse, example={"model": "bert", "input": ["Guten Morgen"]}
        ),
    },
)
