"""Generated documents: whatever is in them, a translation that changes nothing changes no byte."""

from __future__ import annotations

import csv
import io
import json
import re
from xml.etree import ElementTree

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.unit.text.document.example import Read
from transduce.errors import DataError
from transduce.text.document.formats import DocumentKind

quick = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])

WORDS = st.text("abcXYZ äß東€ .,!?'\"&<>|;:=#*_-+`~[](){}\\/%$@^0123456789\t", max_size=24)
PIECES: dict[DocumentKind, str] = {
    "text": r"a| |\n|\r\n|\t|\f|\v|ä|\x85",
    "srt": r"1\n|00:00:01,000 --> 00:00:02,000\n|word |\n|\r\n|<i>|</i>|{\\an8}|- |&amp;|<|♪",
    "vtt": r"WEBVTT\n|00:01.000 --> 00:02.000\n|NOTE|STYLE\n|word |\n\n|\n|<v Bob>|</v>|&lt;|-->",
    "html": r"<p>|</p>|<b>|</b>|<br>|<i class='a>b'>|</i>|word |\n  |&nbsp;|&amp|&|<|>|<!-- c -->|<!--|<code>|</code>|"
    r"<script>|</script>|<img src=x>|<a href|=\"|<![CDATA[|<pre>|</pre>|<span translate=no>|</span>|é|<td>|<textarea>|"
    r"</textarea>|&#8364;|/>",
    "markdown": r"word |\n|\n\n|# |- |1. |> |    |**|*|_|`|```\n|[|](x)|]|![|~~|¦|¦---¦\n|<b>|</b>|<div>\n|\\*|&amp;|"
    r"  \n|---\n|===\n|[a]: b\n|[^1]: |\t|<",
    "properties": r"key = |key|word |\\\n  |\n|\r\n|# c|\\u00e4|\\n|:|=|\\|  |ä|!",
    "po": r"msgid \"a\"\n|msgid \"\"\n|\"b c\"\n|msgstr \"x\"\n|# c\n|\n|#~ msgid\n|odd\n|#, fuzzy\n|\r\n",
}
"""Pieces that documents are made of, good or bad."""


def pieces(kind: DocumentKind) -> st.SearchStrategy[list[str]]:
    """Lists of the pieces of a format; ¦ stands for the bar that separates them here."""
    known = [re.sub(r"\\x85|\\.", lambda found: ESCAPED[found[0]], piece) for piece in PIECES[kind].split("|")]
    return st.lists(st.sampled_from([piece.replace("¦", "|") for piece in known]), max_size=30)


ESCAPED = {r"\n": "\n", r"\r": "\r", r"\t": "\t", r"\f": "\f", r"\v": "\v", r"\x85": "\x85", r"\"": '"', "\\\\": "\\"}


@quick
@given(st.sampled_from(sorted(PIECES)).flatmap(lambda kind: st.tuples(st.just(kind), pieces(kind))))
@example(("html", ["<p>", "<b>", "word ", "</p>", "</b>"]))
def test_any_sequence_of_pieces_is_kept_or_rejected(case: tuple[DocumentKind, list[str]]) -> None:
    kind, parts = case
    content = "".join(parts).encode()
    try:
        found = Read(kind, content)
    except DataError:
        assert kind == "po"
        return
    assert found.original == found.written() == content


@quick
@given(st.lists(st.lists(WORDS, min_size=2, max_size=2), max_size=5), st.sampled_from([",", ";"]), st.booleans())
def test_csv_of_the_standard_library_is_kept(rows: list[list[str]], delimiter: str, minimal: bool) -> None:
    """Its quoting is kept, and the standard library reads what was written."""
    written = io.StringIO()
    quoting = csv.QUOTE_MINIMAL if minimal else csv.QUOTE_ALL
    writer = csv.writer(written, delimiter=delimiter, quoting=quoting)
    writer.writerows([["id", "text"], *rows])
    content = written.getvalue()
    found = Read("csv", content.encode(), fields=("text",))
    assert found.written() == content.encode()
    changed = found.written(lambda text: f'"{text}";,\n').decode()
    again = list(csv.reader(io.StringIO(changed, newline=""), delimiter=delimiter))
    lines = [[cell.strip() for cell in row[1].split("\n") if cell.strip()] for row in again[1:] if row]
    expected = [row[1].replace("\r", "\n").split("\n") for row in rows]
    assert len(again) == len(list(csv.reader(io.StringIO(content, newline=""), delimiter=delimiter)))
    assert [bool(line) for line in lines] == [any(part.strip() for part in row) for row in expected]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)


@quick
@given(JSON, st.booleans(), st.sampled_from([None, 2]))
def test_json_of_the_standard_library_is_kept(value: object, is_ascii: bool, indent: int | None) -> None:
    content = json.dumps(value, ensure_ascii=is_ascii, indent=indent)
    assert Read("json", content.encode()).written() == content.encode()
    changed = Read("json", content.encode()).written(lambda text: f'{text} "\\ ü\n').decode()
    assert changed.isascii() or not is_ascii or "\\u" not in content
    json.loads(changed)


@quick
@given(st.dictionaries(st.sampled_from(["text", "id", "x"]), WORDS, min_size=1), st.booleans())
def test_jsonl_is_kept(row: dict[str, str], is_ascii: bool) -> None:
    content = json.dumps({"text": "a", **row}, ensure_ascii=is_ascii) + "\n"
    found = Read("jsonl", content.encode(), fields=("text",))
    assert found.written() == content.encode()
    changed = json.loads(found.written(lambda _: "neu"))
    assert {key: value for key, value in changed.items() if key != "text"} == {
        key: value for key, value in row.items() if key != "text"
    }


@quick
@given(st.lists(st.tuples(WORDS, st.sampled_from(["g", "x", "ph", ""]), WORDS), max_size=4))
def test_units_of_elementtree_stay_well_formed(parts: list[tuple[str, str, str]]) -> None:
    """The target has the codes of the source, nested, whatever a translation does to them."""
    root = ElementTree.Element("xliff", version="1.2")
    unit = ElementTree.SubElement(ElementTree.SubElement(root, "file"), "trans-unit", id="1")
    source = ElementTree.SubElement(unit, "source")
    source.text = "word "
    for number, (text, name, tail) in enumerate(parts):
        if name:
            inside = ElementTree.SubElement(source, name, id=str(number))
            inside.text, inside.tail = text if name == "g" else None, tail
    content = ElementTree.tostring(root)
    found = Read("xliff", content)
    for translate in (str, lambda text: text[::-1], lambda text: " ".join(reversed(text.split())), lambda _: "x & <y>"):
        written = ElementTree.fromstring(found.written(translate))
        target = written.find(".//target")
        assert target is not None
        codes = [sorted((one.get("id", ""), one.tag) for one in side.iter()) for side in (source, target)]
        assert codes[0][1:] == codes[1][1:]
    assert ElementTree.tostring(ElementTree.fromstring(found.written())).count(b"<trans-unit") == 1


@quick
@given(st.lists(st.tuples(WORDS, WORDS), max_size=4))
def test_a_memory_of_elementtree_is_kept(units: list[tuple[str, str]]) -> None:
    root = ElementTree.Element("tmx", version="1.4")
    ElementTree.SubElement(root, "header", srclang="en")
    for pair in units:
        unit = ElementTree.SubElement(root, "tu")
        for language, text in zip(("en", "de"), pair, strict=True):
            variant = ElementTree.SubElement(unit, "tuv", {"xml:lang": language})
            ElementTree.SubElement(variant, "seg").text = text
    content = ElementTree.tostring(root)
    assert Read("tmx", content, target_language="de").original == content
    once = Read("tmx", content, target_language="de", retranslate=True).written()
    assert Read("tmx", once, target_language="de", retranslate=True).written() == once
    ElementTree.fromstring(once)
