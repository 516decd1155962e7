"""Rows of unequal length on disk: one file of values, one of offsets, both memory-mapped."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from transduce.errors import DataError, MissingInput

Array = NDArray[Any]

OFFSET = np.dtype("<i8")


def values_path(folder: Path, name: str) -> Path:
    return folder / f"{name}.bin"


def offsets_path(folder: Path, name: str) -> Path:
    return folder / f"{name}.offsets.bin"


class Lengths:
    """The lengths of all rows, read from the offsets when asked for: nothing is held for rows nobody asks about."""

    def __init__(self, offsets: Array) -> None:
        self._offsets = offsets

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, rows: Array | slice) -> NDArray[np.int64]:
        """Return the lengths of these rows."""
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            assert step == 1
            return np.diff(np.asarray(self._offsets[start : max(start, stop) + 1])).astype(np.int64)
        return np.asarray(self._offsets[rows + 1] - self._offsets[rows], dtype=np.int64)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """All of them as one array: for corpora known to be small."""
        lengths = self[:]
        return lengths if dtype is None else lengths.astype(dtype)


class Ragged:
    """Rows of unequal length: row i is `values[offsets[i]:offsets[i + 1]]`."""

    def __init__(self, values: Array, offsets: Array) -> None:
        self._values = values
        self._offsets = offsets
        self.lengths = Lengths(offsets)

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]], dtype: Any = np.uint32) -> Self:
        """Put rows held in memory together, for tests and small sets."""
        offsets = np.cumsum([0, *(len(row) for row in rows)], dtype=OFFSET)
        return cls(np.array([value for row in rows for value in row], dtype=dtype), offsets)

    @classmethod
    def open(cls, folder: Path, name: str, dtype: Any) -> Self:
        """Map the two files of `RaggedWriter`."""
        values = _map(values_path(folder, name), np.dtype(dtype))
        offsets = _map(offsets_path(folder, name), OFFSET)
        if len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != len(values):
            raise DataError(
                f"{offsets_path(folder, name)}: does not fit the values beside it; prepare the corpus again"
            )
        return cls(values, offsets)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, row: int) -> Array:
        return self._values[self._offsets[row] : self._offsets[row + 1]]


def read_strings(folder: Path, name: str, start: int, stop: int) -> list[str]:
    """Return consecutive rows of UTF-8 bytes as text, read rather than mapped: what was read leaves no page behind."""
    ends = np.fromfile(offsets_path(folder, name), OFFSET, count=stop - start + 1, offset=OFFSET.itemsize * start)
    first, last = int(ends[0]), int(ends[-1])
    block = np.fromfile(values_path(folder, name), np.uint8, count=last - first, offset=first).tobytes()
    return [block[begin:end].decode() for begin, end in pairwise((ends - first).tolist())]


def _map(path: Path, dtype: np.dtype[Any]) -> Array:
    """Map a file read-only; an empty one, which cannot be mapped, becomes an empty array."""
    try:
        size = path.stat().st_size
        if size % dtype.itemsize:
            raise DataError(f"{path}: {size:,} bytes is no whole number of values; prepare the corpus again")
        # as a plain array: taking single rows of a memmap object is several times slower
        return np.asarray(np.memmap(path, dtype=dtype, mode="r")) if size else np.zeros(0, dtype=dtype)
    except OSError as error:
        raise MissingInput(f"{path}: cannot be read ({error.strerror}); prepare the corpus again") from None


class RaggedWriter:
    """Appends rows to the two files; nothing stays in memory but the last chunk."""

    def __init__(self, folder: Path, name: str, dtype: Any) -> None:
        self._dtype = np.dtype(dtype)
        self._end = 0
        self._values: BinaryIO = values_path(folder, name).open("wb")
        try:
            self._offsets: BinaryIO = offsets_path(folder, name).open("wb")
            self._offsets.write(np.zeros(1, dtype=OFFSET).tobytes())
        except BaseException:
            self._values.close()
            raise

    def append(self, rows: Sequence[Sequence[int]]) -> None:
        """Append rows of numbers."""
        total = sum(map(len, rows))
        self._append(rows, np.fromiter(chain.from_iterable(rows), dtype=self._dtype, count=total).tobytes())

    def append_bytes(self, rows: Sequence[bytes]) -> None:
        """Append rows of bytes (UTF-8 text, for one)."""
        assert self._dtype.itemsize == 1
        self._append(rows, b"".join(rows))

    def _append(self, rows: Sequence[Sequence[int] | bytes], values: bytes) -> None:
        if not rows:
            return
        offsets = self._end + np.cumsum(np.fromiter(map(len, rows), dtype=OFFSET, count=len(rows)))
        self._end = int(offsets[-1])
        self._values.write(values)
        self._offsets.write(offsets.astype(OFFSET).tobytes())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self._values.close()
        finally:
            self._offsets.close()
