"""Words with features, `Kalb N;DAT;SG`: characters for the words, a token for each feature.

A feature is a token together with the separator before it: " N", ";DAT", ";SG". So texts are the concatenation of their
pieces, and the letter N of a word is another token than the feature N. Features that are separated by spaces
(`Kalb N DAT SG`), and those that follow a word without a space (`Kalb+N+SG`), are found where all but one part of a
line are of a small set. Sentences and numbers are no features, however few they are.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass
from typing import Final

SEPARATORS: Final = ";|+&/,:=#[._-"
"""Characters that may separate features, those that separate nothing else first."""
MOST_FEATURES: Final = 500
"""More different ones are no features."""
RARELY: Final = 2000
"""A feature occurs at least once in so many lines, and twice in all; others are spelled."""
OFTEN: Final = 5
"""How often each feature occurs on average."""
ALMOST_ALL: Final = 0.95
"""Fraction of the lines that have features."""
BOUND: Final = 10 * MOST_FEATURES
"""Different ones beyond which the search is given up, rare ones included."""
MOSTLY: Final = 0.5
"""Fraction of the lines that end like a sentence, or of the features that are numbers, from which on there are none."""
SENTENCE_ENDS: Final = (".", "!", "?", "…", "。", "！", "？", "।", "؟")
SEEN_FIRST: Final = 100
"""Lines before it may be given up because few have any."""


@dataclass(frozen=True)
class Features:
    """The features of a text."""

    separator: str
    pieces: tuple[str, ...]
    """Each with the separator before it, or with none at the beginning of a line."""


def split_pattern(separator: str) -> str:
    """Return the pattern of words and features, each with the space or separator before it.

    Angle brackets stand alone: a text cannot spell a special token or a byte, which are written in them.
    """
    inside = re.escape(separator.strip())
    return rf"[<>]|[\s{inside}]?[^\s{inside}<>]+|[\s{inside}]"


class FeatureCounts:
    """Counts what may be features, line by line; what has too many different ones is given up, and takes no memory."""

    def __init__(self) -> None:
        self.candidates: list[_Candidate] = [
            *map(_Separated, SEPARATORS),
            _AllButOne(" ", at=0),
            _AllButOne(" ", at=-1),
            *(_AllButOne(separator, at=0) for separator in SEPARATORS),
        ]

    def add(self, line: str) -> None:
        """Count a line."""
        words = line.split(" ")
        for candidate in self.candidates:
            if candidate.alive:
                candidate.add(words)

    def result(self) -> Features | None:
        """Return the features, if the lines have any."""
        found = (candidate.result() for candidate in self.candidates if candidate.alive)
        return next((features for features in found if features is not None), None)


class _Candidate(ABC):
    """One way to separate features."""

    def __init__(self, separator: str) -> None:
        self.separator, self.lines, self.marked = separator, 0, 0
        self.counts: Counter[str] = Counter()
        self.alive = True

    def add(self, words: list[str]) -> None:
        self.lines += 1
        self.marked += self.count(words)
        few = self.marked >= ALMOST_ALL * self.lines / 2 or self.lines < SEEN_FIRST
        if len(self.counts) > BOUND or not few:
            self.alive, self.counts = False, Counter()

    @abstractmethod
    def count(self, words: list[str]) -> bool:
        """Count the features of a line; return whether it has some, and a word."""

    def result(self) -> Features | None:
        """Return the frequent ones, if nearly all lines have some, nearly all are frequent, and they are few."""
        least, total = max(2, self.lines // RARELY), self.counts.total()
        kept = {piece: count for piece, count in self.counts.items() if count >= least and not {*"<>"} & {*piece}}
        few = 0 < len(kept) <= MOST_FEATURES and total >= OFTEN * len(self.counts)
        few = few and sum(map(self._is_number, kept)) < MOSTLY * len(kept)
        if not few or self.marked < ALMOST_ALL * self.lines or sum(kept.values()) < ALMOST_ALL * total:
            return None
        return Features(self.separator, tuple(sorted(kept, key=lambda piece: (-kept[piece], piece))))

    def _is_number(self, piece: str) -> bool:
        """Whether a piece is a number of two digits or more: tomorrow's files will have others."""
        digits = piece.strip(" " + self.separator)
        return len(digits) > 1 and digits.isdecimal()


class _Separated(_Candidate):
    """Features within words: words with a separator inside."""

    def count(self, words: list[str]) -> bool:
        has_word = has_features = False
        for place, word in enumerate(words):
            parts = word.split(self.separator)
            if len(parts) == 1 or not all(parts):
                has_word = True
                continue
            has_features = True
            self.counts[(" " if place else "") + parts[0]] += 1
            self.counts.update(self.separator + part for part in parts[1:])
        return has_word and has_features


class _AllButOne(_Candidate):
    """Features that are all parts of a line but the first, or the last, of which there are many."""

    def __init__(self, separator: str, at: int) -> None:
        super().__init__(separator)
        self.at = at
        self.words: set[str] = set()
        """The different parts that are no features, up to a bound."""
        self.sentences = 0
        """Lines that end like a sentence."""

    def count(self, words: list[str]) -> bool:
        parts = words
        if self.separator != " ":
            parts = words[0].split(self.separator) if len(words) == 1 else []
        if len(parts) < 2 or not all(parts):
            return False
        features = parts[1:] if self.at == 0 else parts[:-1]
        if len(self.words) <= MOST_FEATURES:
            self.words.add(parts[self.at])
        self.sentences += parts[-1].endswith(SENTENCE_ENDS)
        spaced = (place or self.at == 0 for place in range(len(features)))
        self.counts.update(
            (self.separator if apart else "") + part for part, apart in zip(features, spaced, strict=True)
        )
        return True

    def result(self) -> Features | None:
        many = len(self.words) > min(MOST_FEATURES, MOSTLY * self.marked)
        return super().result() if many and self.sentences < MOSTLY * self.marked else None
