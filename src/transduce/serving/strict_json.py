"""JSON from clients, read strictly: no duplicate keys, NaN, infinities, lone surrogates or deep nesting.

Each of these is read differently by different parsers, or makes a later step fail; they are rejected before any work.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, NoReturn

from transduce.config import Table
from transduce.errors import TransduceError, brief


class JsonError(TransduceError):
    """A text that is not strict JSON."""


def load_json(data: bytes, max_depth: int) -> Any:
    """Read one JSON value from UTF-8; raises JsonError."""
    try:
        value = json.loads(
            data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite
        )
    except UnicodeDecodeError:
        raise JsonError("the body is not UTF-8") from None
    except RecursionError:
        raise JsonError(f"the body is nested more than {max_depth} levels deep") from None
    except json.JSONDecodeError as error:
        raise JsonError(f"the body is not valid JSON: {error.msg} at character {error.pos + 1}") from None
    except ValueError:  # a number of thousands of digits
        raise JsonError("a number in the body has too many digits") from None
    _check(value, max_depth)
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


def _check(value: Any, max_depth: int) -> None:
    """Check the depth, and that every string can be written as UTF-8; a level at a time, without recursion."""
    level = [value]
    for _ in range(max_depth + 1):
        if any(isinstance(found, str) and not _is_text(found) for found in level):
            raise JsonError("a string has half of a surrogate pair, which is no character")
        level = [inner for found in level for inner in _inner(found)]
        if not level:
            return
    raise JsonError(f"the body is nested more than {max_depth} levels deep")


def _inner(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _is_text(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
