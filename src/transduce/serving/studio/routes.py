"""The routes of the studio: its page, recorded passes and views of them, runs and checkpoints.

Models, runs and checkpoints are chosen by index, passes by a random id; no path of a request reaches the file system.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from transduce.config import Config
from transduce.serving.body import read_json
from transduce.serving.http import Api, Operation, RequestError, parse, run_job, sse, stream_job
from transduce.serving.job import View
from transduce.serving.operations import error_body
from transduce.serving.service import Service
from transduce.serving.studio.assets import MEDIA_TYPES, load_assets
from transduce.serving.studio.recording import events, record_job
from transduce.serving.studio.requests import (
    MAX_TOKENS,
    AttentionRequest,
    AttributionRequest,
    BeamTreeRequest,
    ContinueRequest,
    EmbeddingsRequest,
    HeadSummaryRequest,
    InterventionRequest,
    LensRequest,
    NeuronRequest,
    PassRequest,
    PatchRequest,
    RunRequest,
    StudioTranslateRequest,
)
from transduce.serving.studio.studio import Studio

BASE = "/studio/api"
VIEWS: dict[View, type[Config]] = {
    "neuron": NeuronRequest,
    "lens": LensRequest,
    "attribution": AttributionRequest,
    "beam-tree": BeamTreeRequest,
    "intervention": InterventionRequest,
    "patch": PatchRequest,
    "embeddings": EmbeddingsRequest,
}
"""Views of a pass that are one request and one value, and their parameters."""

Endpoint = Callable[[Request], Awaitable[Response]]


class AsciiResponse(JSONResponse):
    """JSON in ASCII: journals and names of folders may have halves of surrogate pairs, which UTF-8 has not."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


def _routes(service: Service) -> list[Route]:
    studio = Studio(service)
    return [
        *_pass_routes(studio, service),
        *(_view_route(studio, view, config) for view, config in VIEWS.items()),
        *_model_routes(studio, service),
        *_run_routes(studio),
    ]


def _pass_routes(studio: Studio, service: Service) -> list[Route]:
    limits = service.limits

    async def translate(request: Request) -> Response:
        """Translate a text as one watches, and record a pass for each sentence.

        The answer is a stream of events: `segments`, then `piece` and `pass` for each sentence, and `done` or `error`.
        A language model continues a prompt, a text encoder predicts.
        """
        asked = parse(StudioTranslateRequest, await read_json(request, limits), limits)
        backend = studio.backend(asked.model)
        job = record_job(asked, backend, limits)
        pieces = await stream_job(request, service, backend, job)
        return sse(events(pieces, studio.passes, (asked.model, backend), job))

    async def passes(request: Request) -> Response:
        """Translate one sentence and record the pass."""
        asked = parse(PassRequest, await read_json(request, limits), limits, MAX_TOKENS)
        backend = studio.backend(asked.model)
        update = None
        if asked.checkpoint is not None:
            update = await run_in_threadpool(studio.runs.checkpoint, backend.info.name, asked.checkpoint)
        job = record_job(asked, backend, limits, update)
        recorded = await studio.record(request, job, asked.model, asked.checkpoint)
        return Response(recorded.body, media_type="application/json")

    async def attention(request: Request) -> Response:
        """Return the attention of one layer: 16-bit integers, little-endian, heads × rows × columns.

        65520 is a weight of 1; weights are exact to 1e-5. The header X-Shape has the three sizes.
        """
        given = request.path_params
        asked = parse(AttentionRequest, {"kind": given["kind"], "layer": given["layer"]}, limits)
        recorded = studio.passes.find(given["id"])
        array = await studio.layer(request, recorded, asked)
        headers = {"X-Shape": ",".join(map(str, array.shape))}
        return Response(array.data, media_type="application/octet-stream", headers=headers)

    async def continue_pass(request: Request) -> Response:
        """Translate again, beginning with given tokens: the best hypotheses, and the pass of the best."""
        asked = parse(ContinueRequest, await read_json(request, limits), limits, MAX_TOKENS)
        recorded = studio.passes.find(request.path_params["id"])
        found = await studio.inspect(request, recorded, recorded.inspect("continue", asked.model_dump()))
        job = recorded.job.but(prefix=None, prefix_tokens=asked.tokens)
        return JSONResponse({"hypotheses": found["hypotheses"], "pass": studio.derive(recorded, job, found["pass"])})

    return [
        Route(f"{BASE}/translate", translate, methods=["POST"]),
        Route(f"{BASE}/passes", passes, methods=["POST"]),
        Route(f"{BASE}/passes/{{id}}/attention/{{kind}}/{{layer:int}}", attention),
        Route(f"{BASE}/passes/{{id}}/continue", continue_pass, methods=["POST"]),
    ]


def _model_routes(studio: Studio, service: Service) -> list[Route]:
    limits = service.limits

    async def models(request: Request) -> Response:
        """List the models and what can be shown of each."""
        return AsciiResponse(await run_in_threadpool(studio.models))

    async def head_summary(request: Request) -> Response:
        """Measure what every head attends to, on a sample of texts."""
        asked = parse(HeadSummaryRequest, await read_json(request, limits), limits)
        backend = studio.backend(asked.model)
        job = await run_in_threadpool(studio.head_summary, backend, asked.texts)
        return JSONResponse((await run_job(request, service, backend, job))["value"])

    return [Route(f"{BASE}/models", models), Route(f"{BASE}/head-summary", head_summary, methods=["POST"])]


def _run_routes(studio: Studio) -> list[Route]:
    async def runs(request: Request) -> Response:
        """List the runs of the models, with their checkpoints."""
        return AsciiResponse(await run_in_threadpool(studio.runs.listed))

    async def run(request: Request) -> Response:
        """Return the training curves and samples of a run.

        With `since`, the `version` of an earlier response, there are none unless the run has logged something new.
        """
        asked = parse(RunRequest, dict(request.query_params), studio.limits)
        return AsciiResponse(await run_in_threadpool(studio.runs.report, request.path_params["index"], asked.since))

    async def demo(request: Request) -> Response:
        """Return what the pronoun demo shows, if its run is served."""
        return JSONResponse(await run_in_threadpool(studio.demo))

    async def saved(request: Request) -> Response:
        """Return the template of saved pages, with script, style and policy; the client fills in the data."""
        from transduce.inspection.page import saved_template

        return JSONResponse({"template": await run_in_threadpool(saved_template)})

    return [
        Route(f"{BASE}/runs", runs),
        Route(f"{BASE}/runs/{{index:int}}", run),
        Route(f"{BASE}/demo", demo),
        Route("/studio/saved", saved),
    ]


def _view_route(studio: Studio, view: View, config: type[Config]) -> Route:
    async def endpoint(request: Request) -> Response:
        asked = parse(config, await read_json(request, studio.limits), studio.limits, MAX_TOKENS)
        recorded = studio.passes.find(request.path_params["id"])
        job = recorded.inspect(view, asked.model_dump(mode="json", exclude_none=True))
        return JSONResponse(await studio.inspect(request, recorded, job))

    endpoint.__doc__ = f"Compute a view of a recorded pass: {view.replace('-', ' ')}."
    return Route(f"{BASE}/passes/{{id}}/{view}", endpoint, methods=["POST"], name=view)


def _page_routes(service: Service) -> list[Route]:
    page, assets = load_assets()

    async def studio(request: Request) -> Response:
        """Return the page of the studio."""
        return HTMLResponse(page)

    async def asset(request: Request) -> Response:
        """Return a file that the page loads."""
        found = assets.get(request.path_params["asset"])
        if found is None:
            raise RequestError(404, "there is nothing at this path; /docs lists the routes")
        return Response(found.data, media_type=found.media_type)

    return [Route("/", studio), Route("/studio/page/{asset:path}", asset)]


API = Api(
    "Studio",
    _routes,
    error_body,
    operations={
        f"{BASE}/translate": Operation(
            StudioTranslateRequest, media_type="text/event-stream", example={"model": 0, "text": "Ein Hund läuft."}
        ),
        f"{BASE}/passes": Operation(PassRequest, example={"model": 0, "text": "Ein Hund läuft."}),
        f"{BASE}/passes/{{id}}/attention/{{kind}}/{{layer:int}}": Operation(media_type="application/octet-stream"),
        f"{BASE}/passes/{{id}}/continue": Operation(ContinueRequest),
        f"{BASE}/head-summary": Operation(HeadSummaryRequest, example={"model": 0, "texts": ["Ein Hund läuft."]}),
        f"{BASE}/runs/{{index:int}}": Operation(RunRequest),
        **{f"{BASE}/passes/{{id}}/{view}": Operation(config) for view, config in VIEWS.items()},
    },
)
PAGE = Api(
    "StudioPage",
    _page_routes,
    error_body,
    operations={
        "/": Operation(media_type="text/html"),
        "/studio/page/{asset:path}": Operation(
            media_type=MEDIA_TYPES[".js"], other_types=(MEDIA_TYPES[".css"], MEDIA_TYPES[".svg"])
        ),
    },
)
