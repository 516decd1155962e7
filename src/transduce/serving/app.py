"""The HTTP application: all APIs over one service."""

from __future__ import annotations

import functools

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from transduce.serving import operations
from transduce.serving.api import deepl, libretranslate, openai, translate
from transduce.serving.body import LargeBodies
from transduce.serving.http import (
    Api,
    Keys,
)
from transduce.serving.large_work import LargeWork
from transduce.serving.metrics import Metrics
from transduce.serving.middleware import RequestMiddleware, RouteTable, render_http_exception
from transduce.serving.openapi import document
from transduce.serving.security import Guard, ServerSettings
from transduce.serving.service import Service
from transduce.serving.studio import routes

APIS: tuple[Api, ...] = (operations.API, translate.API, openai.API, deepl.API, libretranslate.API)
"""All APIs; where two have the same path, the first one answers."""
STUDIO: tuple[Api, ...] = (routes.API, routes.PAGE)
"""The studio, unless the operator switches it off."""


def create_app(service: Service, settings: ServerSettings) -> Starlette:
    """Build the application. `app.state.stopping` is set by the server when it shuts down."""
    apis = (*APIS, *(STUDIO if settings.studio else ()))
    table = [(route, api) for api in apis for route in api.routes(service)]
    keys, metrics = Keys(settings.api_keys), Metrics()
    app = Starlette(
        routes=[route for route, _ in table],
        middleware=[
            Middleware(RequestMiddleware, table=RouteTable(table, default=translate.API), metrics=metrics),
            Middleware(Guard, settings=settings, keys=keys),
        ],
        exception_handlers={HTTPException: render_http_exception},
    )
    app.router.redirect_slashes = False  # a redirect would repeat the Host header
    app.state.keys, app.state.metrics, app.state.stopping = keys, metrics, False
    app.state.large_bodies, app.state.large_work = LargeBodies(), LargeWork()
    app.state.document = functools.cache(lambda: document(table, with_keys=keys.required))
    return app
