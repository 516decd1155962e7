"""Around every request: its id, its route, its errors in the form of its API, its line in the access log."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import math
import secrets
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from transduce.errors import raised_at
from transduce.serving.exchange import Exchange
from transduce.serving.http import Api, Record, RequestError, client_of
from transduce.serving.job import JobError
from transduce.serving.metrics import Metrics, known_method

access_log = logging.getLogger("transduce.access")
server_log = logging.getLogger("transduce.server")

GONE = 499
"""What the log says of a client that went away; nginx has the same."""
_SALT = secrets.token_bytes(16)


ROUTER_ERRORS = {404: "there is nothing at this path; /docs lists the routes", 405: "this path has other methods"}


class RouteTable:
    """Which API a request belongs to, by its path alone."""

    def __init__(self, routes: Sequence[tuple[Route, Api]], default: Api) -> None:
        self._routes = routes
        self._default = default

    def find(self, scope: Scope) -> tuple[str, Api]:
        """Return the path template of the route and its API; for an unknown path, nothing and the default API."""
        for route, api in self._routes:
            if route.matches(scope)[0] is not Match.NONE:
                return route.path, api
        return "", self._default


class RequestMiddleware:
    """The outermost ASGI middleware: whatever happens inside, every request gets one answer and one line in the log."""

    def __init__(self, app: ASGIApp, table: RouteTable, metrics: Metrics) -> None:
        self._app, self._table, self._metrics = app, table, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        route, api = self._table.find(scope)
        record = Record(id=secrets.token_hex(8), route=route)
        scope["state"] = {**scope.get("state", {}), "record": record, "api": api}
        exchange = Exchange(scope, receive, send, record.id)
        try:
            await self._answer(scope, exchange, api, record)
        finally:
            self._note(scope, record, exchange)

    async def _answer(self, scope: Scope, exchange: Exchange, api: Api, record: Record) -> None:
        try:
            await self._app(scope, exchange.receive, exchange.send)
            return
        except ClientDisconnect:
            return
        except asyncio.CancelledError:  # the server stops and waits no longer
            response = error_response(api, RequestError(503, "the server is stopping", retry_after=5.0))
        except (RequestError, JobError, HTTPException) as error:
            if isinstance(error, JobError) and error.status == 500:  # its message may repeat a client's text
                server_log.error("request %s: job %s, model %s", record.id, error.reason, record.model)
            response = error_response(api, error)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic of a library in Rust is no Exception
            server_log.error("request %s: %s at %s", record.id, type(error).__name__, raised_at(error))
            response = error_response(api, RequestError(500, f"internal error; its request id is {record.id}"))
        if exchange.status is None:
            await response(scope, exchange.receive, exchange.send)
        else:  # the connection is closed without the end of the answer, so that the client sees that it is cut
            exchange.error_status = response.status_code

    def _note(self, scope: Scope, record: Record, exchange: Exchange) -> None:
        seconds = time.perf_counter() - record.started
        answered = exchange.status if exchange.completed else exchange.error_status
        status = GONE if answered is None else answered
        self._metrics.observe(record, scope["method"], status, seconds)
        if not access_log.isEnabledFor(logging.INFO):
            return
        line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "id": record.id,
            "method": known_method(scope["method"]),
            "route": record.route or "other",
            "status": status,
            "ms": round(seconds * 1000, 1),
            "client": _anonymous(client_of(Request(scope))),
            "model": record.model,
            "input_tokens": record.input_tokens,
            "output_tokens": record.output_tokens,
        }
        access_log.info("%s", json.dumps(line))


def error_response(api: Api, error: RequestError | JobError | HTTPException) -> JSONResponse:
    """Return an error in the form of an API, with Retry-After where trying again makes sense."""
    headers: dict[str, str] = {}
    parameter: str | None = None
    if isinstance(error, HTTPException):  # the router's: an unknown path or method
        status, message = error.status_code, ROUTER_ERRORS.get(error.status_code, str(error.detail))
        headers.update(error.headers or {})
    else:
        status, message = error.status, str(error)
        parameter = error.parameter if isinstance(error, RequestError) else None
        wait = error.retry_after
        if wait is None and status in (429, 503):
            wait = 1.0  # clients that are not told when try again at once
        if wait is not None:
            headers["Retry-After"] = str(max(1, math.ceil(wait)))
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(api.error_body(status, message, parameter), status, headers)


async def render_http_exception(request: Request, error: Exception) -> JSONResponse:
    """Answer an error of the router in the form of the route's API."""
    assert isinstance(error, HTTPException)
    return error_response(request.scope["state"]["api"], error)


def _anonymous(client: str) -> str:
    """A client for the log: keys are hashes already, addresses become one that only this process can compare."""
    kind, _, name = client.partition(":")
    if kind == "key":
        return client
    return f"address:{hashlib.blake2b(name.encode(), key=_SALT, digest_size=8).hexdigest()}"
