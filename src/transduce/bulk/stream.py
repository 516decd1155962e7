"""An output that is written as it comes and is whole or nothing: standard output, a pipe, a file from a stream."""

from __future__ import annotations

import contextlib
import gzip
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO

from transduce.bulk.answer import Answered
from transduce.bulk.part import Done
from transduce.engines.pace import Pace
from transduce.storage import file_aside


class Stream:
    """The same face as a `Part`, of which nothing was there before."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self.done = Done()

    def refuse_other(self, digest: str) -> None:
        """Nothing was translated before."""

    def begin(self, pace: Pace) -> None:
        """There is nothing to prepare."""

    def write(self, answered: Answered) -> None:
        """Write a window for whoever reads."""
        self._file.write(answered.text)
        self._file.flush()
        self.done = replace(
            self.done,
            segments=self.done.segments + answered.segments,
            counts=self.done.counts.plus(answered.counts),
        )


@contextlib.contextmanager
def open_stream(output: str) -> Iterator[Stream]:
    """Open standard output ("-"), or a file that appears only when it is whole."""
    if output == "-":
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
        yield Stream(sys.stdout)
        return
    with file_aside(Path(output)) as aside:
        if output.endswith(".gz"):
            with gzip.open(aside, "wt", encoding="utf-8", newline="\n") as file:
                yield Stream(file)
        else:
            with aside.open("w", encoding="utf-8", newline="\n") as plain:
                yield Stream(plain)
