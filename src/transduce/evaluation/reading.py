"""How good a reader's answers are: labels, labels of words, and answers that stand in a text. From 0 to 1 each."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

LABEL, WORD, ANSWER = (
    ("label_accuracy", "macro_f1", "micro_f1"),
    ("word_accuracy", "span_f1"),
    ("exact_match", "answer_f1"),
)
"""The names of the scores, by what is judged; `span_f1` is there where labels are B-…, I-… and O."""

Span = tuple[str, int, int]
"""A kind, and the words from … up to."""

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def judge_answers(task: str, gold: Sequence[Any], said: Sequence[Any]) -> dict[str, float]:
    """Return the scores of a task's answers."""
    judge: Any = {"classify": label_scores, "tag": tag_scores, "answer": answer_scores}[task]
    scores: dict[str, float] = judge(gold, said)
    return scores


def label_scores(gold: Sequence[str], said: Sequence[str]) -> dict[str, float]:
    """Share of right labels; F1 as the mean over labels, and over all decisions.

    The mean is over every label that is true or was said somewhere. Where each text has one label, the F1 over all
    decisions is the share of right ones.
    """
    right = sum(true == answer for true, answer in zip(gold, said, strict=True))
    per_label = []
    for label in sorted({*gold, *said}):
        hits = sum(true == answer == label for true, answer in zip(gold, said, strict=True))
        per_label.append(_f1(hits, said.count(label), gold.count(label)))
    accuracy = right / max(1, len(gold))
    return {
        "label_accuracy": accuracy,
        "macro_f1": sum(per_label) / max(1, len(per_label)),
        "micro_f1": accuracy,
    }


def tag_scores(gold: Sequence[Sequence[str]], said: Sequence[Sequence[str]]) -> dict[str, float]:
    """Share of words with the right label; where labels mark spans, F1 of whole spans of the right kind."""
    pairs = [pair for true, answer in zip(gold, said, strict=True) for pair in zip(true, answer, strict=True)]
    scores = {"word_accuracy": sum(true == answer for true, answer in pairs) / max(1, len(pairs))}
    if is_bio({label for label, _ in pairs}):
        true_spans = {(row, *span) for row, labels in enumerate(gold) for span in spans(labels)}
        said_spans = {(row, *span) for row, labels in enumerate(said) for span in spans(labels)}
        scores["span_f1"] = _f1(len(true_spans & said_spans), len(said_spans), len(true_spans))
    return scores


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


def answer_scores(gold: Sequence[Sequence[str]], said: Sequence[str]) -> dict[str, float]:
    """Share of answers that are one of the true ones, and the mean overlap in words with the nearest of them.

    A question without an answer has the empty one.
    """
    exact, overlap = 0.0, 0.0
    for several, answer in zip(gold, said, strict=True):
        answers = list(several) or [""]
        exact += any(squad_normal(answer) == squad_normal(true) for true in answers)
        overlap += max(word_overlap(true, answer) for true in answers)
    count = max(1, len(gold))
    return {"exact_match": exact / count, "answer_f1": overlap / count}


def squad_normal(text: str) -> str:
    """Lower case, without punctuation, articles and extra spaces: what SQuAD compares."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def word_overlap(true: str, said: str) -> float:
    """F1 of the words, each counted as often as it stands there; two empty answers agree."""
    wanted, words = squad_normal(true).split(), squad_normal(said).split()
    if not wanted or not words:
        return float(wanted == words)
    return _f1(sum((Counter(wanted) & Counter(words)).values()), len(words), len(wanted))


def _f1(hits: int, said: int, true: int) -> float:
    return 2 * hits / (said + true) if said + true else 0.0
