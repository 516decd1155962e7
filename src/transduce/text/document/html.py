"""HTML: the text of paragraphs, headings, cells and other blocks is translated, each as a whole across inline tags.

Tags, comments, attributes, scripts, styles and white space are kept, and so is the content of `pre`, `code`, `kbd`,
`samp` and `var`, and of elements with `translate="no"` or the class `notranslate`. The text is scanned, not parsed into
a tree, so that damaged HTML is kept as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from transduce.text.document.charset import DocumentText
from transduce.text.document.inline import InlineText, Token, plain
from transduce.text.document.markup import ESCAPES, TAG, attributes, reference
from transduce.text.document.segment import DocumentOptions, DocumentSegment, unchanged


def _set(names: str) -> frozenset[str]:
    return frozenset(names.split())


BLOCKS = _set(
    "address article aside audio base blockquote body br button canvas caption center col colgroup dd details dialog "
    "dir div dl dt fieldset figcaption figure footer form frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html iframe "
    "legend li link main menu meta nav noscript ol optgroup option p pre section select summary table tbody td "
    "template textarea tfoot th thead title tr track ul video"
)
"""Elements that end a text; all others are inline."""
COPIED = _set("code iframe kbd math pre samp script style svg textarea var xmp")
"""Elements whose content is no text."""
RAW = _set("iframe noembed noframes script style textarea xmp")
"""Elements whose content has no tags."""
VOID = _set("area base br col embed hr img input link meta param source track wbr")

_CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?([\w:.-]+)""", re.IGNORECASE)
_OTHER = re.compile(r"<!--|<!\[CDATA\[|<[!?]")
_ENDS = {"<!--": "-->", "<![CDATA[": "]]>"}
_TEXT = re.compile(r"&(?:#\d++|#[xX][0-9a-fA-F]++|[A-Za-z][A-Za-z0-9]*+);|[ \t\n\r\f]++|[^<& \t\n\r\f]++|.", re.DOTALL)


def html_charset(head: bytes) -> str | None:
    """Return the encoding that a meta element declares."""
    found = _CHARSET.search(head)
    return None if found is None else found.group(1).decode("ascii")


class _Part(NamedTuple):
    """A tag, a comment, an element that is copied, or text."""

    raw: str
    name: str = ""
    """Of a tag."""
    closes: bool = False
    copied: bool = False
    """Whether it is an element that is copied as a whole."""

    @property
    def is_text(self) -> bool:
        return not self.copied and not self.name and not self.raw.startswith("<!")


def read_html(document: DocumentText, options: DocumentOptions) -> Iterator[DocumentSegment]:
    """Yield the texts of a document, each with what precedes it."""
    text = document.whole()
    kept: list[str] = []
    unit: list[_Part] = []
    line = 1
    for part in (*_parts(text), _Part("", "p")):
        if part.name not in BLOCKS:
            unit.append(part)
            continue
        if unit:
            raw = "".join(one.raw for one in unit)
            found = InlineText(_tokens(unit), ESCAPES, f"{document.name}:{line}")
            line += raw.count("\n")
            unit = []
            if found.has_words:
                yield _segment("".join(kept), raw, found)
                kept = []
            else:
                kept.append(raw)
        kept.append(part.raw)
        line += part.raw.count("\n")
    if "".join(kept):
        yield unchanged("".join(kept))


def _segment(before: str, raw: str, text: InlineText) -> DocumentSegment:
    return DocumentSegment((text.text,), lambda translations: before + text.write(translations[0]), before + raw)


def _parts(text: str) -> Iterator[_Part]:
    """Split a document; elements that are copied are one part, up to the end tag that belongs to them."""
    skipped: list[str] = []
    name, depth = "", 0
    for part in _scan(text):
        if depth:
            skipped.append(part.raw)
            if part.name == name:
                depth += -1 if part.closes else 1
            if not depth:
                yield _Part("".join(skipped), name if name in BLOCKS else "", copied=True)
                skipped = []
        elif part.name and not part.closes and part.name not in VOID and _is_copied(part):
            name, depth, skipped = part.name, 1, [part.raw]
        else:
            yield part
    if skipped:
        yield _Part("".join(skipped), "p", copied=True)


def _is_copied(tag: _Part) -> bool:
    if tag.raw.endswith("/>") and tag.name in ("svg", "math"):
        return False
    found = attributes(tag.raw) if "translate" in tag.raw.lower() else {}
    return (
        tag.name in COPIED
        or found.get("translate", "").lower() == "no"
        or "notranslate" in found.get("class", "").split()
    )


def _scan(text: str) -> Iterator[_Part]:
    """Yield tags, comments and text; what is not closed at the end of the document is kept as it is."""
    place = 0
    while place < len(text):
        tag = TAG.match(text, place)
        if tag is not None:
            name = tag["name"].lower()
            yield _Part(tag.group(), name, bool(tag["close"]))
            place = tag.end()
            if name in RAW and not tag["close"]:
                end = re.compile(f"</{name}", re.IGNORECASE).search(text, place)
                stop = len(text) if end is None else end.start()
                yield _Part(text[place:stop], copied=True)
                place = stop
            continue
        other = _OTHER.match(text, place)
        if other is not None:
            closing = _ENDS.get(other.group(), ">")
            end_at = text.find(closing, other.end())
            stop = len(text) if end_at < 0 else end_at + len(closing)
            yield _Part(text[place:stop], copied=True)
            place = stop
            continue
        if re.match(r"</?[A-Za-z]", text[place : place + 3]):  # a tag that is never closed
            yield _Part(text[place:], "p", copied=True)
            return
        stop = text.find("<", place + 1)
        stop = len(text) if stop < 0 else stop
        yield _Part(text[place:stop])
        place = stop


def _tokens(unit: list[_Part]) -> Iterator[Token]:
    for part in unit:
        if part.is_text:
            yield from map(_text_token, _TEXT.findall(part.raw))
        elif part.copied or part.name in VOID or part.raw.endswith("/>"):
            yield Token("code", part.raw)
        else:
            yield Token("code", part.raw, role="close" if part.closes else "open", name=part.name)


def _text_token(raw: str) -> Token:
    if raw.startswith("&") and len(raw) > 1:
        return reference(raw)
    return Token("gap", raw) if raw != " " and raw.strip(" \t\n\r\f") == "" else plain(raw)
