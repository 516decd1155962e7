"""Choosing among answers: by a model's score, and by agreement."""

from __future__ import annotations

import pytest
from sacrebleu.metrics.chrf import CHRF

from tests.unit.copy_translator import WORDS_OF_TEXT, copier
from transduce.errors import DataError
from transduce.inference.scoring import NBestList, consensus, read_nbest, rerank
from transduce.inference.segment import Translation

CANDIDATES = ["the quick brown fox", "the quick brown", "ten small cats", "the quick brown fox"]


def test_what_the_model_would_say_comes_first() -> None:
    translator = copier("word")
    assert WORDS_OF_TEXT[:4] == CANDIDATES[0].split()
    ranked = rerank(translator, CANDIDATES[0], [*CANDIDATES[1:3], CANDIDATES[0]])
    assert ranked[0].text == CANDIDATES[0]
    assert ranked[-1].text == "ten small cats"
    (searched,) = translator.translate([CANDIDATES[0]], n_best=1)[0]
    assert ranked[0].score == pytest.approx(searched.score, abs=1e-5)


def test_one_that_is_too_long_to_be_read_comes_last() -> None:
    ranked = rerank(copier("word", 4), "the quick", ["the quick brown fox jumps", "lazy dog"])
    assert [answer.text for answer in ranked] == ["lazy dog", "the quick brown fox jumps"]
    assert ranked[-1].score == -float("inf")


def test_consensus_is_the_mean_chrf_against_all_samples_as_sacrebleu_counts_it() -> None:
    found = consensus([Translation(text, 0.0) for text in CANDIDATES])
    judge = CHRF()
    by_hand = {
        text: sum(judge.corpus_score([text], [[other]]).score for other in CANDIDATES) / len(CANDIDATES)
        for text in set(CANDIDATES)
    }
    assert [answer.text for answer in found] == sorted(by_hand, key=lambda text: -by_hand[text])
    assert found[0].text == "the quick brown fox"
    for answer in found:
        assert answer.score == pytest.approx(by_hand[answer.text], abs=1e-9)


def test_an_n_best_list_is_read_in_the_form_that_translate_writes() -> None:
    lines = ["0 ||| a b ||| -1.5", "0 ||| c ||| -2", "2 |||  ||| 0.0", "3 ||| d"]
    assert list(read_nbest(lines, "a list")) == [
        NBestList(0, ["a b", "c"]),
        NBestList(2, [""]),
        NBestList(3, ["d"]),
    ]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["a b"], "list:1: is not of the form"),
        (["0 ||| a", "x ||| b"], "list:2: is not of the form"),
        (["9" * 5000 + " ||| a"], "list:1: is not of the form"),
        (["0 ||| a", "1 ||| b", "0 ||| c"], "line 0 are not next to each other"),
    ],
)
def test_a_list_of_another_form_is_rejected(lines: list[str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(read_nbest(lines, "list"))
