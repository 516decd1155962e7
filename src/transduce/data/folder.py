"""The folder of a prepared corpus: what may be replaced by one, its manifest, and how its faults are told."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from transduce.config import Config, Table
from transduce.errors import CannotCreate, DataError, MissingInput, SettingsError
from transduce.storage import json_file, manifest
from transduce.storage.atomic import atomic_folder
from transduce.storage.filesystem import storage_errors
from transduce.storage.layout import CORPUS_KIND, MANIFEST

SMALL_FILE = 16 * 2**20
"""Bytes up to which a file's hash is checked whenever the folder is opened; larger ones only when asked."""
REMEDY = "prepare the corpus again"


class FileRecord(Config):
    """What a file must be."""

    size: int
    """Bytes."""
    sha256: str
    """Of the whole file, in hexadecimal."""


class Manifest(Config):
    """What a prepared corpus is made of; written last, so that its presence says the folder is whole."""

    kind: Literal["transduce prepared corpus"]
    """What the folder is."""
    format: int
    """Of the layout."""
    settings: dict[str, Any]
    """The tables `data` and `tokenizer` it was made by."""
    token_bytes: dict[str, Literal[2, 4]]
    """Bytes per token id, for source and target."""
    files: dict[str, FileRecord]
    """Every other file, by its path in the folder."""


@contextlib.contextmanager
def atomic_corpus(folder: Path) -> Iterator[Path]:
    """Give a new folder next to `folder` to write into; put it in place at the end, or remove it on any error.

    A prepared corpus that stood there is replaced; anything else is refused.
    """
    with storage_errors(folder):
        _refuse_foreign(folder)
    with atomic_folder(folder) as temporary:
        yield temporary


def write_manifest(folder: Path, settings: Table, token_bytes: dict[str, int]) -> None:
    """Force all files to disk and write the manifest."""
    manifest.write_manifest(folder, CORPUS_KIND, settings=settings, token_bytes=token_bytes)


def read_manifest(folder: Path, thorough: bool = False) -> Manifest:
    """Read and check the manifest of a prepared corpus: sizes always, hashes of small files, or of all."""
    if not folder.is_dir():
        raise MissingInput(f"{folder}: there is no such folder; make it with `transduce prepare`")
    if not (folder / MANIFEST).is_file():
        raise DataError(f"{folder}: is not a prepared corpus (no {MANIFEST}); make one with `transduce prepare`")
    table = manifest.verify(folder, CORPUS_KIND, None if thorough else SMALL_FILE, DataError, REMEDY)
    try:
        return Manifest.from_table(table, str(folder / MANIFEST))
    except SettingsError as error:
        raise DataError(f"{error}; {REMEDY}") from None


def read_json(path: Path) -> Table:
    """Read a JSON object of the folder."""
    return json_file.read_json(path, DataError, REMEDY)


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
        if kind != CORPUS_KIND:
            raise CannotCreate(f"{folder}: holds files that are not a prepared corpus; choose another folder")
