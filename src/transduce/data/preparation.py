"""Preparation of a corpus: audit, select rows, train the tokenizers, tokenise, write report and manifest.

`Preparation` is the skeleton; each task implements the steps (`tasks/*/preparation.py`). A prepared folder is a
function of the corpora and the settings: two preparations give the same bytes (as far as the training of the
tokenizer does: WordPiece and Unigram may differ). Only files grow with the corpus.
"""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from transduce.config import Table
from transduce.data.audit import Progress
from transduce.data.prepared import GivenTokenizers, new_folder, write_manifest
from transduce.data.report import REASONS, CorpusCounter, Issue, Report, SplitReport
from transduce.data.settings import DataConfig
from transduce.data.split import token_bytes
from transduce.errors import DataError
from transduce.storage.atomic import write_json
from transduce.storage.layout import REPORT, SOURCE_TOKENIZER, TARGET_TOKENIZER, TOKENIZER
from transduce.text.tokenizer import AnyTokenizer, is_joint
from transduce.text.tokenizer.tokenizer import TokenizerConfig

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
