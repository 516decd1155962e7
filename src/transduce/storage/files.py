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
from typing import IO, Any

from transduce.config import Table
from transduce.errors import Busy, CannotCreate, ModelFolderError, StorageError, TransduceError

MANIFEST = "manifest.json"
SEAL = "seal"
"""The manifest's last entry: the SHA-256 of the rest of it."""
REMEDY = "copy the folder again"
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG}
"""What the system says when writing began well and there was no room to end."""


@contextlib.contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn what the system says about writing into a sentence for the person."""
    try:
        yield
    except BrokenPipeError:
        raise  # whoever read our output has gone; the path is not to blame
    except OSError as error:
        if error.errno in FULL:
            left = f", {_free(path):,} bytes are left there" if error.errno == errno.ENOSPC else ""
            raise StorageError(f"{path}: writing failed ({error.strerror}{left}); make room and try again") from None
        raise CannotCreate(f"{path}: cannot be written ({error.strerror or error}); choose another place") from None


def _free(path: Path) -> int:
    """Bytes that are free where a path is, or would be."""
    there = next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())
    return shutil.disk_usage(there).free


@contextlib.contextmanager
def file_aside(path: Path) -> Iterator[Path]:
    """Give a path next to `path` to write to; put it in place at the end, or remove it on any error.

    A link is followed. A device or pipe (/dev/stdout) is written to directly: there is nothing to move into place.
    """
    with storage_errors(path):
        if path.is_dir():
            raise CannotCreate(f"{path}: is a folder; give the name of a file")
        if path.exists() and not path.is_file():
            yield path
            return
        place = Path(os.path.realpath(path))
        aside = place.with_name(f".{place.name[:40]}.{os.getpid()}.writing")
        with parents_of(place, path):
            try:
                yield aside
                sync(aside)
                aside.replace(place)
                sync(place.parent)
            finally:
                aside.unlink(missing_ok=True)


@contextlib.contextmanager
def folder_aside(folder: Path) -> Iterator[Path]:
    """Give an empty folder next to `folder` to fill; put it in place at the end, or remove it on any error.

    There is no moment without a whole folder under one of its names: the old one steps aside, the new one takes
    its place, and only then the old one goes. What a killed process left behind is put right by the next one, and
    two at once are told apart by a lock.
    """
    aside, old = folder.with_name(f".{folder.name}.writing"), folder.with_name(f".{folder.name}.replaced")
    with storage_errors(folder), parents_of(folder, folder), _claimed(aside, folder):
        _put_back(old, folder)
        try:
            yield aside
            if folder.exists():
                folder.rename(old)
            aside.rename(folder)
            sync(folder.parent)
        finally:
            _put_back(old, folder)


def _put_back(old: Path, folder: Path) -> None:
    """Undo a replacement that was stopped half-way; remove what a whole one left."""
    if old.is_dir() and not folder.exists():
        old.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def put_right(folder: Path) -> None:
    """Put back what had stepped aside for a replacement that never came, and remove what was never finished.

    For a folder that is ours alone: what killed processes left there, nobody is writing any more.
    """
    for old in folder.glob(".*.replaced"):
        _put_back(old, folder / old.name[1:].removesuffix(".replaced"))
    for left in folder.glob(".*.writing"):
        shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()


@contextlib.contextmanager
def parents_of(path: Path, shown: Path) -> Iterator[None]:
    """Make the folders above a path; on an error those that were not there go again, unless something is in them.

    `shown` is what a refusal speaks of.
    """
    with storage_errors(shown):
        made = [parent for parent in path.parents if not parent.exists()]
        path.parent.mkdir(parents=True, exist_ok=True)
        for parent in made:
            sync(parent.parent)  # or what is forced to disk inside may have no name after a power cut
    try:
        yield
    except BaseException:
        for parent in made:
            with contextlib.suppress(OSError):
                parent.rmdir()
        raise


@contextlib.contextmanager
def _claimed(aside: Path, folder: Path) -> Iterator[None]:
    """Make the folder aside ours alone and empty; the lock ends with the process, however it ends."""
    while True:
        aside.mkdir(exist_ok=True)
        lock = os.open(aside, os.O_RDONLY)
        if _held(lock, aside, f"{folder}: another process is writing it; wait for it to end"):
            break
    try:
        for left in aside.iterdir():
            shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
        yield
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    finally:
        os.close(lock)


def seal(folder: Path, kind: str, **notes: Any) -> None:
    """Force every file to disk and write the manifest of their sizes and hashes, last."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            sync(path)
            files[path.relative_to(folder).as_posix()] = {"size": path.stat().st_size, "sha256": sha256(path)}
    write_manifest(folder, {"kind": kind, **notes, "files": files})
    for place in [*(path for path in folder.rglob("*") if path.is_dir()), folder]:
        sync(place)


def write_manifest(folder: Path, manifest: Table) -> None:
    """Write a folder's manifest with its seal; an older seal in it is replaced."""
    write_json(folder / MANIFEST, _sealed(manifest))


def _sealed(manifest: Table) -> Table:
    rest = {name: value for name, value in manifest.items() if name != SEAL}
    return {**rest, SEAL: hashlib.sha256(_json(rest)).hexdigest()}


def verify(
    folder: Path,
    kind: str,
    hash_up_to: int | None = None,
    fault: type[TransduceError] = ModelFolderError,
    remedy: str = REMEDY,
) -> Table:
    """Check every file of a sealed folder against its manifest, and return the manifest.

    Files of more than `hash_up_to` bytes are checked by their size alone. `fault` and `remedy` are how to refuse.
    """
    if not (folder / MANIFEST).is_file():
        raise fault(f"{folder}: is not a {kind} (no {MANIFEST}); {remedy}")
    manifest = _read_manifest(folder / MANIFEST, fault, remedy)
    files = manifest.get("files")
    if manifest.get("kind") != kind or not isinstance(files, dict):
        found = str(manifest.get("kind", "foreign folder"))[:80]
        raise fault(f"{folder / MANIFEST}: belongs to a {found}, not to a {kind}; {remedy}")
    for name, record in files.items():
        path = folder / name
        if Path(name).is_absolute() or ".." in Path(name).parts or path.is_symlink() or not path.is_file():
            raise fault(f"{path}: is missing or not a plain file; {remedy}")
        size, expected = path.stat().st_size, record if isinstance(record, dict) else {}
        if size != expected.get("size"):
            raise fault(f"{path}: has {size} bytes instead of {expected.get('size')}; {remedy}")
        if (hash_up_to is None or size <= hash_up_to) and _digest(path, fault) != expected.get("sha256"):
            raise fault(f"{path}: is damaged (its SHA-256 differs from the manifest's); {remedy}")
    return manifest


def _read_manifest(path: Path, fault: type[TransduceError], remedy: str) -> Table:
    """Read a manifest and check it, byte for byte, against its own seal; a flipped bit of it is then never a fact.

    One from before there were seals ends with its files, and is believed as it stands.
    """
    manifest = read_json(path, fault, remedy)
    if SEAL not in manifest and ("files" not in manifest or [*manifest][-1] == "files"):
        return manifest
    try:
        whole = path.read_bytes() == _json(_sealed(manifest))
    except (OSError, ValueError, RecursionError):
        whole = False
    if not whole:
        raise fault(f"{path}: is damaged (its SHA-256 differs from its seal); {remedy}")
    return {name: value for name, value in manifest.items() if name != SEAL}


def _digest(path: Path, fault: type[TransduceError]) -> str:
    try:
        return sha256(path)
    except OSError as error:
        raise fault(f"{path}: cannot be read ({error.strerror}); check who may read it") from None


def read_json(path: Path, fault: type[TransduceError] = ModelFolderError, remedy: str = REMEDY) -> Table:
    """Read a JSON object; `fault` and `remedy` are how to refuse what is none."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise fault(f"{path}: cannot be read ({error.strerror}); {remedy}") from None
    except (ValueError, RecursionError):
        raise fault(f"{path}: is not valid JSON; {remedy}") from None
    if not isinstance(table, dict):
        raise fault(f"{path}: is not a JSON object; {remedy}")
    return table


def write_json(path: Path, table: Table) -> None:
    """Write a JSON object, always as the same bytes, and force it to disk."""
    path.write_bytes(_json(table))
    sync(path)


def replace_json(path: Path, table: Table) -> None:
    """Write a JSON object in place of what was there: whenever it stops, the old one or the new one is whole.

    For one process at a time; what a killed one left is written over by the next.
    """
    aside = path.with_name(f"{path.name}.new")
    try:
        write_json(aside, table)
        aside.replace(path)
        sync(path.parent)
    finally:
        aside.unlink(missing_ok=True)


def _json(table: Table) -> bytes:
    return (json.dumps(table, ensure_ascii=False, indent=2) + "\n").encode("utf-8")


def _held(lock: int, path: Path, busy: str) -> bool:
    """Lock what was opened, or refuse; False, and closed, if it was moved or removed between opening and locking."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise Busy(busy) from None
    if path.exists() and os.path.samestat(os.fstat(lock), path.stat()):
        return True
    os.close(lock)
    return False


@contextlib.contextmanager
def held_file(path: Path, shown: Path, busy: str) -> Iterator[IO[bytes]]:
    """Open a file for this process alone, as it is, empty if it was not there; the lock ends with the process.

    `shown` is what a refusal speaks of, and `busy` says that somebody else has it.
    """
    while True:
        with storage_errors(shown):
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        if _held(lock, path, busy):
            break
    with os.fdopen(lock, "r+b", buffering=0) as file:
        yield file


@contextlib.contextmanager
def locked(folder: Path, what: str) -> Iterator[None]:
    """Hold a folder for this process alone; the lock ends with the process, however it ends."""
    path = folder / ".lock"
    while True:
        with storage_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        if _held(lock, path, f"{folder}: another process is {what} there; wait for it or choose another folder"):
            break
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


# Writing a file whole or not at all.


def write_file(path: Path, content: bytes) -> None:
    """Write a picture or page into a folder that is there; a link is followed, a device written to."""
    if not path.parent.is_dir():
        raise CannotCreate(f"{path}: cannot be created (there is no folder {path.parent}); give another place")
    with file_aside(path) as aside:
        aside.write_bytes(content)
