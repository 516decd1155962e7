"""BLEU and chrF against sacreBLEU's own corpus functions."""

from __future__ import annotations

import logging

import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.errors import DataError, SettingsError
from transduce.evaluation.metrics import (
    References,
    Score,
    bleu_metric,
    check_references,
    chrf_metric,
    reference_count,
    select_metrics,
)

HYPOTHESES = ["The dog bit the man.", "It wasn't surprising.", "The man had just bitten him.", "", "Über 1,000 Wörter!"]
FIRST = ["The dog bit the man.", "It was not unexpected.", "The man bit him first.", "Nothing.", "Über 1,000 Wörter?"]
SECOND = ["The dog had bit the man.", None, "The man had bitten the dog.", None, "Mehr als 1,000 Wörter!"]
SEVERAL = [[a] if b is None else [a, b] for a, b in zip(FIRST, SECOND, strict=True)]

sentences = st.lists(st.sampled_from(["a", "b", "cat", "dog.", "é", "Ω,"]), max_size=7).map(" ".join)


def bleu(hypotheses: list[str], references: References, tokenize: str = "13a", lowercase: bool = False) -> Score:
    return bleu_metric(tokenize, lowercase).score(hypotheses, references)


def chrf(hypotheses: list[str], references: References, word_order: int = 0) -> Score:
    return chrf_metric(word_order).score(hypotheses, references)


def test_bleu_with_one_reference_equals_sacrebleu() -> None:
    assert bleu(HYPOTHESES, [[line] for line in FIRST]).value == sacrebleu.corpus_bleu(HYPOTHESES, [FIRST]).score


def test_bleu_with_a_varying_number_of_references_equals_sacrebleu() -> None:
    theirs = sacrebleu.corpus_bleu(HYPOTHESES, [FIRST, SECOND])
    ours = bleu(HYPOTHESES, SEVERAL)
    assert ours.value == theirs.score
    assert "nrefs:var" in ours.signature


@pytest.mark.parametrize("tokenize", ["13a", "intl", "char", "zh", "none"])
@pytest.mark.parametrize("lowercase", [False, True])
def test_bleu_equals_sacrebleu_for_every_tokenizer(tokenize: str, lowercase: bool) -> None:
    theirs = sacrebleu.corpus_bleu(HYPOTHESES, [FIRST, SECOND], tokenize=tokenize, lowercase=lowercase)
    assert bleu(HYPOTHESES, SEVERAL, tokenize, lowercase).value == theirs.score


@pytest.mark.parametrize("word_order", [0, 2])
def test_chrf_equals_sacrebleu(word_order: int) -> None:
    theirs = sacrebleu.corpus_chrf(HYPOTHESES, [FIRST, SECOND], word_order=word_order)
    ours = chrf(HYPOTHESES, SEVERAL, word_order)
    assert ours.value == theirs.score
    assert ours.name == theirs.name


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(sentences, st.lists(sentences, min_size=1, max_size=3)), min_size=1, max_size=6))
def test_any_corpus_scores_as_in_sacrebleu(corpus: list[tuple[str, list[str]]]) -> None:
    hypotheses, references = [h for h, _ in corpus], [r for _, r in corpus]
    streams = [[r[i] if i < len(r) else None for r in references] for i in range(max(map(len, references)))]
    assert bleu(hypotheses, references).value == sacrebleu.corpus_bleu(hypotheses, streams).score
    assert chrf(hypotheses, references).value == sacrebleu.corpus_chrf(hypotheses, streams).score


def test_line_and_signature_are_those_of_sacrebleu() -> None:
    judge = sacrebleu.BLEU(lowercase=True)
    theirs = judge.corpus_score(HYPOTHESES, [FIRST])
    ours = bleu(HYPOTHESES, [[line] for line in FIRST], lowercase=True)
    assert ours.signature == judge.get_signature().format()
    assert str(ours) == theirs.format(signature=ours.signature)
    assert ours.to_json()["signature"] == ours.signature
    assert "warning" not in ours.to_json()


def test_a_plain_string_is_one_reference_and_not_many_letters() -> None:
    assert bleu(HYPOTHESES, FIRST).value == bleu(HYPOTHESES, [[line] for line in FIRST]).value
    assert reference_count(FIRST) == "1"
    assert check_references(["x"], ["whole"]) == [("whole",)]


def test_tokenised_text_is_noted_in_the_score_and_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    lines = [f"number {i} ." for i in range(103)]
    with caplog.at_level(logging.DEBUG):
        score = bleu(lines, [[line] for line in lines])
    assert score.warning.startswith("103 lines")
    assert not caplog.records
    assert bleu(lines, [[line] for line in lines], tokenize="none").warning == ""
    assert bleu(lines[:99], [[line] for line in lines[:99]]).warning == ""


def test_an_unknown_tokenizer_is_rejected_with_a_suggestion() -> None:
    with pytest.raises(SettingsError, match="did you mean '13a'"):
        bleu_metric("13")


def test_a_tokenizer_that_cannot_be_downloaded_is_reported_before_anything_is_scored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr("transduce.evaluation.metrics.BLEU.__init__", fails)
    with pytest.raises(SettingsError, match=r"'flores200' could not be downloaded"):
        select_metrics(["bleu"], "flores200")
    assert list(select_metrics(["exact_match"], "flores200")) == ["exact_match"]


def test_a_tokenizer_whose_package_is_missing_is_one_sentence() -> None:
    try:
        import MeCab  # noqa: F401
    except ImportError:
        with pytest.raises(SettingsError, match="'ja-mecab' needs a package"):
            bleu(["a"], [["a"]], tokenize="ja-mecab")
    else:
        assert bleu(["a b c d"], [["a b c d"]], tokenize="ja-mecab").value == pytest.approx(100)


@pytest.mark.parametrize(
    ("hypotheses", "references", "says"),
    [
        ([], [], "no hypotheses"),
        (["a"], [["a"], ["b"]], "1 hypotheses but 2"),
        (["a", "b"], [["a"], []], "sentence 2 has no reference"),
    ],
)
def test_corpora_that_cannot_be_scored_are_rejected(
    hypotheses: list[str], references: list[list[str]], says: str
) -> None:
    for metric in (bleu, chrf):
        with pytest.raises(DataError, match=says):
            metric(hypotheses, references)
