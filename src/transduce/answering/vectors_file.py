"""Vectors into an `.npy` file, row after row: how many there will be is known at the end only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self, TypeVar

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from transduce.storage import file_aside

T = TypeVar("T")
TOGETHER = 1024
"""Lines that are read together: similar lengths are then put next to each other."""


def windows_of(lines: Iterable[T]) -> Iterator[list[T]]:
    """Yield lines a window at a time."""
    rest = iter(lines)
    while window := list(islice(rest, TOGETHER)):
        yield window


class VectorFile:
    """Writes float32 rows; the file is there, whole, when the context ends without an error."""

    def __init__(self, path: Path, width: int) -> None:
        self.path, self.width, self.count = path, width, 0

    def append(self, rows: NDArray[np.float32]) -> None:
        """Add rows."""
        self._file.write(np.ascontiguousarray(rows, dtype="<f4").tobytes())
        self.count += len(rows)

    def _header(self) -> None:
        """numpy leaves room in a header for its first axis to grow, so that one can be written over another."""
        npy.write_array_header_1_0(
            self._file, {"descr": "<f4", "fortran_order": False, "shape": (self.count, self.width)}
        )

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        aside = self._stack.enter_context(file_aside(self.path))
        self._file: BinaryIO = self._stack.enter_context(aside.open("wb"))
        self._header()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self._file.seek(0)
            self._header()
        self._stack.__exit__(kind, error, at)
