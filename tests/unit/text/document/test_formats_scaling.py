"""Time is linear in the input: of what could take the square, more takes only as much longer as it is more."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.unit.text.document.example import Read
from transduce.text.constraint import (
    DEFAULT_PLACEHOLDERS,
    compile_patterns,
    extract_placeholders,
    keeps_placeholders,
    restore_placeholders,
)
from transduce.text.document.formats import DocumentKind

CUE = "1\n00:00:01,000 --> 00:00:02,000\n"
UNIT = '<xliff version="1.2"><file><trans-unit id="1"><source>{}</source></trans-unit></file></xliff>'
SEGMENTED = UNIT.replace("<source>{}</source>", "<source>a</source><seg-source>{}</seg-source>")

REPEATED: dict[str, tuple[DocumentKind, Callable[[int], str]]] = {
    "closing tags of a subtitle": ("srt", lambda n: CUE + "a" + "</i>" * n + "b\n"),
    "opening brackets of a subtitle": ("srt", lambda n: CUE + "<a" * n + "\n"),
    "spaces of a subtitle": ("srt", lambda n: CUE + "a" + " " * n + "b\n"),
    "lines of a subtitle": ("srt", lambda n: CUE + "- word and\n" * n),
    "tags in tags of a cue": ("vtt", lambda n: "WEBVTT\n\n00:01.000 --> 00:02.000\na" + "<i>" * n + "b" + "</i>" * n),
    "open tags": ("html", lambda n: "<p>" + "<a " * n),
    "open quotes": ("html", lambda n: "<p>" + '<a b=">"' * n),
    "open comments": ("html", lambda n: "<p>a" + "<!--" * n),
    "tags in tags": ("html", lambda n: "<p>a" + "<b>" * n + "text" + "</b>" * n),
    "tags in a sentence": ("html", lambda n: "<p>" + "word <b>bold</b>\n " * n),
    "copied elements": ("html", lambda n: "<p>a " + "<code>" * n + "</code>" * n),
    "open scripts": ("html", lambda n: "<script></scrip>" * n),
    "references": ("html", lambda n: "<p>a" + "&amp" * n + "&amp;" * n),
    "brackets": ("markdown", lambda n: "a " + "[" * n),
    "closed brackets": ("markdown", lambda n: "a " + "[" * n + "]" * n),
    "links": ("markdown", lambda n: "a " + "[b](c " * n),
    "code spans": ("markdown", lambda n: "a " + " ".join("`" * (k % 97 + 1) for k in range(n))),
    "emphasis": ("markdown", lambda n: "a " + "*a **b " * n),
    "tags of Markdown": ("markdown", lambda n: "a " + '<a b=">"' * n),
    "fences": ("markdown", lambda n: "```\na\n```\n" * n),
    "quotes": ("markdown", lambda n: ">" * n + " a\n"),
    "hashes": ("markdown", lambda n: "# a" + " #" * n + " b\n"),
    "cells": ("markdown", lambda n: "| a " * n + "|\n" + "|---" * n + "|\n"),
    "formulas": ("markdown", lambda n: "a " + "$b " * n + "{#c" * n),
    "escapes": ("json", lambda n: '{"a": "b' + "\\n\\u00e4" * n + '"}'),
    "strings": ("json", lambda n: "[" + '"a", ' * n + '"b"]'),
    "backslashes": ("json", lambda n: '{"a": "b' + "\\\\" * n + '"}'),
    "quoted lines": ("csv", lambda n: 'a,"' + 'x ""y""\n' * n + '"\n'),
    "unquoted quotes": ("csv", lambda n: "a,b" + '"' * n + "\n"),
    "continued strings": ("po", lambda n: 'msgid ""\n' + '"word "\n' * n + 'msgstr ""\n'),
    "comments": ("po", lambda n: "#, a\n" * n + 'msgid "a"\nmsgstr ""\n'),
    "elements": ("xliff", lambda n: UNIT.format("a <g id='1'>b</g>" * n)),
    "native codes": ("xliff", lambda n: UNIT.format("a <ph id='1'>{}</ph>" * n)),
    "segments": ("xliff", lambda n: SEGMENTED.format("<mrk mtype='seg'>a</mrk> " * n)),
    "attributes": ("xliff", lambda n: UNIT.format("a <x " + " ".join(f"a{k}='&lt;'" for k in range(n)) + "/>")),
    "variants": ("tmx", lambda n: "<tmx><header srclang='en'/><tu>" + "<tuv xml:lang='fr'/>" * n + "</tu></tmx>"),
    "continued values": ("properties", lambda n: "a = b " + "\\\n c " * n + "\n"),
    "entries": ("strings", lambda n: '"a" = "b";\n' * n),
}
"""Documents that grow by one construct, from lists of what made other programs slow."""
OPTIONS = {"csv": {"fields": ("2",)}, "tmx": {"target_language": "de"}}
SMALL, TIMES = 400, 16


def seconds(kind: DocumentKind, text: str) -> float:
    began = time.process_time()
    Read(kind, text.encode(), **OPTIONS.get(kind, {})).written(str.upper if kind != "xliff" else str)
    return time.process_time() - began


@pytest.mark.parametrize("what", REPEATED)
def test_time_is_linear_in_what_is_repeated(what: str) -> None:
    """The square would take 256 times as long; the bound is generous, and short times are not compared."""
    kind, document = REPEATED[what]
    less, more = (seconds(kind, document(count)) for count in (SMALL, SMALL * TIMES))
    assert more < 4 * TIMES * max(less, 0.1), (less, more)


def test_a_subtitle_of_32_000_closing_tags_takes_no_half_minute() -> None:
    assert seconds("srt", CUE + "a" + "</i>" * 32_000 + "\n") < 2


@pytest.mark.parametrize(
    "text",
    [
        "<b>a</b> ",
        "{a}{b} ",
        "%0",
        "% ",
        "a@a",
        "http://.",
        "<a",
        "{{",
        "%(a",
        "&a",
        "{a, plural, x {",
        "{{ a",
        "{% a",
        "<% a",
    ],
)
def test_placeholders_take_linear_time(text: str) -> None:
    pattern = compile_patterns(DEFAULT_PLACEHOLDERS)

    def taken(count: int) -> float:
        began = time.process_time()
        whole = "x " + text * count
        left, taken = extract_placeholders(pattern, whole)
        restore_placeholders(left, taken, [(0, 0)])
        keeps_placeholders(pattern, whole, left)
        return time.process_time() - began

    less, more = taken(SMALL), taken(SMALL * TIMES)
    assert more < 4 * TIMES * max(less, 0.1), (less, more)
