"""transduce's own API: translate, generate, predict and embed, with all options of the models."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from transduce.config import Table
from transduce.inference.search.options import SearchOptions
from transduce.serving.api.requests import (
    EmbedRequest,
    GenerateRequest,
    PredictRequest,
    TranslateRequest,
    as_inputs,
    as_texts,
    check_words,
    without_null,
)
from transduce.serving.api.responses import (
    EmbedResponse,
    GenerateResponse,
    PredictResponse,
    TranslateResponse,
    embed_response,
    generate_response,
    predict_response,
    translate_response,
)
from transduce.serving.api.search_parameters import check_search, check_stream
from transduce.serving.backend import Backend
from transduce.serving.body import read_json
from transduce.serving.http import (
    Api,
    Operation,
    RequestError,
    close,
    parse,
    run_job,
    sse,
    stream_job,
)
from transduce.serving.job import EmbedJob, GenerateJob, JobError, ModelInfo, PredictJob, Result, TranslateJob
from transduce.serving.language import matching
from transduce.serving.large_work import json_response
from transduce.serving.limits import Limits
from transduce.serving.operations import error_body
from transduce.serving.service import Service

NO_EFFECT_ON_LANGUAGE_MODELS = ("coverage_penalty", "max_extra")


def _routes(service: Service) -> list[Route]:
    limits = service.limits

    async def translate(request: Request) -> Response:
        """Translate one text or several.

        With `stream`, events `{"text": piece}` come while the translation is written, then one with `"done": true` and
        what the answer without `stream` has; an error is an event `{"error": …}`.
        """
        asked = parse(TranslateRequest, without_null(await read_json(request, limits)), limits)
        job, n_best = translate_job(asked, limits)
        backend, languages = find_translator(service, asked.model, asked.source_language, asked.target_language)
        job = job.but(source_language=languages[0], target_language=languages[1])

        def answer(result: Result) -> Table:
            return translate_response(backend.info.name, result, n_best, asked.alignment)

        return await _respond(request, service, backend, job, asked.stream, answer)

    async def generate(request: Request) -> Response:
        """Continue one prompt or several with a language model.

        With `stream`, events `{"text": piece}` come while the text is written, then one with `"done": true` and what
        the answer without `stream` has; an error is an event `{"error": …}`.
        """
        asked = parse(GenerateRequest, without_null(await read_json(request, limits)), limits)
        job, n_best = generate_job(asked, limits)
        backend = service.find("language_modeling", asked.model)

        def answer(result: Result) -> Table:
            return generate_response(backend.info.name, result, n_best)

        return await _respond(request, service, backend, job, asked.stream, answer)

    async def predict(request: Request) -> Response:
        """Predict with the head of a text encoder: labels, tags, answers or masked words."""
        asked = parse(PredictRequest, without_null(await read_json(request, limits)), limits)
        backend = service.find("text_encoding", asked.model)
        job = PredictJob(texts=as_inputs(asked.text, limits))
        result = await run_job(request, service, backend, job)
        return await json_response(request, predict_response(backend.info.name, result))

    async def embed(request: Request) -> Response:
        """Compute a vector for each text with a text encoder."""
        asked = parse(EmbedRequest, without_null(await read_json(request, limits)), limits)
        backend = service.find("text_encoding", asked.model)
        job = EmbedJob(texts=as_inputs(asked.text, limits), pool=asked.pool, normalize=asked.normalize)
        result = await run_job(request, service, backend, job)
        return await json_response(request, embed_response(backend.info.name, result, asked.encoding))

    return [
        Route("/v1/translate", translate, methods=["POST"]),
        Route("/v1/generate", generate, methods=["POST"]),
        Route("/v1/predict", predict, methods=["POST"]),
        Route("/v1/embed", embed, methods=["POST"]),
    ]


def translate_job(asked: TranslateRequest, limits: Limits) -> tuple[TranslateJob, int]:
    """Return the job of a request, its languages still open, and the number of translations of each text."""
    texts = as_texts(asked.text, limits, "text")
    search = asked.given()
    options = check_search(search, limits, SearchOptions(beam_size=asked.beam_groups if asked.beam_groups > 1 else 4))
    check_stream(asked.stream, len(texts), options.n_best, "text")
    for parameter in ("glossary", "forbid", "stop"):
        check_words(parameter, getattr(asked, parameter), limits)
    if asked.prefix is not None:
        check_words("prefix", [asked.prefix], limits)
    if asked.glossary and options.method != "beam":
        raise RequestError(
            422, f"a glossary needs beam search, but the method is '{options.method}'; leave out one", "glossary"
        )
    job = TranslateJob(
        texts=texts,
        search=search,
        prefix=asked.prefix,
        forbid=asked.forbid,
        terms=asked.glossary,
        placeholders=asked.placeholders,
        stop=asked.stop,
        split=asked.split,
        align=asked.alignment,
    )
    return job, options.n_best


def generate_job(asked: GenerateRequest, limits: Limits) -> tuple[GenerateJob, int]:
    """Return the job of a request and the number of continuations of each prompt."""
    prompts = as_texts(asked.prompt, limits, "prompt")
    search = asked.given()
    for name in NO_EFFECT_ON_LANGUAGE_MODELS:
        if name in search:
            raise RequestError(422, f"{name} has no effect on a language model; leave it out", name)
    options = check_search(search, limits, SearchOptions(method="sample"))
    check_stream(asked.stream, len(prompts), options.n_best, "prompt")
    for parameter in ("forbid", "stop"):
        check_words(parameter, getattr(asked, parameter), limits)
    return GenerateJob(prompts=prompts, search=search, forbid=asked.forbid, stop=asked.stop), options.n_best


def find_translator(
    service: Service, model: str | None, source: str | None, target: str | None
) -> tuple[Backend, tuple[str | None, str | None]]:
    """Return the model for these languages and its own names of them; raises RequestError (422) if there is none."""
    first = service.find("translation", model)
    candidates = [first] if model is not None else service.of_task("translation")
    problem: RequestError | None = None
    for backend in candidates:
        try:
            found = (own_language(backend.info, "source", source), own_language(backend.info, "target", target))
        except RequestError as error:
            problem = problem or error
        else:
            return backend, found
    assert problem is not None
    raise problem


def own_language(info: ModelInfo, side: str, wanted: str | None) -> str | None:
    """A model's own name of a language that a client wants; None for its default."""
    if wanted is None:
        return None
    parameter = f"{side}_language"
    known = info.source_languages if side == "source" else info.target_languages
    if not known:
        raise RequestError(
            422, f"the languages of the model '{info.name}' are not known; leave out {parameter}", parameter
        )
    found = matching(wanted, known)
    if len(found) != 1:
        fault = "can mean several languages of" if found else "is not a language of"
        raise RequestError(
            422, f"'{wanted[:40]}' {fault} the model '{info.name}'; choose from {', '.join(known[:50])}", parameter
        )
    return None if found[0] == (info.default_source if side == "source" else info.default_target) else found[0]


async def _respond(
    request: Request,
    service: Service,
    backend: Backend,
    job: TranslateJob | GenerateJob,
    stream: bool,
    answer: Callable[[Result], Table],
) -> Response:
    if not stream:
        return await json_response(request, answer(await run_job(request, service, backend, job)))
    return sse(_events(await stream_job(request, service, backend, job), answer))


async def _events(
    pieces: AsyncGenerator[str | Result, None], answer: Callable[[Result], Table]
) -> AsyncGenerator[str, None]:
    try:
        async for piece in pieces:
            event = {"text": piece} if isinstance(piece, str) else {"done": True, **answer(piece)}
            yield json.dumps(event, ensure_ascii=False)
    except JobError as error:
        yield json.dumps(error_body(error.status, str(error), None), ensure_ascii=False)
    finally:
        await close(pieces)


API = Api(
    "Transduce",
    _routes,
    error_body,
    operations={
        "/v1/translate": Operation(
            TranslateRequest, TranslateResponse, stream=True, example={"text": "Ein Hund läuft.", "beam_size": 4}
        ),
        "/v1/generate": Operation(
            GenerateRequest, GenerateResponse, stream=True, example={"prompt": "Once upon a time", "max_length": 40}
        ),
        "/v1/predict": Operation(PredictRequest, PredictResponse, example={"text": "What a day!"}),
        "/v1/embed": Operation(EmbedRequest, EmbedResponse, example={"text": ["one", "two"]}),
    },
)
