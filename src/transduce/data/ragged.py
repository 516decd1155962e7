"""Rows of unequal length on disk: one file of values, one of offsets; memory-mapped, or read in parts if large."""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from itertools import chain, pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from transduce.errors import DataError, MissingInput
from transduce.storage.filesystem import open_for_reading, read_at


def take_rows(
    values: NDArray[Any], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the rows `values[start:end]` in one array, and their lengths; no loop over rows."""
    lengths = ends - starts
    before = np.cumsum(lengths) - lengths
    return values[np.arange(int(lengths.sum())) + np.repeat(starts - before, lengths)], lengths


Array = NDArray[Any]

OFFSET = np.dtype("<i8")


def values_path(folder: Path, name: str) -> Path:
    return folder / f"{name}.bin"


def offsets_path(folder: Path, name: str) -> Path:
    return folder / f"{name}.offsets.bin"


MAPPED_BYTES = 2**25
"""Files up to this size are memory-mapped; of larger ones only the requested rows are read. The touched pages of a
mapped file count as memory of the process, and rows in random order touch all of them."""
NEAR = 2**12
"""Requested values that are no further apart than this are read together."""
STRETCH = 2**17
"""Maximum values read together."""


class FileArray:
    """A one-dimensional array in a file, read where it is indexed."""

    def __init__(self, path: Path, dtype: np.dtype[Any], size: int) -> None:
        self._path = path
        self._file = open_for_reading(path)
        weakref.finalize(self, os.close, self._file)
        self._dtype = dtype
        self._size = size

    def __len__(self) -> int:
        return self._size

    def read(self, start: int, stop: int) -> Array:
        """Return consecutive values."""
        width = self._dtype.itemsize
        content = read_at(self._file, (stop - start) * width, start * width)
        if len(content) != (stop - start) * width:
            raise DataError(f"{self._path}: is shorter than it was; prepare the corpus again")
        return np.frombuffer(content, dtype=self._dtype)

    def __getitem__(self, at: Any) -> Any:
        """Return a value, consecutive values (for a range), or the values at some places (for an array)."""
        if isinstance(at, slice):
            start, stop, step = at.indices(self._size)
            assert step == 1
            return self.read(start, max(start, stop))
        if not isinstance(at, np.ndarray):
            at = int(at) + (self._size if at < 0 else 0)
            return self.read(at, at + 1)[0]
        order = np.argsort(at, kind="stable")
        places = at[order]
        cuts = (np.diff(places) > NEAR) | (np.diff(places // STRETCH) > 0)
        found = np.empty(len(at), dtype=self._dtype)
        for begin, end in pairwise([0, *(np.flatnonzero(cuts) + 1).tolist(), len(at)] if len(at) else []):
            first = int(places[begin])
            found[order[begin:end]] = self.read(first, int(places[end - 1]) + 1)[places[begin:end] - first]
        return found

    def rows(self, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Array:
        """Return rows of values one after the other."""
        file, width = self._file, self._dtype.itemsize
        bounds = zip((starts * width).tolist(), ((ends - starts) * width).tolist(), strict=True)
        return np.frombuffer(b"".join([read_at(file, length, start) for start, length in bounds]), dtype=self._dtype)


class Lengths:
    """The lengths of all rows, read from the offsets where they are indexed."""

    def __init__(self, offsets: Array | FileArray) -> None:
        self._offsets = offsets

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, rows: Array | slice) -> NDArray[np.int64]:
        """Return the lengths of these rows."""
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            assert step == 1
            return np.diff(np.asarray(self._offsets[start : max(start, stop) + 1])).astype(np.int64)
        starts, ends = bounds_of(self._offsets, rows)
        return ends - starts


def bounds_of(offsets: Array | FileArray, rows: Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where each of these rows starts and ends."""
    if isinstance(offsets, FileArray) and len(rows) * NEAR < len(offsets):  # far apart: one read for each
        pairs = offsets.rows(rows, rows + 2).astype(np.int64).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]
    both = np.asarray(offsets[np.concatenate([rows, rows + 1])], dtype=np.int64)
    return both[: len(rows)], both[len(rows) :]


class Ragged:
    """Rows of unequal length: row i is `values[offsets[i]:offsets[i + 1]]`."""

    def __init__(self, values: Array | FileArray, offsets: Array | FileArray) -> None:
        self._values = values
        self._offsets = offsets
        self.lengths = Lengths(offsets)

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]], dtype: Any = np.uint32) -> Self:
        """Hold rows in memory."""
        offsets = np.cumsum([0, *(len(row) for row in rows)], dtype=OFFSET)
        return cls(np.array([value for row in rows for value in row], dtype=dtype), offsets)

    @classmethod
    def open(cls, folder: Path, name: str, dtype: Any) -> Self:
        """Open the two files of `RaggedWriter`."""
        values = open_array(values_path(folder, name), np.dtype(dtype))
        offsets = open_array(offsets_path(folder, name), OFFSET)
        if len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != len(values):
            raise DataError(
                f"{offsets_path(folder, name)}: does not match its file of values; prepare the corpus again"
            )
        return cls(values, offsets)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, row: int) -> Array:
        start, end = self._offsets[row : row + 2]
        return np.asarray(self._values[start:end])

    def stretch(self, start: int, stop: int) -> tuple[Array, NDArray[np.int64]]:
        """Return consecutive rows in one array, and their lengths."""
        ends = np.asarray(self._offsets[start : stop + 1])
        return np.asarray(self._values[int(ends[0]) : int(ends[-1])]), np.diff(ends).astype(np.int64)

    def take(self, rows: Array) -> tuple[Array, NDArray[np.int64]]:
        """Return some rows one after the other in one array, and their lengths."""
        starts, ends = bounds_of(self._offsets, rows)
        if isinstance(self._values, FileArray):
            return self._values.rows(starts, ends), ends - starts
        return take_rows(self._values, starts, ends)


def read_rows(folder: Path, name: str, dtype: Any, start: int, stop: int) -> list[Array]:
    """Return consecutive rows, read rather than mapped, so that no page stays in memory."""
    block, ends = _read_block(folder, name, np.dtype(dtype), start, stop)
    return [block[begin:end] for begin, end in pairwise(ends)]


def read_strings(folder: Path, name: str, start: int, stop: int) -> list[str]:
    """Return consecutive rows of UTF-8 bytes as text, read as by `read_rows`."""
    values, ends = _read_block(folder, name, np.dtype(np.uint8), start, stop)
    block = values.tobytes()
    return [block[begin:end].decode() for begin, end in pairwise(ends)]


def _read_block(folder: Path, name: str, dtype: np.dtype[Any], start: int, stop: int) -> tuple[Array, list[int]]:
    """Return consecutive rows in one array, and where they end, after a leading 0."""
    ends = np.fromfile(offsets_path(folder, name), OFFSET, count=stop - start + 1, offset=OFFSET.itemsize * start)
    first, last = int(ends[0]), int(ends[-1])
    block = np.fromfile(values_path(folder, name), dtype, count=last - first, offset=dtype.itemsize * first)
    return block, (ends - first).tolist()


def open_array(path: Path, dtype: np.dtype[Any]) -> Array | FileArray:
    """Open a file for reading: memory-mapped, or as a `FileArray` if large; an empty file cannot be mapped."""
    try:
        size = path.stat().st_size
        if size % dtype.itemsize:
            raise DataError(f"{path}: {size:,} bytes is not a whole number of values; prepare the corpus again")
        if size > MAPPED_BYTES:
            return FileArray(path, dtype, size // dtype.itemsize)
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
        lengths = np.fromiter(map(len, rows), dtype=OFFSET, count=len(rows))
        self.append_flat(np.fromiter(chain.from_iterable(rows), self._dtype, count=int(lengths.sum())), lengths)

    def append_bytes(self, rows: Sequence[bytes]) -> None:
        """Append rows of bytes (UTF-8 text, for one)."""
        assert self._dtype.itemsize == 1
        lengths = np.fromiter(map(len, rows), dtype=OFFSET, count=len(rows))
        self._append(b"".join(rows), lengths)

    def append_flat(self, values: Array, lengths: NDArray[np.int64]) -> None:
        """Append rows from one array, one after the other."""
        self._append(values.astype(self._dtype, copy=False).tobytes(), lengths)

    def _append(self, values: bytes, lengths: NDArray[np.int64]) -> None:
        if not len(lengths):
            return
        offsets = self._end + np.cumsum(lengths)
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
