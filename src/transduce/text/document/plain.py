"""Plain text: each line is a text."""

from __future__ import annotations

from collections.abc import Iterator

from transduce.text.document.charset import DocumentText, Line
from transduce.text.document.segment import DocumentOptions, DocumentSegment
from transduce.text.lines import normalise


def read_plain(document: DocumentText, options: DocumentOptions) -> Iterator[DocumentSegment]:
    """Yield the lines."""
    for line in document.lines():
        yield _segment(line, normalise(line.text, f"{document.name}:{line.number}"))


def _segment(line: Line, text: str) -> DocumentSegment:
    return DocumentSegment((text,), lambda translations: translations[0] + line.end, line.raw)
