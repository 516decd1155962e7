"""How good a reader's answers are: labels, labels of words, and answers that stand in a text. From 0 to 1 each."""

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
"""The names of the scores, by what is judged; `span_f1` is there where labels are B-…, I-… and O."""
SCORES: dict[str, tuple[str, ...]] = {"classify": LABEL, "tag": WORD, "answer": ANSWER, "mask": ()}
"""Those of each task."""

Weights = NDArray[np.float64]
"""How many times each example stands in a test set."""
Span = tuple[str, int, int]
"""A kind, and the words from … up to."""

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


class Judgement(ABC):
    """Answers beside what is true, example by example, so that a test set can be drawn again from itself."""

    examples: int

    @abstractmethod
    def scores(self, weights: Weights) -> dict[str, float]:
        """Return the scores of a test set in which each example stands so many times.  (N)."""


class Labels(Judgement):
    """Share of right labels; F1 as the mean over labels, and over all decisions.

    The mean is over every label that is true or was said somewhere. Where each text has one label, the F1 over all
    decisions is the share of right ones.
    """

    def __init__(self, gold: Sequence[str], said: Sequence[str]) -> None:
        numbers = {label: number for number, label in enumerate(sorted({*gold, *said}))}
        self.examples, self.count = len(gold), len(numbers)
        self.gold = np.array([numbers[label] for label in gold], dtype=np.int64)
        self.said = np.array([numbers[label] for label in said], dtype=np.int64)
        assert self.gold.shape == self.said.shape, "every answer stands beside its truth"
        self.right = self.gold == self.said

    def scores(self, weights: Weights) -> dict[str, float]:
        hits, said, true = (
            np.bincount(labels, weights=weight, minlength=self.count)
            for labels, weight in ((self.gold, weights * self.right), (self.said, weights), (self.gold, weights))
        )
        there = said + true > 0
        per_label = 2 * hits[there] / (said + true)[there]
        accuracy = float(hits.sum() / max(1.0, weights.sum()))
        macro = float(per_label.mean()) if len(per_label) else 0.0
        return {"label_accuracy": accuracy, "macro_f1": macro, "micro_f1": accuracy}


class Tags(Judgement):
    """Share of words with the right label; where labels mark spans, F1 of whole spans of the right kind."""

    def __init__(self, gold: Sequence[Sequence[str]], said: Sequence[Sequence[str]]) -> None:
        self.examples = len(gold)
        self.marks_spans = is_bio({label for labels in gold for label in labels})
        self.counts = np.array([self._counted(*pair) for pair in zip(gold, said, strict=True)], dtype=np.float64)
        """(N 5): right words, words, right spans, spans that were said, true ones."""

    def _counted(self, gold: Sequence[str], said: Sequence[str]) -> tuple[int, ...]:
        words = sum(true == answer for true, answer in zip(gold, said, strict=True)), len(gold)
        if not self.marks_spans:
            return (*words, 0, 0, 0)
        true_spans, said_spans = set(spans(gold)), set(spans(said))
        return (*words, len(true_spans & said_spans), len(said_spans), len(true_spans))

    def scores(self, weights: Weights) -> dict[str, float]:
        right, words, hits, said, true = (weights @ self.counts.reshape(-1, 5)).tolist()
        scores = {"word_accuracy": right / max(1, words)}
        return {**scores, "span_f1": _f1(hits, said, true)} if self.marks_spans else scores


class Answers(Judgement):
    """Share of answers that are one of the true ones, and the mean overlap in words with the nearest of them.

    A question without an answer has the empty one.
    """

    def __init__(self, gold: Sequence[Sequence[str]], said: Sequence[str]) -> None:
        self.examples = len(gold)
        self.counts = np.zeros((len(gold), 2))
        """(N 2): whether an answer is exact, and how much it overlaps."""
        for row, (several, answer) in enumerate(zip(gold, said, strict=True)):
            answers = list(several) or [""]
            exact = any(squad_normal(answer) == squad_normal(true) for true in answers)
            self.counts[row] = exact, max(word_overlap(true, answer) for true in answers)

    def scores(self, weights: Weights) -> dict[str, float]:
        exact, overlap = (weights @ self.counts / max(1.0, weights.sum())).tolist()
        return {"exact_match": exact, "answer_f1": overlap}


JUDGEMENTS: dict[str, Callable[[Any, Any], Judgement]] = {"classify": Labels, "tag": Tags, "answer": Answers}


def judge_answers(task: str, gold: Sequence[Any], said: Sequence[Any]) -> dict[str, float]:
    """Return the scores of a task's answers."""
    judgement = JUDGEMENTS[task](gold, said)
    return judgement.scores(np.ones(judgement.examples))


def is_bio(labels: Iterable[str]) -> bool:
    """Whether labels say where spans begin (B-), go on (I-) and are not (O)."""
    known = set(labels)
    return any(label.startswith(("B-", "I-")) for label in known) and all(
        label == "O" or label[:2] in ("B-", "I-") for label in known
    )


def spans(labels: Sequence[str]) -> Iterator[Span]:
    """Yield the spans that labels mark. An I- that goes on with nothing of its kind begins a span, as CoNLL's script
    and seqeval have it."""
    kind, start = "", 0
    for place, label in enumerate([*labels, "O"]):
        mark, _, name = label.partition("-")
        goes_on = mark == "I" and name == kind
        if kind and not goes_on:
            yield kind, start, place
            kind = ""
        if mark in ("B", "I") and not goes_on:
            kind, start = name, place


def squad_normal(text: str) -> str:
    """Lower case, without punctuation, articles and extra spaces: what SQuAD compares."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def word_overlap(true: str, said: str) -> float:
    """F1 of the words, each counted as often as it stands there; two empty answers agree."""
    wanted, words = squad_normal(true).split(), squad_normal(said).split()
    if not wanted or not words:
        return float(wanted == words)
    return _f1(sum((Counter(wanted) & Counter(words)).values()), len(words), len(wanted))


def _f1(hits: float, said: float, true: float) -> float:
    return 2 * hits / (said + true) if said + true else 0.0
