"""Variants of pairs that teach a model what its users write: capitals, typing errors, missing ends, tags, terms.

Firefox's students are trained on such variants. They are drawn by a generator that is keyed by the seed and the number
of the line, so that which a line has does not depend on the lines before it. Tags and terms need words that translate
each other for certain; they are found by the lexicon of the corpus itself.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pydantic

from transduce.config import Config
from transduce.data.cleaning.coverage import Coverage
from transduce.data.cleaning.words import Word, number_of, spaced_words
from transduce.data.ragged import Ragged, RaggedWriter
from transduce.rng import row_generator

TERM_BEGIN, TERM_END = "<term>", "</term>"
"""Around the translation that follows a source word: `bank <term>Ufer</term>`."""
TAGS = ("b", "i", "u", "em", "strong")
ENDS = ".!?…。！？"
CERTAIN_LIFT = 30.0
"""How much likelier a target word must be, given the source word, for the two to be a term."""
MIN_TERM_LETTERS = 3
MAX_TERMS = 2
Probability = float


class AugmentationConfig(Config):
    """How probable each variant of a pair is; the pair itself is always kept."""

    upper: Probability = pydantic.Field(default=0.02, ge=0, le=1)
    """Probability of a variant with both sides in capitals."""
    title: Probability = pydantic.Field(default=0.02, ge=0, le=1)
    """Probability of a variant in title case: a capital at the beginning of each word of both sides."""
    typos: Probability = pydantic.Field(default=0.05, ge=0, le=1)
    """Probability of a variant with one or two typing errors in the source: a character left out, doubled, or swapped
    with the next."""
    no_end: Probability = pydantic.Field(default=0.05, ge=0, le=1)
    """Probability of a variant without the final punctuation of both sides."""
    tags: Probability = pydantic.Field(default=0.02, ge=0, le=1)
    """Probability of a variant with an inline tag around a word and its translation."""
    terms: Probability = pydantic.Field(default=0.05, ge=0, le=1)
    """Probability of a variant with translations after source words, `bank <term>Ufer</term>`, from which the model
    learns to follow a glossary."""
    seed: int = pydantic.Field(default=1, ge=0)
    """Random seed of the variants."""


KINDS = ("upper", "title", "typos", "no_end", "tags", "terms")
"""In the order of the draws, which must not change."""


class Link(NamedTuple):
    """A source word and the target word that translates it."""

    source: Word
    target: Word


class Linker:
    """Finds words that translate each other for certain, by a lexicon."""

    def __init__(self, coverage: Coverage) -> None:
        self._coverage = coverage

    @classmethod
    def learn(cls, pairs: Iterable[tuple[str, str]]) -> Linker:
        """Learn the lexicon of pairs."""
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            with (
                RaggedWriter(folder, "source", np.uint32) as sources,
                RaggedWriter(folder, "target", np.uint32) as targets,
            ):
                for source, target in pairs:
                    sources.append([[number_of(word.stem) for word in spaced_words(source)]])
                    targets.append([[number_of(word.stem) for word in spaced_words(target)]])
            opened = [Ragged.open(folder, name, np.dtype("<u4")) for name in ("source", "target")]
            return cls(Coverage.learn(*opened))

    def links(self, source: str, target: str) -> list[Link]:
        """Return the pairs of words that are each other's best counterpart, and occur once, from left to right."""
        ours, theirs = _single(spaced_words(source)), _single(spaced_words(target))
        if not ours or not theirs:
            return []
        numbers = [np.array([number_of(word.stem) for word in side], dtype=np.int64) for side in (ours, theirs)]
        keys = np.meshgrid(*numbers, indexing="ij")
        lift = self._coverage.lift_of(keys[0].ravel(), keys[1].ravel()).reshape(len(ours), len(theirs))
        best, back = lift.argmax(axis=1), lift.argmax(axis=0)
        return [
            Link(word, theirs[best[row]])
            for row, word in enumerate(ours)
            if back[best[row]] == row and lift[row, best[row]] >= CERTAIN_LIFT
        ]


def _single(words: list[Word]) -> list[Word]:
    """Return the words whose stem occurs once and that are long enough."""
    stems = [word.stem for word in words]
    return [word for word in words if stems.count(word.stem) == 1 and word.end - word.start >= MIN_TERM_LETTERS]


def augmented(
    pairs: Iterable[tuple[str, str]], linker: Linker | None, config: AugmentationConfig
) -> Iterator[tuple[str, str]]:
    """Yield every pair, each followed by its variants."""
    probabilities = np.array([getattr(config, kind) for kind in KINDS])
    for number, (source, target) in enumerate(pairs):
        yield source, target
        random = row_generator(config.seed, 0, number)
        for kind in np.flatnonzero(random.random(len(KINDS)) < probabilities).tolist():
            found = _VARIANTS[KINDS[kind]](source, target, random, linker)
            if found is not None and found != (source, target):
                yield found


Variant = Callable[[str, str, np.random.Generator, Linker | None], tuple[str, str] | None]


def _upper(source: str, target: str, *_: object) -> tuple[str, str]:
    return source.upper(), target.upper()


def _title(source: str, target: str, *_: object) -> tuple[str, str]:
    def capitals(text: str) -> str:
        return " ".join(word[:1].upper() + word[1:] for word in text.split(" "))

    return capitals(source), capitals(target)


def _typos(source: str, target: str, random: np.random.Generator, _: object) -> tuple[str, str]:
    for _number in range(int(random.integers(1, 3))):
        places = [at for at, letter in enumerate(source[:-1]) if letter.isalpha() and source[at + 1].isalpha()]
        if not places:
            break
        at, kind = places[int(random.integers(len(places)))], int(random.integers(3))
        middle = ("", source[at] * 2, source[at + 1] + source[at])[kind]
        source = source[:at] + middle + source[at + (2 if kind == 2 else 1) :]
    return source, target


def _no_end(source: str, target: str, *_: object) -> tuple[str, str] | None:
    shorter = source.rstrip(ENDS).rstrip(), target.rstrip(ENDS).rstrip()
    changed = shorter[0] != source.rstrip() and shorter[1] != target.rstrip()
    return shorter if changed and all(shorter) else None


def _tags(source: str, target: str, random: np.random.Generator, linker: Linker | None) -> tuple[str, str] | None:
    links = linker.links(source, target) if linker is not None else []
    if not links:
        return None
    link, tag = links[int(random.integers(len(links)))], TAGS[int(random.integers(len(TAGS)))]

    def marked(text: str, word: Word) -> str:
        return f"{text[: word.start]}<{tag}>{text[word.start : word.end]}</{tag}>{text[word.end :]}"

    return marked(source, link.source), marked(target, link.target)


def _terms(source: str, target: str, random: np.random.Generator, linker: Linker | None) -> tuple[str, str] | None:
    links = linker.links(source, target) if linker is not None else []
    if not links:
        return None
    chosen = random.permutation(len(links))[:MAX_TERMS]
    for link in sorted((links[at] for at in chosen.tolist()), key=lambda one: -one.source.start):
        term = f" {TERM_BEGIN}{target[link.target.start : link.target.end]}{TERM_END}"
        source = source[: link.source.end] + term + source[link.source.end :]
    return source, target


_VARIANTS: dict[str, Variant] = {
    "upper": _upper,
    "title": _title,
    "typos": _typos,
    "no_end": _no_end,
    "tags": _tags,
    "terms": _terms,
}
