"""Files and folders that are either whole or not there: written aside, sealed with hashes, then moved into place."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transduce.config import Table
from transduce.errors import Busy, CannotCreate, ModelFolderError, StorageError

MANIFEST = "manifest.json"
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG}


@contextlib.contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn what the system says about writing into a sentence for the person."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StorageError(f"{path}: writing failed ({error.strerror}); make room and try again") from None
        raise CannotCreate(f"{path}: cannot be written ({error.strerror or error}); choose another place") from None


@contextlib.contextmanager
def file_aside(path: Path) -> Iterator[Path]:
    """Give a path next to `path` to write to; put it in place at the end, or remove it on any error."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.writing")
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield aside
            sync(aside)
            aside.replace(path)
            sync(path.parent)
        finally:
            aside.unlink(missing_ok=True)


@contextlib.contextmanager
def folder_aside(folder: Path) -> Iterator[Path]:
    """Give an empty folder next to `folder` to fill; put it in place at the end, or remove it on any error.

    There is no moment without a whole folder under one of its names: the old one steps aside, the new one takes
    its place, and only then the old one goes.
    """
    aside, old = folder.with_name(f".{folder.name}.writing"), folder.with_name(f".{folder.name}.replaced")
    with storage_errors(folder):
        for left in (aside, old):
            shutil.rmtree(left, ignore_errors=True)
        aside.mkdir(parents=True)
        try:
            yield aside
            if folder.exists():
                folder.rename(old)
            aside.rename(folder)
            sync(folder.parent)
        finally:
            for left in (aside, old):
                shutil.rmtree(left, ignore_errors=True)


def seal(folder: Path, kind: str, **notes: Any) -> None:
    """Force every file to disk and write the manifest of their sizes and hashes, last."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            sync(path)
            files[path.relative_to(folder).as_posix()] = {"size": path.stat().st_size, "sha256": sha256(path)}
    write_json(folder / MANIFEST, {"kind": kind, **notes, "files": files})
    for place in [*(path for path in folder.rglob("*") if path.is_dir()), folder]:
        sync(place)


def verify(folder: Path, kind: str) -> Table:
    """Check every file of a sealed folder against its manifest, and return the manifest."""
    if not (folder / MANIFEST).is_file():
        raise ModelFolderError(f"{folder}: is not a {kind} (no {MANIFEST}); give the folder that training wrote")
    manifest = read_json(folder / MANIFEST)
    files = manifest.get("files")
    if manifest.get("kind") != kind or not isinstance(files, dict):
        raise ModelFolderError(f"{folder}: is a {manifest.get('kind', 'foreign folder')}, not a {kind}")
    for name, record in files.items():
        path = folder / name
        if Path(name).is_absolute() or ".." in Path(name).parts or path.is_symlink() or not path.is_file():
            raise ModelFolderError(f"{path}: is missing or not a plain file; copy the whole folder again")
        size = path.stat().st_size
        if not isinstance(record, dict) or size != record.get("size"):
            raise ModelFolderError(f"{path}: has {size:,} bytes, not what its manifest says; copy the folder again")
        if sha256(path) != record.get("sha256"):
            raise ModelFolderError(
                f"{path}: is damaged (its SHA-256 differs from the manifest's); copy the folder again"
            )
    return manifest


def read_json(path: Path) -> Table:
    """Read a JSON object."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelFolderError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError):
        raise ModelFolderError(f"{path}: is not valid JSON; copy the folder again") from None
    if not isinstance(table, dict):
        raise ModelFolderError(f"{path}: is not a JSON object; copy the folder again")
    return table


def write_json(path: Path, table: Table) -> None:
    """Write a JSON object, always as the same bytes, and force it to disk."""
    path.write_text(json.dumps(table, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    sync(path)


@contextlib.contextmanager
def locked(folder: Path, what: str) -> Iterator[None]:
    """Hold a folder for this process alone; the lock ends with the process, however it ends."""
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise Busy(f"{folder}: another process is {what} there; wait for it or choose another folder") from None
    try:
        yield
    finally:
        os.close(lock)


def sha256(path: Path) -> str:
    """Return a file's SHA-256 in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Force a file or a folder's names to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
