"""Protocol-buffer messages, as far as reading a SentencePiece model needs them: the wire format, and no schema.

A message is a row of fields: a key (the field's number and how it is written), then a number of 1 to 10 bytes, 4 or 8
bytes as they are, or a length and that many bytes (text, or a message within). What is cut short, or longer than what
it stands in, is a ValueError.
"""

from __future__ import annotations

from collections.abc import Iterator

Value = int | bytes

VARINT, EIGHT, SIZED, FOUR = 0, 1, 2, 5
"""How a field is written; 3 and 4 are groups, which nobody writes any more."""


def fields(message: bytes) -> Iterator[tuple[int, Value]]:
    """Yield (number, value) of every field of a message; 4 and 8 bytes are given as they stand."""
    place, size = 0, len(message)
    while place < size:
        key, place = _varint(message, place)
        number, way = key >> 3, key & 7
        if way == VARINT:
            value, place = _varint(message, place)
            yield number, value
            continue
        if way == SIZED:
            length, place = _varint(message, place)
        elif way in (FOUR, EIGHT):
            length = 4 if way == FOUR else 8
        else:
            raise ValueError(f"a field is written in a way ({way}) that is not known")
        if length > size - place:
            raise ValueError(f"a field of {length:,} bytes stands in {size - place:,}")
        yield number, message[place : place + length]
        place += length


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """Read a number, seven bits a byte, the lowest first; return it and the place behind it."""
    if place < len(message) and message[place] < 0x80:  # nearly all have one byte
        return message[place], place + 1
    number = shift = 0
    for length, byte in enumerate(message[place : place + 10], start=1):
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place + length
        shift += 7
    raise ValueError("a number has no end")
