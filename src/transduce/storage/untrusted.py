"""Files that a stranger may have made: limits before work.

A manifest detects damage, not attack: whoever writes the files writes the manifest, too. So each file is checked before
it costs anything: it must be a regular file (a pipe blocks, a device never ends, a link leads anywhere), JSON may have
so many bytes and values, and what a safetensors header declares must be in the file.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeGuard

from transduce.config import Table
from transduce.errors import ModelFolderError, TransduceError, brief

MAX_JSON_BYTES = 16 * 2**20
"""Largest config, manifest or index that is read; the largest known index has a tenth of it."""
MAX_JSON_VALUES = 500_000
"""Most values in such a file; a value takes up to 200 bytes of memory once it is parsed."""

_SAFELY = sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOFOLLOW", "O_BINARY"))
"""Flags to open a file that may have become a pipe or a link; not every system has all of them."""


def open_regular(
    path: Path, error_type: type[TransduceError] = ModelFolderError, remedy: str = "", shown: Path | None = None
) -> IO[bytes]:
    """Open a regular file to read, without blocking; anything else is an error, a link too.

    Errors name `shown`, by default the path.
    """
    shown, advice = shown or path, f"; {remedy}" if remedy else ""
    try:
        if path.is_symlink():
            raise error_type(f"{shown}: is a link; replace it by the file itself")
        descriptor = os.open(path, os.O_RDONLY | _SAFELY)
    except OSError as error:
        raise error_type(f"{shown}: cannot be read ({error.strerror}){advice}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise error_type(f"{shown}: is not a regular file; replace it by the file itself")
    return os.fdopen(descriptor, "rb")


def read_regular(
    path: Path,
    limit: int,
    error_type: type[TransduceError] = ModelFolderError,
    remedy: str = "",
    shown: Path | None = None,
) -> bytes:
    """Return the contents of a regular file of at most `limit` bytes."""
    shown = shown or path
    with open_regular(path, error_type, remedy, shown) as file:
        try:
            content = file.read(limit + 1)
        except OSError as error:
            advice = f"; {remedy}" if remedy else ""
            raise error_type(f"{shown}: cannot be read ({error.strerror}){advice}") from None
    if len(content) > limit:
        raise error_type(f"{shown}: is larger than {limit:,} bytes, the maximum for this file")
    return content


class _DuplicateKey(Exception):
    """A key occurs twice in one JSON object."""


def parse_json(
    content: bytes,
    shown: Path | str,
    error_type: type[TransduceError] = ModelFolderError,
    remedy: str = "",
    most_values: int = MAX_JSON_VALUES,
) -> Table:
    """Return the JSON object in a file; duplicate keys are an error, because parsers differ about them.

    Values are counted before they are parsed, by the characters that separate them.
    """
    if count_values(content) > most_values:
        raise error_type(f"{shown}: has more than {most_values:,} values, the maximum for this file")
    advice = f"; {remedy}" if remedy else ""
    try:
        table = json.loads(content, object_pairs_hook=_unique_keys)
    except _DuplicateKey as error:
        raise error_type(f"{shown}: has the key {error} twice{advice}") from None
    except (ValueError, RecursionError):
        raise error_type(f"{shown}: is not valid JSON{advice}") from None
    if not isinstance(table, dict):
        raise error_type(f"{shown}: is not a JSON object{advice}")
    return table


def count_values(content: bytes) -> int:
    """Return the most values that a JSON text can have."""
    return sum(content.count(mark) for mark in (b",", b"[", b"{"))


def _unique_keys(pairs: list[tuple[str, Any]]) -> Table:
    table: Table = {}
    for name, value in pairs:
        if name in table:
            raise _DuplicateKey(brief(name))
        table[name] = value
    return table


# The header of safetensors files: names, dtypes and shapes, without the values.
#
# A file has 8 bytes with the length of its header, the header (JSON: dtype, shape and offsets of each tensor), and
# the data. The header is checked here before the library sees the file: it could name a tensor twice, be as long as
# memory, or declare shapes that do not fit into memory.

FLOATING = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
"""Dtypes that weights are loaded from, and their sizes in bytes."""
OTHERS = {"I64": 8, "U64": 8, "I32": 4, "U32": 4, "I16": 2, "U16": 2, "I8": 1, "U8": 1, "BOOL": 1, "C64": 8} | {
    f"F8_{name}": 1 for name in ("E4M3", "E5M2", "E8M0", "E4M3FNUZ", "E5M2FNUZ")
}
"""Dtypes that a file may also hold (a table of positions, say), but that are never loaded."""

MAX_HEADER_BYTES = 16 * 2**20
MAX_TENSORS = 100_000
"""Per file where nothing else says how many there should be: a checkpoint of 1,000 layers has 75,000."""
MAX_AXES = 8
"""Axes of one tensor; bounds the arithmetic on a malicious shape."""


@dataclass(frozen=True)
class TensorEntry:
    """One tensor of a header."""

    dtype: str
    shape: tuple[int, ...]
    end: int
    """Where its values end, counted from the end of the header."""

    @property
    def is_floating(self) -> bool:
        """Whether weights are loaded from such a tensor."""
        return self.dtype in FLOATING


class SafetensorsHeader:
    """The header of one file, as bytes until it is parsed: how many tensors there should be may be known only then."""

    def __init__(self, path: Path, shown: Path | None = None, remedy: str = "copy the file again") -> None:
        self.shown, self.remedy = shown or path, remedy
        with open_regular(path, remedy=remedy, shown=self.shown) as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(size - 8, MAX_HEADER_BYTES):
                raise self._fault(f"its header cannot be {length:,} bytes long")
            self._header = file.read(length)
        self.data_bytes = size - 8 - length
        """Bytes after the header."""
        self.most_tensors = self._header.count(b"{")
        """An upper bound of the number of tensors."""

    def entries(self, most: int = MAX_TENSORS) -> Iterator[tuple[str, TensorEntry]]:
        """Yield the tensors, checked against the size of the file; a name may occur twice."""
        if self.most_tensors > most + 2 or count_values(self._header) > 16 * (most + 2):  # with the metadata
            raise self._fault(f"its header lists more than {most:,} tensors")
        try:
            header = json.loads(self._header, object_pairs_hook=list)
        except (ValueError, RecursionError):
            raise self._fault("its header is not JSON") from None
        if not _is_object(header):
            raise self._fault("its header lists no tensors")
        for name, entry in header:
            if name != "__metadata__":
                yield name, self._checked(name, entry)

    def tensors(self, most: int = MAX_TENSORS) -> dict[str, TensorEntry]:
        """Return the tensors by name; their values must fill the file."""
        found: dict[str, TensorEntry] = {}
        for name, entry in self.entries(most):
            if name in found:
                raise ModelFolderError(f"{self.shown}: has a second weight {brief(name)}; {self.remedy}")
            found[name] = entry
        used = max((entry.end for entry in found.values()), default=0)
        if used != self.data_bytes:
            raise ModelFolderError(
                f"{self.shown}: has {self.data_bytes:,} bytes of weights, but its header lists {used:,}; {self.remedy}"
            )
        return found

    def _fault(self, reason: str) -> ModelFolderError:
        return ModelFolderError(f"{self.shown}: is not a safetensors file ({reason}); {self.remedy}")

    def _checked(self, name: str, entry: Any) -> TensorEntry:
        """Return one tensor, if its offsets are within the file and match its shape."""
        table = dict(entry) if _is_object(entry) else {}
        dtype, shape, place = table.get("dtype"), table.get("shape"), table.get("data_offsets")
        width = (FLOATING | OTHERS).get(dtype) if isinstance(dtype, str) else None
        if width is None or not _are_sizes(shape, MAX_AXES) or not _are_sizes(place, 2) or len(place) != 2:
            raise ModelFolderError(
                f"{self.shown}: the header's entry of {brief(name)} has no valid dtype, shape and data_offsets; "
                f"{self.remedy}"
            )
        begin, end = place
        needed = math.prod(shape) * width
        if not begin <= end <= self.data_bytes or end - begin != needed:
            raise ModelFolderError(
                f"{self.shown}: declares {_brief_number(needed)} bytes for the weight {brief(name)} and gives it "
                f"{_brief_number(begin)} to {_brief_number(end)} of the {self.data_bytes:,} that the file holds; "
                f"{self.remedy}"
            )
        return TensorEntry(str(dtype), tuple(shape), end)


def _is_object(value: Any) -> bool:
    """Whether parsed JSON is an object, here a list of pairs: a name may occur twice."""
    return isinstance(value, list) and all(isinstance(pair, tuple) for pair in value)


def _are_sizes(value: Any, most: int) -> TypeGuard[list[int]]:
    return isinstance(value, list) and len(value) <= most and all(type(one) is int and one >= 0 for one in value)


def _brief_number(number: int) -> str:
    return f"{number:,}" if number < 10**18 else "more than 10^18"
