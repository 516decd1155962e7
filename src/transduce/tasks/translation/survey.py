"""What kind of text each side of a corpus is, and so which tokens it gets: prose, symbols, single words, words with
features, names, code, scripts without spaces.

Recognised from counts over the first lines alone, each side by itself, but for the source of single words: it is
spelled where its own words would hide the letters or digits that these are made from.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from transduce.data.prepared import Prepared
from transduce.data.store import PairStore
from transduce.errors import DataError
from transduce.text.sentence import count_unspaced
from transduce.text.tokenizer.feature import FeatureCounts
from transduce.text.tokenizer.special import LETTERS

MAX_PAIRS = 1_000_000
"""Pairs that are counted; a larger corpus gets the settings of one of this size."""
SAMPLED_PAIRS = 100_000
"""Pairs whose words are counted."""
KEPT_PAIRS = 20_000
"""Pairs that are searched for features and repeated words."""
FEW_WORDS = 300
"""A side with no more different words than this is written in symbols, not in words, …"""
OFTEN = 5
"""… if each occurs this often on average; in a small corpus of text most words occur once."""
UNSPACED_WORD = 4
"""Characters that count as one word in a script without spaces, an overestimate."""
SINGLE_WORDS, SHORT_PHRASES = 1.5, 3.0
"""Words per line up to which a side is single words, or names and short phrases, …"""
RARE = 2.5
"""… if a word occurs less often than this on average; then its letters are what can be learned from."""
SYMBOL_CHARACTERS = 2.1
"""Characters per word, with the space, of text whose words are single characters."""
SPACED_CHARACTERS = 3.0
"""The same of words that are spelled with spaces, a few features or phonemes of two letters among them."""
MOSTLY_UNSPACED = 0.5
SHORT_TEXT = 64
"""Characters per line up to which text is spelled if the other side is single words."""
MOSTLY_NUMBERS = 0.5
"""Fraction of the different words from which on symbols are numbers: tomorrow's files will have others."""
CODE_MARKS = 0.03
"""Fraction of the characters of code that are brackets and operators; prose has less than a hundredth."""
PHONEME_CHARACTERS = 5.0
"""Characters per phoneme, with the space; number words, dates and tags are longer."""

_CODE = re.compile(r"[{}()\[\]<>=_;&|\\/*+]")


@dataclass(frozen=True)
class Side:
    """One side of a corpus: means per line, and statistics of its words."""

    characters: float
    words: float
    distinct_words: int
    """Counted up to a bound."""
    repeats: float = 100.0
    """How often a word occurs on average."""
    features: int = 0
    """Number of features, in words with features."""
    separator: str = ""
    """What separates the features."""
    unspaced: float = 0.0
    """Fraction of the characters in scripts without spaces; none if there are spaces all the same."""
    code: float = 0.0
    """Fraction of the characters that are brackets and operators."""
    numbers: float = 0.0
    """Fraction of the different words that are numbers of two digits or more."""


@dataclass(frozen=True)
class Survey:
    """Statistics of a corpus."""

    pairs: int
    source: Side
    target: Side


@dataclass(frozen=True)
class Recognised:
    """What a side is."""

    kind: str | None
    """Its kind of token; None for text, which is cut into subwords."""
    what: str
    """The same in words, with the reason."""


def survey(texts: Iterable[tuple[str, str]], pairs: int | None = None) -> Survey:
    """Sample the first pairs of text, and count all up to a bound unless `pairs` gives their number."""
    left = iter(texts)
    sampled, sides = 0, (_Counts(), _Counts())
    for pair in islice(left, SAMPLED_PAIRS):
        sampled += 1
        for text, counts in zip(pair, sides, strict=True):
            counts.add(text)
    pairs = sampled + sum(1 for _ in islice(left, MAX_PAIRS - sampled)) if pairs is None else pairs
    if not pairs:
        raise DataError("the training corpus is empty; give files with at least one line")
    return Survey(min(pairs, MAX_PAIRS), *(counts.side(sampled) for counts in sides))


class _Counts:
    """The counts of one side."""

    def __init__(self) -> None:
        self.characters = self.words = self.unspaced = self.code = self.separated = 0
        self.distinct: set[str] = set()
        self.features = FeatureCounts()
        self.repeated: Counter[str] = Counter()
        self.kept = self.kept_characters = 0

    def add(self, text: str) -> None:
        words, unspaced = text.split(), count_unspaced(text)
        self.characters += len(text)
        self.words += max(len(words), unspaced // UNSPACED_WORD)
        self.unspaced += unspaced
        self.separated += len(words)
        if len(self.distinct) <= FEW_WORDS:
            self.distinct.update(words)
        if self.kept < KEPT_PAIRS:
            self.kept += 1
            self.kept_characters += len(text)
            self.features.add(text)
            self.repeated.update(words)
            self.code += len(_CODE.findall(text))

    def side(self, sampled: int) -> Side:
        found = self.features.result()
        return Side(
            self.characters / sampled,
            self.words / sampled,
            len(self.distinct),
            self.repeated.total() / max(1, len(self.repeated)),
            0 if found is None else len(found.pieces),
            "" if found is None else found.separator,
            0.0 if self.separated * UNSPACED_WORD > self.unspaced else self.unspaced / max(1, self.characters),
            self.code / max(1, self.kept_characters),
            sum(word.isdecimal() and len(word) > 1 for word in self.distinct) / max(1, len(self.distinct)),
        )


def recognise(side: Side, pairs: int) -> Recognised:
    """Return what one side of a corpus of so many pairs is."""
    repeated = pairs * side.words >= OFTEN * side.distinct_words
    if side.distinct_words <= FEW_WORDS and repeated:
        return Recognised("word", f"is symbols, {side.distinct_words} different words: each is a token")
    if side.features:
        by = "spaces" if side.separator == " " else f"'{side.separator}'"
        return Recognised(
            "feature",
            f"is words with {side.features} features, separated by {by}: a token for each, words by characters",
        )
    if side.words < SINGLE_WORDS:
        return Recognised("character", "is single words: tokens are characters")
    if side.characters <= SYMBOL_CHARACTERS * side.words and side.repeats >= OFTEN:
        return Recognised("word", "is characters with spaces between them: each is a token")
    if side.words < SHORT_PHRASES and side.repeats < RARE:
        return Recognised(
            "character", f"is short and its words are rare ({side.repeats:.1f} times each): tokens are characters"
        )
    if side.numbers > MOSTLY_NUMBERS and side.characters <= SHORT_TEXT:
        return Recognised("character", "is short and mostly numbers: tokens are characters")
    if side.unspaced > MOSTLY_UNSPACED:
        return Recognised(None, "is text without spaces between words: tokens are subwords")
    if side.code > CODE_MARKS:
        return Recognised(None, "is code: tokens are subwords, and every space counts")
    return Recognised(None, "is text: tokens are subwords")


def recognise_source(found: Survey) -> Recognised:
    """Return what the source of a corpus is; it depends on the target where that is single words."""
    source, by_itself = found.source, recognise(found.source, found.pairs)
    if recognise(found.target, found.pairs).kind != "character":
        return by_itself
    if by_itself.kind == "word" and source.numbers > MOSTLY_NUMBERS:
        return Recognised(
            "character", "has many different numbers, and the target is single words: tokens are characters"
        )
    if by_itself.kind is None and source.characters <= SHORT_TEXT:
        return Recognised("character", "is short, and the target is single words: tokens are characters")
    return by_itself


def is_spaced_spelling(side: Side) -> bool:
    """Whether a side is words that are spelled with spaces between letters or phonemes: `a b b i a t e`."""
    return side.words >= SINGLE_WORDS and side.characters <= SPACED_CHARACTERS * side.words


def fitting_metrics(found: Survey, has_images: bool = False) -> tuple[str, ...]:
    """Return the metrics that tell how good translations of such a corpus are, the most telling first."""
    target, kind = found.target, recognise(found.target, found.pairs).kind
    if kind is None and target.unspaced > MOSTLY_UNSPACED:
        return "chrf", "exact_match"
    if kind is None:
        return "bleu", "exact_match" if target.code > CODE_MARKS else "chrf"
    if kind != "word":
        return "exact_match", "chrf"
    if target.words < SINGLE_WORDS:
        return ("exact_match",)
    if target.distinct_words > FEW_WORDS:  # the characters of sentences
        return "bleu", "chrf"
    is_short = target.characters <= PHONEME_CHARACTERS * target.words
    is_pronunciation = is_short and not has_images and recognise_source(found).kind in LETTERS
    return ("word_error_rate", "phoneme_error_rate") if is_pronunciation else ("exact_match", "bleu")


def surveyed_metrics(prepared: Prepared) -> tuple[str, ...]:
    """Return the metrics that fit a prepared corpus."""
    train = prepared.train_as(PairStore)
    images = getattr(prepared.data, "images", None) is not None
    rows = range(min(len(train), KEPT_PAIRS))
    texts = (("" if images else train.text(row)[0], train.text(row)[1]) for row in rows)
    return fitting_metrics(survey(texts, len(train)), images)
