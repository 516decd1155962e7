"""Markdown: what is text, and that a translation makes no markup."""

from __future__ import annotations

from tests.unit.text.document.example import FILES, Read, translated


def test_code_links_and_front_matter_are_kept() -> None:
    written = Read("markdown", (FILES / "guide.md").read_bytes()).written(str.upper).decode()
    for kept in (
        *(
            "title: A guide",
            "`tool --help`",
            '](https://example.org/a_b "Manual")',
            "run --this",
            "    indented code\n",
        ),
        *("|------|:-------:|", "Kept as HTML.", '[ref]: https://example.org/ref "Title"', "fenced", "{{ variable }}"),
        *("`a|b`", "![image](pic.png", "[^1]"),
    ):
        assert kept in written, kept
    for text in (
        "# GETTING *STARTED* #",
        "SETEXT HEADING\n====",
        "> OVER TWO LINES",
        "[ ] NESTED TASK \\*NOT EMPHASIS\\*",
    ):
        assert text in written, text


def test_formulas_attributes_and_the_marks_of_notes_are_kept_but_not_notes() -> None:
    written = translated(
        "markdown",
        "# One {#top .x}\n\n> [!NOTE]\n> two\n\n:::tip Title\nthree $a_b$ and $$x^2$$\n:::\n\n{: .four}\nfive\n\n"
        '!!! note "Six"\n    seven\n\n    eight\n\nnine costs $5 or $10\n',
        str.upper,
    )
    assert written == (
        "# ONE {#top .x}\n\n> [!NOTE]\n> TWO\n\n:::tip Title\nTHREE $a_b$ AND $$x^2$$\n:::\n\n{: .four}\nFIVE\n\n"
        '!!! note "Six"\n    SEVEN\n\n    EIGHT\n\nNINE COSTS $5 OR $10\n'
    )


def test_a_translation_makes_no_markup() -> None:
    for text in ("# x", "- x", "1. x", "> x", "*x* _y_ `z` <b> [l](u)", "``` x", "| x |"):
        written = translated("markdown", "para\n", lambda _, text=text: text)
        assert Read("markdown", written.encode()).texts == [text], written


def test_a_paragraph_is_not_broken_before_what_would_begin_a_block() -> None:
    written = translated("markdown", "one two\nthree four\n", lambda _: "eins zwei - drei vier")
    assert Read("markdown", written.encode()).texts == ["eins zwei - drei vier"]
