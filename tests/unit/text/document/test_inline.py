"""Markup inside a text: what the model reads, and that codes, escapes and line breaks return to their places."""

from __future__ import annotations

import pytest

from transduce.text.document.inline import InlineText, Token, plain
from transduce.text.document.markup import ESCAPES, xml_tokens


def text(raw: str) -> InlineText:
    return InlineText(xml_tokens(raw, {}), ESCAPES, "x")


def test_codes_are_short_tags_and_markup_around_the_text_is_left_out() -> None:
    found = text('<a href="long"> <b>Bold <i>and</i> more</b><br/> </a>')
    assert found.text == "Bold <g1>and</g1> more"
    assert found.write("FETT <g1>UND</g1> MEHR") == '<a href="long"> <b>FETT <i>UND</i> MEHR</b><br/> </a>'
    assert text("<b>Note</b>: text").text == "<g1>Note</g1>: text"
    assert text(" \n ").text == text("<b/>").text == ""


def test_codes_may_move_with_their_words() -> None:
    found = text("a <b>red</b> car<x/> here")
    assert found.write("ici une voiture<g3/> <g1>rouge</g1>") == "ici une voiture<x/> <b>rouge</b>"
    assert found.write("une < g1 >rouge</ G1> voiture<G3 />") == "une <b>rouge</b> voiture<x/>"


@pytest.mark.parametrize(
    "translation",
    [
        "rouge</g1> voiture<g1>",
        "une <g1>voiture rouge",
        "une voiture rouge",
        "</g1><g1><g1/>x<g9> y",
        "<g3/><g1>a</g1>",
    ],
)
def test_codes_that_do_not_nest_or_are_missing_are_put_in_order(translation: str) -> None:
    written = text("a <b>red</b> car<x/> here").write(translation)
    places = [written.index(code) for code in ("<b>", "</b>", "<x/>")]
    assert places[0] < places[1] and all(written.count(code) == 1 for code in ("<b>", "</b>", "<x/>"))
    assert "g1" not in written and "g9" not in written


def test_a_text_that_looks_like_a_code_is_none() -> None:
    found = text("&lt;g1&gt; and <b>x</b> y")
    assert found.text == "<g1> and <h1>x</h1> y"
    assert found.write(found.text) == "&lt;g1&gt; and <b>x</b> y"


def test_characters_are_escaped_as_in_the_source_and_new_ones_by_default() -> None:
    found = text("1 &#60; 2 > 1 &gt; 0")
    assert found.text == "1 < 2 > 1 > 0"
    assert found.write("a < b > c > d > e < f & g") == "a &#60; b > c &gt; d &gt; e &lt; f &amp; g"


def test_line_breaks_return_to_the_same_share_of_the_text() -> None:
    found = text("one two three\n    four five six")
    assert found.text == "one two three four five six"
    assert found.write("eins zwei drei vier fünf sechs") == "eins zwei drei\n    vier fünf sechs"
    assert found.write("allesineinem") == "allesineinem"


def test_a_string_is_continued_behind_a_space() -> None:
    tokens = [plain("one two "), Token("join", '"\n"'), plain("three")]
    assert InlineText(tokens, {}, "x").write("eins zwei drei vier") == 'eins zwei "\n"drei vier'
