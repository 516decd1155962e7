"""Translations of texts, their options and counts, and joining the translations of the parts of a text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from transduce.inference.search.options import SearchOptions
from transduce.text.constraint import Constraints


@dataclass(frozen=True)
class Translation:
    """One translation of one line."""

    text: str
    score: float
    """Log-probability divided by the length penalty; summed over the parts of a line that was split."""
    ended: bool = True
    """False if the maximum length cut it off."""
    missing: tuple[str, ...] = ()
    """Required terms that it lacks."""
    links: tuple[tuple[int, int], ...] = ()
    """Word alignment, (source word, target word), both from 0; only if requested."""

    def then(self, joiner: str, other: Translation, source: str) -> Translation:
        """Append the translation of the next part; `source` is the source text before that part."""
        text = self.text + joiner
        before, behind = _words_before(source), _words_before(text)
        return Translation(
            text + other.text,
            self.score + other.score,
            self.ended and other.ended,
            self.missing + other.missing,
            (*self.links, *((read + before, written + behind) for read, written in other.links)),
        )


@dataclass(frozen=True)
class TranslationOptions:
    """How lines are translated."""

    search: SearchOptions
    constraints: Constraints
    split: bool = False
    """Whether a line of several sentences is translated sentence by sentence."""
    align: bool = False
    """Whether translations come with their word alignment."""
    rerank: Callable[[list[Translation]], list[Translation]] = list
    """Reorders the translations of a line."""


@dataclass
class TranslationCounts:
    """Counts over all lines so far."""

    lines: int = 0
    several: int = 0
    """Lines of several sentences, translated one by one."""
    empty: int = 0
    """Lines without text, left empty."""
    unread: int = 0
    """Texts of which the tokenizer leaves nothing, left empty too."""
    split: int = 0
    """Lines longer than the model reads at once, translated in parts."""
    unknown: int = 0
    """Source tokens that the vocabulary lacks."""
    cut: int = 0
    """Translations that reached the maximum length before the model ended them."""
    forbidden: int = 0
    """Translations with a forbidden word nevertheless, spelled with other tokens."""
    missing: int = 0
    """Translations that lack a required term."""

    def plus(self, others: TranslationCounts) -> TranslationCounts:
        """Return the sum of these and others."""
        return TranslationCounts(**{name: value + getattr(others, name) for name, value in vars(self).items()})


def join_translations(
    found: Sequence[Sequence[Translation]], sources: Sequence[str], joiner: Callable[[int, str, str], str]
) -> list[Translation]:
    """Join the translations of the parts of a text: all the best ones, all the second best, …

    `sources` are the parts with the white space behind them; `joiner` is the text before a part, by its number and the
    two translations.
    """
    joined, *others = found
    for number, several in enumerate(others, start=1):
        source = "".join(sources[:number])
        pairs = zip(joined, several, strict=False)
        joined = [one.then(joiner(number, one.text, other.text), other, source) for one, other in pairs]
    return list(joined)


def one_line(text: str) -> str:
    """Return a translation as one line of a file: a model of bytes may write a line break, which becomes a space."""
    return text.replace("\r", " ").replace("\n", " ")


def _words_before(text: str) -> int:
    """The number of the next word; if no white space ends the text, its last word continues."""
    return len(text.split()) - bool(text and not text[-1].isspace())
