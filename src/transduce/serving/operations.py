"""Routes of the server itself: health, readiness, metrics, and the documentation of its APIs."""

from __future__ import annotations

from importlib import resources

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from transduce.config import Config, Table
from transduce.serving.backend import BackendState
from transduce.serving.http import Api, Operation
from transduce.serving.metrics import CONTENT_TYPE, Metrics
from transduce.serving.service import Service

PAGE = {
    "/docs": ("docs.html", "text/html"),
    "/docs.css": ("docs.css", "text/css"),
    "/docs.js": ("docs.js", "text/javascript"),
}
"""The files of the documentation. They are read once; no path of a request ever reaches the file system."""


class Health(Config):
    """Whether the server is alive."""

    status: str
    """Always "ok"."""


class Ready(Config):
    """Whether the server takes requests."""

    ready: bool
    models: dict[str, BackendState]
    """The state of each model."""


def error_body(status: int, message: str, parameter: str | None) -> Table:
    """An error in the form of transduce's own API."""
    return {"error": {"status": status, "message": message, "parameter": parameter}}


def _routes(service: Service) -> list[Route]:
    async def health(request: Request) -> Response:
        """Tell whether the server is alive."""
        return JSONResponse({"status": "ok"})

    async def ready(request: Request) -> Response:
        """Tell whether all models are ready: 200 if they are, 503 if not or if the server stops."""
        states = {name: backend.state for name, backend in service.backends.items()}
        is_ready = not request.app.state.stopping and all(state == "ready" for state in states.values())
        return JSONResponse({"ready": is_ready, "models": states}, 200 if is_ready else 503)

    async def metrics(request: Request) -> Response:
        """Return measurements in Prometheus' text format."""
        found: Metrics = request.app.state.metrics
        return PlainTextResponse(found.render(service.backends.values()), headers={"Content-Type": CONTENT_TYPE})

    async def openapi(request: Request) -> Response:
        """Return the OpenAPI document of all routes."""
        return JSONResponse(request.app.state.document())

    return [
        Route("/health", health),
        Route("/ready", ready),
        Route("/metrics", metrics),
        Route("/openapi.json", openapi),
        *(_page_route(path, name, media_type) for path, (name, media_type) in PAGE.items()),
    ]


def _page_route(path: str, name: str, media_type: str) -> Route:
    data = resources.files("transduce.serving").joinpath("page", name).read_bytes()

    async def page(request: Request) -> Response:
        """Return a file of the documentation."""
        return Response(data, media_type=media_type)

    return Route(path, page, name=name)


API = Api(
    "Server",
    _routes,
    error_body,
    operations={
        "/health": Operation(response=Health),
        "/ready": Operation(response=Ready),
        "/metrics": Operation(media_type="text/plain"),
        **{path: Operation(media_type=media_type) for path, (_, media_type) in PAGE.items()},
    },
)
