"""Which lines are in another language than their side of the corpus: py3langid, with a prior from the corpus.

A classifier of a hundred languages errs on short lines. How common each language is in the corpus itself is estimated
by expectation-maximisation over its own probabilities; with that prior a line is in another language only if its
characters say so clearly. Lines without a letter in the script of the side are in another language too, which also
covers languages that the classifier does not know.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from transduce.text.identification import Identifier, label_of

ROUNDS = 20
FLOOR = 1e-5
"""Smallest prior of a language: a language that a corpus lacks is still recognised."""
MIN_SHARE = 0.5
"""A side of which fewer lines are in the stated language is not judged: statement or classifier may be wrong."""
SCRIPT_SHARE = 0.05
"""Letters of a side that make a script one of its own."""
MIN_LETTERS = 4
"""Letters of a line whose script is judged."""


def learn_prior(likelihood: NDArray[np.float32]) -> NDArray[np.float64]:
    """Estimate how common each class is.  (lines, classes), each row up to a factor -> (classes)."""
    prior = np.full(likelihood.shape[1], 1 / likelihood.shape[1])
    for _ in range(ROUNDS):
        posterior = likelihood * prior
        posterior /= posterior.sum(axis=1, keepdims=True)
        prior = posterior.mean(axis=0) + FLOOR
        prior /= prior.sum()
    return prior


@lru_cache(maxsize=2**16)
def script_of(character: str) -> str:
    """Return the script of a letter by its Unicode name; Chinese characters, kana and Bopomofo are one script."""
    name = unicodedata.name(character, "?").split(" ", 1)[0].removesuffix("-UNIFIED")
    return "CJK" if name in ("CJK", "HIRAGANA", "KATAKANA", "HALFWIDTH", "BOPOMOFO", "FULLWIDTH") else name


def scripts_in(text: str) -> Counter[str]:
    """Count the letters of a text by script."""
    return Counter(script_of(character) for character in text if character.isalpha())


@dataclass(frozen=True)
class SideLanguage:
    """What one side of a corpus is written in."""

    label: str | None
    """The classifier's name of its language; None if it is not judged by it."""
    share: float
    """Fraction of the sampled lines in it."""
    scripts: frozenset[str]
    note: str | None = None
    """Why it is not judged by the classifier."""
    prior: NDArray[np.float64] | None = None
    mistaken: tuple[str, str] | None = None
    """The stated language and the commonest one, if few lines are in the stated one."""

    @classmethod
    def learn(cls, sample: Sequence[str], stated: str | None, identifier: Identifier) -> SideLanguage:
        """Learn from a sample of lines; without a stated language it is the commonest."""
        letters: Counter[str] = Counter()
        for text in sample:
            letters.update(scripts_in(text))
        total = sum(letters.values())
        scripts = frozenset(script for script, count in letters.items() if count >= SCRIPT_SHARE * total)
        label = None if stated is None else label_of(stated)
        if label is not None and label not in identifier.labels:
            return cls(None, 0.0, scripts, f"the language {stated} is unknown to py3langid; only its script is checked")
        prior = learn_prior(identifier.likelihood(sample))
        label = label or identifier.labels[int(prior.argmax())]
        share = float(prior[identifier.labels.index(label)])
        if share < MIN_SHARE:
            commonest = identifier.labels[int(prior.argmax())]
            return cls(
                None,
                share,
                scripts,
                f"only {100 * share:.0f} % of the lines are recognised as {stated or label}, {100 * prior.max():.0f} % "
                f"as {commonest}; only the script is checked",
                mistaken=(label, commonest),
            )
        return cls(label, share, scripts, None, prior)

    def probability(self, likelihood: NDArray[np.float32], label: str, identifier: Identifier) -> NDArray[np.float64]:
        """Return how probably each line is in a language."""
        assert self.prior is not None
        posterior = likelihood * self.prior
        found: NDArray[np.float64] = posterior[:, identifier.labels.index(label)] / posterior.sum(axis=1)
        return found

    def other_script(self, text: str) -> bool:
        """Whether a line has letters, but none in a script of this side."""
        if text.isascii() and "LATIN" in self.scripts:
            return False
        found = scripts_in(text)
        return sum(found.values()) >= MIN_LETTERS and not self.scripts & found.keys()


class LanguageDetector:
    """Judges the languages of pairs."""

    def __init__(
        self, sample: tuple[Sequence[str], Sequence[str]], stated: tuple[str | None, str | None], identifier: Identifier
    ) -> None:
        self._identifier = identifier
        self.sides = [SideLanguage.learn(texts, one, identifier) for texts, one in zip(sample, stated, strict=True)]

    def notes(self) -> list[str]:
        """Return what was not checked, and why."""
        found = [
            f"{name}: {side.note}" for name, side in zip(("source", "target"), self.sides, strict=True) if side.note
        ]
        source, target = (side.mistaken for side in self.sides)
        if source is not None and target == source[::-1]:
            found.append("the stated languages are those of the other side: swap source_language and target_language")
        return found

    def judge(self, sources: Sequence[str], targets: Sequence[str]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which pairs have a side in another language, and which of them have swapped sides."""
        wrong, other = zip(
            *(self._judge_side(number, texts) for number, texts in enumerate((sources, targets))), strict=True
        )
        swapped: NDArray[np.bool_] = other[0] & other[1]
        found: NDArray[np.bool_] = wrong[0] | wrong[1]
        return found & ~swapped, swapped

    def _judge_side(self, number: int, texts: Sequence[str]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which lines are in another language, and which are in that of the other side."""
        side, opposite = self.sides[number], self.sides[1 - number]
        wrong = np.array([side.other_script(text) for text in texts], dtype=np.bool_)
        theirs = wrong & np.array([not opposite.other_script(text) for text in texts], dtype=np.bool_)
        if side.label is not None:
            likelihood = self._identifier.likelihood(texts)
            wrong |= side.probability(likelihood, side.label, self._identifier) < 0.5
            if opposite.label is not None and opposite.label != side.label:
                theirs = side.probability(likelihood, opposite.label, self._identifier) > 0.5
            elif opposite.label == side.label:
                theirs = np.zeros(len(texts), dtype=np.bool_)
        return wrong, theirs
