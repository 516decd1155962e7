"""Which language a text is written in, among a few (py3langid: naive Bayes over byte n-grams, Lui & Baldwin 2012)."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from transduce.errors import TransduceError
from transduce.serving.language import Tag

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

_LABELS = {"nb": "no"}
"""py3langid's names of languages that have another one here."""
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
        self._lock = threading.Lock()
        self._identifier: LanguageIdentifier | None = None

    def rank(self, text: str, languages: Sequence[str]) -> list[Detection]:
        """Return the languages with their probabilities, likeliest first; they add up to 100.

        Raises TransduceError if there is a choice and none of the languages can be recognised.
        """
        if len(languages) == 1:
            return [Detection(languages[0], 100.0)]
        identifier = self._load()
        scores = dict(identifier.rank(text[:_MAX_CHARACTERS]))
        labels: dict[str, str] = {}
        for language in languages:
            name = Tag.parse(language).language
            labels.setdefault(_LABELS.get(name, name), language)
        known = {language: scores[label] for label, language in labels.items() if label in scores}
        if not known:
            raise TransduceError("these languages cannot be detected; state the source language")
        # The temperature is py3langid's own: it keeps the probabilities of long texts from being 0 or 1.
        temperature = math.sqrt(len(text[:_MAX_CHARACTERS].encode("utf-8", "surrogatepass")) or 1)
        highest = max(known.values())
        weights = {language: math.exp((score - highest) / temperature) for language, score in known.items()}
        total = sum(weights.values())
        found = [Detection(language, round(100 * weight / total, 1)) for language, weight in weights.items()]
        return sorted(found, key=lambda one: -one.confidence)

    def _load(self) -> LanguageIdentifier:
        with self._lock:
            if self._identifier is None:
                try:
                    from py3langid.langid import MODEL_FILE, LanguageIdentifier
                except ImportError:
                    raise TransduceError(
                        "the server cannot detect languages (py3langid is not installed); state the source language"
                    ) from None
                self._identifier = LanguageIdentifier.from_model_file(MODEL_FILE)
            return self._identifier


DETECTOR = Detector()
"""One for the whole process: its statistics take 60 MB."""
