"""Scores of a text encoder's predictions: labels, labels of words, and answers extracted from a text. From 0 to 1."""

from __future__ import annotations

import re
import string
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

LABEL, WORD, ANSWER = (
    ("label_accuracy", "macro_f1", "micro_f1"),
    ("word_accuracy", "span_f1"),
    ("exact_match", "answer_f1"),
)
"""Names of the scores, by kind of prediction; `span_f1` exists if labels are B-…, I-… and O."""
SCORES: dict[str, tuple[str, ...]] = {"classify": LABEL, "tag": WORD, "answer": ANSWER, "mask": ()}
"""Scores of each objective."""

Weights = NDArray[np.float64]
"""How often each example occurs in a (resampled) test set."""
Span = tuple[str, int, int]
"""(type, first word, word after the last)."""

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


class PredictionScorer(ABC):
    """Predictions with their gold labels, per example, so that a test set can be resampled."""

    examples: int

    @abstractmethod
    def scores(self, weights: Weights) -> dict[str, float]:
        """Return the scores of a test set in which each example occurs `weights` times.  (N)."""


class LabelScorer(PredictionScorer):
    """Accuracy, macro-F1 and micro-F1 of one label per text.

    The macro average is over every label that is gold or predicted somewhere. With one label per text, micro-F1 equals
    accuracy.
    """

    def __init__(self, gold: Sequence[str], predicted: Sequence[str]) -> None:
        numbers = {label: number for number, label in enumerate(sorted({*gold, *predicted}))}
        self.examples, self.count = len(gold), len(numbers)
        self.gold = np.array([numbers[label] for label in gold], dtype=np.int64)
        self.predicted = np.array([numbers[label] for label in predicted], dtype=np.int64)
        assert self.gold.shape == self.predicted.shape, "one prediction per gold label"
        self.right = self.gold == self.predicted

    def scores(self, weights: Weights) -> dict[str, float]:
        hits, predicted, true = (
            np.bincount(labels, weights=weight, minlength=self.count)
            for labels, weight in ((self.gold, weights * self.right), (self.predicted, weights), (self.gold, weights))
        )
        there = predicted + true > 0
        per_label = 2 * hits[there] / (predicted + true)[there]
        accuracy = float(hits.sum() / max(1.0, weights.sum()))
        macro = float(per_label.mean()) if len(per_label) else 0.0
        return {"label_accuracy": accuracy, "macro_f1": macro, "micro_f1": accuracy}


class TagScorer(PredictionScorer):
    """Accuracy per word; if labels mark spans (BIO), also F1 of whole spans of the right type."""

    def __init__(self, gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> None:
        self.examples = len(gold)
        self.marks_spans = is_bio({label for labels in gold for label in labels})
        self.counts = np.array([self._counted(*pair) for pair in zip(gold, predicted, strict=True)], dtype=np.float64)
        """(N 5): correct words, words, correct spans, predicted spans, gold spans."""

    def _counted(self, gold: Sequence[str], predicted: Sequence[str]) -> tuple[int, ...]:
        words = sum(true == label for true, label in zip(gold, predicted, strict=True)), len(gold)
        if not self.marks_spans:
            return (*words, 0, 0, 0)
        gold_spans, predicted_spans = set(spans(gold)), set(spans(predicted))
        return (*words, len(gold_spans & predicted_spans), len(predicted_spans), len(gold_spans))

    def scores(self, weights: Weights) -> dict[str, float]:
        right, words, hits, predicted, true = (weights @ self.counts.reshape(-1, 5)).tolist()
        scores = {"word_accuracy": right / max(1, words)}
        return {**scores, "span_f1": _f1(hits, predicted, true)} if self.marks_spans else scores


class AnswerScorer(PredictionScorer):
    """Exact match with any gold answer, and the mean F1 of words with the nearest of them, as SQuAD scores.

    The gold answer of an unanswerable question is the empty string.
    """

    def __init__(self, gold: Sequence[Sequence[str]], predicted: Sequence[str]) -> None:
        self.examples = len(gold)
        self.counts = np.zeros((len(gold), 2))
        """(N 2): exact match, and F1 of words."""
        for row, (several, answer) in enumerate(zip(gold, predicted, strict=True)):
            answers = list(several) or [""]
            exact = any(normalise_answer(answer) == normalise_answer(true) for true in answers)
            self.counts[row] = exact, max(token_f1(true, answer) for true in answers)

    def scores(self, weights: Weights) -> dict[str, float]:
        exact, overlap = (weights @ self.counts / max(1.0, weights.sum())).tolist()
        return {"exact_match": exact, "answer_f1": overlap}


SCORERS: dict[str, Callable[[Any, Any], PredictionScorer]] = {
    "classify": LabelScorer,
    "tag": TagScorer,
    "answer": AnswerScorer,
}


def score_predictions(task: str, gold: Sequence[Any], predicted: Sequence[Any]) -> dict[str, float]:
    """Return the scores of an objective's predictions."""
    scorer = SCORERS[task](gold, predicted)
    return scorer.scores(np.ones(scorer.examples))


def is_bio(labels: Iterable[str]) -> bool:
    """Whether labels are in BIO notation: spans begin (B-), continue (I-) or are absent (O)."""
    known = set(labels)
    return any(label.startswith(("B-", "I-")) for label in known) and all(
        label == "O" or label[:2] in ("B-", "I-") for label in known
    )


def spans(labels: Sequence[str]) -> Iterator[Span]:
    """Yield the spans that labels mark. An I- that continues no span of its type begins one, as in CoNLL's script and
    seqeval."""
    kind, start = "", 0
    for place, label in enumerate([*labels, "O"]):
        mark, _, name = label.partition("-")
        continues = mark == "I" and name == kind
        if kind and not continues:
            yield kind, start, place
            kind = ""
        if mark in ("B", "I") and not continues:
            kind, start = name, place


def normalise_answer(text: str) -> str:
    """Normalise an answer as SQuAD does: lower case, without punctuation, articles and extra spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def token_f1(true: str, predicted: str) -> float:
    """Return the F1 of the bags of words; two empty answers agree."""
    wanted, words = normalise_answer(true).split(), normalise_answer(predicted).split()
    if not wanted or not words:
        return float(wanted == words)
    return _f1(sum((Counter(wanted) & Counter(words)).values()), len(words), len(wanted))


def _f1(hits: float, predicted: float, true: float) -> float:
    return 2 * hits / (predicted + true) if predicted + true else 0.0
