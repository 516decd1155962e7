"""The routes of the studio: its page, recorded passes and views of them, runs and checkpoints.

Models, runs and checkpoints are chosen by index, passes by a random id; no path of a request reaches the file system.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from transduce import __version__
from transduce.config import Config, Table
from transduce.serving.backend import Backend
from transduce.serving.body import read_json
from transduce.serving.http import Api, Operation, RequestError, parse, run_job, sse, stream_job
from transduce.serving.job import InspectJob, RecordJob, View
from transduce.serving.operations import error_body
from transduce.serving.service import Service
from transduce.serving.studio.assets import load_assets
from transduce.serving.studio.passes import FloatArray, PassCache, RecordedPass
from transduce.serving.studio.recording import events, keep_pass, record_job
from transduce.serving.studio.requests import (
    AttentionRequest,
    AttributionRequest,
    BeamTreeRequest,
    EmbeddingsRequest,
    InterventionRequest,
    LensRequest,
    NeuronRequest,
    PassRequest,
    PatchRequest,
    TranslateRequest,
)

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


class Studio:
    """What all routes share."""

    def __init__(self, service: Service) -> None:
        self.service, self.limits = service, service.limits
        self.passes = PassCache(service.limits.max_pass_bytes)

    @property
    def backends(self) -> list[Backend]:
        """The models, in the order in which the server was given them."""
        return list(self.service.backends.values())

    def backend(self, index: int) -> Backend:
        """Return a model by its index; raises RequestError (422)."""
        if index >= len(self.backends):
            raise RequestError(422, f"no model {index}; there are models 0 to {len(self.backends) - 1}", "model")
        return self.backends[index]

    def models(self) -> Table:
        """What the page is told of the models."""
        return {
            "version": __version__,
            "models": [self._model(index, backend) for index, backend in enumerate(self.backends)],
        }

    def _model(self, index: int, backend: Backend) -> Table:
        info = backend.info
        return {
            "index": index,
            "name": info.name,
            "task": info.task,
            "architecture": info.architecture,
            "parameters": info.parameters,
            "engine": info.engine,
            "head": info.head,
            "kinds": info.inspection.get("kinds", {}),
            "feed_forward": info.inspection.get("feed_forward", {}),
            "views": info.inspection.get("views", []),
            "search": info.inspection.get("search", {}),
            "settings": info.inspection.get("settings", {}),
            "source_languages": list(info.source_languages),
            "target_languages": list(info.target_languages),
            "default_source": info.default_source,
            "default_target": info.default_target,
            "max_source": info.max_source,
            "max_target": info.max_target,
            "examples": [],
            "run": None,
        }

    async def record(self, request: Request, job: RecordJob, index: int, checkpoint: int | None) -> RecordedPass:
        """Record a pass and keep it."""
        backend = self.backend(index)
        result = await run_job(request, self.service, backend, job)
        return keep_pass(self.passes, (index, backend), job, result["pass"], checkpoint)

    async def inspect(self, request: Request, recorded: RecordedPass, job: InspectJob) -> Table:
        """Compute a view of a pass."""
        backend = self.service.backends[recorded.model]
        found: Table = (await run_job(request, self.service, backend, job))["value"]
        return found

    async def layer(self, request: Request, recorded: RecordedPass, asked: AttentionRequest) -> FloatArray:
        """Return the attention of one layer, from the cache or from an engine."""
        place = asked.kind, asked.layer
        if place not in recorded.layers:
            job = recorded.inspect("attention", asked.model_dump())
            found = await self.inspect(request, recorded, job)
            array = FloatArray(tuple(found["shape"]), base64.b64decode(found["float16"]))
            recorded.layers[place] = array
            self.passes.measure(recorded)
            return array
        return recorded.layers[place]


def _routes(service: Service) -> list[Route]:
    studio, limits = Studio(service), service.limits

    async def models(request: Request) -> Response:
        """List the models and what can be shown of each."""
        return JSONResponse(await run_in_threadpool(studio.models))

    async def translate(request: Request) -> Response:
        """Translate a text as one watches, and record a pass for each sentence.

        The answer is a stream of events: `segments`, then `piece` and `pass` for each sentence, and `done` or `error`.
        A language model continues a prompt, a text encoder predicts.
        """
        asked = parse(TranslateRequest, await read_json(request, limits), limits)
        backend = studio.backend(asked.model)
        job = record_job(asked, backend, limits)
        pieces = await stream_job(request, service, backend, job)
        return sse(events(pieces, studio.passes, (asked.model, backend), job))

    async def passes(request: Request) -> Response:
        """Translate one sentence and record the pass."""
        asked = parse(PassRequest, await read_json(request, limits), limits)
        job = record_job(asked, studio.backend(asked.model), limits)
        recorded = await studio.record(request, job, asked.model, asked.checkpoint)
        return Response(recorded.body, media_type="application/json")

    async def attention(request: Request) -> Response:
        """Return the attention of one layer: float16, little-endian, heads × rows × columns.

        The header X-Shape has the three sizes.
        """
        given = request.path_params
        recorded = studio.passes.find(given["id"])
        asked = parse(AttentionRequest, {"kind": given["kind"], "layer": given["layer"]}, limits)
        array = await studio.layer(request, recorded, asked)
        headers = {"X-Shape": ",".join(map(str, array.shape))}
        return Response(array.data, media_type="application/octet-stream", headers=headers)

    async def saved(request: Request) -> Response:
        """Return the template of saved pages, with script, style and policy; the client fills in the data."""
        from transduce.inspection.page import saved_template

        return JSONResponse({"template": await run_in_threadpool(saved_template)})

    return [
        Route(f"{BASE}/models", models),
        Route(f"{BASE}/translate", translate, methods=["POST"]),
        Route(f"{BASE}/passes", passes, methods=["POST"]),
        Route(f"{BASE}/passes/{{id}}/attention/{{kind}}/{{layer:int}}", attention),
        *(_view_route(studio, view, config) for view, config in VIEWS.items()),
        Route("/studio/saved", saved),
    ]


def _view_route(studio: Studio, view: View, config: type[Config]) -> Route:
    async def endpoint(request: Request) -> Response:
        recorded = studio.passes.find(request.path_params["id"])
        asked = parse(config, await read_json(request, studio.limits), studio.limits)
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
            TranslateRequest, media_type="text/event-stream", example={"model": 0, "text": "Ein Hund läuft."}
        ),
        f"{BASE}/passes": Operation(PassRequest, example={"model": 0, "text": "Ein Hund läuft."}),
        f"{BASE}/passes/{{id}}/attention/{{kind}}/{{layer:int}}": Operation(media_type="application/octet-stream"),
        **{f"{BASE}/passes/{{id}}/{view}": Operation(config, example={}) for view, config in VIEWS.items()},
    },
)
PAGE = Api(
    "StudioPage",
    _page_routes,
    error_body,
    operations={"/": Operation(media_type="text/html"), "/studio/page/{asset:path}": Operation(media_type="text/*")},
)
