"""JSON from clients, read strictly: no duplicate keys, NaN, infinities, lone surrogates or deep nesting.

Each of these is read differently by different parsers, or makes a later step fail; they are rejected before any work.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

from transduce.config import Table
from transduce.errors import TransduceError, brief

_STRUCTURE = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{},]', re.DOTALL)
"""Strings, brackets and commas: as many as there are values, or more."""
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class JsonError(TransduceError):
    """A text that is not strict JSON."""


def load_json(data: bytes, max_depth: int, max_values: int) -> Any:
    """Read one JSON value from UTF-8; raises JsonError. Strings and commas count as values."""
    _check_structure(data, max_depth, max_values)
    try:
        value = json.loads(
            data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite
        )
    except UnicodeDecodeError:
        raise JsonError("the body is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise JsonError(f"the body is not valid JSON: {error.msg} at character {error.pos + 1}") from None
    except ValueError:  # a number of thousands of digits
        raise JsonError("a number in the body has too many digits") from None
    _check_text(data, value)
    return value


def _unique(pairs: list[tuple[str, Any]]) -> Table:
    table = dict(pairs)
    if len(table) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise JsonError(f"the key {brief(twice)} is given twice")
    return table


def _no_constant(name: str) -> NoReturn:
    raise JsonError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise JsonError(f"the number {brief(text)} is too large")
    return value


def _check_structure(data: bytes, max_depth: int, max_values: int) -> None:
    """Check the depth and the number of values before anything is parsed: a MiB of `{},` takes half a second."""
    depth = values = 0
    for match in _STRUCTURE.finditer(data):
        first = match[0][:1]
        if first in (b"[", b"{"):
            depth += 1
        elif first in (b"]", b"}"):
            depth -= 1
        values += first not in (b"]", b"}")
        if depth > max_depth:
            raise JsonError(f"the body is nested more than {max_depth} levels deep")
        if values > max_values:
            raise JsonError(f"the body has more than {max_values:,} values")


def _check_text(data: bytes, value: Any) -> None:
    """Check that every string can be written as UTF-8. The body is UTF-8, so that only an escape can break that."""
    if _SURROGATE.search(data) is None:
        return
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise JsonError("a string has a lone surrogate, which is not a character") from None
