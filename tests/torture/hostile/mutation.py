"""Seeded mutations of files: of their bytes, and of the values in JSON."""

from __future__ import annotations

import copy
import json
import random
import struct
from collections.abc import Callable
from typing import Any

VALUES: list[Any] = [
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2,
        255,
        2**31,
        2**32,
        2**53,
        2**63,
        2**64,
        -(2**63),
        10**30,
        0.5,
        -0.0,
        1e308,
        1e-320,
    ),
    *("", " ", "a", "\0", "\u2028", "x" * 5000, "../x", "/etc/passwd", "</s>", "(a+)+$", "\ud7ff", "F32", "Replace"),
    *([], {}, [[]], [None], {"a": 1}, ["a"] * 500, [0] * 500, {"type": "Sequence"}),
]
"""What a value of JSON is replaced by."""
NUMBERS = [0, 1, 2, 7, 0x7F, 0x80, 0xFF, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63, 2**64 - 1]
"""What eight bytes are replaced by."""


def mutated_bytes(content: bytes, draw: random.Random) -> bytes:
    """Flip, insert, remove, repeat or overwrite bytes, one to four times, most often near the beginning."""
    changed = bytearray(content)
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        size = len(changed)
        if not size:
            return b"\0"
        place = draw.randrange(size) if draw.random() < 0.5 else draw.randrange(min(size, 400))
        kind = draw.randrange(7)
        if kind == 0:
            changed[place] ^= 1 << draw.randrange(8)
        elif kind == 1:
            changed[place] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, 0x22, 0x7B, 0x5B, 0x2C))
        elif kind == 2:
            changed[place:place] = draw.randbytes(draw.choice((1, 2, 8, 64)))
        elif kind == 3:
            del changed[place : place + draw.choice((1, 2, 8, 64, 1000))]
        elif kind == 4:
            part = changed[place : place + draw.choice((1, 8, 64, 512))]
            changed[place:place] = part * draw.choice((1, 2, 50))
        elif kind == 5:
            changed[place : place + 8] = struct.pack("<Q", draw.choice(NUMBERS))
        else:
            del changed[place:]
    return bytes(changed)


def mutated_json(content: bytes, draw: random.Random) -> bytes:
    """Replace, remove, rename or repeat values anywhere in a JSON file; sometimes mutate its bytes instead."""
    if draw.random() < 0.3:
        return mutated_bytes(content, draw)
    table = json.loads(content)
    for _ in range(draw.choice((1, 1, 2, 3))):
        places = [*_places(table)]
        holder, key = draw.choice(places[: draw.choice((20, 60, len(places)))])
        change: Callable[[Any, Any, random.Random], None] = draw.choice((_replace, _replace, _remove, _rename, _repeat))
        change(holder, key, draw)
    return json.dumps(table).encode()


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every value but the outermost, as its holder and its key, outer ones first."""
    found: list[tuple[Any, Any]] = []
    queue = [value]
    while queue:
        holder = queue.pop(0)
        keys = list(holder) if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ()
        for key in list(keys)[:80]:
            found.append((holder, key))
            queue.append(holder[key])
    return found or [({"": value}, "")]


def _replace(holder: Any, key: Any, draw: random.Random) -> None:
    holder[key] = copy.deepcopy(draw.choice(VALUES))


def _remove(holder: Any, key: Any, draw: random.Random) -> None:
    del holder[key]


def _rename(holder: Any, key: Any, draw: random.Random) -> None:
    if isinstance(holder, dict):
        holder[draw.choice(("", "type", "model", "x" * 200, "shape", key + "_"))] = holder.pop(key)


def _repeat(holder: Any, key: Any, draw: random.Random) -> None:
    value = holder[key]
    holder[key] = value * draw.choice((2, 50)) if isinstance(value, list | str) else [value] * 3
