"""The report of a preparation: counts that add up, with examples, as JSON and as lines of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pydantic
from numpy.typing import NDArray

from transduce.config import Config
from transduce.data.settings import SPLITS
from transduce.text.corpus import Pair
from transduce.text.tokenizer import AnyTokenizer
from transduce.text.tokenizer.special import LanguageTags, listed

REASONS = {
    "blank": "the line is blank",
    "unreadable_image": "the image file is missing or cannot be read",
    "untranslated": "the unit has no translation",
    "fuzzy": "the translation is fuzzy, or needs review",
    "obsolete": "the message is obsolete",
    "other_language": "the unit is not in the source and target language",
    "empty": "a side is empty",
    "copy": "source and target are equal",
    "leaked_pair": "the pair occurs in validation or test",
    "leaked_source": "the source occurs in validation or test",
    "duplicate": "the pair occurs more than once",
    "too_long": "a side is too long",
    "ratio": "one side is far longer than the other",
    "columns": "a column or a label is missing",
    "label": "the label has a line break, a tab or another control character",
    "no_place": "an answer is not where its start says in the context",
    "unanswered": "the question has no answer (data.allow_no_answer = true keeps it)",
    "no_window": "no window of max_length tokens holds the whole answer",
    "too_short": "the document is too short to train on",
    "left_over": "it ends a document with a single token, which makes no pair of sentences",
    "cut": "the text is longer than max_length and was cut",
    "word_cut": "a word has more pieces than max_length and was cut",
    "question_cut": "the question takes more than half of max_length and was cut",
    "split": "the text is longer than max_length and is encoded in several windows",
}
"""The issues, in the order in which they are checked; a pair is dropped for the first that drops it."""

MAX_EXAMPLES = 3
MAX_LABELS = 50
"""Labels that are named."""
MAX_SHOWN = 80


class IssueExample(Config):
    """One line with an issue."""

    line: int
    """Its line number in the corpus, counted from one."""
    source: str
    """The source, cut."""
    target: str
    """The target, cut."""
    corpus: str | None = None
    """Which corpus, when there are several."""


class Issue(Config):
    """How often an issue was found, and what was done about it."""

    kept: int = 0
    """Pairs with this issue that were kept."""
    dropped: int = 0
    """Pairs dropped for this reason; each pair is counted for one reason."""
    examples: tuple[IssueExample, ...] = pydantic.Field(default=(), strict=False)
    """The first few."""


class SideStatistics(Config):
    """Lengths of the source or target side of a split."""

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
    """Pairs in the prepared split, where the corpora follow each other."""
    held_out: int = 0
    """Pairs moved to validation."""
    dropped: dict[str, int]
    """Pairs dropped, by reason."""
    rows: int | None = None
    """Rows of tokens, where a pair or example may have several; otherwise as many as are kept."""
    tokens: int | None = None
    """Of plain text: its tokens, including the end token before each document."""


class TextStatistics(Config):
    """How much plain text a split has, normalised as it was tokenised."""

    characters: int = 0
    """Characters, including line breaks within documents."""
    bytes: int = 0
    """Bytes as UTF-8."""
    words: int = 0
    """Words, separated by white space."""


class SplitReport(Config):
    """One split: `read = kept + held_out + the sum of dropped`. Of plain text, documents are what is counted."""

    read: int
    """Lines read (for held-out validation: pairs held out)."""
    kept: int
    """Pairs in the prepared split."""
    held_out: int = 0
    """Pairs moved to validation."""
    issues: dict[str, Issue]
    """By reason; only those that were found."""
    source: SideStatistics
    """The sources kept."""
    target: SideStatistics
    """The targets kept."""
    rows: int | None = None
    """Rows of tokens, where a pair or example may have several; otherwise as many as are kept."""
    corpora: tuple[CorpusReport, ...] | None = pydantic.Field(default=None, strict=False)
    """Its corpora in the order of their rows; absent for a single corpus of weight 1."""
    text: TextStatistics | None = None
    """How much text it is, where it is plain text."""

    @property
    def num_rows(self) -> int:
        """Rows of tokens in the prepared split; for plain text, documents."""
        return self.kept if self.rows is None else self.rows

    @property
    def dropped(self) -> int:
        """Pairs dropped for any reason."""
        return sum(issue.dropped for issue in self.issues.values())


class AlignmentReport(Config):
    """The alignment of the training pairs."""

    pairs: int
    """Pairs with links."""
    links: int
    """Links between tokens."""
    unusable: int = 0
    """Given alignments that are not used, since the tokenizer splits the words of their pair elsewhere."""


class Report(Config):
    """Results of preparing a corpus."""

    train: SplitReport
    """The training split."""
    validation: SplitReport | None = None
    """The validation split."""
    test: SplitReport | None = None
    """The test split."""
    extra_validation: SplitReport | None = None
    """The extra validation split, which nothing is selected by."""
    source_vocabulary: int
    """Size of the source vocabulary."""
    target_vocabulary: int
    """Size of the target vocabulary."""
    joint: bool
    """Whether one tokenizer serves both sides."""
    tokenizer_pairs: int
    """Training pairs the tokenizers were trained on: all of them, or a fixed sample of a large corpus."""
    labels: tuple[str, ...] | None = pydantic.Field(default=None, strict=False)
    """For a text encoder: the labels, by number; absent for pairs."""
    tags: LanguageTags | None = None
    """The target languages and their tokens, where there are several."""
    alignment: AlignmentReport | None = None
    """The alignment of the training pairs, for guided alignment."""

    def splits(self) -> dict[str, SplitReport]:
        """Return the splits there are, by name."""
        return {name: split for name in SPLITS if (split := getattr(self, name)) is not None}

    def unused(self) -> str | None:
        """Say how many training pairs are not used, and why; None if all are."""
        train, noun = self.train, "pairs" if self.labels is None else "examples"
        if not train.dropped:
            return None
        reasons = [f"{issue.dropped:,} ({REASONS[name]})" for name, issue in train.issues.items() if issue.dropped]
        noun = noun if train.text is None else "documents"
        return f"{train.dropped:,} of {train.read:,} training {noun} are not used: {', '.join(reasons)}"

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
            yield f"  trained on a fixed sample of {self.tokenizer_pairs:,} training pairs"
        if self.alignment is not None:
            found, unused = self.alignment, ""
            if found.unusable:
                unused = f"; {found.unusable:,} given alignments not used, whose words the tokenizer splits elsewhere"
            yield f"aligned      {found.pairs:,} training pairs, {found.links:,} links between tokens{unused}"
        copies = self.train.issues.get("copy")
        if copies is not None and copies.kept:
            yield (
                f"note: {copies.kept:,} training targets equal their source, which harms translation: "
                "consider data.copies = 'drop'"
            )


def _corpus_line(corpus: CorpusReport) -> str:
    dropped = [f"{count:,} dropped ({REASONS[reason]})" for reason, count in corpus.dropped.items()]
    held = [f"{corpus.held_out:,} held out"] if corpus.held_out else []
    counts = ", ".join([f"{corpus.read:,} read", f"{corpus.kept:,} kept", *held, *dropped])
    return f"  {corpus.name}: weight {corpus.weight:g}: {counts}"


def _split_lines(name: str, split: SplitReport, noun: str) -> Iterator[str]:
    held = f", {split.held_out:,} held out for validation" if split.held_out else ""
    noun = noun if split.text is None else "document"
    pairs = noun if split.read == 1 else f"{noun}s"
    yield f"{name:<12} {split.read:,} {pairs} read, {split.kept:,} kept, {split.dropped:,} dropped{held}"
    yield from map(_corpus_line, split.corpora or ())
    for reason, issue in split.issues.items():
        for count, verb in ((issue.dropped, "dropped"), (issue.kept, "kept")):
            if count:
                yield f"  {verb:<8} {count:>10,}  {REASONS[reason]}"
        for example in issue.examples:
            where = "" if example.corpus is None else f"{example.corpus}: "
            yield f"    {where}line {example.line:,}: {example.source!r} | {example.target!r}"
    if split.text is not None:
        yield (
            f"  text     {split.target.tokens:>10,}  tokens of {split.text.characters:,} characters, "
            f"{split.text.words:,} words, {split.text.bytes:,} bytes{_unknown(split.target)}"
        )
        return
    sides = (("source", split.source), ("target", split.target)) if noun == "pair" else (("text", split.source),)
    for side_name, side in sides:
        yield (
            f"  {side_name:<8} {side.tokens:>10,}  tokens; a line has {side.median} (median), "
            f"{side.percentile_90} (90 %), {side.percentile_99} (99 %), at most {side.longest}{_unknown(side)}"
        )


def _unknown(side: SideStatistics) -> str:
    return "" if side.unknown is None else f"; {side.unknown:,} unknown ({side.unknown / max(1, side.tokens):.2%})"


# Counting while a corpus is prepared.


@dataclass
class _IssueCounter:
    kept: int = 0
    dropped: int = 0
    examples: list[IssueExample] = field(default_factory=list)


@dataclass
class CorpusCounter:
    """Counts of one corpus, or of its part that goes to one split."""

    corpus: str | None = None
    """Its name, when it is one of several."""
    weight: float = 1.0
    read: int = 0
    kept: int = 0
    held_out: int = 0
    rows: int | None = None
    tokens: int | None = None
    _issues: dict[str, _IssueCounter] = field(default_factory=dict)

    def count(self, reason: str, examples: Sequence[Pair], dropped: int = 0, kept: int = 0) -> None:
        """Count an issue; the first few pairs become examples."""
        issue = self._issues.setdefault(reason, _IssueCounter())
        issue.kept += kept
        issue.dropped += dropped
        for pair in examples[: MAX_EXAMPLES - len(issue.examples)]:
            source, target = _cut(pair.source), _cut(pair.target)
            issue.examples.append(IssueExample(line=pair.line, source=source, target=target, corpus=self.corpus))

    def issues(self) -> dict[str, Issue]:
        """Return the issues, in the order of `REASONS`."""
        found = {reason: self._issues[reason] for reason in REASONS if reason in self._issues}
        return {
            reason: Issue(kept=issue.kept, dropped=issue.dropped, examples=tuple(issue.examples))
            for reason, issue in found.items()
        }

    def report(self) -> CorpusReport:
        """Return the counts of a corpus that is one of several."""
        return CorpusReport(
            name=self.corpus or "",
            weight=self.weight,
            read=self.read,
            kept=self.kept,
            held_out=self.held_out,
            dropped={reason: issue.dropped for reason, issue in self.issues().items() if issue.dropped},
            rows=self.rows,
            tokens=self.tokens,
        )

    @classmethod
    def total(cls, counters: Iterable[CorpusCounter]) -> CorpusCounter:
        """Return the sum, with the first examples."""
        sum_ = cls()
        for counter in counters:
            sum_.read += counter.read
            sum_.kept += counter.kept
            sum_.held_out += counter.held_out
            if counter.rows is not None:
                sum_.rows = (sum_.rows or 0) + counter.rows
            for reason, issue in counter._issues.items():
                all_ = sum_._issues.setdefault(reason, _IssueCounter())
                all_.kept += issue.kept
                all_.dropped += issue.dropped
                all_.examples = (all_.examples + issue.examples)[:MAX_EXAMPLES]
        return sum_


def split_report(
    counters: Sequence[CorpusCounter],
    source: SideStatistics,
    target: SideStatistics,
    text: TextStatistics | None = None,
) -> SplitReport:
    """Return the report of a split from the counts of its corpora."""
    total = CorpusCounter.total(counters)
    is_mixed = len(counters) > 1 or any(counter.weight != 1 for counter in counters)
    return SplitReport(
        read=total.read,
        kept=total.kept,
        held_out=total.held_out,
        issues=total.issues(),
        source=source,
        target=target,
        rows=total.rows,
        corpora=tuple(counter.report() for counter in counters) if is_mixed else None,
        text=text,
    )


class LengthCounter:
    """Counts the tokens of one side by the length of their rows."""

    def __init__(self, tokenizer: AnyTokenizer, max_length: int) -> None:
        self._token = tokenizer.unknown
        self._unknown = 0
        self._by_length: NDArray[np.int64] = np.zeros(max_length + 1, dtype=np.int64)

    def add(self, tokens: NDArray[np.uint32], lengths: NDArray[np.int64]) -> None:
        """Count rows that follow each other in one array."""
        self._by_length += np.bincount(lengths, minlength=len(self._by_length))
        if self._token is not None:
            self._unknown += int(np.count_nonzero(tokens == self._token))

    def statistics(self) -> SideStatistics:
        """Return the counts and percentiles."""
        total = int(self._by_length.sum())
        reached = np.cumsum(self._by_length)
        shares = {"median": 0.5, "percentile_90": 0.9, "percentile_99": 0.99, "longest": 1.0} if total else {}
        return SideStatistics(
            tokens=int(self._by_length @ np.arange(len(self._by_length))),
            unknown=None if self._token is None else self._unknown,
            **{name: int(np.searchsorted(reached, max(1, np.ceil(part * total)))) for name, part in shares.items()},
        )


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"
