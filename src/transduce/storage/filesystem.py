"""File operations that differ between systems or can fail: clear errors, fsync, folders, reads at an offset, locks."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from filelock import lock_descriptor

from transduce.errors import Busy, CannotCreate, StorageError
from transduce.storage.layout import LOCK

WINDOWS = sys.platform == "win32"
DISK_FULL = {errno.ENOSPC, errno.EIO, errno.EFBIG} | ({errno.EDQUOT} if hasattr(errno, "EDQUOT") else set())
"""Error codes of a write that started well and could not be completed."""


@contextlib.contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn an `OSError` while writing `path` into a `StorageError` or `CannotCreate`."""
    try:
        yield
    except BrokenPipeError:
        raise  # the process that reads our output has ended; the path is not to blame
    except OSError as error:
        if error.errno in DISK_FULL:
            left = f", {_free_bytes(path):,} bytes free" if error.errno == errno.ENOSPC else ""
            raise StorageError(f"{path}: writing failed ({error.strerror}{left}); free some space and retry") from None
        raise CannotCreate(f"{path}: cannot be written ({error.strerror or error}); choose another path") from None


@contextlib.contextmanager
def temporary_storage_errors() -> Iterator[None]:
    """Turn an `OSError` while writing temporary files into an error that names their folder, not the output."""
    try:
        folder = Path(tempfile.gettempdir())  # tries to write there, and in other folders if TMPDIR is full
    except FileNotFoundError:
        raise StorageError("no folder for temporary files can be written to; set TMPDIR to one with space") from None
    try:
        with storage_errors(folder):
            yield
    except StorageError as error:
        raise StorageError(f"{error}, or set TMPDIR to another folder") from None


def check_not_input(output: str, *inputs: str | None) -> None:
    """Raise if writing an output would destroy a file that is being read."""
    place = Path(output)
    for name in inputs:
        if name is not None and place.is_file() and Path(name).exists() and place.samefile(name):
            raise CannotCreate(f"{output}: is also an input, which the output would replace; give another --output")


def _free_bytes(path: Path) -> int:
    """Bytes free on the disk where a path is, or would be."""
    existing = next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())
    return shutil.disk_usage(existing).free


def sync(path: Path) -> None:
    """Force a file, or the names in a folder, to disk. Windows cannot do the latter, and does not need to."""
    if WINDOWS and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDWR if WINDOWS else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def create_parents(path: Path, shown: Path | None = None) -> Iterator[None]:
    """Create the folders above a path; on an error, remove those that were created, unless something is in them.

    Errors name `shown`, the path as the user gave it.
    """
    with storage_errors(shown or path):
        created = [parent for parent in path.parents if not parent.exists()]
        if (above := next((parent for parent in path.parents if parent.is_file()), None)) is not None:
            raise NotADirectoryError(errno.ENOTDIR, f"{above.name} is a file")
        path.parent.mkdir(parents=True, exist_ok=True)
        for parent in created:
            sync(parent.parent)  # otherwise files forced to disk inside may have no name after a power cut
    try:
        yield
    except BaseException:
        for parent in created:
            with contextlib.suppress(OSError):
                parent.rmdir()
        raise


def open_for_reading(path: Path) -> int:
    """Open a file for `read_at` and return its descriptor, which child processes do not inherit."""
    return os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))


_READING = threading.Lock()


def read_at(descriptor: int, size: int, offset: int) -> bytes:
    """Read bytes at an offset, from any thread; Windows has no `pread`, so there one thread reads at a time."""
    if hasattr(os, "pread"):
        return os.pread(descriptor, size, offset)
    with _READING:
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.read(descriptor, size)


def remove(path: Path) -> None:
    """Remove a file, a link, or a folder with all that it holds."""
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


# Exclusive locks on files and folders, freed by the system when their process ends, however it ends.
#
# The lock itself is filelock's `lock_descriptor` (`flock` on POSIX, `LockFileEx` on Windows), not its `FileLock`: an
# output that is being written is locked itself and keeps its content, so we need the locked descriptor.


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
