"""The header of a GGUF file: fields and tensors, each length compared with the size of the file before it is believed.

    "GGUF", version, number of tensors, number of fields
    fields      name, type, value; an array has a type and a length
    tensors     name, axes, type, offset from the beginning of the data
    data        aligned

Integers are little-endian. The `gguf` package reads what a file declares, so that 94 bytes can occupy it for ever.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transduce.errors import brief
from transduce.storage.untrusted import open_regular

MAGIC, VERSIONS = b"GGUF", (2, 3)
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Types of fields that are numbers -> their codes in `struct`."""
STRING, ARRAY = 8, 9
MAX_HEADER_BYTES = 64 * 2**20
"""Longest header; one with 256,000 pieces has a fifth of it."""
MAX_FIELDS, MAX_TENSORS, MAX_AXES = 10_000, 20_000, 4
MAX_VALUES = 2_000_000
"""Values of all arrays together: pieces, their scores and types, merges."""
MAX_STRINGS = 800_000
"""Strings of all arrays together; pieces and merges of the largest public vocabularies are 650,000."""
LEAST_STRING, LEAST_TENSOR = 8, 24
"""Fewest bytes of a string and of a tensor's entry."""


@dataclass(frozen=True)
class GgufTensor:
    """One tensor."""

    shape: tuple[int, ...]
    """Slowest axis first, as in torch; the file has the reverse."""
    kind: int
    """Number of its type, which may be quantized."""
    begin: int
    """Where its values begin in the file."""


class GgufHeader:
    """Fields and tensors; raises ValueError, or one of its subclasses, for a file that is invalid."""

    def __init__(self, path: Path, shown: Path | None = None) -> None:
        """Read a file; `shown` is its name in messages."""
        with open_regular(path, remedy="download it again", shown=shown) as file:
            self._content = file.read(MAX_HEADER_BYTES)
            self.size = file.seek(0, 2)
        self._place, self._values = 0, 0
        if self._take(4) != MAGIC:
            raise ValueError("it does not begin with GGUF")
        version = self._number("I")
        if version not in VERSIONS:
            raise ValueError(f"version {version} is not supported; supported: {VERSIONS[0]} and {VERSIONS[1]}")
        tensors, fields = self._count("Q", MAX_TENSORS, LEAST_TENSOR), self._count("Q", MAX_FIELDS, LEAST_STRING)
        self.fields: dict[str, Any] = {}
        for _ in range(fields):
            name = self._string()
            if name in self.fields:
                raise ValueError(f"it has the field {brief(name)} twice")
            self.fields[name] = self._value(self._number("I"))
        entries = [self._tensor() for _ in range(tensors)]
        alignment = self.fields.get("general.alignment", 32)
        if type(alignment) is not int or not 1 <= alignment <= 2**16:
            raise ValueError(f"general.alignment = {brief(alignment)} is invalid")
        data = -(-self._place // alignment) * alignment
        self.tensors = {name: GgufTensor(shape, kind, data + offset) for name, shape, kind, offset in entries}
        if len(self.tensors) < len(entries):
            raise ValueError("it has two tensors of one name")
        del self._content

    def _take(self, length: int) -> bytes:
        if length > len(self._content) - self._place:
            raise ValueError(f"it ends within {length:,} bytes that its header declares")
        self._place += length
        return self._content[self._place - length : self._place]

    def _number(self, code: str) -> Any:
        (value,) = struct.unpack(f"<{code}", self._take(struct.calcsize(f"<{code}")))
        return value

    def _count(self, code: str, most: int, width: int) -> int:
        """Read a length, for values of at least `width` bytes each."""
        count = int(self._number(code))
        if count > most or count * width > len(self._content) - self._place:
            raise ValueError(f"it declares {count:,} entries, more than it holds or than {most:,}")
        return count

    def _string(self) -> str:
        return self._take(self._count("Q", MAX_HEADER_BYTES, 1)).decode("utf-8")  # its error is a ValueError

    def _value(self, kind: int) -> Any:
        if kind == STRING:
            return self._string()
        if kind == ARRAY:
            return self._array()
        if kind not in NUMBERS:
            raise ValueError(f"a field has the unknown type {kind}")
        return self._number(NUMBERS[kind])

    def _array(self) -> list[Any]:
        kind = self._number("I")
        if kind not in (*NUMBERS, STRING):
            raise ValueError(f"an array has values of type {kind}, which is not supported")
        width = LEAST_STRING if kind == STRING else struct.calcsize(f"<{NUMBERS[kind]}")
        most = min(MAX_STRINGS, MAX_VALUES - self._values) if kind == STRING else MAX_VALUES - self._values
        length = self._count("Q", most, width)
        self._values += length
        if kind == STRING:
            return self._strings(length)
        return list(struct.unpack(f"<{length}{NUMBERS[kind]}", self._take(length * width)))

    def _strings(self, count: int) -> list[str]:
        """Read strings; a loop without calls, for there may be many."""
        content, place, found = self._content, self._place, []
        size = len(content)
        for _ in range(count):
            begin = place + 8
            place = begin + int.from_bytes(content[place:begin], "little")
            if place > size or begin > size:
                raise ValueError("it ends within a list of strings")
            found.append(content[begin:place].decode("utf-8"))
        self._place = place
        return found

    def _tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._string()
        axes = self._count("I", MAX_AXES, 8)
        shape = tuple(self._number("Q") for _ in range(axes))
        kind, offset = self._number("I"), self._number("Q")
        if math.prod(shape) > 8 * self.size or offset > self.size:  # a type has at least one bit per value
            raise ValueError(f"the tensor {brief(name)} is larger than the file")
        return name, shape[::-1], kind, offset
