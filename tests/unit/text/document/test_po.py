"""Message catalogues: new translations are fuzzy, and all other lines are kept."""

from __future__ import annotations

from tests.unit.text.document.example import FILES, Read, translated


def test_messages_without_translation_get_a_fuzzy_one_in_their_layout() -> None:
    written = Read("po", (FILES / "messages.po").read_bytes()).written(str.upper).decode()
    expected = (FILES / "messages.po").read_text(encoding="utf-8")
    for before, after in (
        ("#, c-format", "#, fuzzy, c-format"),
        ('close"\nmsgstr ""', 'close"\nmsgstr "SAVE \\"%S\\" AND CLOSE"'),
        ('\nmsgid ""\n"A long', '\n#, fuzzy\nmsgid ""\n"A long'),
        (
            'here.\\n"\nmsgstr ""',
            'here.\\n"\nmsgstr ""\n"A LONG MESSAGE THAT IS CONTINUED "\n"ON A SECOND LINE.\\n"\n"\\tIT ENDS HERE.\\n"',
        ),
        ('\nmsgid "one file"', '\n#, fuzzy\nmsgid "one file"'),
        ('msgstr[0] ""\nmsgstr[1] ""', 'msgstr[0] "ONE FILE"\nmsgstr[1] "%D FILES"'),
        ('msgid "last"\nmsgstr ""', '#, fuzzy\nmsgid "last"\nmsgstr "LAST"'),
    ):
        assert expected.count(before) == 1
        expected = expected.replace(before, after)
    assert written == expected


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


def test_a_plural_without_its_original_gets_the_singular() -> None:
    written = translated("po", 'msgid "a"\nmsgstr[0] ""\nmsgstr[1] ""')
    assert 'msgstr[0] "A"' in written and 'msgstr[1] "A"' in written
