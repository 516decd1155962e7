"""Scores of readers beside numbers worked out by hand, and cases that seqeval's and SQuAD's authors published."""

from __future__ import annotations

import pytest

from transduce.evaluation.reading import (
    answer_scores,
    is_bio,
    judge_answers,
    label_scores,
    spans,
    squad_normal,
    tag_scores,
    word_overlap,
)


def test_label_scores_are_those_counted_by_hand() -> None:
    """cat: 2 hits of 3 said and 2 true, F1 0.8; dog: 1 of 1 and 2, 2/3; bird: said never, 0."""
    gold = ["cat", "cat", "dog", "dog", "bird"]
    said = ["cat", "cat", "dog", "cat", "dog"]
    found = label_scores(gold, said)
    assert found["label_accuracy"] == found["micro_f1"] == pytest.approx(3 / 5)
    cat, dog = 2 * 2 / (3 + 2), 2 * 1 / (2 + 2)
    assert found["macro_f1"] == pytest.approx((cat + dog + 0.0) / 3)


def test_a_label_that_is_said_and_never_true_counts_in_the_mean() -> None:
    assert label_scores(["a", "a"], ["a", "b"])["macro_f1"] == pytest.approx((2 / 3 + 0.0) / 2)


def test_spans_are_those_of_conll() -> None:
    labels = ["B-PER", "I-PER", "O", "I-LOC", "B-LOC", "I-PER", "B-PER"]
    assert list(spans(labels)) == [("PER", 0, 2), ("LOC", 3, 4), ("LOC", 4, 5), ("PER", 5, 6), ("PER", 6, 7)]
    assert list(spans([])) == []


def test_the_example_of_seqeval_has_its_published_score() -> None:
    """The example on seqeval's front page: F1 0.50."""
    gold = [["O", "O", "O", "B-MISC", "I-MISC", "I-MISC", "O"], ["B-PER", "I-PER", "O"]]
    said = [["O", "O", "B-MISC", "I-MISC", "I-MISC", "I-MISC", "O"], ["B-PER", "I-PER", "O"]]
    found = tag_scores(gold, said)
    assert found["span_f1"] == pytest.approx(0.5)
    assert found["word_accuracy"] == pytest.approx(0.8)


def test_words_whose_labels_mark_no_spans_have_accuracy_alone() -> None:
    assert tag_scores([["DET", "NOUN"]], [["DET", "VERB"]]) == {"word_accuracy": 0.5}
    assert not is_bio({"O"})
    assert not is_bio({"B-PER", "X"})
    assert is_bio({"O", "I-PER"})


def test_answers_are_compared_as_squad_does() -> None:
    assert squad_normal("The  Eiffel-Tower, (Paris)!") == "eiffeltower paris"
    assert word_overlap("the big red dog", "a red dog runs") == pytest.approx(2 * 2 / (3 + 3))
    assert word_overlap("dog dog", "dog") == pytest.approx(2 / 3)
    assert word_overlap("", "") == 1.0
    assert word_overlap("the", "x") == 0.0
    found = answer_scores([["Paris", "in Paris"], ["Rome"], []], ["paris.", "in Rome", ""])
    assert found == {"exact_match": pytest.approx(2 / 3), "answer_f1": pytest.approx((1 + 2 / 3 + 1) / 3)}


def test_a_task_has_its_scores() -> None:
    assert judge_answers("classify", ["a"], ["a"]).keys() == {"label_accuracy", "macro_f1", "micro_f1"}
    assert judge_answers("tag", [["B-X"]], [["B-X"]]).keys() == {"word_accuracy", "span_f1"}
    assert judge_answers("answer", [["a"]], ["a"]).keys() == {"exact_match", "answer_f1"}
