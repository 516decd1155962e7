"""The journal of a run: one JSON line per event.

`journal.jsonl` has what every run of a recipe repeats, `timing.jsonl` what depends on the machine and the time.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import closing
from pathlib import Path
from typing import IO, Any

from transduce.config import Table
from transduce.errors import ModelFolderError
from transduce.storage.filesystem import storage_errors, sync
from transduce.storage.layout import JOURNAL, TIMING


class Journal:
    """Writes a run's journal. Two runs of one recipe on one machine write the same `journal.jsonl`, byte for byte."""

    def __init__(self, folder: Path) -> None:
        self.path, self.timing_path = folder / JOURNAL, folder / TIMING
        with storage_errors(self.path):
            folder.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("ab")
            self._timing = self.timing_path.open("a+b")
            _drop_incomplete_line(self._timing)
            sync(folder)
        self._began = time.monotonic()

    def write(self, event: str, **values: Any) -> None:
        """Log an event whose values depend on the recipe alone."""
        self._append(self._file, {"event": event, **values})

    def time(self, event: str, **values: Any) -> None:
        """Log an event that depends on the machine or the time."""
        seconds = round(time.monotonic() - self._began, 3)
        self._append(self._timing, {"event": event, "seconds": seconds, "at": round(time.time(), 3), **values})

    def _append(self, file: Any, line: Table) -> None:
        with storage_errors(self.path):
            file.write(json.dumps(line, ensure_ascii=False).encode("utf-8") + b"\n")
            file.flush()

    @property
    def size(self) -> int:
        """Bytes of `journal.jsonl` so far, forced to disk: a checkpoint records them, and resuming relies on it."""
        with storage_errors(self.path):
            os.fsync(self._file.fileno())
        return self._file.tell()

    def cut(self, size: int) -> bool:
        """Cut the journal back to `size` bytes: a resumed run writes the rest again. False if the journal was lost."""
        there = self.path.stat().st_size
        if 0 < there < size:
            raise ModelFolderError(
                f"{self.path}: is shorter than its checkpoint states; restore a copy, or delete it to resume without it"
            )
        self._file.truncate(size if there else 0)
        self._file.seek(size if there else 0)
        return there > 0 or size == 0

    def close(self) -> None:
        """Close both files; what could not be written before is retried, and may fail again."""
        with storage_errors(self.path), closing(self._file), closing(self._timing):
            pass


def _drop_incomplete_line(file: IO[bytes]) -> None:
    """Remove the incomplete line that a full disk or a power cut left at the end of a file."""
    size = end = file.seek(0, os.SEEK_END)
    while end:
        start = max(0, end - 4096)
        file.seek(start)
        last = file.read(end - start).rfind(b"\n")
        end = start + last + 1 if last >= 0 else start
        if last >= 0:
            break
    if end < size:
        file.truncate(end)
    file.seek(0, os.SEEK_END)


class NoJournal:
    """Logs nothing: for ranks that do not lead."""

    path, size = Path(JOURNAL), 0

    def cut(self, size: int) -> bool:
        return True

    def write(self, event: str, **values: Any) -> None: ...
    def time(self, event: str, **values: Any) -> None: ...
    def close(self) -> None: ...


def read_journal(path: Path) -> list[Table]:
    """Read the complete lines of a journal."""
    lines = path.read_bytes().split(b"\n")[:-1]
    return [json.loads(line) for line in lines]
