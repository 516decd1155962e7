"""A folder of files written as one: aside first, sealed with a manifest of hashes, then moved into place."""

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
from typing import Any, Final, Literal

import pydantic

from transduce.config import Config, Table
from transduce.errors import Busy, CannotCreate, DataError, MissingInput, SettingsError, StorageError

MANIFEST = "manifest.json"
KIND: Final = "transduce prepared corpus"
FORMAT = 1
"""Of the folder's layout; a higher one is refused."""
SMALL_FILE = 16 * 2**20
"""Bytes up to which a file's hash is checked whenever the folder is opened; larger ones only when asked."""

_STORAGE = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG}


class FileRecord(Config):
    """What a file must be."""

    size: int
    """Bytes."""
    sha256: str
    """Of the whole file, in hexadecimal."""


class Manifest(Config):
    """What a prepared corpus is made of; written last, so that its presence says the folder is whole."""

    kind: Literal["transduce prepared corpus"] = KIND
    """What the folder is."""
    format: int = FORMAT
    """Of the layout."""
    settings: dict[str, Any]
    """The tables `data` and `tokenizer` it was made by."""
    token_bytes: dict[str, Literal[2, 4]]
    """Bytes per token id, for source and target."""
    files: dict[str, FileRecord]
    """Every other file, by its path in the folder."""

    @pydantic.model_validator(mode="after")
    def _readable(self) -> Manifest:
        if self.format > FORMAT:
            raise ValueError(f"format {self.format} is newer than this version of transduce reads ({FORMAT})")
        return self


@contextlib.contextmanager
def written_aside(folder: Path) -> Iterator[Path]:
    """Give a new folder next to `folder` to write into; put it in place at the end, or remove it on any error.

    A prepared corpus that stood there is replaced; anything else is refused. What an interrupted attempt left behind
    is removed by the next one, and two at once are told apart by a lock.
    """
    aside = folder.parent / f".{folder.name}.preparing"
    with _storage_errors(folder):
        _refuse_foreign(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = _claim(aside, folder)
        try:
            yield aside
            _replace(aside, folder)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
            os.close(lock)


def seal(aside: Path, settings: Table, token_bytes: dict[str, int]) -> None:
    """Force all files to disk and write the manifest."""
    files = {}
    for path in sorted(aside.rglob("*")):
        if path.is_file():
            files[path.relative_to(aside).as_posix()] = {"size": path.stat().st_size, "sha256": _hash_and_sync(path)}
    manifest = Manifest.model_validate({"settings": settings, "token_bytes": token_bytes, "files": files})
    write_json(aside / MANIFEST, manifest.to_table())
    for place in [*(path for path in aside.rglob("*") if path.is_dir()), aside]:
        _sync(place)


def read_manifest(folder: Path, thorough: bool = False) -> Manifest:
    """Read and check the manifest of a prepared corpus: sizes always, hashes of small files, or of all."""
    if not folder.is_dir():
        raise MissingInput(f"{folder}: there is no such folder; make it with `transduce prepare`")
    if not (folder / MANIFEST).is_file():
        raise DataError(f"{folder}: is not a prepared corpus (no {MANIFEST}); make one with `transduce prepare`")
    try:
        manifest = Manifest.from_table(read_json(folder / MANIFEST), str(folder / MANIFEST))
    except SettingsError as error:
        raise DataError(f"{error}; prepare the corpus again") from None
    for name, record in manifest.files.items():
        path = folder / name
        try:
            size = path.stat().st_size
            digest = _hash(path) if size == record.size and (thorough or size <= SMALL_FILE) else record.sha256
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror}); prepare the corpus again") from None
        if size != record.size:
            raise DataError(f"{path}: has {size:,} bytes instead of {record.size:,}; prepare the corpus again")
        if digest != record.sha256:
            raise DataError(f"{path}: is damaged (its SHA-256 differs from the manifest's); prepare the corpus again")
    return manifest


def read_json(path: Path) -> Table:
    """Read a JSON object of the folder."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: cannot be read ({error}); prepare the corpus again") from None
    if not isinstance(table, dict):
        raise DataError(f"{path}: is not a JSON object; prepare the corpus again")
    return table


def write_json(path: Path, table: Table) -> None:
    """Write a JSON object, always as the same bytes, and force it to disk."""
    path.write_text(json.dumps(table, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    _sync(path)


@contextlib.contextmanager
def _storage_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise  # whoever read our output has gone; the folder is not to blame
    except OSError as error:
        if error.errno in _STORAGE:
            raise StorageError(f"{folder}: writing failed ({error.strerror}); make room and try again") from None
        raise CannotCreate(f"{folder}: cannot be written ({error.strerror or error}); choose another place") from None


def _refuse_foreign(folder: Path) -> None:
    if not folder.name:
        raise CannotCreate(f"{folder}: is no name for a new folder; choose another")
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise CannotCreate(f"{folder}: exists and is not a folder; choose another name")
    if folder.is_dir() and any(folder.iterdir()):
        try:
            kind = read_json(folder / MANIFEST).get("kind")
        except DataError:
            kind = None
        if kind != KIND:
            raise CannotCreate(f"{folder}: holds files that are not a prepared corpus; choose another folder")


def _claim(aside: Path, folder: Path) -> int:
    """Make the folder aside ours, empty, and return the lock's descriptor; the lock ends with the process."""
    while True:
        aside.mkdir(exist_ok=True)
        lock = os.open(aside, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise Busy(f"{folder}: another process is preparing it; wait for it to end") from None
        if aside.exists() and os.path.samestat(os.fstat(lock), aside.stat()):
            break
        os.close(lock)  # it was moved into place between opening and locking
    for left in aside.iterdir():
        shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
    return lock


def _replace(aside: Path, folder: Path) -> None:
    old = folder.parent / f".{folder.name}.replaced"
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    aside.rename(folder)
    _sync(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _hash_and_sync(path: Path) -> str:
    _sync(path)
    return _hash(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
