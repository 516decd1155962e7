"""Exclusive locks on files and folders, freed by the system when their process ends, however it ends.

The lock itself is filelock's `lock_descriptor` (`flock` on POSIX, `LockFileEx` on Windows), not its `FileLock`: an
output that is being written is locked itself and keeps its content, so we need the locked descriptor.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from filelock import lock_descriptor

from transduce.errors import Busy
from transduce.storage.filesystem import WINDOWS, storage_errors
from transduce.storage.layout import LOCK


@contextlib.contextmanager
def locked_file(path: Path, shown: Path, busy: str, remove: bool = False) -> Iterator[IO[bytes]]:
    """Open a file for this process alone, with its content; an absent file is created.

    Errors name `shown`; `busy` is the message of the `Busy` error when another process has the lock. `remove` deletes
    the file at the end.
    """
    while (descriptor := _open_locked(path, shown, busy)) is None:
        pass
    try:
        with os.fdopen(descriptor, "r+b", buffering=0) as file:
            try:
                yield file
            finally:
                if remove and not WINDOWS:  # while it is still locked, so that no other process has it open and locked
                    path.unlink(missing_ok=True)
    finally:
        if remove and WINDOWS:  # where an open file cannot be removed
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(folder: Path, activity: str) -> Iterator[None]:
    """Hold a folder for this process alone while inside; `activity` is what the other process does, for the error."""
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    busy = f"{folder}: another process is {activity} there; wait for it to end, or choose another folder"
    with locked_file(folder / LOCK, folder, busy):
        yield


def _open_locked(path: Path, shown: Path, busy: str) -> int | None:
    """Open and lock a file; None if it was moved or removed between the two, so that the lock protects nothing."""
    with storage_errors(shown):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
        try:
            acquired = lock_descriptor(descriptor, blocking=False)
            if acquired and path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
    os.close(descriptor)
    if not acquired:
        raise Busy(busy)
    return None


def move_locked(file: IO[bytes], path: Path, target: Path) -> None:
    """Rename a locked file over `target`. Windows cannot rename an open file: there the lock ends just before."""
    if WINDOWS:
        file.close()
    path.replace(target)
