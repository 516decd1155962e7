"""Preparation of examples, in two passes.

Pass one reads everything and keeps hashes of each example, by which some are held out and duplicates and leaks are
dropped. Then the tokenizer is trained, and pass two reads the files again and writes rows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from transduce.config import Table
from transduce.data.audit import Progress
from transduce.data.prepared import GivenTokenizers, Preparation
from transduce.data.ragged import OFFSET, RaggedWriter
from transduce.data.report import CorpusCounter, LengthCounter, Report, SideStatistics, SplitReport, split_report
from transduce.data.split import token_bytes
from transduce.data.store import GROUPS
from transduce.errors import DataError, SettingsError
from transduce.tasks.text_encoding.config import ExampleFiles, TextEncodingConfig
from transduce.tasks.text_encoding.corpus import Example, documents, read_examples
from transduce.tasks.text_encoding.encoding import Encoder, Row, encoder_for
from transduce.text.corpus import Pair
from transduce.text.lines import is_stream, shown
from transduce.text.tokenizer import AnyTokenizer
from transduce.text.tokenizer.tokenizer import TokenizerConfig
from transduce.text.tokenizer.training import train_encoder_tokenizer

TARGET_BYTES = 4
"""Bytes of a target on disk."""
CHUNK_ROWS = 1024

Chosen = NDArray[np.bool_]
Unit = list[Example]
"""Examples that are used or dropped together: one, or for mask those of a document."""


@dataclass
class _AuditedFile:
    """What pass one found in one file: hashes of its units, in their order, and which of them are not trained on."""

    files: ExampleFiles
    texts: NDArray[np.uint64]
    """Hashes of the texts alone."""
    wholes: NDArray[np.uint64]
    """Hashes of texts and labels."""
    usable: Chosen
    dropped: dict[str, Chosen]
    """Which are dropped, by reason."""
    held_out: Chosen
    """Which go to validation."""

    @property
    def kept(self) -> Chosen:
        """Which are usable and not dropped."""
        kept = self.usable.copy()
        for found in self.dropped.values():
            kept &= ~found
        return kept

    def reason(self, place: int) -> str | None:
        """Why a unit is dropped, if it is."""
        return next((reason for reason, found in self.dropped.items() if found[place]), None)


class ExamplePreparation(Preparation[TextEncodingConfig]):
    """The preparation of examples for a text encoder."""

    noun = "example"

    def __init__(
        self,
        data: TextEncodingConfig,
        config: TokenizerConfig,
        progress: Progress | None = None,
        given: GivenTokenizers | None = None,
    ) -> None:
        if given is not None and config.extend is not None:
            raise SettingsError("--extend-vocabulary is for models that generate text; a text encoder keeps its tokens")
        super().__init__(data, config, progress, given)
        self.audited: dict[str, list[_AuditedFile]] = {}
        self.labels: set[str] = set()

    def report_notes(self) -> Table:
        return {"labels": tuple(sorted(self.labels)), "target_vocabulary": max(1, len(self.labels))}

    def token_bytes(self, report: Report) -> dict[str, int]:
        return {"tokens": token_bytes(report.source_vocabulary), "targets": TARGET_BYTES}

    def audit(self, split: str) -> None:
        self.audited[split] = [self._audit(split, files) for files in self.data.of_split(split)]

    def _audit(self, split: str, files: ExampleFiles) -> _AuditedFile:
        if is_stream(files.path):
            raise DataError(f"{shown(files.path)}: examples are read several times, a pipe only once; give a file")
        texts, wholes, usable = [], [], []
        for count, unit in enumerate(self._units(files), start=1):
            self.labels.update(label for example in unit if example.fault is None for label in example.labels)
            context_only = self.data.objective == "answer"
            texts.append(_hash(example.texts[-1:] if context_only else example.texts for example in unit))
            wholes.append(_hash((*example.texts, *example.labels, *_placed_answers(example)) for example in unit))
            usable.append(all(self._is_usable(example) for example in unit))
            if count % CHUNK_ROWS == 0:
                self.progress(f"reading {split}", count)
        return _AuditedFile(
            files,
            np.array(texts, dtype=np.uint64),
            np.array(wholes, dtype=np.uint64),
            np.array(usable, dtype=np.bool_),
            dropped={},
            held_out=np.zeros(len(texts), dtype=np.bool_),
        )

    def _units(self, files: ExampleFiles) -> Iterator[Unit]:
        examples = read_examples(files, self.data.objective)
        return documents(examples) if self.data.objective == "mask" else ([example] for example in examples)

    def _units_again(self, audited: _AuditedFile) -> Iterator[Unit]:
        """Read a file once more; it must not have changed."""
        count = 0
        for count, unit in enumerate(self._units(audited.files), start=1):
            if count > len(audited.texts):
                break
            yield unit
        if count != len(audited.texts):
            raise DataError(
                f"{audited.files.path}: changed while it was being read; try again when it is no longer written to"
            )

    @property
    def _drops_unanswered(self) -> bool:
        return self.data.objective == "answer" and not self.data.allow_no_answer

    def _is_usable(self, example: Example) -> bool:
        return example.fault is None and not (self._drops_unanswered and not example.answers)

    def select(self) -> None:
        train = self.audited["train"]
        if not any(audited.usable.any() for audited in train):
            raise DataError(
                f"{train[0].files.path}: none of the {sum(len(audited.texts) for audited in train):,} examples can be "
                f"used for the objective {self.data.objective}; check format and columns"
                + (", or set data.allow_no_answer=true" if self._drops_unanswered else "")
            )
        if self.data.objective != "mask":
            self._drop_leaks_and_duplicates(train)
        self._hold_out(train)
        num_kept = sum(int((~audited.held_out).sum()) for audited in train)
        if self.data.objective == "mask" and self.data.next_sentence and num_kept < 2:
            raise DataError(
                "next sentence prediction needs at least two training documents, with a blank line between them; "
                "set data.next_sentence=false"
            )

    def _drop_leaks_and_duplicates(self, train: Sequence[_AuditedFile]) -> None:
        others = [audited.texts for split in self.splits if split != "train" for audited in self.audited[split]]
        known = np.concatenate(others) if others else np.zeros(0, dtype=np.uint64)
        seen = np.zeros(0, dtype=np.uint64)
        for audited in train:
            if self.data.leakage == "drop":
                audited.dropped["leaked_source"] = np.isin(audited.texts, known)
            if self.data.duplicates == "drop":
                places = np.flatnonzero(audited.usable)  # an unusable one is not the first of its duplicates
                usable = audited.wholes[places]
                repeated = np.ones(len(usable), dtype=np.bool_)
                repeated[np.unique(usable, return_index=True)[1]] = False
                audited.dropped["duplicate"] = np.zeros(len(audited.wholes), dtype=np.bool_)
                audited.dropped["duplicate"][places] = repeated | np.isin(usable, seen)
                seen = np.concatenate([seen, usable])

    def _hold_out(self, train: Sequence[_AuditedFile]) -> None:
        """Choose the training units with the lowest hashes for validation; all of one text go together."""
        hashes = np.unique(np.concatenate([audited.texts[audited.kept] for audited in train]))
        count = 0
        if self.data.validation is None and self.data.validation_fraction > 0 and len(hashes) > 1:
            count = min(self.data.validation_max_size, max(1, round(self.data.validation_fraction * len(hashes))))
        for audited in train:
            audited.held_out = np.isin(audited.texts, hashes[:count]) & audited.kept

    def train_tokenizers(self) -> tuple[tuple[AnyTokenizer, AnyTokenizer], int]:
        if self.given is not None:
            tokenizer = self.given.source
            if self.data.objective == "mask" and tokenizer.mask is None:
                raise SettingsError(
                    "the given tokenizer has no mask token, so it was not made for masked language modelling; leave "
                    "it out, and one is trained"
                )
            return (tokenizer, tokenizer), 0
        total = sum(int((audited.kept & ~audited.held_out).sum()) for audited in self.audited["train"])
        self.progress("training the tokenizer", total)
        tokenizer = train_encoder_tokenizer(self.config, self._training_texts())
        return (tokenizer, tokenizer), total

    def _training_texts(self) -> Iterator[str]:
        joined = self.data.objective == "tag"
        for audited in self.audited["train"]:
            chosen = (audited.kept & ~audited.held_out).tolist()
            for unit, is_chosen in zip(self._units_again(audited), chosen, strict=True):
                for example in unit if is_chosen else ():
                    yield from [" ".join(example.texts)] if joined else example.texts

    def tokenise(self, split: str, source: AnyTokenizer, target: AnyTokenizer) -> dict[str, SplitReport]:
        encoder = encoder_for(self.data, source, sorted(self.labels))
        audited = self.audited[split]
        names = [split, *(["validation"] if any(one.held_out.any() for one in audited) else [])]
        with ExitStack() as stack:
            writers = {
                name: stack.enter_context(_ExampleWriter(self.folder / name, encoder, self.data.max_length))
                for name in names
            }
            for one, counter in zip(audited, self.counters[split], strict=True):
                for name, writer in writers.items():
                    writer.begin(counter if name == split else CorpusCounter(counter.corpus))
                for place, unit in enumerate(self._units_again(one)):
                    if one.held_out[place]:
                        counter.held_out += len(unit)
                        counter.read += len(unit)
                        writers["validation"].write(unit)
                    else:
                        writers[split].write(unit, one.reason(place))
            return {name: writer.finish() for name, writer in writers.items()}


class _ExampleWriter:
    """Writes the examples of one split as rows, and counts what is kept and dropped."""

    def __init__(self, folder: Path, encoder: Encoder, max_length: int) -> None:
        folder.mkdir()
        self.encoder, self.pending = encoder, list[Row]()
        self.counters: list[CorpusCounter] = []
        self.lengths = LengthCounter(encoder.tokenizer, max_length)
        self.num_groups = self.num_targets = 0
        self.pending_groups: list[int] = []
        with ExitStack() as stack:
            ids = f"<u{token_bytes(encoder.tokenizer.size)}"
            self._tokens = stack.enter_context(RaggedWriter(folder, "tokens", ids))
            self._targets = stack.enter_context(RaggedWriter(folder, "targets", f"<u{TARGET_BYTES}"))
            self._examples = stack.enter_context(RaggedWriter(folder, "examples", np.uint8))
            self._groups = stack.enter_context((folder / GROUPS).open("wb"))
            self._files = stack.pop_all()

    def begin(self, counter: CorpusCounter) -> None:
        """Continue with the next file, counted by `counter`."""
        self._flush()
        counter.rows = 0
        self.counters.append(counter)

    def write(self, unit: Unit, reason: str | None = None) -> None:
        """Write the rows of a unit; one that is dropped for a reason is only counted."""
        counter, usable = self.counters[-1], []
        counter.read += len(unit)
        for example in unit:
            if (issue := example.fault or reason) is not None:
                counter.count(issue, [_as_pair(example)], dropped=1)
            else:
                usable.append(example)
        rows, notes = self.encoder.rows(usable)
        for example, issue in notes:
            kept = self.encoder.keeps(issue)
            counter.count(issue, [_as_pair(example)], kept=int(kept), dropped=int(not kept))
        counter.kept += len(usable) - sum(not self.encoder.keeps(issue) for _, issue in notes)
        for number, row in enumerate(rows):
            self.num_groups += row.example is not None or number == 0
            self.pending_groups.append(self.num_groups)
        self.pending += rows
        if len(self.pending) >= CHUNK_ROWS:
            self._flush()

    def _flush(self) -> None:
        if not self.pending:
            return
        rows, groups = self.pending, np.array(self.pending_groups, dtype=OFFSET)
        self.pending, self.pending_groups = [], []
        self.counters[-1].rows = (self.counters[-1].rows or 0) + len(rows)
        lengths = np.array([len(row.tokens) for row in rows], dtype=np.int64)
        flat = np.array([token for row in rows for token in row.tokens], dtype=np.uint32)
        self.lengths.add(flat, lengths)
        self.num_targets += sum(max(1, len(row.targets)) for row in rows)
        self._tokens.append_flat(flat, lengths)
        self._targets.append([row.targets for row in rows])
        self._groups.write(groups.tobytes())
        self._examples.append_bytes([row.example.record.to_bytes() for row in rows if row.example is not None])

    def finish(self) -> SplitReport:
        """Return the report of the split."""
        self._flush()
        return split_report(self.counters, self.lengths.statistics(), SideStatistics(tokens=self.num_targets))

    def __enter__(self) -> _ExampleWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self._files.close()


def _placed_answers(example: Example) -> Iterator[str]:
    """The answers to a question, each with its start."""
    return (f"{start}:{answer}" for answer, start in example.answers)


def _hash(texts: Iterable[Iterable[str]]) -> int:
    whole = hashlib.blake2b(json.dumps([list(some) for some in texts]).encode(), digest_size=8)
    return int.from_bytes(whole.digest(), "little")


def _as_pair(example: Example) -> Pair:
    """The example as a report shows it."""
    targets = [*example.labels, *(answer for answer, _ in example.answers)]
    return Pair(" ".join(example.texts), " ".join(targets), example.line)
