"""Which language a text is written in, among a few."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from transduce.errors import TransduceError
from transduce.serving.language import Tag
from transduce.text.identification import Identifier, label_of, temperature

_MAX_CHARACTERS = 5000
"""Of a longer text the beginning is enough."""


class Detection(NamedTuple):
    """A language and how probable it is."""

    language: str
    """As the caller spelled it."""
    confidence: float
    """Probability in percent, among the languages that the caller named."""


class Detector:
    """Tells languages apart. The statistics are loaded at the first use; any number of threads may call it."""

    def __init__(self) -> None:
        self._identifier = Identifier(
            "the server cannot detect languages (py3langid is not installed); state the source language"
        )

    def rank(self, text: str, languages: Sequence[str]) -> list[Detection]:
        """Return the languages with their probabilities, likeliest first; they add up to 100.

        Raises TransduceError if there is a choice and none of the languages can be recognised.
        """
        if len(languages) == 1:
            return [Detection(languages[0], 100.0)]
        text = text[:_MAX_CHARACTERS]
        scores = self._identifier.scores(text)
        labels: dict[str, str] = {}
        for language in languages:
            labels.setdefault(label_of(Tag.parse(language).language), language)
        known = {language: scores[label] for label, language in labels.items() if label in scores}
        if not known:
            raise TransduceError("these languages cannot be detected; state the source language")
        highest = max(known.values())
        weights = {language: math.exp((score - highest) / temperature(text)) for language, score in known.items()}
        total = sum(weights.values())
        found = [Detection(language, round(100 * weight / total, 1)) for language, weight in weights.items()]
        return sorted(found, key=lambda one: -one.confidence)


DETECTOR = Detector()
"""One for the whole process."""
