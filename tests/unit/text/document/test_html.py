"""HTML: sentences across inline tags are whole, everything else is kept."""

from __future__ import annotations

from tests.unit.text.document.example import FILES, Read, translated


def test_scripts_code_and_attributes_are_kept() -> None:
    content = (FILES / "page.html").read_text(encoding="utf-8")
    written = translated("html", content)
    for kept in (
        *(
            "p > a { color: red; }",
            'document.write("<p>not text</p>")',
            'title="About flowers"',
            "<code>bees.count()</code>",
        ),
        *("<b>as it is</b>", 'translate="no">ACME <span>Corp', "<!-- a comment with <p>tags</p> -->", "Do not <touch>"),
        *('class="notranslate">ACME</span>', "&nbsp;&ndash;", "data-x='a > b'"),
    ):
        assert kept in written, kept
    assert (
        'MOST <a href="/flowers?a=1&amp;b=2" title="About flowers">FLOWERS</a> NEED\n     <strong>BEES</strong>'
        in written
    )


def test_a_block_ends_a_text_and_an_inline_tag_does_not() -> None:
    found = Read("html", b"<p>one <b>two</b> three<br>four</p>five <unknown>six</unknown><div>seven")
    assert found.texts == ["one <g1>two</g1> three", "four", "five <g1>six</g1>", "seven"]


def test_tags_move_with_their_words_and_always_nest() -> None:
    page = "<p>a <i>red <b>car</b></i></p>"
    assert translated("html", page, lambda _: "<g2>voiture</g2> <g1>rouge</g1>").count("<b>") == 1
    assert translated("html", page, lambda _: "voiture") in (
        "<p>voiture<i><b></b></i></p>",
        "<p><i>voiture<b></b></i></p>",
        "<p><i><b>voiture</b></i></p>",
    )
