"""What the APIs of others have in common: their statuses, their forms, and parameters that are not supported."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from transduce.config import Table
from transduce.errors import brief
from transduce.serving.http import RequestError
from transduce.serving.job import JobError

Endpoint = Callable[[Request], Awaitable[Response]]
Unsupported = Mapping[str, tuple[Any, ...]]
"""Parameters of an API that are not supported, each with the values that mean its default and change nothing."""


def bad_request(endpoint: Endpoint) -> Endpoint:
    """Answer 400 where our own API answers 422: what the clients of OpenAI, DeepL and LibreTranslate expect."""

    @wraps(endpoint)
    async def wrapped(request: Request) -> Response:
        try:
            return await endpoint(request)
        except JobError as error:
            if error.reason != "invalid":
                raise
            raise RequestError(400, str(error)) from None
        except RequestError as error:
            if error.status != 422:
                raise
            raise RequestError(400, str(error), error.parameter, error.retry_after) from None

    return wrapped


def supported(table: Table, unsupported: Unsupported) -> Table:
    """Return the parameters without those that are not supported; raises RequestError unless these have no effect."""
    for name, accepted in unsupported.items():
        if name not in table:
            continue
        value = table[name]
        if not any(type(value) is type(default) and value == default for default in accepted):
            defaults = ", ".join(brief(default) for default in accepted if default is not None)
            other = f", or give its default ({defaults})" if defaults else ""
            raise RequestError(400, f"{name} is not supported by this server; leave it out{other}", name)
    return {name: value for name, value in table.items() if name not in unsupported}


def is_json(request: Request) -> bool:
    """Whether the fields came as JSON, with numbers and booleans; those of a form are texts."""
    return request.headers.get("content-type", "").lower().startswith("application/json")


def number_of(fields: Table, name: str) -> None:
    """Turn a form's text into a whole number, in place; anything else is left to validation."""
    value = fields.get(name)
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 12:
        fields[name] = int(value)


_BOOLEANS = {"0": False, "false": False, "1": True, "true": True}


def boolean_of(fields: Table, name: str) -> None:
    """Turn a form's text into a boolean, in place; anything else is left to validation."""
    value = fields.get(name)
    if isinstance(value, str):
        fields[name] = _BOOLEANS.get(value.lower(), value)


def at_most(value: int | None, limit: int, name: str) -> None:
    """Check a number against a limit of the server."""
    if value is not None and value > limit:
        raise RequestError(400, f"{name} = {value} is above this server's limit of {limit:,}", name)
