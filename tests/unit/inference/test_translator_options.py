"""What may be asked of an answer's text: terms, placeholders, stop strings, alignments, and to see it grow."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.copy_translator import WORDS_OF_TEXT, copier
from transduce.errors import SettingsError
from transduce.text.constraint import DEFAULT_PLACEHOLDERS, Constraints

KINDS = ["bpe", "unigram", "character", "byte", "wordpiece", "word"]
LINES = st.lists(st.sampled_from(WORDS_OF_TEXT), min_size=1, max_size=8).map(" ".join)


@pytest.mark.parametrize("kind", KINDS)
def test_a_term_is_written_where_its_word_is_read_and_nowhere_else(kind: str) -> None:
    translator = copier(kind)
    terms = {"fox": "dog", "quick brown": "old", "quick": "ten"}
    read, unread = translator.translate(
        ["the quick brown fox jumps", "ten small cats"], constraints=Constraints(terms=terms), beam_size=8
    )
    assert "dog" in read and "old" in read and "ten" not in read
    assert unread == "ten small cats"
    assert translator.counts.missing == 0


def test_a_word_at_the_beginning_of_a_sentence_is_the_same_word() -> None:
    (answer,) = copier("bpe").translate(["Fox jumps over"], constraints=Constraints(terms={"fox": "dog"}))
    assert "dog" in answer


def test_a_term_is_found_where_no_space_stands_around_it() -> None:
    translator = copier("bpe")
    read, foreign = translator.translate(
        ["the 東京都 ist", "the fox東京"], constraints=Constraints(terms={"東京": "cats", "fox": "dog"}), beam_size=8
    )
    assert "cats" in read
    assert "cats" in foreign and "dog" in foreign
    assert translator.counts.missing == 0


def test_a_term_for_which_there_is_no_room_is_reported_as_missing() -> None:
    translator = copier("bpe")
    ((answer,),) = translator.translate(
        ["the fox"], n_best=1, constraints=Constraints(terms={"fox": "while ten small cats"}), max_length=2
    )
    assert answer.missing == ("while ten small cats",)
    assert translator.counts.missing == 1


@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        (Constraints(terms={"fox": "dog"}), "terms need beam search"),
        (Constraints(terms={"fox": " "}), "is empty"),
        (Constraints(stop_at=[""]), "empty"),
        (Constraints(keep=["("]), "regular expression"),
    ],
)
def test_constraints_that_make_no_sense_are_rejected(constraints: Constraints, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        copier("bpe").translate(["the fox"], method="greedy", constraints=constraints)


def test_arguments_of_another_type_are_rejected() -> None:
    with pytest.raises(TypeError, match="terms must be a dict"):
        Constraints(terms="fox")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"constraints must be transduce.Constraints"):
        copier("word").translate(["fox"], constraints={"forbid": ["fox"]})  # type: ignore[arg-type]
    for engine, quantization in (("pytorch", "float32"), ("torch", "int7"), (None, "float32")):
        with pytest.raises(SettingsError, match="choose from"):
            copier("word").use(engine, quantization)  # type: ignore[arg-type]


def test_a_term_that_the_model_cannot_write_is_rejected() -> None:
    with pytest.raises(SettingsError, match="'zebra' cannot be required"):
        copier("word").translate(["the fox"], constraints=Constraints(terms={"fox": "zebra"}))


def test_what_is_to_be_kept_is_put_back_where_the_model_does_not_copy_it() -> None:
    """A model of words knows no braces; what it knows it copies in place."""
    translator = copier("word")
    lines = ["the quick {name} fox", "{0}", "the <b>lazy</b> dog"]
    assert translator.translate(lines, constraints=Constraints(keep=DEFAULT_PLACEHOLDERS)) == lines
    assert translator.translate(["the quick {name} fox"]) == ["the quick <unk> fox"]


@pytest.mark.parametrize("kind", ["bpe", "character"])
def test_every_translation_of_an_n_best_list_has_the_placeholders(kind: str) -> None:
    """The best answer copies all; some others of the same search do not, and are replaced."""
    line, translator = "the {name} fox", copier(kind, max_length=20)
    (plain,) = translator.translate([line], n_best=4)
    assert plain[0].text == line and any("{name}" not in answer.text for answer in plain)
    (kept,) = translator.translate([line], n_best=4, constraints=Constraints(keep=DEFAULT_PLACEHOLDERS))
    texts = [answer.text for answer in kept]
    assert texts[0] == line and all("{name}" in text for text in texts)
    assert len(set(texts)) == len(texts) > 1
    assert [text for text in texts if text in {answer.text for answer in plain}] == [
        answer.text for answer in plain if "{name}" in answer.text
    ]


@pytest.mark.parametrize("kind", ["bpe", "character"])
def test_a_translation_ends_before_a_stop_string(kind: str) -> None:
    translator = copier(kind)
    answers = translator.translate(
        ["the quick brown fox", "one old tree"], constraints=Constraints(stop_at=["brown", "k br"]), beam_size=2
    )
    assert answers == ["the quic", "one old tree"]


@pytest.mark.parametrize("kind", KINDS)
def test_words_are_aligned_also_over_sentences_and_parts(kind: str) -> None:
    translator = copier(kind, limit=12)
    line = "the fox jumps. Ten cats sleep under one old tree" if kind not in ("word", "wordpiece") else "the quick fox"
    ((answer,),) = translator.translate([line], n_best=1, align=True)
    assert answer.text == line
    assert answer.links == tuple((word, word) for word in range(len(line.split())))


@pytest.mark.parametrize("limit", [None, 4])
def test_signs_that_a_tokenizer_sets_apart_are_words_of_its_translation_and_not_of_the_source(
    limit: int | None,
) -> None:
    """A model that copies says "the quick ( brown ) fox", its brackets unknown, of a source of four words."""
    ((answer,),) = copier("wordpiece", limit).translate(["the quick (brown) fox"], n_best=1, align=True)
    assert answer.text == "the quick <unk> brown <unk> fox"
    assert answer.links == ((0, 0), (1, 1), (2, 2), (2, 3), (2, 4), (3, 5))


def test_given_pairs_are_aligned() -> None:
    assert copier("bpe").align([("the fox", "ten cats"), ("the", "")]) == [[(0, 0), (1, 1)], []]
    assert copier("wordpiece").align([("the (fox)", "(ten) cats")]) == [[(1, 0), (1, 1)]]


def test_what_is_looked_at_has_the_words_of_its_text() -> None:
    maps = copier("wordpiece").attention("the quick (brown) fox")
    assert maps.links[-1] == (len(maps.source.split()) - 1, len(maps.translation.split()) - 1) == (3, 5)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=12, deadline=None)
@given(lines=st.lists(LINES, min_size=1, max_size=3), beam_size=st.integers(1, 3))
def test_what_is_streamed_is_the_translation(kind: str, lines: list[str], beam_size: int) -> None:
    translator = copier(kind, limit=11)
    text = ". ".join(line.capitalize() for line in lines) if kind not in ("word", "wordpiece") else lines[0]
    pieces = list(translator.stream(text, translator.options(beam_size=beam_size)))
    assert "".join(pieces) == translator.translate([text], beam_size=beam_size)[0]
    assert all(pieces)
    assert len(pieces) > 1 or beam_size > 1 or len(text.split()) == 1


def test_a_term_is_streamed_in_the_part_of_a_long_line_that_has_its_word_only() -> None:
    translator = copier("bpe", limit=11)
    text, terms = "the quick brown the quick brown the quick brown fox", {"fox": "dog"}
    streamed = "".join(
        translator.stream(text, translator.options(beam_size=4), translator.constraints(Constraints(terms=terms)))
    )
    assert streamed == translator.translate([text], constraints=Constraints(terms=terms), beam_size=4)[0]
    assert streamed.count("dog") == 1


def test_a_stream_holds_back_what_may_be_a_stop_string() -> None:
    translator = copier("character")
    constraints = translator.constraints(Constraints(stop_at=["brown"]))
    assert (
        "".join(translator.stream("the quick brown fox", translator.options(method="greedy"), constraints))
        == "the quick "
    )


def test_a_stream_ends_where_the_translation_does() -> None:
    """At a stop string in the first of two sentences, and never within what may become one."""
    translator = copier("bpe")
    text = "The quick brown fox. One old tree."
    constraints = translator.constraints(Constraints(stop_at=["brown"]))
    options = translator.options(method="greedy")
    streamed = list(translator.stream(text, options, constraints))
    assert (
        "".join(streamed)
        == translator.translate([text], constraints=Constraints(stop_at=["brown"]), method="greedy")[0]
        == "The quick "
    )
    none = translator.constraints(Constraints(stop_at=["The quick brown fox jumps"]))
    assert "".join(translator.stream(text, options, none)) == text


def test_words_behind_a_stop_string_are_aligned_to_nothing() -> None:
    ((answer,),) = copier("bpe").translate(
        ["the quick brown fox"], n_best=1, constraints=Constraints(stop_at=[" fox"]), align=True
    )
    assert answer.links == ((0, 0), (1, 1), (2, 2))


def test_coverage_does_not_depend_on_threads() -> None:
    translator = copier("bpe")
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        answers = translator.translate(["the quick fox", "ten cats"] * 9, coverage_penalty=0.3, beam_size=2)
    finally:
        torch.set_num_threads(before)
    assert answers == ["the quick fox", "ten cats"] * 9


@pytest.mark.parametrize("option", ["(?i)sku-[0-9]+", "(a)b"])
def test_expressions_that_cannot_be_put_together_are_rejected(option: str) -> None:
    with pytest.raises(SettingsError, match="regular expression"):
        copier("bpe").translate(["the fox"], constraints=Constraints(keep=["{[a-z]*}", option]))


def test_terms_and_groups_are_not_for_one_beam() -> None:
    with pytest.raises(SettingsError, match="beam_groups"):
        copier("bpe").translate(["the fox"], constraints=Constraints(terms={"fox": "dog"}), beam_size=4, beam_groups=2)


def test_one_question_at_a_time_goes_through_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook sees all that passes through the model, whoever called it."""
    translator, inside, most = copier("bpe"), [0], [0]
    kind = type(translator.model)  # and not the object: attention is recorded on a twin of it
    for name in ("encode", "forward", "step"):
        monkeypatch.setattr(kind, name, _watched(getattr(kind, name), inside, most))
    asked: list[Callable[[], object]] = [
        lambda: translator("the quick fox"),
        lambda: list(translator.stream("the quick fox")),
        lambda: translator.attention("the quick fox"),
        lambda: translator.score([("the quick fox", "the fox")]),
        lambda: translator.align([("the quick fox", "the fox")]),
    ]
    with ThreadPoolExecutor(len(asked)) as pool:
        for future in [pool.submit(one) for one in asked]:
            assert future.result(timeout=60) is not None
    assert most == [1]


def _watched(called: Callable[..., Any], inside: list[int], most: list[int]) -> Callable[..., Any]:
    """Count how many are in it at a time; each stays for a moment."""

    def watched(*arguments: Any, **further: Any) -> Any:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        time.sleep(0.003)
        try:
            return called(*arguments, **further)
        finally:
            inside[0] -= 1

    return watched


def test_a_stream_that_nobody_reads_keeps_nobody_waiting() -> None:
    translator = copier("bpe")
    stream = translator.stream("the quick brown fox jumps", translator.options(method="greedy"))
    begun = next(stream) + next(stream)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(translator, "the lazy dog").result(timeout=60) == "the lazy dog"
    assert begun + "".join(stream) == "the quick brown fox jumps"


def test_a_required_word_is_written_whatever_the_source_says() -> None:
    translator = copier("bpe")
    required = Constraints(require=["dog"], terms={"fox": "cats"})
    plain, other = translator.translate(["ten small", "the fox"], constraints=required, beam_size=8)
    assert "dog" in plain.split() and "cats" not in plain.split()
    assert {"dog", "cats"} <= set(other.split())
    for words, message in (([" "], "empty"), ("dog", "lists")):
        with pytest.raises(SettingsError, match=message):
            translator.translate(["ten"], constraints=Constraints(require=words))
