"""Raw pairs in, a prepared corpus out: audited, split, tokenised, sealed. Streaming; memory does not grow with it.

Pass one (`audit`) writes usable text and hashes to disk and marks what is odd. Then training pairs are chosen, the
tokenizers learn from them, and pass two (`split`) writes tokens. Everything is a function of the corpus and the
settings: two preparations give the same bytes (as far as the tokenizer's training does: WordPiece's and
Unigram's may differ).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transduce.data.audit import (
    CHUNK_ROWS,
    HELD_OUT,
    MARKS,
    Marks,
    Progress,
    Span,
    Spool,
    hold_out,
    mark_duplicates,
    mark_leaks,
    spool,
)
from transduce.data.config import PlainTextConfig
from transduce.data.prepared import GivenTokenizers, new_folder, write_manifest
from transduce.data.report import MAX_EXAMPLES, REASONS, Finding, Report, SplitReport, Tally
from transduce.data.split import Limits, SplitWriter, Texts, token_bytes
from transduce.errors import DataError, SettingsError
from transduce.storage.json_file import write_json
from transduce.storage.layout import REPORT, SOURCE_TOKENIZER, TARGET_TOKENIZER, TOKENIZER
from transduce.tasks.language_modeling.preparation import prepare_text
from transduce.tasks.translation.config import TranslationConfig
from transduce.tasks.translation.corpus import PairCorpus, corpus_pairs
from transduce.text.tokenizer import AnyTokenizer, is_joint
from transduce.text.tokenizer.extension import extend, with_tags
from transduce.text.tokenizer.tag import NO_LEAD, Lead, Tags, listed
from transduce.text.tokenizer.tokenizer import TokenizerConfig
from transduce.text.tokenizer.training import train_tokenizers

TOKENIZER_PAIRS = 1_000_000
"""Most pairs that tokenizers learn from; of larger corpora about this many are taken, by their hash."""
CHARACTERS_PER_TOKEN = 40
"""A line of more characters per allowed token than this is too long without being tokenised."""


def prepare_pairs(
    data: TranslationConfig | PlainTextConfig,
    tokenizer: TokenizerConfig,
    folder: Path,
    progress: Progress | None = None,
    given: GivenTokenizers | None = None,
) -> Report:
    """Audit and tokenise a corpus into `folder`, which is written whole or not at all, and report what was found.

    `given` are the tokenizers that `tokenizer.folder` names; others are learned.
    """
    with new_folder(folder) as aside:
        preparation = _Preparation(data, tokenizer, aside, progress or (lambda stage, count: None), given)
        report = preparation.run()
        shutil.rmtree(preparation.work)
        write_json(aside / REPORT, report.to_table())
        sizes = {
            "source": token_bytes(report.source_vocabulary),
            "target": token_bytes(report.target_vocabulary),
        }
        write_manifest(aside, data, tokenizer, sizes)
    return report


class _Preparation:
    """One preparation on its way."""

    def __init__(
        self,
        data: Any,
        tokenizer: TokenizerConfig,
        folder: Path,
        progress: Progress,
        given: GivenTokenizers | None,
    ) -> None:
        self.data = data
        self.tokenizer = tokenizer
        self.given = given
        self.tags = None if given is None else given.tags
        """The languages that can be asked for."""
        self.folder = folder
        self.work = folder / "work"
        self.progress = progress
        if isinstance(data, PlainTextConfig):
            return
        rules = {"copy": data.copies, "leaked_pair": data.leakage, "leaked_source": data.leakage}
        rules["duplicate"] = data.duplicates
        self.dropped = sum(MARKS[reason] for reason, rule in rules.items() if rule == "drop")
        """The marks that leave a training pair out."""
        self.tallies: dict[str, list[Tally]] = {}
        """For each split, one for each of its corpora."""

    def run(self) -> Report:
        if isinstance(self.data, PlainTextConfig):
            known = None if self.given is None else self.given.target
            return prepare_text(self.data, self.tokenizer, self.folder, self.work, self.progress, known)
        corpora = self._read()
        train = corpora["train"]
        tokenizers, tokenizer_pairs = self._tokenizers(train)
        reports: dict[str, SplitReport] = {}
        for name, spooled in corpora.items():
            reports |= self._write(name, spooled, tokenizers)
        for name, split in reports.items():
            if split.kept == 0 and name in corpora:
                raise DataError(_nothing_left(name, split.read, split.findings, split.held_out))
            if split.kept == 0:
                shutil.rmtree(self.folder / name)
        return Report(
            train=reports["train"],
            validation=reports.get("validation"),
            test=reports.get("test"),
            extra_validation=reports.get("extra_validation"),
            source_vocabulary=tokenizers[0].size,
            target_vocabulary=tokenizers[1].size,
            joint=is_joint(*tokenizers),
            tokenizer_pairs=tokenizer_pairs,
            tags=self.tags,
        )

    def _read(self) -> dict[str, Spool]:
        """Pass one over all corpora; the small ones first, so that their errors come early."""
        spools = {}
        for name in ("test", "extra_validation", "validation", "train"):
            given = self.data.of_split(name)
            if not given:
                continue
            several = len(given) > 1
            spoken = [" ".join(map(str, self.data.languages_of(corpus))) for corpus in given]
            weights = [1.0 if corpus.weight is None else corpus.weight for corpus in given]
            tallies = [
                Tally(corpus.name if several else None, weight) for corpus, weight in zip(given, weights, strict=True)
            ]
            self.tallies[name] = tallies
            spools[name] = spool(
                [(corpus_pairs([corpus]), tally) for corpus, tally in zip(given, tallies, strict=True)],
                self.work / name,
                CHARACTERS_PER_TOKEN * self.data.max_length,
                partial(self.progress, f"reading {name}"),
                spoken if self.data.languages else None,
            )
            mark_duplicates(spools[name], weights)
        train = spools["train"]
        mark_leaks(train, [other for name, other in spools.items() if name != "train"])
        if self.data.validation is None and self.data.validation_fraction > 0:
            hold_out(train, self.dropped, self.data.validation_fraction, self.data.validation_max_size)
        return spools

    def _learns(self, marks: Marks) -> NDArray[np.bool_]:
        learns: NDArray[np.bool_] = marks & (self.dropped | HELD_OUT) == 0
        return learns

    def _tokenizers(self, train: Spool) -> tuple[tuple[AnyTokenizer, AnyTokenizer], int]:
        """Learn from the training pairs and save."""
        usable = train.count(self._learns)
        if usable == 0:
            self._count_dropped(train)
            total = Tally.total(self.tallies["train"])
            raise DataError(_nothing_left("train", total.read, total.findings()))
        chosen = usable
        highest = np.uint64(2**64 - 1)
        if usable > TOKENIZER_PAIRS:
            highest = np.uint64(2**64 * TOKENIZER_PAIRS // usable)
            chosen = sum(
                int(np.count_nonzero(self._learns(marks) & (hashes <= highest)))
                for _, hashes, marks in train.marked("pair")
            )
        if self.given is None:
            self.progress("learning the tokenizer", chosen)
        else:
            chosen = chosen if self.tokenizer.extend else 0
        source, target = self._made(lambda: self._sample(train, highest))
        names = [TOKENIZER] if is_joint(source, target) else [SOURCE_TOKENIZER, TARGET_TOKENIZER]
        for name, tokenizer in zip(names, (source, target), strict=False):
            (self.folder / name).write_text(tokenizer.to_json(), encoding="utf-8")
        return (source, target), chosen

    def _made(self, texts: Callable[[], Iterator[tuple[str, str]]]) -> tuple[AnyTokenizer, AnyTokenizer]:
        """Learn new tokenizers, or take those that were given."""
        if self.given is not None:
            return self._extended(self.given, texts)
        source, target = train_tokenizers(self.tokenizer, texts, self.data.languages)
        self.tags = Tags(of=source.tags) if self.data.languages else None
        return source, target

    def _extended(
        self, given: GivenTokenizers, texts: Callable[[], Iterator[tuple[str, str]]]
    ) -> tuple[AnyTokenizer, AnyTokenizer]:
        """Return the given tokenizers, with what the recipe wants to be added to them."""
        given = self._with_languages(given)
        most, least = self.tokenizer.extend, self.tokenizer.min_frequency
        if most is None:
            return given.source, given.target
        self.progress("extending the vocabulary", self.tallies["train"][0].read)
        if given.source is given.target:
            joint = extend(given.source, (side for pair in texts() for side in pair), most, least)
            return joint, joint
        source = extend(given.source, (source for source, _ in texts()), most, least)
        return source, extend(given.target, (target for _, target in texts()), most, least)

    def _with_languages(self, given: GivenTokenizers) -> GivenTokenizers:
        """Add tags for languages that the given tokenizers lack."""
        known = () if given.tags is None else given.tags.of
        new = [language for language in self.data.languages if language not in known]
        if not new:
            return given
        if self.tokenizer.extend is None:
            there = f"there is {listed(sorted(known))}" if known else "it knows one way only"
            raise SettingsError(
                f"{self.tokenizer.folder}: the model does not translate into {listed(new)}; {there}: "
                "--extend-vocabulary N adds languages, and N pieces for them"
            )
        source = with_tags(given.source, new)
        self.tags = Tags(of=source.tags)
        return GivenTokenizers(source, source if given.target is given.source else given.target, self.tags)

    def _lead(self, corpus: PairCorpus) -> Lead:
        """What goes before the sources and targets of a corpus; what every answer begins with, at least."""
        if self.tags is None:
            return NO_LEAD if self.given is None else Lead([], list(self.given.target.opening))
        source, target = self.data.languages_of(corpus)
        return self.tags.lead(target, source)

    def _sample(self, train: Spool, highest: np.uint64) -> Iterator[tuple[str, str]]:
        for start, hashes, marks in train.marked("pair"):
            chosen = self._learns(marks) & (hashes <= highest)
            for begin in range(0, len(hashes), CHUNK_ROWS):
                some = chosen[begin : begin + CHUNK_ROWS].tolist()
                sources, targets = train.texts(start + begin, start + begin + len(some))
                yield from zip(compress(sources, some), compress(targets, some), strict=True)

    def _count_dropped(self, train: Spool) -> None:
        """Count every marked training pair once, for the first rule that drops it."""
        for span in train.spans(CHUNK_ROWS):
            marks = train.marks(span.start, span.stop) & self.dropped
            for reason, mark in MARKS.items():
                rows = span.start + np.flatnonzero(marks & mark)
                if len(rows):
                    examples = [train.pairs(int(row), int(row) + 1)[0] for row in rows[:MAX_EXAMPLES]]
                    self.tallies["train"][span.corpus].found(reason, examples, dropped=len(rows))
                    marks[marks & mark != 0] = 0

    def _write(
        self, name: str, corpora: Spool, tokenizers: tuple[AnyTokenizer, AnyTokenizer]
    ) -> dict[str, SplitReport]:
        """Pass two over the corpora of one split, which is two when validation is held out of training."""
        is_train = name == "train"
        if is_train:
            self._count_dropped(corpora)
        limits = Limits(self.data.max_length, self.data.max_ratio, drop_ratio=is_train)
        dropped = self.dropped if is_train else 0
        tallies = {"validation": [Tally(tally.corpus) for tally in self.tallies[name]], name: self.tallies[name]}
        leads = [self._lead(corpus) for corpus in self.data.of_split(name)]
        with ExitStack() as stack:
            writers = {name: stack.enter_context(SplitWriter(self.folder / name, tokenizers, limits))}
            if corpora.count(lambda marks: (marks & HELD_OUT != 0) & (marks & dropped == 0)):
                other = SplitWriter(self.folder / "validation", tokenizers, limits)
                writers["validation"] = stack.enter_context(other)
            for span in corpora.spans(CHUNK_ROWS):
                marks = corpora.marks(span.start, span.stop)
                used, is_held = marks & dropped == 0, marks & HELD_OUT != 0
                held_out = int(np.count_nonzero(used & is_held))
                tallies[name][span.corpus].held_out += held_out
                tallies["validation"][span.corpus].read += held_out
                for split, chosen in ((name, used & ~is_held), ("validation", used & is_held)):
                    if chosen.any():
                        texts, tally = _texts(corpora, span, chosen, marks), tallies[split][span.corpus]
                        writers[split].write(texts, tally, leads[span.corpus])
                self.progress(f"tokenising {name}", span.stop)
        held_total = [Tally.total(tallies["validation"])]
        return {
            split: writer.report(tallies[name] if split == name else held_total) for split, writer in writers.items()
        }


def _texts(corpora: Spool, span: Span, chosen: NDArray[np.bool_], marks: Marks) -> Texts:
    sources, targets = corpora.texts(span.start, span.stop)
    some = chosen.tolist()
    rows = span.start + np.flatnonzero(chosen)
    return Texts(
        list(compress(sources, some)),
        list(compress(targets, some)),
        marks[chosen],
        lambda place: corpora.pairs(int(rows[place]), int(rows[place]) + 1)[0],
    )


def _nothing_left(name: str, read: int, findings: dict[str, Finding], held_out: int = 0) -> str:
    what = "training" if name == "train" else name
    if read == 0:
        return f"the {what} corpus has no pair in it; check its files"
    reasons = [f"{found.dropped:,} dropped because {REASONS[reason]}" for reason, found in findings.items()]
    reasons += [f"{held_out:,} held out for validation"] if held_out else []
    return f"no {what} pair is left of {read:,}: {', '.join(reasons)}; check the corpus and the rules in [data]"
