"""The manifest of a folder: kind, format, and the size and SHA-256 of every file; written last, once all is complete.

safetensors accepts flipped bits in tensor data, so the manifest is what detects them; its own last entry, the SHA-256
of the rest of it, detects a flipped bit in the manifest.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from transduce.config import Table
from transduce.errors import ModelFolderError, TransduceError
from transduce.storage.atomic import REMEDY, json_bytes, read_json, write_json
from transduce.storage.filesystem import sync
from transduce.storage.layout import CHECKPOINT_KIND, CORPUS_KIND, DATA, FORMAT, MANIFEST

DIGEST = "sha256"
"""The manifest's last entry: the SHA-256 of the rest of it."""
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
    if not (folder / MANIFEST).is_file():
        raise error_type(f"{folder}: is not a {kind} (no {MANIFEST}); {remedy}")
    manifest = _read_manifest(folder, kind, error_type, remedy)
    if not any_format:
        check_format(folder, manifest, error_type)
    files = manifest.get("files")
    if not isinstance(files, dict):
        raise error_type(f"{folder / MANIFEST}: lists no files; {remedy}")
    for name, record in files.items():
        path = folder / name
        if Path(name).is_absolute() or ".." in Path(name).parts or path.is_symlink() or not path.is_file():
            raise error_type(f"{path}: is missing or not a plain file; {remedy}")
        size, expected = path.stat().st_size, record if isinstance(record, dict) else {}
        if size != expected.get("size"):
            raise error_type(f"{path}: has {size} bytes instead of {expected.get('size')}; {remedy}")
        if (hash_up_to is None or size <= hash_up_to) and _hash(path, error_type) != expected.get("sha256"):
            raise error_type(f"{path}: is damaged (its SHA-256 differs from the manifest's); {remedy}")
    return manifest


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
