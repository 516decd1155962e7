"""Raw pairs in, a prepared corpus out: audited, split, tokenised, sealed. Streaming; memory does not grow with it.

Pass one (`audit`) writes usable text and hashes to disk and marks what is odd. Then training pairs are chosen, the
tokenizers learn from them, and pass two (`split`) writes tokens. Everything is a function of the corpus and the
settings: two preparations give the same bytes (as far as the tokenizer's training does: WordPiece's and
Unigram's may differ).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import compress
from pathlib import Path

import numpy as np

from transduce.data.audit import (
    CHUNK_ROWS,
    HELD_OUT,
    MARKS,
    Progress,
    Spool,
    Tally,
    hold_out,
    mark_duplicates,
    mark_leaks,
    spool,
)
from transduce.data.config import CHARACTERS_PER_TOKEN, DataConfig, corpus_pairs
from transduce.data.folder import seal, written_aside
from transduce.data.report import REASONS, Finding, Report, SplitReport
from transduce.data.split import Limits, SplitWriter, token_bytes
from transduce.data.store import JOINT_TOKENIZER, REPORT, SOURCE_TOKENIZER, TARGET_TOKENIZER
from transduce.errors import DataError
from transduce.storage import write_json
from transduce.text.tokenizer import Tokenizer, TokenizerConfig
from transduce.text.tokenizer_training import train_tokenizers

TOKENIZER_PAIRS = 1_000_000
"""Most pairs that tokenizers learn from; of larger corpora about this many are taken, by their hash."""


def prepare(data: DataConfig, tokenizer: TokenizerConfig, folder: Path, progress: Progress | None = None) -> Report:
    """Audit and tokenise a corpus into `folder`, which is written whole or not at all, and report what was found."""
    with written_aside(folder) as aside:
        preparation = _Preparation(data, tokenizer, aside, progress or (lambda stage, count: None))
        report = preparation.run()
        shutil.rmtree(preparation.work)
        write_json(aside / REPORT, report.to_table())
        sizes = {
            "source": token_bytes(report.source_vocabulary),
            "target": token_bytes(report.target_vocabulary),
        }
        seal(aside, {"data": data.to_table(), "tokenizer": tokenizer.to_table()}, sizes)
    return report


class _Preparation:
    """One preparation on its way."""

    def __init__(self, data: DataConfig, tokenizer: TokenizerConfig, folder: Path, progress: Progress) -> None:
        self.data = data
        self.tokenizer = tokenizer
        self.folder = folder
        self.work = folder / "work"
        self.progress = progress
        rules = {"copy": data.copies, "leaked_pair": data.leakage, "leaked_source": data.leakage}
        rules["duplicate"] = data.duplicates
        self.dropped = sum(MARKS[reason] for reason, rule in rules.items() if rule == "drop")
        """The marks that leave a training pair out."""
        self.tallies: dict[str, Tally] = {}

    def run(self) -> Report:
        corpora = self._read()
        train = corpora["train"]
        tokenizers, tokenizer_pairs = self._tokenizers(train)
        reports: dict[str, SplitReport] = {}
        for name, corpus in corpora.items():
            reports |= self._write(name, corpus, tokenizers)
        for name, split in reports.items():
            if split.kept == 0 and name in corpora:
                raise DataError(_nothing_left(name, split.read, split.findings, split.held_out))
            if split.kept == 0:
                shutil.rmtree(self.folder / name)
        return Report(
            train=reports["train"],
            validation=reports.get("validation"),
            test=reports.get("test"),
            source_vocabulary=tokenizers[0].size,
            target_vocabulary=tokenizers[1].size,
            joint=self.tokenizer.joint,
            tokenizer_pairs=tokenizer_pairs,
        )

    def _read(self) -> dict[str, Spool]:
        """Pass one over all corpora; the small ones first, so that their errors come early."""
        wanted = {"test": self.data.test, "validation": self.data.validation, "train": self.data.train}
        corpora = {}
        for name, corpus in wanted.items():
            if corpus is None:
                continue
            tally = self.tallies[name] = Tally()
            corpora[name] = spool(
                corpus_pairs(corpus),
                self.work / name,
                CHARACTERS_PER_TOKEN * self.data.max_length,
                tally,
                partial(self.progress, f"reading {name}"),
            )
            mark_duplicates(corpora[name])
        train = corpora["train"]
        mark_leaks(train, [corpus for name, corpus in corpora.items() if name != "train"])
        if self.data.validation is None and self.data.validation_share > 0:
            hold_out(train, self.dropped, self.data.validation_share, self.data.validation_max)
        return corpora

    def _tokenizers(self, train: Spool) -> tuple[tuple[Tokenizer, Tokenizer], int]:
        """Learn from the training pairs and save."""
        usable = int(np.count_nonzero(train.marks & (self.dropped | HELD_OUT) == 0))
        if usable == 0:
            self._count_dropped(train)
            raise DataError(_nothing_left("train", self.tallies["train"].read, self.tallies["train"].findings()))
        chosen = usable
        highest = np.uint64(2**64 - 1)
        if usable > TOKENIZER_PAIRS:
            highest = np.uint64(2**64 * TOKENIZER_PAIRS // usable)
            chosen = sum(1 for _ in self._sample(train, highest))
        self.progress("learning the tokenizer", chosen)
        source, target = train_tokenizers(self.tokenizer, lambda: self._sample(train, highest))
        names = [JOINT_TOKENIZER] if self.tokenizer.joint else [SOURCE_TOKENIZER, TARGET_TOKENIZER]
        for name, tokenizer in zip(names, (source, target), strict=False):
            (self.folder / name).write_text(tokenizer.to_json(), encoding="utf-8")
        return (source, target), chosen

    def _sample(self, train: Spool, highest: np.uint64) -> Iterator[tuple[str, str]]:
        for start, hashes in train.hashes("pair"):
            chosen = (train.marks[start : start + len(hashes)] & (self.dropped | HELD_OUT) == 0) & (hashes <= highest)
            for begin in range(0, len(hashes), CHUNK_ROWS):
                pairs = train.pairs(start + begin, start + begin + CHUNK_ROWS)
                for pair in compress(pairs, chosen[begin : begin + CHUNK_ROWS]):
                    yield pair.source, pair.target

    def _count_dropped(self, train: Spool) -> None:
        """Count every marked training pair once, for the first rule that drops it."""
        for start in range(0, train.size, CHUNK_ROWS):
            marks = train.marks[start : start + CHUNK_ROWS] & self.dropped
            for reason, mark in MARKS.items():
                self.tallies["train"].found_many(reason, train, start + np.flatnonzero(marks & mark))
                marks = np.where(marks & mark, 0, marks)

    def _write(self, name: str, corpus: Spool, tokenizers: tuple[Tokenizer, Tokenizer]) -> dict[str, SplitReport]:
        """Pass two over one corpus, which is one split, or two when validation is held out of training."""
        is_train = name == "train"
        if is_train:
            self._count_dropped(corpus)
        limits = Limits(self.data.max_length, self.data.max_ratio, drop_ratio=is_train)
        dropped = self.dropped if is_train else 0
        held_out = int(np.count_nonzero((corpus.marks & HELD_OUT != 0) & (corpus.marks & dropped == 0)))
        self.tallies[name].held_out = held_out
        with ExitStack() as stack:
            own = SplitWriter(self.folder / name, tokenizers, limits, self.tallies[name])
            writers = {name: stack.enter_context(own)}
            if held_out:
                other = SplitWriter(self.folder / "validation", tokenizers, limits, Tally(read=held_out))
                writers["validation"] = stack.enter_context(other)
            for start in range(0, corpus.size, CHUNK_ROWS):
                pairs = corpus.pairs(start, start + CHUNK_ROWS)
                marks = corpus.marks[start : start + CHUNK_ROWS]
                used = marks & dropped == 0
                is_held = marks & HELD_OUT != 0
                for split, chosen in ((name, used & ~is_held), ("validation", used & is_held)):
                    if chosen.any():
                        writers[split].write(list(compress(pairs, chosen)), marks[chosen])
                self.progress(f"tokenising {name}", start + len(marks))
        return {split: writer.report() for split, writer in writers.items()}


def _nothing_left(name: str, read: int, findings: dict[str, Finding], held_out: int = 0) -> str:
    what = "training" if name == "train" else name
    if read == 0:
        return f"the {what} corpus has no pair in it; check its files"
    reasons = [f"{found.dropped:,} dropped because {REASONS[reason]}" for reason, found in findings.items()]
    reasons += [f"{held_out:,} held out for validation"] if held_out else []
    return f"no {what} pair is left of {read:,}: {', '.join(reasons)}; check the corpus and the rules in [data]"
