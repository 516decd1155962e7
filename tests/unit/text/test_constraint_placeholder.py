"""Placeholders: found, taken out, and put back beside the words that they stood by."""

from __future__ import annotations

import re

import pytest

from transduce.errors import SettingsError
from transduce.text.constraint import (
    DEFAULT_PLACEHOLDERS,
    compile_patterns,
    extract_placeholders,
    keeps_placeholders,
    restore_placeholders,
)

FOUND = compile_patterns(DEFAULT_PLACEHOLDERS)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Hello {name}, see https://example.org/a?b=c.", ["{name}", "https://example.org/a?b=c"]),
        ("%(count)d of %s, %1$s at %.2f", ["%(count)d", "%s", "%1$s", "%.2f"]),
        ('<a href="x">big</a> &amp; ${path} {{deep}}', ['<a href="x">', "</a>", "&amp;", "${path}", "{{deep}}"]),
        ("write to jane.doe@mail.example.com!", ["jane.doe@mail.example.com"]),
        ("%@ files, open %@.", ["%@", "%@"]),
        ("{{ user.name }} {% if x %} <%= y %> %{count} #{z} $t(key)", 6),
        ("{n, plural, offset:1 =0 {no file} one {# file} other {{x} files}} here", 1),
        ("{g, select, male {{n, plural, one {his {x}} other {his #}}} other {theirs}}", 1),
        ("{0,number,#.##} and { when, date, long }", 2),
        ("<0>here</0> <1/>", 3),
        ("the sets {a, b} and {n, plural of}, a {name}} and { x }, 3 < 4 > 2 and I <3 you", ["{name}"]),
        ("50 % sure, 100% off, a < b > c, me @ home, AT&T", []),
    ],
)
def test_the_usual_ones_are_found_and_nothing_else(text: str, kept: list[str] | int) -> None:
    assert kept in (FOUND.findall(text), len(FOUND.findall(text)))


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Hello {name}, how are you?", "Hello, how are you?"),
        ("{count} files", "files"),
        ("a <b>big</b> house", "a big house"),
        ("see {url} and {url}", "see and"),
        ("{a} {b}", ""),
        ("no placeholder", "no placeholder"),
    ],
)
def test_what_is_left_reads_as_if_they_had_never_been_there(text: str, left: str) -> None:
    assert extract_placeholders(FOUND, text)[0].strip() == left


@pytest.mark.parametrize(
    ("text", "answer", "links", "expected"),
    [
        ("Hello {name}, how are you?", "Hallo, wie geht's?", [(0, 0), (1, 1), (2, 2)], "Hallo {name}, wie geht's?"),
        ("{count} files", "Dateien", [(0, 0)], "{count} Dateien"),
        ("a <b>big</b> house", "une maison grande", [(0, 0), (1, 2), (2, 1)], "une maison <b>grande</b>"),
        ("from {a} to {b}", "von bis", [(0, 0), (1, 1)], "von {a} bis {b}"),
        ("press {a} {b} now", "jetzt drücken", [(0, 1), (1, 0)], "jetzt drücken {a} {b}"),
        ("end{0}", "Ende", [(0, 0)], "Ende{0}"),
        ("nothing says {where}", "nichts", [], "nichts {where}"),
    ],
)
def test_they_go_where_the_words_beside_them_went(
    text: str, answer: str, links: list[tuple[int, int]], expected: str
) -> None:
    left, taken = extract_placeholders(FOUND, text)
    assert re.search(FOUND, left) is None
    assert restore_placeholders(answer, taken, links) == expected


def test_a_translation_keeps_placeholders_if_it_has_each_as_often() -> None:
    assert keeps_placeholders(FOUND, "{a} and {a}", "{a} {a} too")
    assert not keeps_placeholders(FOUND, "{a} and {a}", "{a} too")


@pytest.mark.parametrize("wrong", ["(", "x*"])
def test_an_expression_that_cannot_be_used_is_rejected(wrong: str) -> None:
    with pytest.raises(SettingsError, match="regular expression"):
        compile_patterns([wrong])
