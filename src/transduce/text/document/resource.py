"""String resources of programs: Android's strings.xml, Java's .properties and Apple's .strings.

Values are translated in place; keys, comments and layout are kept.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence

from transduce.errors import DataError
from transduce.text.document.charset import DocumentText, Line, line_of
from transduce.text.document.inline import InlineText, Token, plain
from transduce.text.document.json_text import json_ascii
from transduce.text.document.markup import CDATA_END, ESCAPES, cdata_tokens, only_cdata, xml_tokens
from transduce.text.document.segment import DocumentOptions, DocumentSegment, unchanged
from transduce.text.document.xml_document import Tag, XmlDocument

# Android: <string>, and <item> of <plurals> and <string-array>, unless translatable="false".

_ANDROID_ESCAPES = {**ESCAPES, "'": "\\'", '"': '\\"', "\\": "\\\\"}
_ANDROID_TOKEN = re.compile(r"\\u[0-9a-fA-F]{4}|\\.|\"|[^\\\"]++|\\", re.DOTALL)
_ANDROID_REFERENCE = re.compile(r"\s*(?:@(?:null|empty|\+?(?:[\w.*]+:)?\w+/[\w.]+)|\?(?:[\w.*]+:)?(?:attr/)?\w+)\s*")
"""Another resource or an attribute of the theme, which stands for the whole value."""


def read_android(document: DocumentText, options: DocumentOptions) -> Iterator[DocumentSegment]:
    """Yield the strings of an Android resource file."""
    xml = XmlDocument(document)
    inside: list[Tag] = []
    for tag in xml.tags():
        if tag.opens:
            if not inside and tag.name != "resources":
                raise DataError(
                    f"{document.name}:{tag.line}: is <{tag.name[:40]}>, not Android resources; check the file"
                )
            inside.append(tag)
            continue
        begun = inside.pop()
        parent = inside[-1].name if inside else ""
        is_string = parent == "resources" and begun.name == "string"
        is_item = parent in ("plurals", "string-array") and begun.name == "item"
        if not (is_string or is_item) or begun.begin == tag.begin:
            continue
        if any(one.attributes.get("translatable") == "false" for one in (*inside, begun)):
            continue
        before = xml.take(begun.end)
        raw = xml.take(tag.begin)
        if _ANDROID_REFERENCE.fullmatch(raw):
            yield unchanged(before + raw)
            continue
        cdata = only_cdata(raw)
        where = f"{document.name}:{begun.line}"
        if cdata is None:
            text = InlineText(_android_tokens(raw), _ANDROID_ESCAPES, where)
        else:
            text = InlineText(cdata_tokens(cdata), {}, where, never=CDATA_END)
        yield _spliced(before, raw, text, escaped_first="" if raw.lstrip().startswith(("@", "?")) else "@?")
    rest = xml.take()
    if rest:
        yield unchanged(rest)


def _android_tokens(raw: str) -> Iterator[Token]:
    """Yield the tokens of a string, with the escapes of Android inside text.

    `xliff:g` elements are copied, and so are quotes that are not escaped, which keep the white space between them.
    """
    for token in xml_tokens(raw, {"g": "single"}):
        if token.kind != "text" or token.raw != token.text or not re.search(r'[\\"]', token.raw):
            yield token
            continue
        for piece in _ANDROID_TOKEN.findall(token.raw):
            if piece in ("\\", '"'):
                yield Token("code", piece)
            elif not piece.startswith("\\"):
                yield plain(piece)
            elif piece[1] in "'\"\\@?":
                yield Token("text", piece, piece[1])
            elif piece[1] == "u" and len(piece) == 6 and not 0xD800 <= int(piece[2:], 16) < 0xE000:
                yield Token("text", piece, chr(int(piece[2:], 16)))
            else:
                yield Token("code", piece)


def _spliced(
    before: str, raw: str, text: InlineText, after: str = "", is_ascii: bool = False, escaped_first: str = ""
) -> DocumentSegment:
    """Return a segment of one text; a translation that begins with one of `escaped_first` gets a backslash."""
    if not text.has_words:
        return unchanged(before + raw + after)

    def write(translations: Sequence[str]) -> str:
        written = text.write(translations[0])
        if written.lstrip()[:1] in tuple(escaped_first):
            written = written.replace(written.lstrip()[0], f"\\{written.lstrip()[0]}", 1)
        return before + (json_ascii(written) if is_ascii else written) + after

    return DocumentSegment((text.text,), write, before + raw + after)


# Java properties: `key = value`, continued after a backslash at the end of a line.

_KEY = re.compile(r"[ \t\f]*+(?:\\.|[^\\:=\s])++[ \t\f]*+[:=]?[ \t\f]*+")
_COMMENT = re.compile(r"[ \t\f]*+(?:[#!]|$)")
_PROPERTY_TOKEN = re.compile(r"\\u[0-9a-fA-F]{4}|\\\r?\n[ \t\f]*+|\\.|[^\\]++|\\", re.DOTALL)
_PROPERTY_ESCAPES = {"\\": "\\\\"}


def properties_charset(head: bytes) -> str | None:
    """Return Latin-1 for a file that is not UTF-8: Java reads either."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return "latin-1"
    return None


def read_properties(document: DocumentText, options: DocumentOptions) -> Iterator[DocumentSegment]:
    """Yield the values of a properties file."""
    begun: list[Line] = []
    for line in document.lines():
        begun.append(line)
        is_comment = len(begun) == 1 and _COMMENT.match(line.text) is not None
        if not is_comment and line.end and _continues(line.text):
            continue
        yield unchanged(line.raw) if is_comment else _property(begun, document)
        begun = []
    if begun:
        yield _property(begun, document)


def _continues(text: str) -> bool:
    return (len(text) - len(text.rstrip("\\"))) % 2 == 1


def _property(lines: Sequence[Line], document: DocumentText) -> DocumentSegment:
    raw = "".join(line.raw for line in lines)
    after = lines[-1].end
    raw = raw[: len(raw) - len(after)]
    key = _KEY.match(raw)
    if key is None:
        return unchanged(raw + after)
    value = raw[key.end() :]
    text = InlineText(_property_tokens(value), _PROPERTY_ESCAPES, f"{document.name}:{lines[0].number}")
    is_ascii = value.isascii() and ("\\u" in value or document.encoding == "latin_1")
    return _spliced(raw[: key.end()], value, text, after, is_ascii)


def _property_tokens(raw: str) -> Iterator[Token]:
    for piece in _PROPERTY_TOKEN.findall(raw):
        if not piece.startswith("\\"):
            yield plain(piece)
        elif "\n" in piece:
            yield Token("join", piece)
        elif piece == "\\":
            yield Token("code", piece)
        elif piece[1] == "u" and len(piece) == 6 and not 0xD800 <= int(piece[2:], 16) < 0xE000:
            yield Token("text", piece, chr(int(piece[2:], 16)))
        elif piece[1] in "nrtfu":
            yield Token("code", piece)
        else:
            yield Token("text", piece, piece[1])


# Apple's strings: "key" = "value";

_STRING = r'"(?:[^"\\]++|\\.)*+"'
_ENTRY = re.compile(rf"(?:{_STRING}|[\w.-]++)\s*+=\s*+(?P<value>{_STRING})\s*+;", re.DOTALL)
_SPACE = re.compile(r"\s++|/\*.*?\*/|//[^\n]*+", re.DOTALL)
_STRING_TOKEN = re.compile(r"\\U[0-9a-fA-F]{4}|\\.|[^\\\r\n]++|\r?\n|\r", re.DOTALL)
_STRING_ESCAPES = {'"': '\\"', "\\": "\\\\"}


def read_strings(document: DocumentText, options: DocumentOptions) -> Iterator[DocumentSegment]:
    """Yield the values of a strings file."""
    whole = document.whole()
    place = kept = 0
    line, counted = 1, 0
    while place < len(whole):
        space = _SPACE.match(whole, place)
        if space is not None:
            place = space.end()
            continue
        found = _ENTRY.match(whole, place)
        if found is None:
            raise DataError(f'{document.name}:{line_of(whole, place)}: expected "key" = "value"; fix the line')
        begin, end = found.start("value") + 1, found.end("value") - 1
        line, counted = line + whole.count("\n", counted, begin), begin
        text = InlineText(
            map(_string_token, _STRING_TOKEN.findall(whole[begin:end])), _STRING_ESCAPES, f"{document.name}:{line}"
        )
        yield _spliced(whole[kept:begin], whole[begin:end], text, whole[end : found.end()])
        place = kept = found.end()
    if whole[kept:]:
        yield unchanged(whole[kept:])


def _string_token(raw: str) -> Token:
    if raw in ("\n", "\r\n", "\r"):
        return Token("gap", raw)
    if not raw.startswith("\\"):
        return plain(raw)
    if raw[1] == "U" and len(raw) == 6 and not 0xD800 <= int(raw[2:], 16) < 0xE000:
        return Token("text", raw, chr(int(raw[2:], 16)))
    return Token("text", raw, raw[1]) if raw[1] in "\"'\\" else Token("code", raw)
