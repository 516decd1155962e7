"""Sentences of many scripts; what looks like an end and is none; and that nothing is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.text.sentence import joint, split_sentences


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        ("en", ["A dog runs.", "It is fast!", "Is it?", "Yes."]),
        ("en", ["Mr. Smith met Dr. J. Doe at 5 p.m. yesterday.", "They spoke."]),
        ("en", ['He said "Stop." and left.', "“Really?”", "(No.)", "Then he came back."]),
        ("en", ["It cost 3.50 in 2020.", "The U.S. market grew.", "See fig. 3 and no. 7."]),
        ("en", ["Wait… what?", "Well...", "No."]),
        ("en", ["So did I.", "Then it ended."]),
        ("en", ["1. Open the door.", "J.K. Rowling wrote it.", "Some Ph.D. Students did."]),
        ("", ["Mr. Smith met Hr. Meier and Mme. Dupont.", "They spoke."]),
        ("xx", ["Dr. No came.", "So it was."]),
        ("de", ["Das war am 3. Oktober 1990.", "Es regnete z. B. in Köln, d. h. am Rhein.", "„Gut.“", "Ende."]),
        ("de", ["Die Firma hat ca. 500 Mitarbeiter, u.a. Dr. Meier usw. und mehr.", "So ist es."]),
        ("fr", ["M. Dupont est là.", "« Vraiment ? »", "Oui."]),
        ("es", ["¿Qué tal?", "¡Muy bien!", "El Sr. Pérez no vino."]),
        ("ru", ["Он родился в 1990 г. в Москве.", "Это так."]),
        ("zh", ["我喜欢狗。", "你呢？", "“是的。”", "好！"]),
        ("ja", ["犬が好きです。", "「本当？」", "彼は言った。"]),
        ("ja", ["「はい。」と彼は言った。", "３．１４です。"]),
        ("ar", ["هل أنت هنا؟", "نعم."]),
        ("hi", ["यह कुत्ता है।", "वह तेज है।"]),
        ("am", ["ይህ ውሻ ነው።", "ፈጣን ነው።"]),
    ],
)
def test_sentences_are_found(language: str, sentences: list[str]) -> None:
    glue = "" if language in ("zh", "ja") else " "
    found = split_sentences(glue.join(sentences), language)
    assert [piece.sentence for piece in found] == sentences


@pytest.mark.parametrize(
    "text",
    ["", " ", "no end", "one.", "www.example.com is a.b.c", "3.14", "a.m. and p.m. of it", "? ! .", "etc. and so on"],
)
def test_what_is_one_stays_one(text: str) -> None:
    assert len([piece for piece in split_sentences(text, "en") if piece.sentence]) <= 1


def test_an_ordinal_is_one_in_languages_that_write_it_so() -> None:
    text = "Es war der 3. Oktober."
    assert len(split_sentences(text, "de-AT")) == 1
    assert len(split_sentences("He was number 3. October came.", "en")) == 2


@given(st.text(alphabet=' \n\t.!?…。！؟aAzZÄ3I"”)(“-', max_size=60), st.sampled_from(["", "en", "de", "zh"]))
def test_nothing_is_lost(text: str, language: str) -> None:
    pieces = split_sentences(text, language)
    assert "".join(piece.sentence + piece.space for piece in pieces) == text
    assert all(piece.space.strip() == "" and piece.sentence == piece.sentence.rstrip() for piece in pieces)


def test_a_long_text_takes_time_in_proportion() -> None:
    """No pattern here may look at a text again and again: a million signs take no longer than a second."""
    for text in ("a. " * 100_000, "." * 300_000, "a" * 500_000, " " * 300_000, '."' * 150_000, "A." * 100_000):
        split_sentences(text, "en")


@pytest.mark.parametrize(
    ("before", "space", "after", "expected"),
    [
        ("A.", " ", "B.", " "),
        ("A.", "\t ", "B.", "\t "),
        ("A.", "", "B.", " "),
        ("甲。", " ", "乙。", ""),
        ("「甲。」", "", "乙。", ""),
        ("", "", "B.", ""),
    ],
)
def test_sentences_are_put_together_as_their_script_wants(before: str, space: str, after: str, expected: str) -> None:
    assert joint(before, space, after) == expected
