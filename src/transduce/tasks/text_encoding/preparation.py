"""Files of examples in, a prepared corpus out: audited, split, tokenised, sealed, in the form that pairs have.

Pass one reads everything and keeps a hash of each example; by the hashes some are held out, and repeated or leaked ones
are left out. Then the tokenizer learns, and pass two writes rows. Two preparations give the same bytes (as far as the
tokenizer's training does).
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from transduce.data.prepared import GivenTokenizers, new_folder, write_manifest
from transduce.data.ragged import RaggedWriter
from transduce.data.report import Report, Side, SplitReport, Tally
from transduce.data.split import SideCount, token_bytes
from transduce.errors import DataError, SettingsError
from transduce.storage.json_file import write_json
from transduce.storage.layout import REPORT, TOKENIZER
from transduce.tasks.text_encoding.config import ExampleFiles, TextEncodingConfig
from transduce.tasks.text_encoding.corpus import Example, documents, read_examples
from transduce.tasks.text_encoding.encoding import Encoder, Row, encoder_for
from transduce.text.corpus import Pair
from transduce.text.lines import is_stream, shown
from transduce.text.tokenizer import AnyTokenizer
from transduce.text.tokenizer.tokenizer import TokenizerConfig
from transduce.text.tokenizer.training import train_reading_tokenizer

Progress = Callable[[str, int], None]
WANTED_BYTES = 4
"""Of a number that says what is wanted."""
WRITTEN_TOGETHER = 1024

Dropped = dict[str, NDArray[np.bool_]]
"""Which units of a file are left out, by reason."""

Unit = list[Example]
"""What is used or left out as one: an example, or for mask a document."""


@dataclass
class _Survey:
    """What pass one found in one file: hashes of its units, in their order."""

    files: ExampleFiles
    texts: NDArray[np.uint64]
    """Of the text alone."""
    wholes: NDArray[np.uint64]
    """Of the text and what is said of it."""
    usable: NDArray[np.bool_]


def prepare_examples(
    data: TextEncodingConfig,
    tokenizer: TokenizerConfig,
    folder: Path,
    progress: Progress | None = None,
    given: GivenTokenizers | None = None,
) -> Report:
    """Audit and tokenise examples into `folder`, which is written whole or not at all, and report what was found.

    `given` is a tokenizer that is there already; another is learned.
    """
    if given is not None and tokenizer.extend is not None:
        raise SettingsError("--extend-vocabulary is for models that generate text; a text encoder keeps its tokens")
    known = None if given is None else given.source
    with new_folder(folder) as aside:
        report = _Preparation(data, tokenizer, aside, progress or (lambda stage, count: None), known).run()
        write_json(aside / REPORT, report.to_table())
        sizes = {"source": token_bytes(report.source_vocabulary), "target": WANTED_BYTES}
        write_manifest(aside, data, tokenizer, sizes)
    return report


class _Preparation:
    """One preparation on its way."""

    def __init__(
        self,
        data: TextEncodingConfig,
        tokenizer: TokenizerConfig,
        folder: Path,
        progress: Progress,
        given: AnyTokenizer | None,
    ) -> None:
        self.data, self.tokenizer, self.folder, self.progress, self.given = data, tokenizer, folder, progress, given
        self.labels: set[str] = set()

    @property
    def _skips_unanswered(self) -> bool:
        return self.data.objective == "answer" and not self.data.allow_no_answer

    def run(self) -> Report:
        splits = [name for name in ("test", "validation", "train") if self.data.of_split(name)]
        surveys = {name: [self._survey(name, files) for files in self.data.of_split(name)] for name in splits}
        if not any(survey.usable.any() for survey in surveys["train"]):
            raise DataError(
                f"{surveys['train'][0].files.path}: none of the {sum(len(one.texts) for one in surveys['train']):,} "
                f"examples can be used for the objective {self.data.objective}; check format and columns"
                + (
                    ""
                    if self.data.objective != "answer" or self.data.allow_no_answer
                    else ", or set data.allow_no_answer=true"
                )
            )
        dropped = self._dropped(surveys)
        held = self._held_out(surveys, dropped["train"])
        if self.data.objective == "mask" and self.data.next_sentence and sum(int((~out).sum()) for out in held) < 2:
            raise DataError(
                "to ask whether a sentence follows, there must be two training documents or more, with a blank line "
                "between them; set data.next_sentence=false"
            )
        tokenizer, learned_from = self._tokenizer(surveys["train"], held, dropped["train"])
        (self.folder / TOKENIZER).write_text(tokenizer.to_json(), encoding="utf-8")
        labels = sorted(self.labels)
        encoder = encoder_for(self.data, tokenizer, labels)
        reports: dict[str, SplitReport] = {}
        for name in splits:
            nothing = [np.zeros(len(one.texts), dtype=np.bool_) for one in surveys[name]]
            is_train = name == "train"
            reports |= self._write(name, surveys[name], held if is_train else nothing, dropped[name], encoder)
        for name, split in reports.items():
            if not split.rows and name not in splits:
                shutil.rmtree(self.folder / name)  # all that was held out was left out
            elif not split.rows:
                raise DataError(f"nothing is left of the {name} examples; see what was left out: {_faults(split)}")
        return Report(
            train=reports["train"],
            validation=reports.get("validation"),
            test=reports.get("test"),
            source_vocabulary=tokenizer.size,
            target_vocabulary=max(1, len(labels)),
            joint=True,
            tokenizer_pairs=learned_from,
            labels=tuple(labels),
        )

    def _units(self, files: ExampleFiles) -> Iterator[Unit]:
        examples = read_examples(files, self.data.objective)
        return documents(examples) if self.data.objective == "mask" else ([example] for example in examples)

    def _again(self, one: _Survey) -> Iterator[Unit]:
        """Read a file once more, which must be what it was."""
        count = 0
        for count, unit in enumerate(self._units(one.files), start=1):
            if count > len(one.texts):
                break
            yield unit
        if count != len(one.texts):
            raise DataError(f"{one.files.path}: changed while it was being read; try again when nobody writes to it")

    def _survey(self, name: str, files: ExampleFiles) -> _Survey:
        if is_stream(files.path):
            raise DataError(
                f"{shown(files.path)}: examples are read several times, and this can be read once only; give a file"
            )
        texts, wholes, usable = [], [], []
        for count, unit in enumerate(self._units(files), start=1):
            self.labels.update(label for example in unit if example.fault is None for label in example.labels)
            text = _hash(example.texts[-1:] if self.data.objective == "answer" else example.texts for example in unit)
            texts.append(text)
            wholes.append(_hash((*example.texts, *example.labels, *_said(example)) for example in unit))
            usable.append(all(self._is_usable(example) for example in unit))
            if count % WRITTEN_TOGETHER == 0:
                self.progress(f"reading {name}", count)
        return _Survey(
            files,
            np.array(texts, dtype=np.uint64),
            np.array(wholes, dtype=np.uint64),
            np.array(usable, dtype=np.bool_),
        )

    def _is_usable(self, example: Example) -> bool:
        unanswered = self._skips_unanswered and not example.answers
        return example.fault is None and not unanswered

    def _held_out(self, surveys: dict[str, list[_Survey]], dropped: list[Dropped]) -> list[NDArray[np.bool_]]:
        """Which training units go to validation: those with the lowest hashes; all of one text go together."""
        train = surveys["train"]
        kept = [_kept(*pair) for pair in zip(train, dropped, strict=True)]
        hashes = np.unique(np.concatenate([one.texts[some] for one, some in zip(train, kept, strict=True)]))
        count = 0
        if "validation" not in surveys and self.data.validation_fraction > 0 and len(hashes) > 1:
            count = min(self.data.validation_max_size, max(1, round(self.data.validation_fraction * len(hashes))))
        return [np.isin(one.texts, hashes[:count]) & some for one, some in zip(train, kept, strict=True)]

    def _dropped(self, surveys: dict[str, list[_Survey]]) -> dict[str, list[Dropped]]:
        """For every file of every split: which units are left out, by reason."""
        found: dict[str, list[Dropped]] = {name: [{} for _ in several] for name, several in surveys.items()}
        if self.data.objective == "mask":
            return found
        others = [one.texts for name in surveys if name != "train" for one in surveys[name]]
        known = np.concatenate(others) if others else np.zeros(0, dtype=np.uint64)
        seen = np.zeros(0, dtype=np.uint64)
        for one, reasons in zip(surveys["train"], found["train"], strict=True):
            if self.data.leakage == "drop":
                reasons["leaked_source"] = np.isin(one.texts, known)
            if self.data.duplicates == "drop":
                places = np.flatnonzero(one.usable)  # what is left out anyway is nobody's first
                usable = one.wholes[places]
                again = np.ones(len(usable), dtype=np.bool_)
                again[np.unique(usable, return_index=True)[1]] = False
                reasons["duplicate"] = np.zeros(len(one.wholes), dtype=np.bool_)
                reasons["duplicate"][places] = again | np.isin(usable, seen)
                seen = np.concatenate([seen, usable])
        return found

    def _tokenizer(
        self,
        train: list[_Survey],
        held: list[NDArray[np.bool_]],
        dropped: list[Dropped],
    ) -> tuple[AnyTokenizer, int]:
        if self.given is not None:
            if self.data.objective == "mask" and self.given.mask is None:
                raise SettingsError(
                    "the tokenizer that was given has no token that hides a piece, so it was not made for a reader; "
                    "leave it out, and one is learned"
                )
            return self.given, 0
        chosen = [_kept(one, reasons) & ~out for one, out, reasons in zip(train, held, dropped, strict=True)]
        total = sum(int(some.sum()) for some in chosen)
        self.progress("learning the tokenizer", total)
        return train_reading_tokenizer(self.tokenizer, self._texts(train, chosen)), total

    def _texts(self, train: list[_Survey], chosen: list[NDArray[np.bool_]]) -> Iterator[str]:
        joined = self.data.objective == "tag"
        for one, some in zip(train, chosen, strict=True):
            for unit, wanted in zip(self._again(one), some.tolist(), strict=True):
                for example in unit if wanted else ():
                    yield from [" ".join(example.texts)] if joined else example.texts

    def _write(
        self,
        name: str,
        surveys: list[_Survey],
        held: list[NDArray[np.bool_]],
        dropped: list[Dropped],
        encoder: Encoder,
    ) -> dict[str, SplitReport]:
        """Pass two over one split, which is two when validation is held out of training."""
        several = len(surveys) > 1
        names = [name, *(["validation"] if any(out.any() for out in held) else [])]
        with ExitStack() as stack:
            writers = {
                split: stack.enter_context(_Writer(self.folder / split, encoder, self.data.max_length))
                for split in names
            }
            for one, out, reasons in zip(surveys, held, dropped, strict=True):
                for split, writer in writers.items():
                    weight = one.files.weight or 1.0
                    writer.begin(Tally(one.files.name if several else None, weight if split == name else 1.0))
                for place, unit in enumerate(self._again(one)):
                    split = "validation" if out[place] and name == "train" else name
                    because = next((reason for reason, which in reasons.items() if which[place]), None)
                    writers[name].tally.held_out += len(unit) if split != name else 0
                    writers[name].tally.read += len(unit) if split != name else 0
                    writers[split].add(unit, None if split != name else because)
            return {split: writer.finish() for split, writer in writers.items()}


def _said(example: Example) -> Iterator[str]:
    """The answers to a question, told apart by where they stand."""
    return (f"{start}:{answer}" for answer, start in example.answers)


class _Writer:
    """Writes the files of one split and counts what goes in and what does not."""

    def __init__(self, folder: Path, encoder: Encoder, max_length: int) -> None:
        folder.mkdir()
        self.encoder, self.rows, self.waiting = encoder, [0], list[Row]()
        self.tallies: list[Tally] = []
        self.count = SideCount(encoder.tokenizer, max_length)
        self.wanted = 0
        with ExitStack() as stack:
            ids = f"<u{token_bytes(encoder.tokenizer.size)}"
            self._tokens = stack.enter_context(RaggedWriter(folder, "source.tokens", ids))
            self._wanted = stack.enter_context(RaggedWriter(folder, "target.tokens", f"<u{WANTED_BYTES}"))
            self._texts = [
                stack.enter_context(RaggedWriter(folder, f"{side}.text", np.uint8)) for side in ("source", "target")
            ]
            self._files = stack.pop_all()

    @property
    def tally(self) -> Tally:
        return self.tallies[-1]

    def begin(self, tally: Tally) -> None:
        """Go on with the next file."""
        self._flush()
        self.tallies.append(tally)
        if len(self.tallies) > 1:
            self.rows.append(0)

    def add(self, unit: Unit, because: str | None) -> None:
        """Write a unit's rows, or count why it has none."""
        self.tally.read += len(unit)
        usable = []
        for example in unit:
            reason = example.fault or because
            if reason is not None:
                self.tally.found(reason, [_shown(example)], dropped=1)
            else:
                usable.append(example)
        rows, notes = self.encoder.rows(usable)
        for example, reason in notes:
            kept = self.encoder.keeps(reason)
            self.tally.found(reason, [_shown(example)], kept=int(kept), dropped=int(not kept))
        self.tally.kept += len(usable) - sum(not self.encoder.keeps(reason) for _, reason in notes)
        self.waiting += rows
        if len(self.waiting) >= WRITTEN_TOGETHER:
            self._flush()

    def _flush(self) -> None:
        rows, self.waiting = self.waiting, []
        self.rows[-1] += len(rows)
        lengths = np.array([len(row.tokens) for row in rows], dtype=np.int64)
        flat = np.array([token for row in rows for token in row.tokens], dtype=np.uint32)
        self.count.add(flat, lengths)
        self.wanted += sum(len(row.wanted) for row in rows)
        self._tokens.append_flat(flat, lengths)
        self._wanted.append([row.wanted for row in rows])
        self._texts[0].append_bytes([row.text.encode() for row in rows])
        self._texts[1].append_bytes([row.gold.encode() for row in rows])

    def finish(self) -> SplitReport:
        """Return what was counted."""
        self._flush()
        total = Tally.total(self.tallies)
        mixed = len(self.tallies) > 1 or self.tallies[0].weight != 1
        parts = [tally.report().but(rows=rows) for tally, rows in zip(self.tallies, self.rows, strict=True)]
        return SplitReport(
            read=total.read,
            kept=total.kept,
            held_out=total.held_out,
            findings=total.findings(),
            source=self.count.side(),
            target=Side(tokens=self.wanted),
            rows=sum(self.rows),
            corpora=tuple(parts) if mixed else None,
        )

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *error: object) -> None:
        self._files.close()


def _kept(survey: _Survey, reasons: Dropped) -> NDArray[np.bool_]:
    kept = survey.usable.copy()
    for which in reasons.values():
        kept &= ~which
    return kept


def _hash(texts: Iterable[Iterable[str]]) -> int:
    whole = hashlib.blake2b(json.dumps([list(some) for some in texts]).encode(), digest_size=8)
    return int.from_bytes(whole.digest(), "little")


def _shown(example: Example) -> Pair:
    said = [*example.labels, *(answer for answer, _ in example.answers)]
    return Pair(" ".join(example.texts), " ".join(said), example.line)


def _faults(split: SplitReport) -> str:
    return (
        ", ".join(f"{reason} {finding.dropped:,}" for reason, finding in split.findings.items()) or "nothing was read"
    )
