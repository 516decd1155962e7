"""Identification of the language of a text by py3langid: naive Bayes over byte n-grams (Lui and Baldwin 2012)."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from transduce.errors import TransduceError
from transduce.text.language_names import PREFERRED

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

_LABELS = {"nb": "no"}
"""py3langid's names of languages that have another one elsewhere."""
_LOADING = threading.Lock()
MAX_CHARACTERS = 300
"""Of a longer line the beginning is enough."""


class Identifier:
    """Scores lines for every language that it knows."""

    def __init__(self, missing: str) -> None:
        """`missing` is the error if py3langid is not installed."""
        self._missing = missing

    @property
    def labels(self) -> list[str]:
        """The languages, mostly in two letters."""
        return list(self._load().labels)

    def scores(self, text: str) -> dict[str, float]:
        """Return the logarithm of each language's likelihood, up to a constant; overconfident in long texts."""
        return dict(self._load().rank(text))

    def likelihood(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return likelihoods up to a factor for each line, tempered as py3langid does it.  -> (lines, languages)."""
        labels = {label: number for number, label in enumerate(self.labels)}
        found = np.zeros((len(texts), len(labels)), dtype=np.float32)
        for row, text in zip(found, texts, strict=True):
            beginning = text[:MAX_CHARACTERS]
            scores = self.scores(beginning)
            values = np.array(list(scores.values()), dtype=np.float32)
            tempered = (values - values.max()) / temperature(beginning)
            row[[labels[label] for label in scores]] = np.exp(np.maximum(tempered, -80.0))
        return found

    def _load(self) -> LanguageIdentifier:
        try:
            import py3langid.langid  # noqa: F401
        except ImportError:
            raise TransduceError(self._missing) from None
        with _LOADING:
            return _statistics()


@cache
def _statistics() -> LanguageIdentifier:
    """Load the statistics at the first use, once for the whole process: they take 60 MB."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE)


def temperature(text: str) -> float:
    """Return py3langid's own temperature: it keeps the probabilities of long texts from being 0 or 1."""
    return math.sqrt(len(text.encode("utf-8", "surrogatepass")) or 1)


def label_of(language: str) -> str:
    """Return py3langid's name of a language: `de`, `deu`, `de_DE` and `deu_Latn` are `de`."""
    code = language.replace("_", "-").split("-")[0].lower()
    code = PREFERRED.get(code, code)
    return _LABELS.get(code, code)
