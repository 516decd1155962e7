"""Texts that a program passes: what is none is rejected here, with a word on what to pass instead.

A wrong type is a `TypeError`, as in the rest of Python: it is a mistake in a program, not in data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from os import PathLike
from typing import Any

from transduce.errors import brief

_HINTS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    ((bytes, bytearray, memoryview), "decode them first: data.decode('utf-8')"),
    (PathLike, "read the file first: path.read_text(encoding='utf-8').splitlines()"),
)


def checked_text(text: Any, name: str) -> str:
    """Return a text; anything but a string is an error. `name` says what the text is: "the text", "text 3"."""
    if isinstance(text, str):
        return text
    raise TypeError(f"{name} must be a string, not {_described(text)}{_hint(text)}")


def checked_texts(texts: Any, name: str = "texts") -> Iterator[str]:
    """Yield the strings of an iterable, one by one; anything else is an error that names the place, from 0."""
    if not is_several(texts):
        hint = "; pass a list: [text]" if isinstance(texts, str) else _hint(texts)
        raise TypeError(f"{name} must be a list of strings, not {_described(texts)}{hint}")
    return (checked_text(text, f"{name}[{number}]") for number, text in enumerate(texts))


def checked_pairs(pairs: Any) -> list[tuple[str, str]]:
    """Return pairs of strings; anything else is an error that names the place."""
    if not is_several(pairs):
        raise TypeError(f"pairs must be a list of (source, target), not {_described(pairs)}")
    found = []
    for number, pair in enumerate(pairs):
        sides = list(checked_texts(pair, f"pairs[{number}]")) if is_several(pair) else []
        if len(sides) != 2:
            raise TypeError(f"pairs[{number}] must be (source, target), not {_described(pair)}")
        found.append((sides[0], sides[1]))
    return found


def is_several(texts: Any) -> bool:
    """Whether an argument is an ordered collection of items, not one string, bytes or a mapping."""
    single = isinstance(texts, str | bytes | bytearray | memoryview | PathLike | Mapping | set | frozenset)
    return isinstance(texts, Iterable) and not single and getattr(texts, "shape", None) != ()


def one_or_several(texts: Any) -> str | Iterator[str]:
    """Return one text, or the texts of an iterable; anything else is an error."""
    if isinstance(texts, str):
        return texts
    if is_several(texts):
        return checked_texts(texts)
    raise TypeError(f"expected a string or a list of strings, not {_described(texts)}{_hint(texts)}")


def _described(value: Any) -> str:
    return "None" if value is None else f"{type(value).__name__} ({brief(value)})"


def _hint(value: Any) -> str:
    if isinstance(value, set | frozenset | Mapping):
        return "; pass a list, which has an order"
    hints = (hint for kinds, hint in _HINTS if isinstance(value, kinds))
    return "".join(f"; {hint}" for hint in hints)
