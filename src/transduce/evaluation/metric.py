"""What a corpus metric is: numbers counted per sentence, added up, and one score made of the sums.

Every metric here has that form (BLEU's n-gram matches, an error rate's edits and lengths), so scoring, bootstrap
intervals and paired tests are written once, over an array of counts with one row per sentence.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transduce import __version__
from transduce.errors import DataError

References = Sequence[Sequence[str]]
"""One or several right answers per sentence; a plain string where a sentence has one is taken as that one."""

Counts = NDArray[np.float64]
"""(N, k) per sentence, or (k) summed; whole numbers, exact in float64."""


@dataclass(frozen=True)
class Score:
    """One number, with all that is needed to compare it with somebody else's."""

    name: str
    value: float
    """BLEU and chrF from 0 to 100, as everywhere; rates from 0 to 1."""
    signature: str
    """How it was computed; scores with different signatures do not compare."""
    shown: str
    """The value as a person reads it."""
    detail: str = ""
    """What the metric says besides: BLEU's precisions and lengths."""
    warning: str = ""
    """Why the number may not mean what it seems to; empty when there is no doubt."""

    def __str__(self) -> str:
        return f"{self.name}|{self.signature} = {self.shown} {self.detail}".rstrip()

    def to_json(self) -> dict[str, Any]:
        """Return plain values, the empty ones left out."""
        return {key: value for key, value in asdict(self).items() if value != ""}


class Metric(ABC):
    """A corpus metric: a leaf says what to count per sentence and what the sums amount to."""

    name: str
    higher_is_better: bool

    @abstractmethod
    def statistics(self, hypotheses: Sequence[str], references: References) -> Counts:
        """Count per sentence.  N sentences -> (N, k)."""

    @abstractmethod
    def value(self, total: Counts) -> float:
        """Return the corpus's score from the summed counts.  (k) -> a number."""

    @abstractmethod
    def show(self, value: float) -> str:
        """Write a value, or a difference of two, as a person reads it."""

    @abstractmethod
    def score(self, hypotheses: Sequence[str], references: References) -> Score:
        """Score a corpus."""


@dataclass(frozen=True)
class Rate(Metric):
    """A ratio of two sums: wrong words of all words, edits of all symbols. From 0 to 1 (an error rate may pass 1)."""

    name: str
    count: Callable[[str, Sequence[str]], tuple[int, int]]
    """One sentence and its references -> what is counted, and out of how many."""
    rule: str
    """What is compared with what, for the signature."""
    higher_is_better: bool = False

    def statistics(self, hypotheses: Sequence[str], references: References) -> Counts:
        answers = checked(hypotheses, references)
        pairs = [self.count(hypothesis, several) for hypothesis, several in zip(hypotheses, answers, strict=True)]
        counts = np.array(pairs, dtype=np.float64)
        if not counts[:, 1].any():
            raise DataError(f"{self.name}: every reference is empty, so there is nothing to be right or wrong about")
        return counts

    def value(self, total: Counts) -> float:
        counted, possible = total.tolist()
        return float(counted / max(possible, 1.0))  # a resample may hold empty references only

    def show(self, value: float) -> str:
        return f"{100 * value:.2f} %"

    def score(self, hypotheses: Sequence[str], references: References) -> Score:
        value = self.value(self.statistics(hypotheses, references).sum(axis=0))
        signature = f"nrefs:{reference_count(references)}|rule:{self.rule}|version:{__version__}"
        return Score(self.name, value, signature, self.show(value))


def checked(hypotheses: Sequence[str], references: References) -> list[tuple[str, ...]]:
    """Return the references as one tuple per sentence, or say which sentence lacks its partner."""
    if len(hypotheses) != len(references):
        raise DataError(
            f"{len(hypotheses):,} hypotheses stand against {len(references):,} sets of references; "
            "give both one line per sentence, in the same order"
        )
    if not hypotheses:
        raise DataError("there is nothing to score: no hypotheses and no references; give at least one line of each")
    answers = [(several,) if isinstance(several, str) else tuple(several) for several in references]
    for number, several in enumerate(answers, start=1):
        if not several:
            raise DataError(f"sentence {number:,} has no reference; give it at least one, or leave it out")
    return answers


def reference_count(references: References) -> str:
    """Return how many references each sentence has, in sacreBLEU's words: a number, or "var" when it varies."""
    sizes = {1 if isinstance(several, str) else len(several) for several in references}
    return str(sizes.pop()) if len(sizes) == 1 else "var"
