"""XLIFF: which units get a target, and with which state."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.text.document.example import FILES, Read, translated
from transduce.errors import DataError
from transduce.text.document.formats import DocumentOptions, read_units

HEAD = '<xliff version="{}"><file source-language="en">\n{}\n</file></xliff>'


def unit(version: str, body: str, **options: object) -> str:
    content = HEAD.format(version, body)
    before, after = HEAD.format(version, "|").split("|")
    return translated("xliff", content, **options).removeprefix(before).removesuffix(after)


def test_a_target_follows_its_source_indented_like_it() -> None:
    found = Read("xliff", (FILES / "strings.xlf").read_bytes())
    written = found.written(lambda text: text.replace("Press", "Drück")).decode()
    assert (
        '        <source>Press <g id="1" ctype="x-b">Start &amp; go</g> to begin<x id="2"/>.</source>\n'
        '        <target state="needs-review-translation">Drück <g id="1" ctype="x-b">Start &amp; go</g> to begin'
        '<x id="2"/>.</target>\n        <note>' in written
    )
    for kept in ("Abbrechen", "Zwei Zeilen", "<source>ACME</source></trans-unit>"):
        assert kept in written


def test_existing_targets_are_kept_unless_they_are_to_be_replaced() -> None:
    done = '<trans-unit id="1"><source>yes</source><target state="translated">ja</target></trans-unit>'
    assert unit("1.2", done) == done
    new = '<target state="needs-review-translation">YES</target>'
    assert unit("1.2", done, retranslate=True) == f'<trans-unit id="1"><source>yes</source>{new}</trans-unit>'
    todo = done.replace("translated", "needs-translation")
    assert unit("1.2", todo) == f'<trans-unit id="1"><source>yes</source>{new}</trans-unit>'


def test_a_target_follows_a_segmented_source_and_has_its_prefix() -> None:
    segments = '<x:seg-source><x:mrk mtype="seg">a b</x:mrk></x:seg-source>'
    body = f'<x:trans-unit id="1"><x:source>a b</x:source>{segments}</x:trans-unit>'
    state = 'state="needs-review-translation"'
    assert unit("1.2", body).endswith(
        f'</x:seg-source><x:target {state}><x:mrk mtype="seg">A B</x:mrk></x:target></x:trans-unit>'
    )


SEGMENTED = (
    '<trans-unit id="1"><source>One. Two.</source><seg-source><g id="9"><mrk mtype="seg" mid="0">One.</mrk> '
    '<mrk mtype="seg" mid="1">Two <x id="3"/>.</mrk></g></seg-source>{}</trans-unit>'
)
TARGET = '<target state="needs-review-translation"><g id="9"><mrk mtype="seg" mid="0">{}</mrk> {}</g></target>'
SECOND = '<mrk mtype="seg" mid="1">TWO <x id="3"/>.</mrk>'


@pytest.mark.parametrize("empty", ['<mrk mtype="seg" mid="0"></mrk> <mrk mtype="seg" mid="1"/>', '<x id="3"/>', ""])
def test_a_segmented_source_is_translated_by_segments(empty: str) -> None:
    for target in ("", "<target/>", f"<target>{empty}</target>"):
        written = unit("1.2", SEGMENTED.format(target))
        assert written == SEGMENTED.format(TARGET.format("ONE.", SECOND))
        assert unit("1.2", written) == written


def test_segments_that_are_translated_are_kept() -> None:
    half = TARGET.format("Eins.", '<mrk mtype="seg" mid="1"></mrk>')
    assert unit("1.2", SEGMENTED.format(half)) == SEGMENTED.format(TARGET.format("Eins.", SECOND))
    assert unit("1.2", SEGMENTED.format(half), retranslate=True) == SEGMENTED.format(TARGET.format("ONE.", SECOND))
    whole = SEGMENTED.format('<target state="translated">Eins. Zwei.</target>')
    assert unit("1.2", whole) == whole


def test_a_group_that_is_not_to_be_translated_is_kept() -> None:
    body = '<group translate="no"><trans-unit id="1"><source>a</source></trans-unit></group>'
    assert unit("1.2", body) == body


def test_version_2_sets_the_state_of_the_segment_and_the_language_of_the_document() -> None:
    body = '<unit id="1"><segment state="initial"><source>a <ph id="1"/></source></segment></unit>'
    assert unit("2.0", body) == (
        '<unit id="1"><segment state="translated"><source>a <ph id="1"/></source><target>A <ph id="1"/></target>'
        "</segment></unit>"
    )
    content = HEAD.format("2.0", body)
    assert '<xliff version="2.0" trgLang="de">' in translated("xliff", content, target_language="de")
    assert translated("xliff", content.replace("2.0", "2.1"), target_language="de").count("trgLang") == 1


def test_what_is_marked_as_not_to_be_translated_is_copied_and_still_trained_on(tmp_path: Path) -> None:
    """`mrk` in 1.2 and 2.0; a pair to train on has all its words."""
    for version, mark in (("1.2", 'mtype="protected"'), ("2.0", 'id="m" translate="no"')):
        source = f"<source>the <mrk {mark}>Brand <x/></mrk> is <mrk>new</mrk></source>"
        names = ("trans-unit", "") if version == "1.2" else ("unit", "segment")
        body = source
        for name in filter(None, reversed(names)):
            body = f"<{name}>{body}</{name}>"
        assert f"THE <mrk {mark}>Brand <x/></mrk> IS <mrk>NEW</mrk></target>" in unit(version, body)
        path = tmp_path / "pairs.xlf"
        path.write_text(HEAD.format(version, body.replace("</source>", "</source><target>x</target>")))
        assert [one.source for one in read_units(str(path), "xliff", DocumentOptions())] == ["the Brand is new"]


def test_a_file_in_other_languages_is_rejected() -> None:
    body = '<trans-unit id="1"><source>yes</source></trans-unit>'
    content = HEAD.format("1.2", body).replace("<file", '<file target-language="nb-NO"').encode()
    for languages in ({"source_language": "en-US", "target_language": "no"}, {"target_language": "nob_Latn"}, {}):
        assert Read("xliff", content, **languages).texts == ["yes"]
    for languages, words in (({"target_language": "de"}, "into 'nb-NO'"), ({"source_language": "fr"}, "from 'en'")):
        with pytest.raises(DataError, match=words):
            Read("xliff", content, **languages)
