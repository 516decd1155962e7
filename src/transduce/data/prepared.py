"""The folder of a prepared corpus: its manifest, atomic writing, and loading for training."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from transduce.config import Config, Table
from transduce.data.report import Report, SplitReport
from transduce.data.settings import SPLITS, DataConfig
from transduce.data.store import Split
from transduce.errors import CannotCreate, DataError, MissingInput, SettingsError
from transduce.storage import atomic as json_file
from transduce.storage import manifest
from transduce.storage.atomic import atomic_folder
from transduce.storage.filesystem import storage_errors
from transduce.storage.layout import CORPUS_KIND, MANIFEST, REPORT, SOURCE_TOKENIZER, TARGET_TOKENIZER, TOKENIZER
from transduce.text.tokenizer import AnyTokenizer, load_tokenizer
from transduce.text.tokenizer.language_tag import LanguageTags
from transduce.text.tokenizer.tokenizer import TokenizerConfig

SMALL_FILE = 16 * 2**20
"""Bytes up to which a file's hash is checked whenever the folder is opened; larger ones only on request."""
REMEDY = "prepare the corpus again"


class FileRecord(Config):
    """Size and hash of a file."""

    size: int
    """Bytes."""
    sha256: str
    """SHA-256 of the file, in hexadecimal."""


class Manifest(Config):
    """The contents of a prepared corpus; written last, so that its presence means that the folder is complete."""

    kind: Literal["transduce prepared corpus"]
    """What the folder is."""
    format: int
    """Format of the folder."""
    task: str
    """The task that it was prepared for: a key of `tasks.catalog`."""
    settings: dict[str, Any]
    """The tables `data` and `tokenizer` it was made by."""
    token_bytes: dict[str, Literal[2, 4]]
    """Bytes per value of each column of tokens."""
    files: dict[str, FileRecord]
    """Every other file, by its path in the folder."""


@contextlib.contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Give a temporary folder to write into; move it to `folder` at the end, or remove it on any error.

    A prepared corpus at that place is replaced; anything else is rejected.
    """
    with storage_errors(folder):
        _check_replaceable(folder)
    with atomic_folder(folder) as temporary:
        yield temporary


def write_manifest(folder: Path, data: DataConfig, tokenizer: TokenizerConfig, token_bytes: dict[str, int]) -> None:
    """Force all files to disk and write the manifest."""
    settings = {"data": data.to_table(), "tokenizer": tokenizer.to_table()}
    manifest.write_manifest(folder, CORPUS_KIND, task=data.kind, settings=settings, token_bytes=token_bytes)


def read_manifest(folder: Path, thorough: bool = False) -> Manifest:
    """Read and check the manifest of a prepared corpus: sizes always, hashes of small files, or of all."""
    if not folder.is_dir():
        raise MissingInput(f"{folder}: no such folder; create it with `transduce prepare`")
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


class GivenTokenizers(NamedTuple):
    """Existing tokenizers, to be used instead of training new ones."""

    source: AnyTokenizer
    target: AnyTokenizer
    """The same object as the source's when both sides share one."""
    tags: LanguageTags | None = None
    """The languages of their model."""


@dataclass(frozen=True)
class Prepared:
    """A prepared corpus, opened."""

    folder: Path
    data: DataConfig
    """The settings it was made by."""
    tokenizer: TokenizerConfig
    train: Any
    """The splits are of the task's own kind: `PairStore`, `BlockStore` or `ExampleStore`."""
    validation: Any
    """None where there is none; so are the next two."""
    test: Any
    extra_validation: Any
    source_tokenizer: AnyTokenizer
    target_tokenizer: AnyTokenizer
    """The same object as the source's when both sides share one."""
    report: Report
    longest: tuple[int, int]
    """Tokens of the longest source and target in training, without start and end."""


def open_prepared(
    folder: Path,
    notes: Manifest,
    data: DataConfig,
    open_split: Callable[[Path, SplitReport], Split],
    longest: tuple[int, int] | None = None,
) -> Prepared:
    """Open a folder whose manifest (`notes`) and `[data]` settings were read; the task opens each split.

    `longest` are the longest source and target where these are not what the report counts.
    """
    if TOKENIZER in notes.files:  # other files in the folder are not ours
        source_tokenizer, target_tokenizer = load_tokenizer(folder / TOKENIZER).sides()
    else:
        source_tokenizer = load_tokenizer(folder / SOURCE_TOKENIZER)
        target_tokenizer = load_tokenizer(folder / TARGET_TOKENIZER)
    splits = {name: folder / name for name in SPLITS if any(Path(file).parts[0] == name for file in notes.files)}
    if "train" not in splits:
        raise DataError(f"{folder}: has no training split; {REMEDY}")
    try:
        tokenizer = TokenizerConfig.from_table(notes.settings.get("tokenizer", {}), str(folder))
        report = Report.from_table(read_json(folder / REPORT), str(folder))
    except SettingsError as error:
        raise DataError(f"{error}; it was prepared by another version: {REMEDY}") from None
    reports = report.splits()
    if not splits.keys() <= reports.keys():
        raise DataError(f"{folder / REPORT}: has other splits than the folder; {REMEDY}")
    stores = {name: open_split(path, reports[name]) for name, path in splits.items()}
    return Prepared(
        folder=folder,
        data=data,
        tokenizer=tokenizer,
        train=stores["train"],
        validation=stores.get("validation"),
        test=stores.get("test"),
        extra_validation=stores.get("extra_validation"),
        source_tokenizer=source_tokenizer,
        target_tokenizer=target_tokenizer,
        report=report,
        longest=longest or (report.train.source.longest, report.train.target.longest),
    )


def _check_replaceable(folder: Path) -> None:
    if not folder.name:
        raise CannotCreate(f"{folder}: is not a valid name for a new folder; choose another")
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise CannotCreate(f"{folder}: exists and is not a folder; choose another name")
    if folder.is_dir() and any(folder.iterdir()):
        try:
            kind = read_json(folder / MANIFEST).get("kind")
        except DataError:
            kind = None
        if kind != CORPUS_KIND:
            raise CannotCreate(f"{folder}: holds files that are not a prepared corpus; choose another folder")
