"""What preparing a corpus found: counts that add up, with examples, as JSON and as lines to read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pydantic

from transduce.config import Config
from transduce.text.corpus import Pair
from transduce.text.tokenizer.tag import Tags, listed

REASONS = {
    "blank": "the line is blank",
    "empty": "a side is empty",
    "copy": "source and target are equal",
    "leaked_pair": "the pair stands in validation or test",
    "leaked_source": "the source stands in validation or test",
    "duplicate": "the pair stands here already",
    "too_long": "a side is too long",
    "ratio": "one side is far longer than the other",
    "columns": "a column or a label is missing",
    "label": "the label has a line break, a tab or another control character",
    "no_place": "an answer does not stand where it is said to in its context",
    "unanswered": "the question has no answer (data.allow_no_answer = true would teach that)",
    "no_window": "no piece of max_length tokens holds the whole answer",
    "too_short": "the document is too short to be learnt from",
    "left_over": "it ends a document with a single token, which makes no pair of sentences",
    "cut": "the text is longer than max_length and was cut",
    "word_cut": "a word has more pieces than max_length, and lost its end",
    "question_cut": "the question takes more than half of max_length, and lost its end",
    "split": "the text is longer than max_length and is read in several pieces",
}
"""The findings, in the order in which they are looked for; a pair is dropped for the first that drops it."""

MAX_EXAMPLES = 3
MAX_LABELS = 50
"""Labels that are named."""
MAX_SHOWN = 80


class Example(Config):
    """One line with a finding."""

    line: int
    """Its number in the corpus, counted from one."""
    source: str
    """The source, cut."""
    target: str
    """The target, cut."""
    corpus: str | None = None
    """Which corpus, when there are several."""


class Finding(Config):
    """How often something was found, and what was done."""

    kept: int = 0
    """Pairs with this finding that were used all the same."""
    dropped: int = 0
    """Pairs left out for this reason; each pair is counted for one reason."""
    examples: tuple[Example, ...] = pydantic.Field(default=(), strict=False)
    """The first few."""


class Side(Config):
    """The source or target side of a split."""

    tokens: int
    """Tokens without start and end."""
    unknown: int | None = None
    """How many of them are the unknown token; absent when the tokenizer needs none."""
    median: int = 0
    """Half of the pairs are at most this long."""
    percentile_90: int = 0
    """Nine of ten are at most this long."""
    percentile_99: int = 0
    """All but one in a hundred are at most this long."""
    longest: int = 0
    """The longest."""


class CorpusReport(Config):
    """One of several corpora that a split is mixed of: `read = kept + held_out + the sum of dropped`."""

    name: str
    """Its files."""
    weight: float
    """How often each pair is seen in an epoch."""
    read: int
    """Lines read."""
    kept: int
    """Pairs in the prepared split, where the corpora stand one after the other."""
    held_out: int = 0
    """Pairs moved to validation."""
    dropped: dict[str, int]
    """Pairs left out, by reason."""
    rows: int | None = None
    """Rows that these are, where one may be several or share one; as many as are kept otherwise."""
    tokens: int | None = None
    """Of plain text: its tokens, those before documents among them."""


class TextCount(Config):
    """How much plain text a split has, normalised as it was tokenised."""

    characters: int = 0
    """Characters, line breaks within documents among them."""
    bytes: int = 0
    """The same as UTF-8."""
    words: int = 0
    """What stands between white space."""


class SplitReport(Config):
    """One split: `read = kept + held_out + the sum of dropped`. Of plain text, documents are what is counted."""

    read: int
    """Lines read (for held-out validation: pairs held out)."""
    kept: int
    """Pairs in the prepared split."""
    held_out: int = 0
    """Pairs moved to validation."""
    findings: dict[str, Finding]
    """By reason; only what was found."""
    source: Side
    """The sources kept."""
    target: Side
    """The targets kept."""
    rows: int | None = None
    """Rows that these are, where one may be several or share one; as many as are kept otherwise."""
    corpora: tuple[CorpusReport, ...] | None = pydantic.Field(default=None, strict=False)
    """The corpora it is mixed of, in the order of their rows; absent when it is one, each pair once an epoch."""
    text: TextCount | None = None
    """How much text it is, where it is plain text."""

    @property
    def dropped(self) -> int:
        """Pairs left out for any reason."""
        return sum(finding.dropped for finding in self.findings.values())


class Report(Config):
    """What preparing a corpus found and did."""

    train: SplitReport
    """The training split."""
    validation: SplitReport | None = None
    """The validation split."""
    test: SplitReport | None = None
    """The test split."""
    extra_validation: SplitReport | None = None
    """The pairs that are watched beside the validation split."""
    source_vocabulary: int
    """Tokens the source tokenizer knows."""
    target_vocabulary: int
    """Tokens the target tokenizer knows."""
    joint: bool
    """Whether one tokenizer serves both sides."""
    tokenizer_pairs: int
    """Training pairs the tokenizers learnt from: all of them, or a fixed sample of a large corpus."""
    labels: tuple[str, ...] | None = pydantic.Field(default=None, strict=False)
    """For a reader: the labels there are, by number; absent for pairs."""
    tags: Tags | None = None
    """The languages that can be asked for, where there are several, and their tokens."""

    def splits(self) -> dict[str, SplitReport]:
        """Return the splits there are, by name."""
        splits = {
            "train": self.train,
            "validation": self.validation,
            "test": self.test,
            "extra_validation": self.extra_validation,
        }
        return {name: split for name, split in splits.items() if split is not None}

    def lines(self) -> Iterator[str]:
        """Yield the report as lines to read."""
        for name, split in self.splits().items():
            yield from _split_lines(name, split, "pair" if self.labels is None else "example")
        if self.labels is not None:
            yield f"tokenizer    {self.source_vocabulary:,} tokens"
            if self.labels:
                yield f"labels       {len(self.labels):,}: {', '.join(self.labels[:MAX_LABELS])}"
            return
        if self.joint:
            both = ", one for both sides" if self.train.text is None else ""
            yield f"tokenizer    {self.source_vocabulary:,} tokens{both}"
        else:
            yield f"tokenizers   {self.source_vocabulary:,} source and {self.target_vocabulary:,} target tokens"
        if self.tags is not None:
            yield f"languages    {listed(self.tags.languages)}"
        if self.train.text is None and 0 < self.tokenizer_pairs < self.train.kept:
            yield f"  learnt from a fixed sample of {self.tokenizer_pairs:,} training pairs"
        copies = self.train.findings.get("copy")
        if copies is not None and copies.kept:
            yield (
                f"note: {copies.kept:,} training targets equal their source; in translation they do harm: "
                "consider data.copies = 'drop'"
            )


def _corpus_lines(corpus: CorpusReport) -> Iterator[str]:
    dropped = [f"{count:,} dropped ({REASONS[reason]})" for reason, count in corpus.dropped.items()]
    held = [f"{corpus.held_out:,} held out"] if corpus.held_out else []
    counts = ", ".join([f"{corpus.read:,} read", f"{corpus.kept:,} kept", *held, *dropped])
    yield f"  {corpus.name}: weight {corpus.weight:g}: {counts}"


def _split_lines(name: str, split: SplitReport, noun: str) -> Iterator[str]:
    held = f", {split.held_out:,} held out for validation" if split.held_out else ""
    noun = noun if split.text is None else "document"
    pairs = noun if split.read == 1 else f"{noun}s"
    yield f"{name:<12} {split.read:,} {pairs} read, {split.kept:,} kept, {split.dropped:,} dropped{held}"
    for corpus in split.corpora or ():
        yield from _corpus_lines(corpus)
    for reason, finding in split.findings.items():
        for count, verb in ((finding.dropped, "dropped"), (finding.kept, "kept")):
            if count:
                yield f"  {verb:<8} {count:>10,}  {REASONS[reason]}"
        for example in finding.examples:
            where = "" if example.corpus is None else f"{example.corpus}: "
            yield f"    {where}line {example.line:,}: {example.source!r} | {example.target!r}"
    if split.text is not None:
        unknown = _unknown(split.target)
        yield (
            f"  text     {split.target.tokens:>10,}  tokens of {split.text.characters:,} characters, "
            f"{split.text.words:,} words, {split.text.bytes:,} bytes{unknown}"
        )
        return
    sides = (("source", split.source), ("target", split.target)) if noun == "pair" else (("text", split.source),)
    for side_name, side in sides:
        unknown = _unknown(side)
        yield (
            f"  {side_name:<8} {side.tokens:>10,}  tokens; a line has {side.median} (median), "
            f"{side.percentile_90} (90 %), {side.percentile_99} (99 %), at most {side.longest}{unknown}"
        )


def _unknown(side: Side) -> str:
    return "" if side.unknown is None else f"; {side.unknown:,} unknown ({side.unknown / max(1, side.tokens):.2%})"


# Counts of what is read, used and left out, and why, while a corpus is prepared.


@dataclass
class _Count:
    kept: int = 0
    dropped: int = 0
    examples: list[Example] = field(default_factory=list)


@dataclass
class Tally:
    """Counts of one corpus, or of its part that goes to one split."""

    corpus: str | None = None
    """Its name, when it is one of several."""
    weight: float = 1.0
    read: int = 0
    kept: int = 0
    held_out: int = 0
    _counts: dict[str, _Count] = field(default_factory=dict)

    def found(self, reason: str, examples: Sequence[Pair], dropped: int = 0, kept: int = 0) -> None:
        """Count a finding; the first few pairs become examples."""
        count = self._counts.setdefault(reason, _Count())
        count.kept += kept
        count.dropped += dropped
        for pair in examples[: MAX_EXAMPLES - len(count.examples)]:
            example = Example(line=pair.line, source=_cut(pair.source), target=_cut(pair.target), corpus=self.corpus)
            count.examples.append(example)

    def findings(self) -> dict[str, Finding]:
        """Return what was found, in the order of `REASONS`."""
        found = {reason: self._counts[reason] for reason in REASONS if reason in self._counts}
        return {
            reason: Finding(kept=count.kept, dropped=count.dropped, examples=tuple(count.examples))
            for reason, count in found.items()
        }

    def report(self) -> CorpusReport:
        """Return the counts of a corpus that is one of several."""
        dropped = {reason: finding.dropped for reason, finding in self.findings().items() if finding.dropped}
        return CorpusReport(
            name=self.corpus or "",
            weight=self.weight,
            read=self.read,
            kept=self.kept,
            held_out=self.held_out,
            dropped=dropped,
        )

    @classmethod
    def total(cls, tallies: Iterable[Tally]) -> Tally:
        """Return the sum, with the first examples."""
        sum_ = cls()
        for tally in tallies:
            sum_.read += tally.read
            sum_.kept += tally.kept
            sum_.held_out += tally.held_out
            for reason, count in tally._counts.items():
                all_ = sum_._counts.setdefault(reason, _Count())
                all_.kept += count.kept
                all_.dropped += count.dropped
                all_.examples = (all_.examples + count.examples)[:MAX_EXAMPLES]
        return sum_


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"
