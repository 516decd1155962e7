"""Translations as lines of files."""

from __future__ import annotations

from transduce.inference.segment import one_line


def test_a_translation_is_one_line_for_every_program() -> None:
    breaks = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
    written = one_line(f"a{breaks}b\tc é")
    assert written == f"a{' ' * len(breaks)}b\tc é"
    assert written.splitlines() == [written]
    assert one_line("plain text") == "plain text"
