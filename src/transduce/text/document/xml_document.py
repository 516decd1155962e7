"""XML documents as a stream of tags with their places in the text, so that parts can be replaced and the rest kept.

Expat, of Python's standard library, checks that the document is well-formed and says where each tag begins. Nothing is
expanded or loaded: a document that declares entities is rejected, external ones are never opened, and the depth of
elements and the length of a tag are limited.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple
from xml.parsers import expat

from transduce.errors import DataError
from transduce.text.document.charset import DocumentText

MAX_DEPTH = 500
"""Maximum number of elements within each other."""
MAX_TAG_BYTES = 2**24
"""Maximum size of a tag, comment or declaration."""
_ENCODING = re.compile(rb"""^<\?xml[^>]{0,200}?\sencoding\s*=\s*["']([\w:.-]+)["']""")


def xml_charset(head: bytes) -> str | None:
    """Return the encoding that the XML declaration states."""
    found = _ENCODING.search(head)
    return None if found is None else found.group(1).decode("ascii")


class Tag(NamedTuple):
    """A start tag or an end tag; an empty element has both, at the same place."""

    name: str
    """Without the prefix of a namespace."""
    opens: bool
    attributes: dict[str, str]
    begin: int
    line: int
    end: int = 0


class XmlDocument:
    """A document while it is read; `taken` is how far its text was handed out."""

    def __init__(self, document: DocumentText) -> None:
        self.name, self._document = document.name, document
        self._data, self._base, self.taken = bytearray(), 0, 0
        self._depth, self._last = 0, 0
        self._begun: int | None = None
        """Where a start tag begins, until anything follows it."""
        self._waiting: list[Tag] = []
        self._complete: deque[Tag] = deque()
        self._parser = parser = expat.ParserCreate("utf-8")
        parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.DefaultHandler = self._other
        parser.EntityDeclHandler = self._entity

    def tags(self) -> Iterator[Tag]:
        """Yield all tags in order."""
        for chunk in self._document.chunks():
            data = chunk.encode("utf-8")
            self._data += data
            self._parse(data, False)
            while self._complete:
                yield self._complete.popleft()
            if self._base + len(self._data) - max(self._last, self._base) > MAX_TAG_BYTES:
                line = self._parser.CurrentLineNumber
                raise DataError(f"{self.name}:{line}: a tag or comment is longer than {MAX_TAG_BYTES // 2**20} MiB")
        self._parse(b"", True)
        self._flush(self._base + len(self._data))
        while self._complete:
            yield self._complete.popleft()

    def text(self, begin: int, end: int) -> str:
        """Return the text between two places that were not yet taken."""
        return self._data[begin - self._base : end - self._base].decode("utf-8")

    def take(self, end: int | None = None) -> str:
        """Return the text from where it was taken last up to a place, or to the end, and forget it."""
        end = self._base + len(self._data) if end is None else end
        found = self.text(self.taken, end)
        del self._data[: end - self._base]
        self.taken = self._base = end
        return found

    def _parse(self, data: bytes, final: bool) -> None:
        try:
            self._parser.Parse(data, final)
        except expat.ExpatError as error:
            what = expat.ErrorString(error.code)
            raise DataError(f"{self.name}:{error.lineno}: not well-formed XML ({what}); fix the file") from None

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            line = self._parser.CurrentLineNumber
            raise DataError(f"{self.name}:{line}: elements are nested deeper than {MAX_DEPTH}; simplify the file")
        self._add(name, True, attributes)

    def _end(self, name: str) -> None:
        self._depth -= 1
        self._add(name, False, {})

    def _add(self, name: str, opens: bool, attributes: dict[str, str]) -> None:
        place = self._parser.CurrentByteIndex
        self._flush(place)
        if opens:
            self._begun = place
        elif self._begun is not None:  # nothing between the tags; an empty element has one tag
            before = self._data[place - self._base - 2 : place - self._base]
            place = self._begun if place == self._begun or before == b"/>" else place
            self._begun = None
        local = {key if key == "xml:lang" else key.rpartition(":")[2]: value for key, value in attributes.items()}
        self._waiting.append(Tag(name.rpartition(":")[2], opens, local, place, self._parser.CurrentLineNumber))

    def _other(self, _: str) -> None:
        self._begun = None
        self._flush(self._parser.CurrentByteIndex)

    def _flush(self, place: int) -> None:
        """End the tags before a place."""
        self._last = place
        if self._waiting and self._waiting[-1].begin < place:
            self._complete.extend(tag._replace(end=place) for tag in self._waiting)
            self._waiting.clear()

    def _entity(self, name: str, *_: object) -> None:
        line = self._parser.CurrentLineNumber
        raise DataError(
            f"{self.name}:{line}: declares the entity '{name[:40]}', which is not expanded for safety; replace it in "
            "the text and remove the declaration"
        )


def set_attribute(tag: str, name: str, value: str) -> str:
    """Return a start tag with an attribute changed or appended."""
    pattern = re.compile(rf"""(\s{re.escape(name)}\s*=\s*)("[^"]*"|'[^']*')""")
    found = pattern.search(tag)
    if found is not None:
        quote = found[2][0]
        return f"{tag[: found.start(2)]}{quote}{value}{quote}{tag[found.end() :]}"
    end = len(tag) - (2 if tag.endswith("/>") else 1)
    head = tag[:end].rstrip()
    return f'{head} {name}="{value}"{tag[len(head) :]}'


def opened(tag: str) -> tuple[str, str]:
    """Return an empty element's tag as a start tag and an end tag."""
    name = re.match(r"<([^\s/>]+)", tag)
    assert name is not None
    return f"{tag.removesuffix('/>').rstrip()}>", f"</{name[1]}>"
