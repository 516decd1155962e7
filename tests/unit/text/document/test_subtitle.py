"""Subtitles: numbers, times, tags and line breaks are kept."""

from __future__ import annotations

from tests.unit.text.document.example import FILES, Read, translated


def test_numbers_times_and_tags_are_kept() -> None:
    content = (FILES / "film.srt").read_text(encoding="utf-8")
    written = translated("srt", content)
    assert [line for line in written.splitlines() if "-->" in line or line.isdecimal()] == [
        line for line in content.splitlines() if "-->" in line or line.isdecimal()
    ]
    assert "<i>I WAS AT THE SEA,</i>\nAND IT WAS <b>WONDERFUL</b>." in written and "{\\an8}♪ MUSIC ♪" in written


def test_no_text_of_a_subtitle_is_passed_over_and_no_times_are_translated() -> None:
    split = "1\n0:01 --> 0:02\nfirst\n\nsecond --> more\n\n2\n0:03 --> 0:04\n\nthird\n"
    assert translated("srt", split) == split.upper()
    close = "1\n0:01 --> 0:02\nfirst\n2\n0:03 --> 0:04\nsecond\n"
    assert Read("srt", close.encode()).texts == ["first", "second"]


def test_a_longer_subtitle_is_broken_at_the_same_share() -> None:
    cue = "1\n0:01 --> 0:02\none two\nthree four\n"
    lines = translated("srt", cue, lambda _: "eins zwei drei vier fünf sechs sieben acht").splitlines()[2:]
    assert [len(line) for line in lines] == [14, 27]


def test_speakers_are_apart_and_notes_and_styles_of_webvtt_are_kept() -> None:
    found = Read("vtt", (FILES / "talk.vtt").read_bytes())
    assert found.texts[-2:] == ["Who?", "Me."]
    written = found.written(str.upper).decode()
    assert "This comment is kept" in written and "::cue(.loud) { color: red; }" in written
    assert "SALT &amp; PEPPER, 1 &lt; 2,&nbsp;AND <00:03.000><b>MORE</b>." in written
