"""Atomic writes: a file or folder is written under a temporary name, forced to disk, then renamed into place.

Wherever a process stops, the real name has the old version or the new one, complete.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from transduce.config import Table
from transduce.errors import CannotCreate, ModelFolderError, TransduceError
from transduce.storage.filesystem import create_parents, locked_file, remove, storage_errors, sync
from transduce.storage.untrusted import MAX_JSON_BYTES, parse_json, read_regular

WRITING, REPLACED = ".writing", ".replaced"
"""Suffixes of the hidden names of what is being written, and of a folder that is being replaced."""


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Give a temporary path to write to; rename it to `path` at the end, or remove it on any error.

    A link is followed. A device or pipe (/dev/stdout) is written to directly: it cannot be renamed.
    """
    with storage_errors(path):
        if path.is_dir():
            raise CannotCreate(f"{path}: is a folder; give the name of a file")
        if path.exists() and not path.is_file():
            yield path
            return
        place = Path(os.path.realpath(path))
        temporary = place.with_name(f".{place.name[:40]}.{os.getpid()}{WRITING}")
        with create_parents(place, path):
            try:
                yield temporary
                sync(temporary)
                temporary.replace(place)
                sync(place.parent)
            finally:
                temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Give an empty temporary folder to fill; rename it to `folder` at the end, or remove it on any error.

    At every moment a complete folder exists under one of its names: the old one is renamed, the new one takes its
    place, and only then the old one is removed. The next process recovers what a killed one left behind, and a lock
    keeps two from writing at once.
    """
    temporary, old = folder.with_name(f".{folder.name}{WRITING}"), folder.with_name(f".{folder.name}{REPLACED}")
    with storage_errors(folder), create_parents(folder), _claimed(temporary, folder):
        _restore(old, folder)
        try:
            yield temporary
            if folder.exists():
                folder.rename(old)
            temporary.rename(folder)
            sync(folder.parent)
        finally:
            _restore(old, folder)


def _restore(old: Path, folder: Path) -> None:
    """Undo a replacement that was interrupted half-way; remove the old folder of a completed one."""
    if old.is_dir() and not folder.exists():
        old.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def _claimed(temporary: Path, folder: Path) -> Iterator[None]:
    """Make the temporary folder, empty and for this process alone.

    The lock is a file beside it: Windows can neither open a folder nor rename one that has an open file in it.
    """
    busy = f"{folder}: another process is writing it; wait for it to end"
    with locked_file(temporary.with_name(f"{temporary.name}.lock"), folder, busy, remove=True):
        try:
            temporary.mkdir(exist_ok=True)
            for left in temporary.iterdir():
                remove(left)
            yield
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise


def recover(folder: Path) -> None:
    """Put back what an interrupted replacement had renamed, and remove temporary files and folders.

    For a folder that this process holds alone: no other process is writing to what killed processes left there.
    """
    for old in folder.glob(f".*{REPLACED}"):
        _restore(old, folder / old.name[1:].removesuffix(REPLACED))
    for pattern in (f".*{WRITING}", f".*{WRITING}.lock"):
        for left in folder.glob(pattern):
            remove(left)


def write_file(path: Path, content: bytes) -> None:
    """Write a file atomically into a folder that exists; a link is followed, a device written to."""
    if not path.parent.is_dir():
        raise CannotCreate(f"{path}: cannot be created (there is no folder {path.parent}); choose another path")
    with atomic_file(path) as temporary:
        temporary.write_bytes(content)


# JSON files.

REMEDY = "copy the folder again"


def read_json(path: Path, error_type: type[TransduceError] = ModelFolderError, remedy: str = REMEDY) -> Table:
    """Read a JSON object; a file that is none raises `error_type`, with `remedy` as the advice.

    Only regular files of at most `MAX_JSON_BYTES` are read.
    """
    return parse_json(read_regular(path, MAX_JSON_BYTES, error_type, remedy), path, error_type, remedy)


def write_json(path: Path, table: Table) -> None:
    """Write a JSON object, the same object always as the same bytes, and force it to disk."""
    path.write_bytes(json_bytes(table))
    sync(path)


def replace_json(path: Path, table: Table) -> None:
    """Replace a JSON file: wherever this is interrupted, the old object or the new one is complete.

    For one process at a time; the temporary file of a killed process is overwritten by the next.
    """
    temporary = path.with_name(f"{path.name}.new")
    try:
        write_json(temporary, table)
        temporary.replace(path)
        sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def json_bytes(table: Table) -> bytes:
    """The bytes that `write_json` writes."""
    return (json.dumps(table, ensure_ascii=False, indent=2) + "\n").encode("utf-8")
