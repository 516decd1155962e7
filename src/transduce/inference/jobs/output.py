"""An output that survives interruptions: a part that grows, and a note beside it of how far it is whole.

    OUTPUT.part             what was translated so far; of OUTPUT.gz, each window is a gzip member of its own
    OUTPUT.progress.json    segments and bytes that are whole, counts, and what was asked; replaced after each window

What is in the part is forced to disk before the note says so, so after a power cut the note is never ahead of the part.
What the part has beyond the note is cut off by whoever goes on. The part is locked by who writes it.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from transduce.config import Table
from transduce.errors import CannotCreate
from transduce.inference.answerer import Counts
from transduce.inference.jobs.source import is_file
from transduce.inference.jobs.window import Answered
from transduce.inference.pace import Pace
from transduce.storage.atomic import atomic_file
from transduce.storage.filesystem import create_parents, storage_errors, sync
from transduce.storage.json_file import read_json, replace_json
from transduce.storage.lock import locked_file, move_locked

KIND = "transduce translation"
LONGEST_NAME = 255 - len(".progress.json.new")
"""Bytes of an output's name to which there is room to add something."""


@dataclass(frozen=True)
class Done:
    """How far a part is whole."""

    segments: int = 0
    size: int = 0
    """Bytes of the part."""
    digest: str = ""
    """Of the segments that were translated, as they came in: what comes in now must begin with them."""
    counts: Counts = field(default_factory=Counts)
    pace: Pace | None = None
    """How the machine was shared out, where that was tried out."""

    def to_table(self) -> Table:
        return asdict(self)

    @classmethod
    def from_table(cls, table: Table) -> Done:
        """Read what `to_table` gave; anything else is some error of Python's."""
        pace = table["pace"]
        done = cls(
            int(table["segments"]),
            int(table["size"]),
            str(table["digest"]),
            Counts(**{name: int(count) for name, count in table["counts"].items()}),
            None if pace is None else Pace(**{name: int(number) for name, number in pace.items()}),
        )
        if done.segments < 0 or done.size < 0 or (done.pace is not None and min(vars(done.pace).values()) < 1):
            raise ValueError
        return done


def is_resumable(source: str, output: str) -> bool:
    """Whether a translation can go on after an interruption: from a file, into a file."""
    if output == "-" or len(os.fsencode(Path(os.path.realpath(output)).name)) > LONGEST_NAME:
        return False
    try:
        return is_file(source) and (is_file(output) or not Path(output).exists())
    except OSError:  # whoever opens it says why
        return False


class Part:
    """The output of one translation while it is written; made by `open_part`."""

    def __init__(self, output: Path, shown: Path, file: IO[bytes], asked: Table) -> None:
        self._output, self._file, self._asked = output, file, asked
        self.path, self.note = _beside(shown, ".part"), _beside(shown, ".progress.json")
        """As messages call them."""
        self._part, self._note = _beside(output, ".part"), _beside(output, ".progress.json")
        self.done = self._found()

    def refuse_other(self, digest: str) -> None:
        """Say no where what was translated before is not what the input begins with now."""
        if self.done.segments and digest != self.done.digest:
            raise self._refusal("another input")

    def begin(self, pace: Pace) -> None:
        """Cut off what is not whole, and leave a note, so that the part is known to be one."""
        with storage_errors(self.path):
            self._file.truncate(self.done.size)
            self._file.seek(self.done.size)
            self._commit(replace(self.done, pace=pace))

    def write(self, answered: Answered) -> None:
        """Add a window, and make it last."""
        with storage_errors(self.path):
            self._append(answered.text.encode("utf-8"))
            self._commit(
                replace(
                    self.done,
                    segments=self.done.segments + answered.segments,
                    size=self._file.tell(),
                    digest=answered.digest,
                    counts=self.done.counts.plus(answered.counts),
                )
            )

    def finish(self) -> None:
        """Give the part its name. The note goes last: a part without one is nobody's."""
        with storage_errors(self.path):
            if not self.done.size:
                self._append(b"")
            os.fsync(self._file.fileno())
            move_locked(self._file, self._part, self._output)
            sync(self._output.parent)
            self._note.unlink(missing_ok=True)

    def remove(self) -> None:
        """Leave nothing behind."""
        self._part.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)

    def _append(self, data: bytes) -> None:
        if self._output.name.endswith(".gz"):
            data = gzip.compress(data, compresslevel=6, mtime=0)
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) :]

    def _commit(self, done: Done) -> None:
        os.fsync(self._file.fileno())
        replace_json(self._note, {"kind": KIND, "done": done.to_table(), "asked": self._asked})
        self.done = done

    def _found(self) -> Done:
        """How far the part is whole that somebody left, after checking that it is of the same translation."""
        size = os.fstat(self._file.fileno()).st_size
        if not self._note.exists():
            if size:
                raise CannotCreate(f"{self.path}: is there, and no part of a translation; move it away or delete it")
            return Done()
        remedy = f"delete {self.path} and {self.note} to begin anew"
        table = read_json(self._note, CannotCreate, remedy)
        if table.get("kind") != KIND:
            raise CannotCreate(f"{self.note}: is there, and not of a translation; move it away or delete it")
        if size == 0:  # the part was finished, or never begun
            return Done()
        try:
            done, asked = Done.from_table(table["done"]), dict(table["asked"])
        except (KeyError, TypeError, ValueError, AttributeError):
            raise CannotCreate(f"{self.note}: is damaged; {remedy}") from None
        if size < done.size:
            raise CannotCreate(f"{self.path}: has {size} bytes instead of {done.size}; {remedy}")
        for name in sorted(self._asked.keys() | asked.keys()):
            if done.segments and self._asked.get(name) != asked.get(name):
                raise self._refusal(f"another {name}")
        return done if done.segments else Done()

    def _refusal(self, what: str) -> CannotCreate:
        return CannotCreate(
            f"{self.path}: was begun with {what}; ask for the same as then, or delete {self.path} and {self.note} to "
            "begin anew"
        )


@contextlib.contextmanager
def open_part(output: str, asked: dict[str, Any]) -> Iterator[Part]:
    """Give the part of an output, begun or not; at the end it gets its name, on an error it stays for the next time.

    Unless there is nothing in it: then nothing stays. A link is followed.
    """
    shown = Path(output)
    place = Path(os.path.realpath(shown))
    busy = f"{shown}: another process is writing it; wait for it to end"
    with create_parents(place, shown), locked_file(_beside(place, ".part"), shown, busy) as file:
        try:
            part = Part(place, shown, file, _plain(asked))
        except CannotCreate:
            if not os.fstat(file.fileno()).st_size:  # it was not there before
                _beside(place, ".part").unlink()
            raise
        try:
            yield part
            part.finish()
        except BaseException:
            if not part.done.segments:
                part.remove()
            raise


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _plain(asked: dict[str, Any]) -> Table:
    """What was asked, as JSON gives it back."""
    plain: Table = json.loads(json.dumps(asked))
    return plain


# An output that is written as it comes and is whole or nothing: standard output, a pipe, a file from a stream.


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
    with atomic_file(Path(output)) as temporary:
        if output.endswith(".gz"):
            with gzip.open(temporary, "wt", encoding="utf-8", newline="\n") as file:
                yield Stream(file)
        else:
            with temporary.open("w", encoding="utf-8", newline="\n") as plain:
                yield Stream(plain)
