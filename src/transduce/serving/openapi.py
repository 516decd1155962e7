"""The OpenAPI document, made from the routes and the configs of all APIs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pydantic
from pydantic.json_schema import models_json_schema
from starlette.routing import Route

from transduce import __version__
from transduce.config import Table
from transduce.serving.http import Api, Operation
from transduce.serving.security import OPEN_ROUTES

REF = "#/components/schemas/{model}"
JSON, FORM, EVENTS = "application/json", "application/x-www-form-urlencoded", "text/event-stream"

ERRORS = {
    400: "The request is malformed.",
    403: "The request comes from a page of another site.",
    413: "The body or its texts are too large.",
    415: "The content type or encoding of the body is not supported.",
    429: "The queue is full; try again after Retry-After.",
    500: "An error of the server.",
    503: "The model is not ready, or the server stops; try again after Retry-After.",
    504: "The request took too long.",
}
"""Responses of every operation that has parameters, besides the one for an invalid parameter."""


def document(routes: Sequence[tuple[Route, Api]], with_keys: bool) -> Table:
    """Return the OpenAPI 3.1 document of these routes."""
    configs = list(dict.fromkeys(_configs(api for _, api in routes)))
    _, definitions = models_json_schema([(config, "validation") for config in configs], ref_template=REF)
    schemas = dict(definitions.get("$defs", {}))
    for _, api in routes:
        schemas[f"{api.name}Error"] = _schema_of(
            api.error_body(api.invalid, "beam_size must be at least 1", "beam_size")
        )
    paths: dict[str, Table] = {}
    for route, api in routes:
        path = re.sub(r"\{(\w+):\w+\}", r"{\1}", route.path)
        for method in sorted((route.methods or {"GET"}) - {"HEAD"}):
            paths.setdefault(path, {})[method.lower()] = _operation(route, api, method, path, with_keys)
    components: Table = {"schemas": schemas}
    if with_keys:
        components["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        }
    return {
        "openapi": "3.1.0",
        "info": {"title": "transduce", "version": __version__, "summary": "Models of transduce over HTTP."},
        "paths": paths,
        "components": components,
    }


def _configs(apis: Iterable[Api]) -> Iterator[type[pydantic.BaseModel]]:
    for api in apis:
        for operation in api.operations.values():
            yield from (config for config in (operation.request, operation.response) if config is not None)


def _operation(route: Route, api: Api, method: str, path: str, with_keys: bool) -> Table:
    described = api.operations.get(route.path, Operation())
    lines = (route.endpoint.__doc__ or route.name).strip().split("\n\n", 1)
    operation: Table = {
        "operationId": f"{method.lower()}{re.sub(r'[^A-Za-z0-9]+', '_', path)}",
        "tags": [api.name],
        "summary": " ".join(lines[0].split()),
        "responses": _responses(api, described, route.path, with_keys),
    }
    if len(lines) > 1:
        operation["description"] = " ".join(lines[1].split())
    parameters = [_path_parameter(name) for name in re.findall(r"\{(\w+)\}", path)]
    if described.request is not None and (method == "GET" or described.forms):
        parameters += _query_parameters(described.request)
    if parameters:
        operation["parameters"] = parameters
    if described.request is not None and method != "GET":
        operation["requestBody"] = _request_body(described)
    if with_keys:
        is_open = route.path in OPEN_ROUTES
        operation["security"] = [] if is_open else [{"bearer": []}, {"header": []}]
    return operation


def _request_body(described: Operation) -> Table:
    assert described.request is not None
    content: Table = {"schema": {"$ref": _ref(described.request)}}
    if described.example is not None:
        content["example"] = described.example
    kinds = (JSON, FORM) if described.forms else (JSON,)
    return {"required": not described.forms, "content": dict.fromkeys(kinds, content)}


def _responses(api: Api, described: Operation, path: str, with_keys: bool) -> Table:
    schema: Table = {} if described.response is None else {"schema": {"$ref": _ref(described.response)}}
    content: Table = {described.media_type: schema, **{kind: {} for kind in described.other_types}}
    if described.stream:
        content[EVENTS] = {}  # OpenAPI 3.1 has no schema for events
    responses: Table = {"200": {"description": "The response.", "content": content}}
    if path == "/ready":
        responses["503"] = {"description": "A model is loading, or the server stops.", "content": content}
    errors: dict[int, str] = {}
    if described.request is not None:
        errors.update(ERRORS)
        _add(errors, api.invalid, "A parameter is invalid, or would be ignored.")
    if "{" in path or _names_model(described):
        errors[404] = "There is no such model, pass, run or file."
    if with_keys and path not in OPEN_ROUTES:
        _add(errors, api.unauthorized, "The key is missing or wrong.")
    for status, meaning in sorted(errors.items()):
        schema = {"schema": {"$ref": REF.format(model=f"{api.name}Error")}}
        responses[str(status)] = {"description": meaning, "content": {JSON: schema}}
    return responses


def _add(errors: dict[int, str], status: int, meaning: str) -> None:
    """Add a meaning of a status, which may have others."""
    errors[status] = f"{meaning} {errors.get(status, '')}".strip()


def _names_model(described: Operation) -> bool:
    """Whether a request must name its model."""
    field = None if described.request is None else described.request.model_fields.get("model")
    return field is not None and field.is_required()


def _path_parameter(name: str) -> Table:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _query_parameters(config: type[pydantic.BaseModel]) -> list[Table]:
    schema = config.model_json_schema(ref_template=REF)
    return [
        {
            "name": name,
            "in": "query",
            "required": False,  # the body may have it
            "description": inner.get("description", ""),
            "schema": {key: value for key, value in inner.items() if key != "description"},
        }
        for name, inner in schema.get("properties", {}).items()
    ]


def _ref(config: type[pydantic.BaseModel]) -> str:
    return REF.format(model=config.__name__)


def _schema_of(example: Any) -> Table:
    """The JSON schema that an example of an error body has."""
    match example:
        case dict():
            properties = {name: _schema_of(value) for name, value in example.items()}
            return {"type": "object", "properties": properties, "required": list(properties)}
        case str():
            return {"type": ["string", "null"]}
        case bool():
            return {"type": "boolean"}
        case int():
            return {"type": "integer"}
    return {}
