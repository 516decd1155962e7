"""Tokens of XML and HTML: tags, comments, character references, white space. Every pattern takes linear time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from html.entities import html5

from transduce.text.document.inline import Token, plain

ESCAPES: Mapping[str, str] = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
"""Characters that text must escape."""

XML_NAMES = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}

TAG = re.compile(
    r"<(?P<close>/?)(?P<name>[A-Za-z][^\s/>]*+)"
    r"(?P<attributes>(?:[\s/]++|[^\s/>=][^\s/>=]*+(?:\s*+=\s*+(?:\"[^\"]*+\"|'[^']*+'|[^\s>\"'][^\s>]*+)?)?+|=)*+)>"
)
"""A tag of HTML or XML; quotes begin a value only behind an equals sign, as in HTML."""
ATTRIBUTE = re.compile(
    r"[\s/]*+(?P<name>[^\s/>=][^\s/>=]*+)(?:\s*+=\s*+(?:\"(?P<double>[^\"]*+)\"|'(?P<single>[^']*+)'|"
    r"(?P<bare>[^\s>\"'][^\s>]*+))?)?+"
)

_XML_TOKEN = re.compile(
    r"<!--.*?-->|<\?.*?\?>|<!\[CDATA\[.*?\]\]>|<(?P<close>/?)(?P<name>[^\s/<>!?]++)[^>\"']*+"
    r"(?:(?:\"[^\"]*+\"|'[^']*+')[^>\"']*+)*+>|&[^;\s&<]*+;|\s++|[^<&\s]++|.",
    re.DOTALL,
)
"""A token of well-formed XML content."""
CDATA_END = "]]>"
_CDATA = re.compile(r"(\s*+<!\[CDATA\[)(.*?)(\]\]>\s*+)", re.DOTALL)


def reference(raw: str, names: Mapping[str, str] | None = None) -> Token:
    """Return a character reference (`&amp;`, `&#233;`) as a token: text if it is one character, otherwise copied."""
    name = raw[1:-1]
    meant = ""
    if name.startswith("#"):
        digits, base = (name[2:], 16) if name[1:2] in ("x", "X") else (name[1:], 10)
        number = int(digits, base) if re.fullmatch(r"[0-9a-fA-F]{1,8}", digits) and _is_number(digits, base) else 0
        is_character = 32 <= number < 0x110000 and not 0xD800 <= number < 0xE000
        meant = chr(number) if is_character or number == 9 else ""
    else:
        meant = html5.get(f"{name};", "") if names is None else names.get(name, "")
    return Token("text", raw, meant) if len(meant) == 1 else Token("code", raw)


def _is_number(digits: str, base: int) -> bool:
    return base == 16 or digits.isdecimal()


def attributes(tag: str) -> dict[str, str]:
    """Return the attributes of an HTML tag, names in lower case, values as they are written."""
    found = TAG.match(tag)
    if found is None:
        return {}
    every = ATTRIBUTE.finditer(found["attributes"])
    return {one["name"].lower(): one["double"] or one["single"] or one["bare"] or "" for one in every}


def xml_tokens(raw: str, opaque: Mapping[str, str], collapse: bool = True, protect: bool = True) -> Iterator[Token]:
    """Yield the tokens of well-formed XML content.

    Elements named in `opaque` are copied with their content; its value says whether they open or close a pair, or
    stand alone. `protect` also copies those that state that they are not to be translated. Of white space, line breaks
    with what surrounds them are gaps.
    """
    inside: list[str] = []
    skipped, depth = "", 0
    for found in _XML_TOKEN.finditer(raw):
        token = found.group()
        name = (found["name"] or "").rpartition(":")[2]
        if depth:
            inside.append(token)
            if name == skipped and not token.endswith("/>"):
                depth += -1 if found["close"] else 1
            if not depth:
                yield _whole("".join(inside), name, opaque)
                inside = []
        elif not name:
            yield _other(token, collapse)
        elif (name in opaque or (protect and _is_protected(token))) and not found["close"] and not token.endswith("/>"):
            skipped, depth, inside = name, 1, [token]
        elif token.endswith("/>"):
            yield _whole(token, name, opaque)
        else:
            yield Token("code", token, role="close" if found["close"] else "open", name=name)


def elements(raw: str, name: str) -> Iterator[tuple[str, str, str, str]]:
    """Split well-formed XML content at the outermost elements of a name: (what precedes, start tag, content, end tag).

    What follows the last one comes with empty tags.
    """
    begin = depth = 0
    opening: re.Match[str] | None = None
    for found in _XML_TOKEN.finditer(raw):
        is_empty = found.group().endswith("/>")
        if (found["name"] or "").rpartition(":")[2] != name or (is_empty and depth):
            continue
        depth += -1 if found["close"] else 1
        if depth == 1 and not found["close"]:
            opening = found
        if is_empty:
            yield raw[begin : found.start()], found.group(), "", ""
            begin, depth = found.end(), 0
        elif not depth and opening is not None:
            yield raw[begin : opening.start()], opening.group(), raw[opening.end() : found.start()], found.group()
            begin = found.end()
    yield raw[begin:], "", "", ""


def _is_protected(tag: str) -> bool:
    """Whether a tag says that its content is not to be translated (ITS, XLIFF 1.2 and 2.0)."""
    if "translate" not in tag and "mtype" not in tag:
        return False
    found = attributes(tag)
    return found.get("translate") == "no" or found.get("mtype") in ("protected", "x-DNT")


def _whole(raw: str, name: str, opaque: Mapping[str, str]) -> Token:
    role = opaque.get(name, "single")
    tag = _XML_TOKEN.match(raw)
    found = {} if tag is None else attributes(tag.group())
    key = found.get("rid") or found.get("i") or found.get("startref") or found.get("id") or ""
    if role == "open":
        return Token("code", raw, role="open", name=f"#{key}")
    return Token("code", raw, role="close", name=f"#{key}") if role == "close" else Token("code", raw)


def _other(token: str, collapse: bool) -> Token:
    if token.startswith("&") and len(token) > 1:
        return reference(token, XML_NAMES)
    if token.startswith("<"):
        return Token("code", token)
    if collapse and token.isspace() and token != " ":
        return Token("gap", token)
    return plain(token)


def only_cdata(raw: str) -> tuple[str, str, str] | None:
    """Split content that is one CDATA section into (its start, its text, its end)."""
    found = _CDATA.fullmatch(raw)
    if found is None or CDATA_END in found[2]:
        return None
    return found[1], found[2], found[3]


def cdata_tokens(parts: tuple[str, str, str]) -> Iterator[Token]:
    """Yield the tokens of a CDATA section: nothing in it is escaped."""
    begin, text, end = parts
    yield Token("code", begin)
    for found in re.finditer(r"\s++|\S++", text):
        token = found.group()
        yield Token("gap", token) if "\n" in token else plain(token)
    yield Token("code", end)
