"""Documents to test with: files as programs write them, and their translation by a function."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transduce.text.document.formats import Document, DocumentKind, DocumentOptions
from transduce.text.document.segment import DocumentSegment

FILES = Path(__file__).parent / "files"

EXAMPLES: dict[str, tuple[DocumentKind, dict[str, Any]]] = {
    "notes.txt": ("text", {}),
    "rows.tsv": ("tsv", {"fields": ("text",)}),
    "products.csv": ("csv", {"fields": ("2", "description")}),
    "menu.csv": ("csv", {"fields": ("text",)}),
    "records.jsonl": ("jsonl", {"fields": ("text",)}),
    "app.json": ("json", {}),
    "film.srt": ("srt", {}),
    "talk.vtt": ("vtt", {}),
    "messages.po": ("po", {}),
    "strings.xlf": ("xliff", {}),
    "strings2.xlf": ("xliff", {}),
    "memory.tmx": ("tmx", {"target_language": "de"}),
    "page.html": ("html", {}),
    "guide.md": ("markdown", {}),
    "values/strings.xml": ("android", {}),
    "messages.properties": ("properties", {}),
    "Localizable.strings": ("strings", {}),
}
"""The files of this folder, with their format and options."""
BILINGUAL = {"messages.po", "strings.xlf", "strings2.xlf", "memory.tmx"}
"""Those that a translation is added to, next to its source."""


class Read:
    """A document that was read."""

    def __init__(self, kind: DocumentKind | None, content: bytes, name: str = "document", **options: Any) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            path.write_bytes(content)
            self._document = Document(str(path), kind, DocumentOptions(**options))
            self.kind = self._document.kind
            self.segments: list[DocumentSegment] = list(self._document.segments)

    @property
    def texts(self) -> list[str]:
        return [text for segment in self.segments for text in segment.texts]

    @property
    def original(self) -> bytes:
        return self._document.encode("".join(segment.original for segment in self.segments))

    def written(self, translate: Callable[[str], str] = str) -> bytes:
        parts = (segment.write([translate(text) for text in segment.texts]) for segment in self.segments)
        return self._document.encode("".join(parts))


def translated(kind: DocumentKind, text: str, translate: Callable[[str], str] = str.upper, **options: Any) -> str:
    """Return a document translated by a function, by default into capitals."""
    return Read(kind, text.encode(), **options).written(translate).decode()
