"""Bodies of requests: JSON objects, forms and query strings, limited before and while they are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request

from transduce.config import Table
from transduce.serving.http import RequestError
from transduce.serving.large_work import LARGE, large_work
from transduce.serving.limits import Limits
from transduce.serving.strict_json import JsonError, load_json


async def read_json(request: Request, limits: Limits) -> Table:
    """Read a JSON object; raises RequestError (400, 413, 415, 422).

    The content type must be JSON, which a web page of another origin cannot send without asking first.
    """
    if _content_type(request) != "application/json":
        raise RequestError(415, "the content type must be application/json")
    return await _object(request, await _body(request, limits), limits)


async def read_fields(request: Request, limits: Limits) -> dict[str, Any]:
    """Read fields from a JSON object, from a form, or, with an empty body, from the query string.

    LibreTranslate's clients use all three. Repeated fields become lists.
    """
    data = await _body(request, limits)
    if not data:
        return _fields(request.scope.get("query_string", b""), limits)
    if request.scope.get("query_string"):
        raise RequestError(422, "give the parameters in the body or in the query string, not in both")
    kind = _content_type(request)
    if kind == "application/json":
        return await _object(request, data, limits)
    if kind == "application/x-www-form-urlencoded":
        return _fields(data, limits)
    raise RequestError(415, "the content type must be application/json or application/x-www-form-urlencoded")


def _content_type(request: Request) -> str:
    """The media type of the body in lower case; a charset other than UTF-8 makes it unknown."""
    kind, *parameters = request.headers.get("content-type", "").lower().split(";")
    values = [value.strip().partition("=")[2].strip('"') for value in parameters if value.strip().startswith("charset")]
    return kind.strip() if all(value in ("utf-8", "utf8") for value in values) else ""


SMALL_BODY = 1 << 16
"""Bytes of a body that every connection may hold; of the larger ones, there is a limit for all together."""


@dataclass
class LargeBodies:
    """Bytes that the large ones among the bodies hold while they arrive: slow clients must not fill the memory."""

    held: int = 0


async def _body(request: Request, limits: Limits) -> bytes:
    """The whole body; never more than the limits are kept."""
    large: LargeBodies = getattr(request.app.state, "large_bodies", None) or LargeBodies()
    data, counted = bytearray(), 0
    try:
        async for chunk in request.stream():
            data += chunk
            if len(data) > limits.max_body_bytes:
                raise RequestError(413, f"the body has more than {limits.max_body_bytes:,} bytes")
            if len(data) > SMALL_BODY:
                large.held += len(data) - counted
                counted = len(data)
                if large.held > limits.max_large_bodies_bytes:
                    raise RequestError(503, "the server is reading too many large bodies", retry_after=1.0)
    finally:
        large.held -= counted
    return bytes(data)


async def _object(request: Request, data: bytes, limits: Limits) -> Table:
    def parse() -> Any:
        return load_json(data, limits.max_json_depth, limits.max_json_values)

    try:
        value = parse() if len(data) < LARGE else await large_work(request).run(parse)
    except JsonError as error:
        raise RequestError(400, str(error)) from None
    if not isinstance(value, dict):
        raise RequestError(422, "the body must be a JSON object")
    return value


def _fields(data: bytes, limits: Limits) -> dict[str, Any]:
    try:
        pairs = parse_qsl(
            data.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(data),
            errors="strict",
            max_num_fields=limits.max_texts + 32,
        )
    except ValueError:
        raise RequestError(400, "the fields cannot be read; encode them as UTF-8 and with %XX") from None
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name not in fields:
            fields[name] = value
        elif isinstance(fields[name], list):
            fields[name].append(value)
        else:
            fields[name] = [fields[name], value]
    return fields
