"""One JSON line per event. What is the same in every run of a recipe goes to `journal.jsonl`; times go beside it."""

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
    """The record of a run. Two runs of one recipe on one machine write the same `journal.jsonl`, byte for byte."""

    def __init__(self, folder: Path) -> None:
        self.path, self.timing_path = folder / JOURNAL, folder / TIMING
        with storage_errors(self.path):
            folder.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("ab")
            self._timing = self.timing_path.open("a+b")
            _end_at_a_line(self._timing)
            sync(folder)
        self._began = time.monotonic()

    def write(self, event: str, **facts: Any) -> None:
        """Note down an event whose facts depend on the recipe alone."""
        self._append(self._file, {"event": event, **facts})

    def time(self, event: str, **facts: Any) -> None:
        """Note down an event that depends on the machine or the hour."""
        seconds = round(time.monotonic() - self._began, 3)
        self._append(self._timing, {"event": event, "seconds": seconds, "at": round(time.time(), 3), **facts})

    def _append(self, file: Any, facts: Table) -> None:
        with storage_errors(self.path):
            file.write(json.dumps(facts, ensure_ascii=False).encode("utf-8") + b"\n")
            file.flush()

    @property
    def size(self) -> int:
        """Bytes of `journal.jsonl` so far, forced to disk: a checkpoint says where it stood, and counts on them."""
        with storage_errors(self.path):
            os.fsync(self._file.fileno())
        return self._file.tell()

    def cut(self, size: int) -> bool:
        """Forget what was noted after `size` bytes: a resumed run writes it again. False where all is gone already."""
        there = self.path.stat().st_size
        if 0 < there < size:
            raise ModelFolderError(
                f"{self.path}: is shorter than its checkpoint says; put back a copy, or remove it to go on without"
            )
        self._file.truncate(size if there else 0)
        self._file.seek(size if there else 0)
        return there > 0 or size == 0

    def close(self) -> None:
        """Close both files; what could not be written before is tried once more, and may fail once more."""
        with storage_errors(self.path), closing(self._file), closing(self._timing):
            pass


def _end_at_a_line(file: IO[bytes]) -> None:
    """Cut off half a line, which a full disk or a power cut left at the end of a file."""
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
    """Notes nothing down: for a process that helps another one, which writes."""

    path, size = Path(JOURNAL), 0

    def cut(self, size: int) -> bool:
        return True

    def write(self, event: str, **facts: Any) -> None: ...
    def time(self, event: str, **facts: Any) -> None: ...
    def close(self) -> None: ...


def read_journal(path: Path) -> list[Table]:
    """Read all whole lines of a journal."""
    lines = path.read_bytes().split(b"\n")[:-1]
    return [json.loads(line) for line in lines]
