"""Scores of readers beside numbers worked out by hand, and cases that seqeval's and SQuAD's authors published."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from transduce.evaluation.labels import SCORERS, is_bio, normalise_answer, score_predictions, spans, token_f1
from transduce.evaluation.metrics import METRICS
from transduce.evaluation.significance import interval, intervals


def test_label_scores_are_those_counted_by_hand() -> None:
    """cat: 2 hits of 3 said and 2 true, F1 0.8; dog: 1 of 1 and 2, 2/3; bird: said never, 0."""
    gold = ["cat", "cat", "dog", "dog", "bird"]
    message = ["cat", "cat", "dog", "cat", "dog"]
    found = score_predictions("classify", gold, message)
    assert found["label_accuracy"] == found["micro_f1"] == pytest.approx(3 / 5)
    cat, dog = 2 * 2 / (3 + 2), 2 * 1 / (2 + 2)
    assert found["macro_f1"] == pytest.approx((cat + dog + 0.0) / 3)


def test_a_label_that_is_predicted_and_never_true_counts_in_the_mean() -> None:
    assert score_predictions("classify", ["a", "a"], ["a", "b"])["macro_f1"] == pytest.approx((2 / 3 + 0.0) / 2)


def test_spans_are_those_of_conll() -> None:
    labels = ["B-PER", "I-PER", "O", "I-LOC", "B-LOC", "I-PER", "B-PER"]
    assert list(spans(labels)) == [("PER", 0, 2), ("LOC", 3, 4), ("LOC", 4, 5), ("PER", 5, 6), ("PER", 6, 7)]
    assert list(spans([])) == []


def test_the_example_of_seqeval_has_its_published_score() -> None:
    """The example on seqeval's front page: F1 0.50."""
    gold = [["O", "O", "O", "B-MISC", "I-MISC", "I-MISC", "O"], ["B-PER", "I-PER", "O"]]
    message = [["O", "O", "B-MISC", "I-MISC", "I-MISC", "I-MISC", "O"], ["B-PER", "I-PER", "O"]]
    found = score_predictions("tag", gold, message)
    assert found["span_f1"] == pytest.approx(0.5)
    assert found["word_accuracy"] == pytest.approx(0.8)


def test_words_whose_labels_mark_no_spans_have_accuracy_alone() -> None:
    assert score_predictions("tag", [["DET", "NOUN"]], [["DET", "VERB"]]) == {"word_accuracy": 0.5}
    assert not is_bio({"O"})
    assert not is_bio({"B-PER", "X"})
    assert is_bio({"O", "I-PER"})


def test_answers_are_compared_as_squad_does() -> None:
    assert normalise_answer("The  Eiffel-Tower, (Paris)!") == "eiffeltower paris"
    assert token_f1("the big red dog", "a red dog runs") == pytest.approx(2 * 2 / (3 + 3))
    assert token_f1("dog dog", "dog") == pytest.approx(2 / 3)
    assert token_f1("", "") == 1.0
    assert token_f1("the", "x") == 0.0
    found = score_predictions("answer", [["Paris", "in Paris"], ["Rome"], []], ["paris.", "in Rome", ""])
    assert found == {"exact_match": pytest.approx(2 / 3), "answer_f1": pytest.approx((1 + 2 / 3 + 1) / 3)}


def test_a_task_has_its_scores() -> None:
    assert score_predictions("classify", ["a"], ["a"]).keys() == {"label_accuracy", "macro_f1", "micro_f1"}
    assert score_predictions("tag", [["B-X"]], [["B-X"]]).keys() == {"word_accuracy", "span_f1"}
    assert score_predictions("answer", [["a"]], ["a"]).keys() == {"exact_match", "answer_f1"}


EXAMPLES: dict[str, tuple[list[Any], list[Any]]] = {
    "classify": (["a", "b", "c", "a", "b"], ["a", "c", "c", "d", "b"]),
    "tag": (
        [["B-X", "I-X", "O"], ["O"], ["B-Y", "B-X"], [], ["O", "B-X"]],
        [["B-X", "O", "O"], ["O"], ["B-Y", "B-X"], [], ["B-X", "B-X"]],
    ),
    "answer": ([["Paris"], ["in Rome", "Rome"], [], ["a b c"], ["x"]], ["paris", "of Rome", "", "b c d", "y"]),
}


@pytest.mark.parametrize("task", EXAMPLES)
def test_an_example_that_is_drawn_several_times_counts_as_if_it_stood_there_as_often(task: str) -> None:
    gold, message = EXAMPLES[task]
    drawn = [0, 3, 3, 4, 2, 3, 0]
    weights = np.bincount(drawn, minlength=5).astype(np.float64)
    found = SCORERS[task](gold, message).scores(weights)
    assert found == pytest.approx(
        score_predictions(task, [gold[row] for row in drawn], [message[row] for row in drawn])
    )


def test_the_interval_of_a_share_is_that_of_the_binomial_distribution() -> None:
    gold, message = ["a"] * 900, ["a"] * 720 + ["b"] * 180
    middle = intervals(SCORERS["classify"](gold, message).scores, 900, samples=2000)["label_accuracy"]
    assert middle.score == pytest.approx(0.8)
    half = 1.96 * (0.8 * 0.2 / 900) ** 0.5
    assert middle.high - middle.low == pytest.approx(2 * half, rel=0.1)
    assert (middle.low + middle.high) / 2 == pytest.approx(0.8, abs=half / 5)


def test_the_interval_of_right_labels_is_that_of_right_translations() -> None:
    gold, message = EXAMPLES["classify"]
    middle = intervals(SCORERS["classify"](gold, message).scores, 5, samples=200)["label_accuracy"]
    other = interval(METRICS["exact_match"], message, [[true] for true in gold], samples=200)
    scale = other.score / middle.score
    assert (other.low, other.high) == pytest.approx((scale * middle.low, scale * middle.high))
