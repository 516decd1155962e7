"""The formats: how a file is recognised, read into segments and written, and read as pairs to train on."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Literal, get_args

from transduce.errors import DataError, SettingsError
from transduce.text.document.charset import HEAD_BYTES, MAX_DOCUMENT_CHARACTERS, Declaration, DocumentText
from transduce.text.document.html import html_charset, read_html
from transduce.text.document.json_text import jsonl_units, read_json, read_jsonl
from transduce.text.document.markdown import read_markdown
from transduce.text.document.plain import read_plain
from transduce.text.document.po import po_charset, po_units, read_po
from transduce.text.document.resource import properties_charset, read_android, read_properties, read_strings
from transduce.text.document.segment import NO_OPTIONS, DocumentOptions, DocumentSegment, Unit, unchanged
from transduce.text.document.subtitle import read_srt, read_vtt
from transduce.text.document.table import csv_units, read_csv, read_tsv, tsv_units
from transduce.text.document.tmx import read_tmx, tmx_units
from transduce.text.document.xliff import read_xliff, xliff_units
from transduce.text.document.xml_document import xml_charset
from transduce.text.lines import STDIN, Meter, check_line_ends, is_stream, open_bytes, peek_bytes, shown

DocumentKind = Literal[
    "text", "tsv", "csv", "jsonl", "json", "srt", "vtt", "po", "xliff", "tmx", "html", "markdown", "android",
    "properties", "strings",
]  # fmt: skip


@dataclass(frozen=True)
class Format:
    """One format."""

    read: Callable[[DocumentText, DocumentOptions], Iterator[DocumentSegment]]
    """Reads a document into segments."""
    suffixes: tuple[str, ...] = ()
    """Endings of file names."""
    begins: str | None = None
    """Regular expression for the first characters of a document."""
    marked_up: bool = True
    """Whether texts have placeholders and tags, which are always copied."""
    columns: bool = False
    """Whether columns or keys are chosen."""
    declaration: Declaration | None = None
    """Finds the encoding that a document declares."""
    utf16: bool = True
    """Whether the format allows UTF-16."""
    references: bool = False
    """Whether a character that the encoding lacks can be written as a reference (`&#233;`)."""
    units: Callable[[DocumentText, DocumentOptions], Iterator[Unit]] | None = None
    """Reads the pairs of a format that has both sides of its texts."""


_XML = r"(?>\s++|<\?xml[^>]*+>|<!--.*?-->|<!DOCTYPE[^\[>]*+(?:\[[^\]]*+\]\s*+)?>)*+"
_JSON_STRING = r'"(?:[^"\\]++|\\.)*+"'
FORMATS: dict[DocumentKind, Format] = {
    "text": Format(read_plain, (".txt",), marked_up=False),
    "tsv": Format(read_tsv, (".tsv", ".tab"), marked_up=False, columns=True, units=tsv_units),
    "csv": Format(read_csv, (".csv",), marked_up=False, columns=True, units=csv_units),
    "jsonl": Format(
        read_jsonl,
        (".jsonl", ".ndjson"),
        rf"\s*+\{{\s*+{_JSON_STRING}\s*+:[^\n]*\}}[ \t\r]*\n\s*\{{",
        marked_up=False,
        columns=True,
        utf16=False,
        units=jsonl_units,
    ),
    "json": Format(
        read_json,
        (".json", ".arb"),
        rf"\s*+(?:\{{\s*+{_JSON_STRING}\s*+:|\[\s*+(?:\{{\s*+\"|\[\s*+[\[\"{{\d]|{_JSON_STRING}\s*+[,\]]))",
        columns=True,
        utf16=False,
    ),
    "srt": Format(read_srt, (".srt",), r"\s*\d+[ \t]*\r?\n\d{1,2}:\d\d:\d\d[,.]\d+[ \t]*-->"),
    "vtt": Format(read_vtt, (".vtt",), r"WEBVTT(?:[ \t\r\n]|$)", utf16=False),
    "po": Format(
        read_po,
        (".po", ".pot"),
        r'(?:\s++|#[^\n]*+\n)*+(?:msgctxt|msgid)[ \t]+"',
        declaration=po_charset,
        utf16=False,
        units=po_units,
    ),
    "xliff": Format(
        read_xliff,
        (".xliff", ".xlf"),
        rf"{_XML}<(?:\w+:)?xliff[\s>]",
        declaration=xml_charset,
        references=True,
        units=xliff_units,
    ),
    "tmx": Format(read_tmx, (".tmx",), rf"{_XML}<tmx[\s>]", declaration=xml_charset, references=True, units=tmx_units),
    "html": Format(
        read_html,
        (".html", ".htm", ".xhtml", ".shtml"),
        rf"(?i:\s*+<!doctype\s++html|{_XML}<(?:html|head|body)[\s>])",
        declaration=html_charset,
        references=True,
    ),
    "markdown": Format(read_markdown, (".md", ".markdown", ".mkd", ".qmd", ".rmd")),
    "android": Format(read_android, (), rf"{_XML}<resources[\s>]", declaration=xml_charset, references=True),
    "properties": Format(read_properties, (".properties",), declaration=properties_charset),
    "strings": Format(read_strings, (".strings",)),
}
"""All formats by their names."""
assert set(FORMATS) == set(get_args(DocumentKind))

MARKED_UP = frozenset(name for name, one in FORMATS.items() if one.marked_up)
"""Formats with placeholders and tags, which are always copied."""

BILINGUAL = frozenset[DocumentKind](("po", "xliff", "tmx"))
"""Formats with texts beside their translations, which are kept."""

_UNSUPPORTED = {
    **dict.fromkeys((".docx", ".doc", ".odt", ".rtf", ".pages"), "a document of a word processor; save it as HTML"),
    **dict.fromkeys((".xlsx", ".xls", ".ods", ".numbers"), "a spreadsheet; save it as CSV"),
    **dict.fromkeys((".pptx", ".ppt", ".odp", ".epub", ".idml"), "a packed document; export its text"),
    **dict.fromkeys((".pdf", ".eps"), "a page description; extract its text"),
    **dict.fromkeys((".xcstrings", ".stringsdict"), "a catalogue of Xcode; export it as XLIFF"),
    ".ipynb": "a notebook; save it as Markdown",
    **dict.fromkeys(
        (".xml", ".dita", ".resx", ".resw", ".plist", ".dtd", ".tbx", ".svg", ".sgm", ".sgml", ".rss"),
        "XML of an unknown kind",
    ),
    **dict.fromkeys((".yaml", ".yml", ".toml", ".ini", ".rst", ".tex", ".adoc", ".ass", ".ssa", ".sub", ".ttml"), ""),
    **dict.fromkeys((".dfxp", ".scc", ".sbv", ".lrc", ".ftl", ".json5", ".mdx", ".ics", ".vcf", ".eml", ".conllu"), ""),
    **dict.fromkeys(
        (".py", ".js", ".jsx", ".mjs", ".tsx", ".vue", ".svelte", ".java", ".cpp", ".php", ".sql", ".swift"),
        "source code; move its messages to a file of strings",
    ),
    **dict.fromkeys((".parquet", ".arrow", ".zip", ".tar", ".bz2", ".xz", ".zst", ".7z", ".safetensors"), "binary"),
}
"""Endings of files that are no plain lines and cannot be read, with what they are.

Not those that name a language, too: `corpus.ps` may be Pashto, `corpus.ts` Tsonga. Their first bytes tell.
"""
_OTHER_HEADS = {
    b"%PDF-": "a PDF document; extract its text",
    b"%!PS": "a page description; extract its text",
    b"\xde\x12\x04\x95": "a compiled PO file; translate the PO file",
    b"\x95\x04\x12\xde": "a compiled PO file; translate the PO file",
    b"bplist": "a binary property list; convert it by `plutil -convert xml1`",
    b"<?php": "source code; move its messages to a file of strings",
    b"PK\x03\x04": "a zip archive or an office document; save it as text, HTML or CSV",
    b"{\\rtf": "RTF; save it as HTML",
    b"BZh": "compressed by bzip2; unpack it",
    b"\xfd7zXZ": "compressed by xz; unpack it",
    b"\x28\xb5\x2f\xfd": "compressed by zstd; unpack it",
    b"PAR1": "a Parquet file; convert it to CSV or JSONL",
}
_LINES = "or give --format text to translate its lines as they are"


def kind_by_name(path: str) -> DocumentKind | None:
    """Return the format that a file's name states; None for a name that states none.

    A name that states a format that cannot be read is an error.
    """
    name = PurePath(path).name.lower().removesuffix(".gz")
    if re.fullmatch(r"strings(?:[-_].*)?\.xml", name):
        return "android"
    suffix = f".{name.rpartition('.')[2]}" if "." in name else ""
    for kind, one in FORMATS.items():
        if suffix in one.suffixes:
            return kind
    if suffix in _UNSUPPORTED and suffix != ".xml":
        raise DataError(_unsupported(path, _UNSUPPORTED[suffix] or f"in the format {suffix[1:].upper()}"))
    return None


def _unsupported(path: str, what: str) -> str:
    advice = f", {_LINES}" if ";" in what else f"; convert it to one of {', '.join(FORMATS)}, {_LINES}"
    return f"{path}: is {what}{advice}"


def kind_by_content(head: bytes, name: str) -> DocumentKind | None:
    """Return the format that the first bytes state; those of an unknown one that is no text are an error."""
    for magic, what in _OTHER_HEADS.items():
        if head.startswith(magic):
            raise DataError(_unsupported(name, what))
    check_line_ends(head, name, f", {_LINES}")
    mark = next((mark for mark in (b"\xff\xfe", b"\xfe\xff") if head.startswith(mark)), None)
    codec = {None: "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}[mark]
    text = head[: HEAD_BYTES - 1 if len(head) >= HEAD_BYTES else len(head)].decode(codec, "ignore")
    for kind, one in FORMATS.items():
        if one.begins is not None and re.match(one.begins, text, re.DOTALL):
            return kind
    if re.match(r"\s*<(?:\?xml|!DOCTYPE|TS|plist|tt|SAMI)[\s>]", text):
        raise DataError(_unsupported(name, "XML of an unknown kind"))
    return None


class Document:
    """A document: its segments, each returned once, and its encoding."""

    def __init__(
        self,
        path: str,
        kind: DocumentKind | None = None,
        options: DocumentOptions = NO_OPTIONS,
        meter: Meter | None = None,
    ) -> None:
        """Open a document when its segments are read; without a format, as its name or its first bytes state."""
        self.name = shown(path)
        self.kind = detect_kind(path) if kind is None else kind
        self._is_certain = kind is not None or self.kind != "text"
        self._format = FORMATS[self.kind]
        if options.has_columns and not self._format.columns:
            raise SettingsError(f"columns and keys are for TSV, CSV, JSONL and JSON files, not for {self.kind}")
        self._text: DocumentText | None = None
        self.segments = self._read(path, options, meter)

    def encode(self, text: str) -> bytes:
        """Return text in the encoding of the document."""
        if self._text is None:
            return text.encode("utf-8")
        return self._text.encode(text, self._format.references)

    def _read(self, path: str, options: DocumentOptions, meter: Meter | None) -> Iterator[DocumentSegment]:
        with open_bytes(path, meter) as file:
            if not self._is_certain and (stated := kind_by_content(file.peek(HEAD_BYTES), self.name)):
                raise DataError(f"{self.name}: looks like {stated}; give --format {stated}, {_LINES}")
            self._text = text = document_text(file, path, self.kind)
            segments = self._format.read(text, options)
            first = next(segments, None)
            if first is not None and text.mark:
                first = with_mark(first, text.mark)
            if first is not None or text.mark:
                yield unchanged(text.mark) if first is None else first
            yield from segments


def with_mark(first: DocumentSegment, mark: str) -> DocumentSegment:
    """Return the first segment of a document with the byte-order mark before it."""
    write = first.write
    return replace(first, write=lambda translations: mark + write(translations), original=mark + first.original)


def document_text(file: io.BufferedReader, path: str, kind: DocumentKind) -> DocumentText:
    """Return the text of a file in some format."""
    one, name = FORMATS[kind], shown(path)
    if one.columns:
        check_line_ends(file.peek(HEAD_BYTES), name)
    declaration = one.declaration
    if kind == "properties" and not is_stream(path):
        declaration = lambda _: _java_encoding(path)  # noqa: E731
    text = DocumentText(file, name, declaration, typed=path == STDIN)
    if text.encoding.startswith("utf-16") and not one.utf16:
        raise DataError(f"{name}: is UTF-16, but {kind} must be UTF-8; convert it with `iconv -f UTF-16 -t UTF-8`")
    return text


def _java_encoding(path: str) -> str | None:
    """Look at all of a properties file: its first character that is no ASCII may come late."""
    with open_bytes(path) as file:
        return properties_charset(file.read(MAX_DOCUMENT_CHARACTERS))


def detect_kind(path: str) -> DocumentKind:
    """Return the format that a file's name or its first bytes state, or plain text."""
    named = None if path == STDIN else kind_by_name(path)
    if named not in (None, "text", "json"):
        return named
    return kind_by_content(peek_bytes(path, HEAD_BYTES), shown(path)) or named or "text"


def read_units(path: str, kind: DocumentKind, options: DocumentOptions) -> Iterator[Unit]:
    """Yield the units of a corpus in one file."""
    units = FORMATS[kind].units
    if units is None:
        raise SettingsError(f"{shown(path)}: {kind} has no pairs to train on; use {', '.join(PAIRED)}")
    with open_bytes(path) as file:
        yield from units(document_text(file, path, kind), options)


PAIRED = tuple(name for name, one in FORMATS.items() if one.units is not None)
"""Formats with pairs to train on."""
