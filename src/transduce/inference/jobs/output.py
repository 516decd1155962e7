"""Output that survives interruptions: a partial file that grows, and a progress file.

    OUTPUT.part             the translations so far; of OUTPUT.gz, each window is a gzip member of its own
    OUTPUT.progress.json    complete segments and bytes, counts, and the fingerprint; replaced after each window

The partial file is synced before the progress file is replaced, so that after a power cut the progress is never ahead.
Whatever the partial file has beyond the progress is cut off on resume. The writer holds a lock on the partial file.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from transduce.config import Table
from transduce.errors import CannotCreate
from transduce.inference.ctranslate2.engine import Parallelism
from transduce.inference.jobs.job import TranslatedWindow
from transduce.inference.jobs.source import is_file
from transduce.inference.segment import TranslationCounts
from transduce.model_folder import find_model
from transduce.storage.atomic import atomic_file, read_json, replace_json
from transduce.storage.filesystem import create_parents, locked_file, move_locked, storage_errors, sync
from transduce.storage.layout import MANIFEST
from transduce.storage.manifest import sha256

KIND = "transduce translation"
LONGEST_NAME = 255 - len(".progress.json.new")
"""Maximum bytes of an output's name, so that the names with suffixes are valid."""


@dataclass(frozen=True)
class Done:
    """How much of a job is complete."""

    segments: int = 0
    size: int = 0
    """Bytes of the partial file."""
    digest: str = ""
    """Hash of the segments that were translated, as they were read: the input must begin with them."""
    counts: TranslationCounts = field(default_factory=TranslationCounts)
    parallelism: Parallelism | None = None
    """The parallelism that was used."""

    def to_table(self) -> Table:
        return asdict(self)

    @classmethod
    def from_table(cls, table: Table) -> Done:
        """Read what `to_table` returned; anything else raises a built-in exception, such as KeyError."""
        parallelism = table["parallelism"]
        done = cls(
            int(table["segments"]),
            int(table["size"]),
            str(table["digest"]),
            TranslationCounts(**{name: int(count) for name, count in table["counts"].items()}),
            None if parallelism is None else Parallelism(**{name: int(number) for name, number in parallelism.items()}),
        )
        negative = done.segments < 0 or done.size < 0
        if negative or (done.parallelism is not None and min(vars(done.parallelism).values()) < 1):
            raise ValueError
        return done


def is_resumable(source: str, output: str) -> bool:
    """Whether a job can be resumed after an interruption: from a file, into a file."""
    if output == "-" or len(os.fsencode(Path(os.path.realpath(output)).name)) > LONGEST_NAME:
        return False
    try:
        return is_file(source) and (is_file(output) or not Path(output).exists())
    except OSError:  # `open` reports why
        return False


class PartialOutput:
    """The output of a job while it is written; made by `open_partial`."""

    def __init__(self, output: Path, shown: Path, file: IO[bytes], fingerprint: Table) -> None:
        self._output, self._file, self._fingerprint = output, file, fingerprint
        self.path, self.note = _beside(shown, ".part"), _beside(shown, ".progress.json")
        """Their names in messages."""
        self._part, self._note = _beside(output, ".part"), _beside(output, ".progress.json")
        self.done = self._found()

    def check_input(self, digest: str) -> None:
        """Raise if the input does not begin with what was translated before."""
        if self.done.segments and digest != self.done.digest:
            raise self._mismatch("another input")

    def begin(self, parallelism: Parallelism) -> None:
        """Cut off what is incomplete, and write the progress file, which identifies the partial file."""
        with storage_errors(self.path):
            self._file.truncate(self.done.size)
            self._file.seek(self.done.size)
            self._commit(replace(self.done, parallelism=parallelism))

    def write(self, window: TranslatedWindow) -> None:
        """Append a window, and sync it."""
        with storage_errors(self.path):
            self._append(window.content)
            self._commit(
                replace(
                    self.done,
                    segments=self.done.segments + window.segments,
                    size=self._file.tell(),
                    digest=window.digest,
                    counts=self.done.counts.plus(window.counts),
                )
            )

    def finish(self) -> None:
        """Rename the partial file to the output. The progress file goes last: it identifies the partial file."""
        with storage_errors(self.path):
            if not self.done.size:
                self._append(b"")
            os.fsync(self._file.fileno())
            move_locked(self._file, self._part, self._output)
            sync(self._output.parent)
            self._note.unlink(missing_ok=True)

    def remove(self) -> None:
        """Delete both files."""
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
        replace_json(self._note, {"kind": KIND, "done": done.to_table(), "fingerprint": self._fingerprint})
        self.done = done

    def _found(self) -> Done:
        """Read the progress of an earlier process, and check that it was the same job."""
        size = os.fstat(self._file.fileno()).st_size
        if not self._note.exists():
            if size:
                raise CannotCreate(f"{self.path}: exists and is not a partial translation; move it away or delete it")
            return Done()
        remedy = f"delete {self.path} and {self.note} to start over"
        table = read_json(self._note, CannotCreate, remedy)
        if table.get("kind") != KIND:
            raise CannotCreate(
                f"{self.note}: exists and is not the progress of a translation; move it away or delete it"
            )
        if size == 0:  # finished, or never started
            return Done()
        try:
            done, before = Done.from_table(table["done"]), dict(table["fingerprint"])
        except (KeyError, TypeError, ValueError, AttributeError):
            raise CannotCreate(f"{self.note}: is damaged; {remedy}") from None
        if size < done.size:
            raise CannotCreate(f"{self.path}: has {size} bytes instead of {done.size}; {remedy}")
        for name in sorted(self._fingerprint.keys() | before.keys()):
            if done.segments and self._fingerprint.get(name) != before.get(name):
                raise self._mismatch(f"another {name}")
        return done if done.segments else Done()

    def _mismatch(self, what: str) -> CannotCreate:
        return CannotCreate(
            f"{self.path}: was started with {what}; give the same as before, or delete {self.path} and {self.note} to "
            "start over"
        )


@contextlib.contextmanager
def open_partial(output: str, fingerprint: dict[str, Any]) -> Iterator[PartialOutput]:
    """Open the partial file of an output, new or resumed; it is renamed at the end, and kept on an error.

    An empty one is removed. A symbolic link is followed.
    """
    shown = Path(output)
    place = Path(os.path.realpath(shown))
    busy = f"{shown}: another process is writing it; wait for it to end"
    with create_parents(place, shown), locked_file(_beside(place, ".part"), shown, busy) as file:
        try:
            part = PartialOutput(place, shown, file, _as_json(fingerprint))
        except CannotCreate:
            if not os.fstat(file.fileno()).st_size:  # it did not exist before
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


def _as_json(fingerprint: dict[str, Any]) -> Table:
    """Return a table as JSON gives it back."""
    plain: Table = json.loads(json.dumps(fingerprint))
    return plain


# Output that cannot be resumed.


class StreamOutput:
    """Output that cannot be resumed: standard output, a pipe, a file whose input is a stream."""

    def __init__(self, file: IO[bytes] | gzip.GzipFile) -> None:
        self._file = file
        self.done = Done()

    def check_input(self, digest: str) -> None:
        """Nothing was translated before."""

    def begin(self, parallelism: Parallelism) -> None:
        """There is nothing to prepare."""

    def write(self, window: TranslatedWindow) -> None:
        """Write a window and flush it."""
        self._file.write(window.content)
        self._file.flush()
        self.done = replace(
            self.done,
            segments=self.done.segments + window.segments,
            counts=self.done.counts.plus(window.counts),
        )


@contextlib.contextmanager
def open_stream(output: str) -> Iterator[StreamOutput]:
    """Open standard output ("-"), or a file that appears only when it is complete."""
    if output == "-":
        sys.stdout.flush()
        yield StreamOutput(sys.stdout.buffer)
        return
    with atomic_file(Path(output)) as temporary:
        if output.endswith(".gz"):
            with gzip.open(temporary, "wb") as file:
                yield StreamOutput(file)
        else:
            with temporary.open("wb") as plain:
                yield StreamOutput(plain)


# The output of a command.


@contextlib.contextmanager
def open_output(
    source: str, output: str, fingerprint: Table, on_interruption: Callable[[Path], None]
) -> Iterator[PartialOutput | StreamOutput]:
    """Open the output of a job, resumable where it can be.

    If an error leaves a partial output behind, `on_interruption` is called with its path.
    """
    if not is_resumable(source, output):
        with open_stream(output) as stream:
            yield stream
        return
    with open_partial(output, fingerprint) as part:
        try:
            yield part
        except BaseException:
            if part.done.segments:
                on_interruption(part.path)
            raise


IRRELEVANT_OPTIONS = ("run", "ensemble", "workers", "threads", "shard", "ray", "actors", "block_lines")
"""Options that do not change translations; of models the contents count, not the names."""
FILE_OPTIONS = ("prefix_file", "terms", "shortlist")
"""Options that name a file, of which the contents count too."""


def fingerprint(given: dict[str, Any], uses_ctranslate2: bool) -> Table:
    """Return everything that translations depend on: options as given, hashes of models and files, and the engine.

    An interrupted job is resumed only with the same fingerprint.
    """
    found = {_option(name): value for name, value in given.items() if name not in IRRELEVANT_OPTIONS}
    found |= {_option(name): sha256(Path(given[name])) for name in FILE_OPTIONS if is_file(given[name] or "-")}
    models = [sha256(find_model(Path(run)) / MANIFEST) for run in (given["run"], *given["ensemble"])]
    return {**found, "model": models, "engine": "ctranslate2" if uses_ctranslate2 else "torch"}


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
