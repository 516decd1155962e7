"""Preparation of pairs, in two passes.

Pass one (`data.audit`) writes usable text and hashes to disk and marks duplicates, copies and leaks. Then the
tokenizers are trained on the training pairs, and pass two (`data.split`) writes tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from transduce.config import Table
from transduce.data.aligner import align_corpus
from transduce.data.audit import (
    CHUNK_ROWS,
    HELD_OUT,
    MARKS,
    AuditedPairs,
    LengthFilter,
    Marks,
    Progress,
    RowRange,
    audit_pairs,
    hold_out,
    mark_duplicates,
    mark_leaks,
)
from transduce.data.prepared import GivenTokenizers, Preparation
from transduce.data.ragged import Ragged, RaggedWriter
from transduce.data.report import MAX_EXAMPLES, AlignmentReport, CorpusCounter, Report, SplitReport
from transduce.data.split import PairChunk, PairWriter, token_bytes
from transduce.data.store import ALIGNMENT
from transduce.errors import SettingsError
from transduce.tasks.translation.config import PairCorpus, TranslationConfig, alignment_file, corpus_pairs
from transduce.text.alignment import AlignmentFile
from transduce.text.picture import colour_table
from transduce.text.tokenizer import AnyTokenizer
from transduce.text.tokenizer.extension import add_language_tags, extend, with_characters
from transduce.text.tokenizer.special import NO_PREFIX, LanguagePrefix, LanguageTags, listed
from transduce.text.tokenizer.tokenizer import TokenizerConfig
from transduce.text.tokenizer.training import train_tokenizers

TOKENIZER_PAIRS = 1_000_000
"""Maximum pairs to train tokenizers on; of larger corpora about this many are taken, by their hash."""


class PairPreparation(Preparation[TranslationConfig]):
    """The preparation of pairs."""

    noun = "pair"

    def __init__(
        self,
        data: TranslationConfig,
        config: TokenizerConfig,
        progress: Progress | None = None,
        given: GivenTokenizers | None = None,
    ) -> None:
        super().__init__(data, config, progress, given)
        self.limits = LengthFilter(*data.length_limits)
        self.tags = None if given is None else given.tags
        """The target languages of the model, where there are several."""
        rules = {"copy": data.copies, "leaked_pair": data.leakage, "leaked_source": data.leakage}
        rules["duplicate"] = data.duplicates
        self.dropped = sum(MARKS[reason] for reason, rule in rules.items() if rule == "drop")
        """The marks for which a training pair is dropped."""
        self.audited: dict[str, AuditedPairs] = {}
        self.alignment: AlignmentReport | None = None

    def report_notes(self) -> Table:
        return {"tags": self.tags, "alignment": self.alignment}

    def token_bytes(self, report: Report) -> dict[str, int]:
        own = {ALIGNMENT: self._place_bytes} if self.data.has_alignments else {}
        return {**super().token_bytes(report), **own}

    @property
    def _place_bytes(self) -> int:
        """Bytes for the place of a token in its row."""
        return token_bytes(self.limits.max_length)

    def audit(self, split: str) -> None:
        corpora = self.data.of_split(split)
        languages = [" ".join(map(str, self.data.languages_of(corpus))) for corpus in corpora]
        alignments = [alignment_file(corpus) for corpus in corpora]
        self.audited[split] = audit_pairs(
            [
                (corpus_pairs([corpus], self.data.images, counter, self.data.languages_of(corpus)), counter)
                for corpus, counter in zip(corpora, self.counters[split], strict=True)
            ],
            self.work / split,
            self.limits,
            partial(self.progress, f"reading {split}"),
            languages if self.data.languages else None,
            [None if file is None else AlignmentFile(file) for file in alignments] if any(alignments) else None,
        )
        mark_duplicates(self.audited[split], [counter.weight for counter in self.counters[split]])

    def select(self) -> None:
        train = self.audited["train"]
        mark_leaks(train, [pairs for split, pairs in self.audited.items() if split != "train"])
        if self.data.validation is None and self.data.validation_fraction > 0:
            hold_out(train, self.dropped, self.data.validation_fraction, self.data.validation_max_size)

    def train_tokenizers(self) -> tuple[tuple[AnyTokenizer, AnyTokenizer], int]:
        train = self.audited["train"]
        usable = train.count(self._is_trained_on)
        if usable == 0:
            self._count_dropped(train)
            total = CorpusCounter.total(self.counters["train"])
            raise self.nothing_left("train", total.read, total.issues())
        chosen = usable
        highest = np.uint64(2**64 - 1)
        if usable > TOKENIZER_PAIRS:
            highest = np.uint64(2**64 * TOKENIZER_PAIRS // usable)
            chosen = sum(
                int(np.count_nonzero(self._is_trained_on(marks) & (hashes <= highest)))
                for _, hashes, marks in train.marked("pair")
            )
        if self.given is not None:
            tokenizers = self._extended(self.given, lambda: self._sample(train, highest))
            return tokenizers, chosen if self.config.extend else 0
        self.progress("training the tokenizer", chosen)
        source, target = train_tokenizers(self.config, lambda: self._sample(train, highest), self.data.languages)
        self.tags = LanguageTags(target_tokens=source.tags) if self.data.languages else None
        if self.data.images is not None:
            source = with_characters(source, colour_table(self.data.images.colours))
        return (source, target), chosen

    def _is_trained_on(self, marks: Marks) -> NDArray[np.bool_]:
        trained_on: NDArray[np.bool_] = marks & (self.dropped | HELD_OUT) == 0
        return trained_on

    def _extended(
        self, given: GivenTokenizers, texts: Callable[[], Iterator[tuple[str, str]]]
    ) -> tuple[AnyTokenizer, AnyTokenizer]:
        """Return the given tokenizers, with the languages and pieces that the recipe adds to them."""
        given = self._with_languages(given)
        most, least = self.config.extend, self.config.min_frequency
        if most is None:
            return given.source, given.target
        self.progress("extending the vocabulary", self.counters["train"][0].read)
        if given.source is given.target:
            joint = extend(given.source, (side for pair in texts() for side in pair), most, least)
            return joint, joint
        source = extend(given.source, (source for source, _ in texts()), most, least)
        return source, extend(given.target, (target for _, target in texts()), most, least)

    def _with_languages(self, given: GivenTokenizers) -> GivenTokenizers:
        """Add tags for languages that the given tokenizers lack."""
        known = () if given.tags is None else given.tags.target_tokens
        new = [language for language in self.data.languages if language not in known]
        if not new:
            return given
        if self.config.extend is None:
            there = f"it translates into {listed(sorted(known))}" if known else "it translates into one language only"
            raise SettingsError(
                f"{self.config.folder}: the model does not translate into {listed(new)}; {there}: "
                "--extend-vocabulary N adds languages, and N pieces for them"
            )
        source = add_language_tags(given.source, new)
        self.tags = LanguageTags(target_tokens=source.tags)
        return GivenTokenizers(source, source if given.target is given.source else given.target, self.tags)

    def _sample(self, train: AuditedPairs, highest: np.uint64) -> Iterator[tuple[str, str]]:
        """Yield the training pairs whose hash is at most `highest`."""
        for start, hashes, marks in train.marked("pair"):
            chosen = self._is_trained_on(marks) & (hashes <= highest)
            for begin in range(0, len(hashes), CHUNK_ROWS):
                some = chosen[begin : begin + CHUNK_ROWS].tolist()
                sources, targets = train.texts(start + begin, start + begin + len(some))
                yield from zip(compress(sources, some), compress(targets, some), strict=True)

    def tokenise(self, split: str, source: AnyTokenizer, target: AnyTokenizer) -> dict[str, SplitReport]:
        pairs, is_train = self.audited[split], split == "train"
        if is_train:
            self._count_dropped(pairs)
        limits = replace(self.limits, drop_ratio=is_train)
        dropped = self.dropped if is_train else 0
        held_out = [CorpusCounter(counter.corpus) for counter in self.counters[split]]
        counters = {"validation": held_out, split: self.counters[split]}
        prefixes = [self._prefix(corpus) for corpus in self.data.of_split(split)]
        given = self.work if any(map(alignment_file, self.data.of_split(split))) else None
        with ExitStack() as stack:
            writers = {split: stack.enter_context(PairWriter(self.folder / split, (source, target), limits, given))}
            if pairs.count(lambda marks: (marks & HELD_OUT != 0) & (marks & dropped == 0)):
                writer = PairWriter(self.folder / "validation", (source, target), limits)
                writers["validation"] = stack.enter_context(writer)
            for rows in pairs.ranges(CHUNK_ROWS):
                marks = pairs.marks(rows.start, rows.stop)
                used, is_held = marks & dropped == 0, marks & HELD_OUT != 0
                num_held = int(np.count_nonzero(used & is_held))
                counters[split][rows.corpus].held_out += num_held
                counters["validation"][rows.corpus].read += num_held
                for name, chosen in ((split, used & ~is_held), ("validation", used & is_held)):
                    if chosen.any():
                        aligned = name == split and given is not None
                        chunk, counter = _chunk(pairs, rows, chosen, marks, aligned), counters[name][rows.corpus]
                        writers[name].write(chunk, counter, prefixes[rows.corpus])
                self.progress(f"tokenising {split}", rows.stop)
        if is_train and self.data.has_alignments:
            links = self._align((source, target))
            unusable = writers[split].unusable
            self.alignment = AlignmentReport(pairs=links[0], links=links[1], unusable=unusable)
        totals = {"validation": [CorpusCounter.total(held_out)], split: self.counters[split]}
        return {name: writer.report(totals[name]) for name, writer in writers.items()}

    def _align(self, tokenizers: tuple[AnyTokenizer, AnyTokenizer]) -> tuple[int, int]:
        """Write the links of the training pairs: those given, or else computed. Return (pairs with links, links)."""
        corpora, counters, folder = self.data.corpora, self.counters["train"], self.folder / "train"
        sides = [
            Ragged.open(folder, f"{side}.tokens", f"<u{token_bytes(tokenizer.size)}")
            for side, tokenizer in zip(("source", "target"), tokenizers, strict=True)
        ]
        given = Ragged.open(self.work, ALIGNMENT, "<u4") if any(map(alignment_file, corpora)) else None
        align = None
        if not all(map(alignment_file, corpora)):
            sizes = tokenizers[0].size, tokenizers[1].size
            align = align_corpus((sides[0], sides[1]), sizes, self.progress)
        first, pairs, links = 0, 0, 0
        with RaggedWriter(folder, ALIGNMENT, f"<u{self._place_bytes}") as writer:
            for corpus, counter in zip(corpora, counters, strict=True):
                before = self._prefix(corpus)
                for start in range(first, first + counter.kept, CHUNK_ROWS):
                    rows = np.arange(start, min(start + CHUNK_ROWS, first + counter.kept))
                    if given is not None and alignment_file(corpus) is not None:
                        values, lengths = given.take(rows)
                    else:
                        assert align is not None
                        values, lengths = align(rows, (len(before.target), len(before.source)))
                    writer.append_flat(values, lengths)
                    pairs, links = pairs + int(np.count_nonzero(lengths)), links + len(values) // 2
                    self.progress("writing alignments", int(rows[-1]) + 1)
                first += counter.kept
        return pairs, links

    def _count_dropped(self, train: AuditedPairs) -> None:
        """Count every marked training pair once, for the first rule that drops it."""
        for rows in train.ranges(CHUNK_ROWS):
            marks = train.marks(rows.start, rows.stop) & self.dropped
            for reason, mark in MARKS.items():
                found = rows.start + np.flatnonzero(marks & mark)
                if len(found):
                    examples = [train.pairs(int(row), int(row) + 1)[0] for row in found[:MAX_EXAMPLES]]
                    self.counters["train"][rows.corpus].count(reason, examples, dropped=len(found))
                    marks[marks & mark != 0] = 0

    def _prefix(self, corpus: PairCorpus) -> LanguagePrefix:
        """The tokens before the sources and targets of a corpus: language tags, or those of the given tokenizer."""
        if self.tags is None:
            return NO_PREFIX if self.given is None else LanguagePrefix([], list(self.given.target.target_prefix))
        source, target = self.data.languages_of(corpus)
        return self.tags.prefix(target, source)


def _chunk(
    pairs: AuditedPairs, rows: RowRange, chosen: NDArray[np.bool_], marks: Marks, aligned: bool = False
) -> PairChunk:
    """Read the chosen ones of some rows, with their word alignments if they are `aligned`."""
    sources, targets = pairs.texts(rows.start, rows.stop)
    some = chosen.tolist()
    places = rows.start + np.flatnonzero(chosen)
    return PairChunk(
        list(compress(sources, some)),
        list(compress(targets, some)),
        marks[chosen],
        lambda place: pairs.pairs(int(places[place]), int(places[place]) + 1)[0],
        list(compress(pairs.links(rows.start, rows.stop), some)) if aligned else None,
    )
