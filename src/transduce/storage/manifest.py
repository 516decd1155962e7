"""The manifest of a folder: kind, format, and the size and SHA-256 of every file; written last, once all is complete.

safetensors accepts flipped bits in tensor data, so the manifest is what detects them; its own last entry, the SHA-256
of the rest of it, detects a flipped bit in the manifest.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from transduce.config import Table
from transduce.errors import ModelFolderError, TransduceError, brief
from transduce.storage.atomic import REMEDY, json_bytes, read_json, write_json
from transduce.storage.filesystem import sync
from transduce.storage.layout import CHECKPOINT_KIND, CORPUS_KIND, DATA, FORMAT, MANIFEST

DIGEST = "sha256"
"""The manifest's last entry: the SHA-256 of the rest of it."""
MAX_FILES = 1000
"""Most files that a manifest may list; a model has four to six, a prepared corpus a dozen."""
OUTDATED = {CORPUS_KIND: "prepare the corpus again", CHECKPOINT_KIND: "start a new run"}
"""What to do with a folder of an older format, by kind."""


def write_manifest(folder: Path, kind: str, **notes: Any) -> None:
    """Force every file to disk and write the manifest of their sizes and hashes."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            sync(path)
            files[path.relative_to(folder).as_posix()] = {"size": path.stat().st_size, "sha256": sha256(path)}
    save_manifest(folder, {"kind": kind, "format": FORMAT, **notes, "files": files})
    for place in [*(path for path in folder.rglob("*") if path.is_dir()), folder]:
        sync(place)


def save_manifest(folder: Path, manifest: Table) -> None:
    """Write a manifest as given, with a new digest."""
    write_json(folder / MANIFEST, _with_digest(manifest))


def _with_digest(manifest: Table) -> Table:
    rest = {name: value for name, value in manifest.items() if name != DIGEST}
    return {**rest, DIGEST: hashlib.sha256(json_bytes(rest)).hexdigest()}


def verify(
    folder: Path,
    kind: str,
    hash_up_to: int | None = None,
    error_type: type[TransduceError] = ModelFolderError,
    remedy: str = REMEDY,
    any_format: bool = False,
) -> Table:
    """Check every file of a folder against its manifest, and return the manifest without its digest.

    Files of more than `hash_up_to` bytes are checked by their size alone. A fault raises `error_type`, with `remedy`
    as the advice. `any_format` leaves `check_format` to the caller.
    """
    if not os.path.lexists(folder / MANIFEST):
        raise error_type(f"{folder}: is not a {kind} (no {MANIFEST}); {remedy}")
    manifest = _read_manifest(folder, kind, error_type, remedy)
    if not any_format:
        check_format(folder, manifest, error_type)
    files = manifest.get("files")
    if not isinstance(files, dict) or len(files) > MAX_FILES:
        raise error_type(f"{folder / MANIFEST}: lists no files, or more than {MAX_FILES:,}; {remedy}")
    for name, record in files.items():
        _check_path(folder, name, error_type, remedy)
        size, expected = (folder / name).stat().st_size, record if isinstance(record, dict) else {}
        if size != expected.get("size"):
            raise error_type(f"{folder / name}: has {size} bytes instead of {brief(expected.get('size'))}; {remedy}")
    for name in files:  # all sizes before the first hash
        size = (folder / name).stat().st_size
        if hash_up_to is None or size <= hash_up_to:
            check_hash(folder, name, manifest, error_type, remedy)
    return manifest


def _check_path(folder: Path, name: str, error_type: type[TransduceError], remedy: str) -> None:
    """Raise unless a manifest's entry names a regular file of the folder, in the one spelling that it has."""
    path, parts = folder / name, PurePosixPath(name).parts
    if PurePosixPath(name).as_posix() != name or PureWindowsPath(name).anchor or not parts or ".." in parts:
        raise error_type(f"{folder / MANIFEST}: lists {brief(name)}, which is not a file of the folder; {remedy}")
    if any((folder / Path(*parts[:count])).is_symlink() for count in range(1, len(parts) + 1)) or not path.is_file():
        raise error_type(f"{path}: is missing or not a plain file; {remedy}")


def check_hash(
    folder: Path,
    name: str,
    manifest: Table,
    error_type: type[TransduceError] = ModelFolderError,
    remedy: str = REMEDY,
) -> None:
    """Raise unless a file has the SHA-256 that the manifest lists."""
    record = manifest["files"][name]
    if _hash(folder / name, error_type) != (record.get("sha256") if isinstance(record, dict) else None):
        raise error_type(f"{folder / name}: is damaged (its SHA-256 differs from the manifest's); {remedy}")


def _read_manifest(folder: Path, kind: str, error_type: type[TransduceError], remedy: str) -> Table:
    """Read a manifest and check its kind and, byte for byte, its digest; the first format had another digest."""
    path = folder / MANIFEST
    manifest = read_json(path, error_type, remedy)
    if manifest.get("kind") != kind:
        found = str(manifest.get("kind", "foreign folder"))[:80]
        raise error_type(f"{path}: belongs to a {found}, not to a {kind}; {remedy}")
    try:
        intact = path.read_bytes() == json_bytes(_with_digest(manifest))
    except (OSError, ValueError, RecursionError):
        intact = False
    if not intact and DIGEST in manifest:
        raise error_type(f"{path}: is damaged (its SHA-256 differs from its last entry); {remedy}")
    if not intact and manifest.get("format", 1) == FORMAT:
        raise error_type(f"{path}: is damaged (it has no SHA-256 of its own); {remedy}")
    return {name: value for name, value in manifest.items() if name != DIGEST}


def check_format(folder: Path, manifest: Table, error_type: type[TransduceError] = ModelFolderError) -> None:
    """Reject a folder that an older version wrote, or a newer one."""
    written = manifest.get("format", 1)  # the first format did not always name itself
    if written == FORMAT:
        return
    if isinstance(written, int) and written > FORMAT:
        raise error_type(f"{folder}: has format {written}, this version reads up to {FORMAT}; upgrade transduce")
    again = OUTDATED.get(str(manifest.get("kind")), "train again")
    raise error_type(f"{folder}: was saved by an older version of transduce (format {str(written)[:80]}); {again}")


def check_run_format(run: Path) -> None:
    """Reject a run folder that an older version wrote: its prepared corpus states the format."""
    manifest = run / DATA / MANIFEST
    if manifest.is_file():
        check_format(run, {"format": read_json(manifest).get("format", 1)})


def _hash(path: Path, error_type: type[TransduceError]) -> str:
    try:
        return sha256(path)
    except OSError as error:
        raise error_type(f"{path}: cannot be read ({error.strerror}); check its permissions") from None


def sha256(path: Path) -> str:
    """A file's SHA-256 in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
