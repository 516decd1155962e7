"""All formats: what is not text is kept byte for byte, files are what they say they are, and bad ones are named."""

from __future__ import annotations

import codecs
import re
from pathlib import Path

import pytest

from tests.unit.text.document.example import BILINGUAL, EXAMPLES, FILES, Read
from transduce.cli import corpus_options, translate
from transduce.errors import DataError, SettingsError
from transduce.text.document.formats import FORMATS, PAIRED, Document, detect_kind, kind_by_name, read_units
from transduce.text.document.segment import NO_OPTIONS

VARIANTS = ("as it is", "CRLF", "BOM", "no last line end", "UTF-16", "UTF-16 big-endian")
UTF16 = {"UTF-16": codecs.BOM_UTF16_LE, "UTF-16 big-endian": codecs.BOM_UTF16_BE}


def variant(content: bytes, name: str) -> bytes:
    if name == "CRLF":
        return content.replace(b"\n", b"\r\n")
    if name == "BOM":
        return codecs.BOM_UTF8 + content
    if name == "no last line end":
        return content.rstrip(b"\n")
    if name in UTF16:
        return UTF16[name] + content.decode().encode("utf-16-le" if name == "UTF-16" else "utf-16-be")
    return content


def test_every_format_has_an_example_and_both_commands_know_all() -> None:
    assert {kind for kind, _ in EXAMPLES.values()} == set(FORMATS)
    assert {path.relative_to(FILES).as_posix() for path in FILES.rglob("*.*")} == set(EXAMPLES)
    assert tuple(FORMATS) == translate.FORMATS
    assert set(corpus_options.FORMATS) == set(PAIRED)


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("how", VARIANTS)
def test_a_translation_that_changes_nothing_changes_no_byte(name: str, how: str) -> None:
    kind, options = EXAMPLES[name]
    if how in UTF16 and not FORMATS[kind].utf16:
        with pytest.raises(DataError, match="UTF-16"):
            Read(kind, variant((FILES / name).read_bytes(), how), **options)
        return
    content = variant((FILES / name).read_bytes(), how)
    found = Read(kind, content, **options)
    assert found.texts and all("\n" not in text and text.strip() for text in found.texts if kind != "text")
    assert found.original == content
    written = found.written()
    if name in BILINGUAL:
        again = Read(kind, written, **options)
        assert again.texts == [] and again.written() == written
        filled = Read(kind, written, **options, retranslate=True).written()
        again = Read(kind, filled, **options, retranslate=True)
        assert len(again.texts) > len(found.texts) and again.written() == filled
    else:
        assert written == content


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_translation_of_any_length_keeps_everything_else(name: str) -> None:
    """Read again, the translated document has as many texts, and they are the translations."""
    kind, options = EXAMPLES[name]
    content = (FILES / name).read_bytes()
    for translated in (lambda text: f"Ünd {text} ünd so", lambda text: re.sub(r"[^\W\d]{3,}", "ab", text)):
        found = Read(kind, content, **options)
        written = found.written(translated)
        if name in BILINGUAL:
            assert Read(kind, written, **options).texts == []
        else:
            assert Read(kind, written, **options).texts == [translated(text) for text in found.texts]


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_format_follows_from_the_name_or_the_first_bytes(name: str, tmp_path: Path) -> None:
    kind, _ = EXAMPLES[name]
    assert detect_kind(str(FILES / name)) == kind
    nameless = tmp_path / "nameless"
    nameless.write_bytes((FILES / name).read_bytes())
    stated = detect_kind(str(nameless))
    assert stated == (kind if FORMATS[kind].begins else "text")
    nameless.write_bytes(codecs.BOM_UTF8 + (FILES / name).read_bytes())
    assert detect_kind(str(nameless)) == stated


def test_plain_text_is_not_taken_for_something_else(tmp_path: Path) -> None:
    lines = ["[1] a note", "{name} is here", '"quoted", she said', "<b>bold</b>", "1", "# heading", "[[link]] x", "a,b"]
    for line in lines:
        (tmp_path / "x.txt").write_text(f"{line}\nmore text\n")
        assert detect_kind(str(tmp_path / "x.txt")) == "text", line


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.docx", b"", "word processor"),
        ("a.xlsx", b"", "CSV"),
        ("a.yaml", b"a: b", "YAML"),
        ("a.pdf.gz", b"", "extract its text"),
        ("a.xml", b'<?xml version="1.0"?><other/>', "XML of an unknown kind"),
        ("a.txt", b"PK\x03\x04...", "archive"),
        ("a.txt", b"a\rb\rc\r", "CR alone"),
        ("a", b"%PDF-1.7", "PDF"),
    ],
)
def test_what_cannot_be_read_is_rejected_unless_its_lines_are_wanted(
    name: str, content: bytes, words: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=words) as error:
        detect_kind(str(tmp_path / name))
    assert "--format text" in str(error.value) and "\n" not in str(error.value)
    assert list(Document(str(tmp_path / name), "text").segments) is not None


MALFORMED = {
    "an open quote": ("csv", b'a,b\n1,"x\n2,y\n', {"fields": ("2",)}, ":2: a quoted field is not closed"),
    "text behind a quote": ("csv", b'1,"x"y\n', {"fields": ("2",)}, ":1: text follows the closing quote"),
    "line ends of old Macs": ("csv", b"a,b\rc,d\re,f", {"fields": ("2",)}, "CR alone"),
    "a short row": ("csv", b"a,b\nc\n", {"fields": ("2",)}, ":2: no column 2"),
    "no such column": ("csv", b"text,b\n", {"fields": ("txet",)}, ":1: the header has no column 'txet'; did you mean"),
    "a short line": ("tsv", b"a\tb\nc\n", {"fields": ("2",)}, ":2: no column 2"),
    "a line that is no JSON": ("jsonl", b'{"a": "b"}\n{"a": \n', {"fields": ("a",)}, ":2: not JSON"),
    "a row without the key": ("jsonl", b'{"b": "b"}\n', {"fields": ("a",)}, ":1: has no key 'a'"),
    "a value that is no text": ("jsonl", b'{"a": 3}\n', {"fields": ("a",)}, ":1: 'a' is 3, not a string"),
    "an open object": ("json", b'{"a": "b",\n\n', {}, ":3: not JSON"),
    "a deep array": ("json", b"[" * 100_000, {}, ":1: not JSON"),
    "lines as JSON": ("json", b'{"a": 1}\n{"a": 2}\n', {}, ":2: not JSON .*--format jsonl"),
    "an open string": ("po", b'msgid "a"\nmsgstr "\n', {}, ":2: a string is not closed"),
    "a string alone": ("po", b'\n"text"\n', {}, ":2: a string belongs to no message"),
    "an open element": ("xliff", b'<xliff version="1.2">\n<file>\n</xliff>', {}, ":3: not well-formed XML"),
    "another version": ("xliff", b'<xliff version="3.0"/>', {}, ":1: is XLIFF 3.0"),
    "another root": ("xliff", b"<a/>", {}, ":1: is <a>, not XLIFF"),
    "no TMX": ("tmx", b"<a/>", {"target_language": "de"}, ":1: is <a>, not TMX"),
    "no resources": ("android", b"<a/>", {}, ":1: is <a>, not Android"),
    "no value": ("strings", b'"a" = "b";\n"c";\n', {}, ':2: expected "key" = "value"'),
    "an unknown encoding": ("xliff", b'<?xml version="1.0" encoding="rot13"?><xliff/>', {}, "encoding 'rot13'"),
    "a bad byte": ("srt", b"1\n00:00:01,000 --> 00:00:02,000\n\xff\n", {}, ":3: not UTF-8"),
    "a NUL": ("html", b"<p>" + b"a" * 9000 + b"\n\0</p>", {}, ":2: has a NUL byte"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_input_is_one_sentence_with_file_and_line(case: str) -> None:
    kind, content, options, words = MALFORMED[case]
    with pytest.raises(DataError, match=words) as error:
        Read(kind, content, **options)  # type: ignore[arg-type]
    assert error.value.exit_code == 65 and "\n" not in str(error.value) and len(str(error.value)) < 400


def test_options_that_do_not_fit_the_format_are_rejected() -> None:
    for kind, options, words in (
        ("tsv", {}, "--field"),
        ("csv", {"source_columns": ("1",)}, "--target-column"),
        ("jsonl", {}, "--field"),
        ("json", {"source_columns": ("a",)}, "not for JSON"),
        ("srt", {"fields": ("1",)}, "not for srt"),
        ("tsv", {"fields": ("0",)}, "from 1"),
        ("tsv", {"fields": ("9" * 5000,)}, "from 1"),
        ("tsv", {"fields": ("a",), "header": False}, "--no-header"),
        ("tmx", {}, "--target-language"),
    ):
        with pytest.raises(SettingsError, match=words):
            Read(kind, b"a\tb\n", **options)  # type: ignore[arg-type]


def test_a_name_states_a_format_whatever_its_case() -> None:
    names = ["a.SRT", "B.PO.gz", "x.pot", "a.txt", "srt", "a.ndjson", "values-de/strings.xml", "a.htm", "README.md"]
    assert [kind_by_name(name) for name in names] == [
        *("srt", "po", "po", "text", None, "jsonl", "android", "html", "markdown")
    ]


def test_a_name_that_is_a_language_or_a_language_of_programs(tmp_path: Path) -> None:
    """`corpus.ps` is Pashto unless it begins like PostScript."""
    contents = {"x.ts": b"Tsonga\n", "x.ps": b"Pashto\n", "x.mo": b"Moldovan\n", "x.cs": b"Czech\n"}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        assert detect_kind(str(tmp_path / name)) == "text"
    contents = {"y.ts": b"<TS version='2'>", "y.ps": b"%!PS-Adobe", "y.mo": b"\xde\x12\x04\x95\0", "z.py": b"a = 1\n"}
    contents |= {
        "a.ipynb": b'{"cells": []}',
        "a.xcstrings": b'{"version": "1"}',
        "a.stringsdict": b"<plist>",
        "a.vue": b"",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=f"{name}: is .*--format text"):
            detect_kind(str(tmp_path / name))


def test_descriptions_of_messages_are_no_messages() -> None:
    content = b'{"@@locale": "en", "hello": "Hello {name}", "@hello": {"description": "Greeting", "x": [{"y": "z"}]}}'
    found = Read("json", content)
    assert found.texts == ["Hello {name}"] and found.written() == content
    assert Read("json", content, fields=("description",)).texts == ["Greeting"]


@pytest.mark.parametrize(
    ("kind", "declared", "encoding"),
    [
        (
            "xliff",
            '<?xml version="1.0" encoding="ISO-8859-1"?><xliff version="1.2"><file><trans-unit id="1">',
            "latin-1",
        ),
        ("html", '<meta charset="windows-1252"><p>', "cp1252"),
        ("html", '<meta charset="shift_jis"><p>', "shift_jis"),
        ("po", 'msgid ""\nmsgstr "Content-Type: text/plain; charset=KOI8-R\\n"\n\nmsgid "', "koi8-r"),
        ("properties", "title = ", "latin-1"),
    ],
)
def test_a_declared_encoding_is_kept(kind: str, declared: str, encoding: str) -> None:
    text, end = {"po": ("текст", '"\nmsgstr ""\n'), "html": ("だ" if encoding == "shift_jis" else "€ ä", "</p>")}.get(
        kind, ("Grüße", "<source>Grüße</source></trans-unit></file></xliff>" if kind == "xliff" else "\n")
    )
    content = (declared + ("" if kind == "xliff" else text) + end).encode(encoding)
    found = Read(kind, content)  # type: ignore[arg-type]
    assert text in found.texts and found.original == content
    if kind not in ("xliff", "po"):
        assert found.written() == content
    if kind in ("xliff", "html"):
        assert b"&#8364;&#1096;" in found.written(lambda _: "€ш") or encoding != "latin-1"
    if kind == "po":
        with pytest.raises(DataError, match="koi8_r"):
            found.written(lambda _: "é")


def test_a_properties_file_is_latin_1_if_any_of_its_lines_is(tmp_path: Path) -> None:
    for content in (b"a = b\n" * 2000 + b"c = f\xfcr\n", b"c = f\xfcr", "c = für".encode()):
        (tmp_path / "x.properties").write_bytes(content)
        found = Read("properties", content, "x.properties")
        assert found.texts[-1] == "für" and found.written() == content


def test_a_json_array_to_train_on_says_how_to_write_its_lines(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('[{"source": "a", "target": "b"}]\n')
    with pytest.raises(DataError, match="jq -c"):
        list(read_units(str(tmp_path / "x.json"), "jsonl", NO_OPTIONS))
