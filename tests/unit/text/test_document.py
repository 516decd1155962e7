"""Documents: what is translated, and that all the rest stays as it was."""

from __future__ import annotations

import json

import pytest

from transduce.errors import DataError, SettingsError
from transduce.text.document import KINDS, kind_of, segments


def translated(kind: str, text: str, field: str | None = None) -> str:
    """Translate by capitals."""
    found = segments(kind, text.splitlines(), field, "file")
    return "".join(part.write([line.upper() for line in part.texts]) for part in found)


def unchanged(kind: str, text: str, field: str | None = None) -> str:
    found = segments(kind, text.splitlines(), field, "file")
    return "".join(part.write(part.texts) for part in found)


SUBTITLES = """1
00:00:01,000 --> 00:00:02,500
Hello there,
how are you?

2
00:00:03,000 --> 00:00:04,000 X1:40 X2:600
<i>fine</i>


3
00:00:05,000 --> 00:00:06,000

4
00:00:07,000 --> 00:00:08,000
{\\an8}up here
"""


def test_subtitles_keep_numbers_times_and_tags_around_them() -> None:
    assert translated("srt", SUBTITLES) == SUBTITLES.replace("Hello there,", "HELLO THERE,").replace(
        "how are you?", "HOW ARE YOU?"
    ).replace("<i>fine</i>", "<i>FINE</i>").replace("}up here", "}UP HERE")


def test_no_text_of_a_subtitle_is_passed_over_and_no_times_are_translated() -> None:
    split = "1\n0:01 --> 0:02\nfirst\n\nsecond --> more\n\n2\n0:03 --> 0:04\n\nthird\n"
    assert translated("srt", split) == split.upper()
    close = "1\n0:01 --> 0:02\nfirst\n2\n0:03 --> 0:04\nsecond\n"
    assert [part.texts for part in segments("srt", close.splitlines(), None, "file") if part.texts] == [
        ["first"],
        ["second"],
    ]
    assert translated("srt", close) == close.upper()


def test_a_longer_subtitle_is_broken_into_lines() -> None:
    (_, part) = segments("srt", ["1", "0 --> 1", "one two", "three four"][1:], None, "file")
    assert part.texts == ["one two three four"]
    lines = part.write(["eins zwei drei vier fünf sechs sieben acht neun zehn"]).splitlines()
    assert [len(line) for line in lines] == [24, 27]


CATALOGUE = """# translators
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"

#: a.c:1
msgid "open"
msgstr "öffnen"

#: a.c:2
#, c-format
msgctxt "menu"
msgid "save \\"%s\\"\\n"
"and close"
msgstr ""

msgid "one file"
msgid_plural "%d files"
msgstr[0] ""
msgstr[1] ""

#~ msgid "old"
#~ msgstr ""
""".replace("\\\\", "\\")


def test_messages_without_translation_get_a_fuzzy_one() -> None:
    message = translated("po", CATALOGUE)
    entries, expected = message.split("\n\n"), CATALOGUE.split("\n\n")
    assert [entries[place] for place in (0, 1, 4)] == [expected[place] for place in (0, 1, 4)]
    assert entries[2].splitlines() == [
        "#: a.c:2",
        "#, fuzzy, c-format",
        'msgctxt "menu"',
        'msgid "save \\"%s\\"\\n"',
        '"and close"',
        'msgstr "SAVE \\"%S\\"\\nAND CLOSE"',
    ]
    assert entries[3].splitlines() == [
        "#, fuzzy",
        'msgid "one file"',
        'msgid_plural "%d files"',
        'msgstr[0] "ONE FILE"',
        'msgstr[1] "%D FILES"',
    ]
    assert translated("po", message) == message


def test_messages_need_no_empty_line_between_them() -> None:
    entries = [
        'msgid "file"\nmsgstr ""\n""\n',
        '#: a.c:1\nmsgid "open"\nmsgstr "öffnen"\n',
        'msgid "a\\rb"\nmsgstr ""\n',
    ]
    apart, close = (translated("po", between.join(entries)) for between in ("\n", ""))
    assert close.replace("\n", "") == apart.replace("\n", "")
    assert close.splitlines() == [
        *("#, fuzzy", 'msgid "file"', 'msgstr "FILE"'),
        *("#: a.c:1", 'msgid "open"', 'msgstr "öffnen"'),
        *("#, fuzzy", 'msgid "a\\rb"', 'msgstr "A\\rB"'),
    ]


def test_columns_and_keys() -> None:
    assert translated("tsv", "a\tb\tc\n\tx\t", "2") == "a\tB\tc\n\tX\t\n"
    row = {"id": 1, "text": "two\nlines ä", "more": ["x"]}
    message = translated("jsonl", json.dumps(row), "text")
    assert json.loads(message) == {**row, "text": "TWO\nLINES Ä"}
    assert list(json.loads(message)) == ["id", "text", "more"]


@pytest.mark.parametrize("kind", ["text", "srt"])
def test_what_is_not_translated_is_not_changed(kind: str) -> None:
    assert unchanged(kind, SUBTITLES) == SUBTITLES


@pytest.mark.parametrize(
    ("kind", "field", "line", "message"),
    [
        ("tsv", None, "a", "--field"),
        ("tsv", "x", "a", "a number from 1"),
        ("tsv", "0", "a", "a number from 1"),
        ("tsv", "3", "a\tb", "file:1: has 2 columns"),
        ("jsonl", "text", "{", "file:1: is not JSON"),
        ("jsonl", "text", "[" * 100_000, "file:1: is not JSON"),
        ("jsonl", "text", '{"text": "\\ud800"}', "file:1: character 1 is a lone surrogate"),
        ("jsonl", "text", "[1]", "file:1: is not a JSON object with a string under 'text'"),
        ("jsonl", "text", '{"text": 3}', "file:1: is not a JSON object with a string under 'text'"),
        ("srt", "2", "a", "--field is for tsv and jsonl"),
    ],
)
def test_what_cannot_be_read_is_an_error(kind: str, field: str | None, line: str, message: str) -> None:
    with pytest.raises((DataError, SettingsError), match=message):
        list(segments(kind, [line], field, "file"))


def test_a_file_is_what_its_name_says() -> None:
    names = ["a.srt", "B.PO.gz", "x.pot", "a.txt", "-", "srt", "a.jsonl", "a.tsv.gz"]
    assert [kind_of(name) for name in names] == ["srt", "po", "po", "text", "text", "srt", "jsonl", "tsv"]
    assert set(map(kind_of, names)) <= set(KINDS)


@pytest.mark.parametrize(
    "row",
    [
        ' { "n" : 1e999 , "id":1,"id":3, "text" : "a" } ',
        '{"text":"a","x":"\\ud800\\u00e9é","deep":{"text":"b"}}',
        '{"text":"b","text":"a","n":12345678901234567890.10}',
    ],
)
def test_all_of_a_row_but_its_text_stays_letter_by_letter(row: str) -> None:
    assert translated("jsonl", row, "text") == row.replace('"a"', '"A"') + "\n"


def test_a_tab_in_a_translation_does_not_make_a_column() -> None:
    (segment,) = segments("tsv", ["1\ta\t2"], "2", "file")
    assert segment.write(["x\ty"]) == "1\tx y\t2\n"


def test_a_plural_without_its_original_gets_the_singular() -> None:
    message = translated("po", 'msgid "a"\nmsgstr[0] ""\nmsgstr[1] ""')
    assert 'msgstr[0] "A"' in message and 'msgstr[1] "A"' in message
