"""A prepared corpus: its folder and manifest, how it is made, and how it is opened for training."""

from __future__ import annotations

import contextlib
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

from transduce.config import Config, Table
from transduce.data.audit import Progress
from transduce.data.report import REASONS, CorpusCounter, Issue, Report, SplitReport
from transduce.data.settings import SPLITS, DataConfig
from transduce.data.split import token_bytes
from transduce.data.store import Split
from transduce.errors import CannotCreate, DataError, MissingInput, SettingsError
from transduce.storage import atomic as json_file
from transduce.storage import manifest
from transduce.storage.atomic import atomic_folder, write_json
from transduce.storage.filesystem import storage_errors
from transduce.storage.layout import CORPUS_KIND, MANIFEST, REPORT, SOURCE_TOKENIZER, TARGET_TOKENIZER, TOKENIZER
from transduce.text.tokenizer import AnyTokenizer, is_joint, load_tokenizer
from transduce.text.tokenizer.special import LanguageTags
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


S = TypeVar("S", bound=Split)


@dataclass(frozen=True)
class Prepared:
    """A prepared corpus, opened."""

    folder: Path
    data: DataConfig
    """The settings it was made by."""
    tokenizer: TokenizerConfig
    train: Split
    """The splits are of the task's own kind: `PairStore`, `BlockStore` or `ExampleStore`."""
    validation: Split | None
    """None where there is none; so are the next two."""
    test: Split | None
    extra_validation: Split | None
    source_tokenizer: AnyTokenizer
    target_tokenizer: AnyTokenizer
    """The same object as the source's when both sides share one."""
    report: Report
    longest: tuple[int, int]
    """Tokens of the longest source and target in training, without start and end."""

    def train_as(self, kind: type[S]) -> S:
        """Return the training split as the task's own kind, which it always is."""
        assert isinstance(self.train, kind)
        return self.train


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
        **{name: stores.get(name) for name in SPLITS if name != "train"},
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


# Preparation of a corpus: audit, select rows, train the tokenizers, tokenise, write report and manifest.
#
# `Preparation` is the skeleton; each task implements the steps (`tasks/*/preparation.py`). A prepared folder is a
# function of the corpora and the settings: two preparations give the same bytes (as far as the training of the
# tokenizer does: WordPiece and Unigram may differ). Only files grow with the corpus.

D = TypeVar("D", bound=DataConfig)

ORDER = ("test", "extra_validation", "validation", "train")
"""Order in which the splits are read: the small ones first, so that their errors come early."""


class Preparation(ABC, Generic[D]):
    """Prepares the corpora of one task: `run` is the same for all tasks, the steps are the task's."""

    noun: ClassVar[str]
    """What is counted: pair, example or document."""

    def __init__(
        self,
        data: D,
        config: TokenizerConfig,
        progress: Progress | None = None,
        given: GivenTokenizers | None = None,
    ) -> None:
        """`given` are the tokenizers of `config.folder`; without it new ones are trained."""
        self.data, self.config, self.given = data, config, given
        self.progress = progress or (lambda stage, count: None)
        self.splits = [name for name in ORDER if data.of_split(name)]
        """The splits that have corpora."""
        self.counters = {
            name: [
                CorpusCounter(corpus.name if len(data.of_split(name)) > 1 else None, corpus.weight or 1.0)
                for corpus in data.of_split(name)
            ]
            for name in self.splits
        }
        """Counts of each corpus of each split."""

    def run(self, folder: Path) -> Report:
        """Prepare into `folder`, which is complete or absent, and return the report."""
        with new_folder(folder) as temporary:
            self.folder, self.work = temporary, temporary / "work"
            for split in self.splits:
                self.audit(split)
            self.select()
            tokenizers, num_trained_on = self.train_tokenizers()
            self._save(*tokenizers)
            reports: dict[str, SplitReport] = {}
            for split in self.splits:
                reports |= self.tokenise(split, *tokenizers)
            self._check_not_empty(reports)
            shutil.rmtree(self.work, ignore_errors=True)
            source, target = tokenizers
            sizes: Table = {"source_vocabulary": source.size, "target_vocabulary": target.size}
            notes = {"joint": is_joint(source, target), "tokenizer_pairs": num_trained_on, **self.report_notes()}
            report = Report(**{**sizes, **notes, **reports})
            write_json(temporary / REPORT, report.to_table())
            write_manifest(temporary, self.data, self.config, self.token_bytes(report))
        return report

    @abstractmethod
    def audit(self, split: str) -> None:
        """Read the corpora of a split once, and count the rows that cannot be used."""

    @abstractmethod
    def select(self) -> None:
        """Choose which training rows are dropped as duplicates or leaks, and which are held out for validation."""

    @abstractmethod
    def train_tokenizers(self) -> tuple[tuple[AnyTokenizer, AnyTokenizer], int]:
        """Return the tokenizers of source and target, one object if they share one, and on how many rows they were
        trained."""

    @abstractmethod
    def tokenise(self, split: str, source: AnyTokenizer, target: AnyTokenizer) -> dict[str, SplitReport]:
        """Write the tokens of a split, and with train those of the validation data held out of it."""

    def report_notes(self) -> Table:
        """What the task adds to the report."""
        return {}

    def token_bytes(self, report: Report) -> dict[str, int]:
        """Bytes per value of each column of tokens."""
        return {"source": token_bytes(report.source_vocabulary), "target": token_bytes(report.target_vocabulary)}

    def nothing_left(self, split: str, read: int, issues: Mapping[str, Issue], held_out: int = 0) -> DataError:
        """Return the error of a split of which no row is left."""
        what = "training" if split == "train" else split
        if read == 0:
            return DataError(f"the {what} corpus has no {self.noun} in it; check its files")
        reasons = [f"{issue.dropped:,} dropped because {REASONS[reason]}" for reason, issue in issues.items()]
        reasons += [f"{held_out:,} held out for validation"] if held_out else []
        left = f"no {what} {self.noun} is left of {read:,}: {', '.join(reasons)}"
        return DataError(f"{left}; check the corpus and the rules in [data]")

    def _save(self, source: AnyTokenizer, target: AnyTokenizer) -> None:
        names = [TOKENIZER] if is_joint(source, target) else [SOURCE_TOKENIZER, TARGET_TOKENIZER]
        for name, tokenizer in zip(names, (source, target), strict=False):
            (self.folder / name).write_text(tokenizer.to_json(), encoding="utf-8")

    def _check_not_empty(self, reports: Mapping[str, SplitReport]) -> None:
        for split, report in reports.items():
            if report.num_rows == 0 and split in self.splits:
                raise self.nothing_left(split, report.read, report.issues, report.held_out)
            if report.num_rows == 0:  # all that was held out was dropped
                shutil.rmtree(self.folder / split)
