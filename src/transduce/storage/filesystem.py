"""File operations that differ between systems or can fail: clear errors, fsync, folders, reads at an offset."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from transduce.errors import CannotCreate, StorageError

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
