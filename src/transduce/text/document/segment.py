"""What all formats share: segments of a document, units of a parallel corpus, and the options of reading them.

A document is a stream of segments. A segment has some texts, and writes itself with their translations; one without
texts is written unchanged. The originals of all segments, joined, are the document, character by character.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

Write = Callable[[Sequence[str]], str]


@dataclass(frozen=True)
class DocumentSegment:
    """A part of a document."""

    texts: Sequence[str]
    """Texts to translate, without line breaks; often none."""
    write: Write
    """(translations) -> what replaces the original."""
    original: str
    """The part as it stands in the document."""
    target_language: str | None = None
    """Target language given in the document."""


def unchanged(original: str) -> DocumentSegment:
    """Return a segment without texts."""
    return DocumentSegment((), lambda _: original, original)


class Unit(NamedTuple):
    """A source with its target, as a corpus gives it."""

    source: str
    target: str
    line: int
    """The line at which it begins, counted from 1."""
    unused: str | None = None
    """Why it is not a pair to train on, a key of `data.report.REASONS`; None for one that is."""


@dataclass(frozen=True)
class DocumentOptions:
    """How a document is read and written. Columns are numbers from 1, names of a header, or keys."""

    fields: tuple[str, ...] = ()
    """Columns or keys that are translated in place."""
    source_columns: tuple[str, ...] = ()
    """Columns that are joined to one source …"""
    target_column: str | None = None
    """… and the column that its translation is written to; a new one is appended."""
    separator: str = " "
    """What joins several source columns."""
    language_field: str | None = None
    """Column or key with the target language."""
    header: bool | None = None
    """Whether the first row is a header; None if columns are named, or if it names source and target."""
    source_language: str | None = None
    target_language: str | None = None
    """Languages of a file that may have several (TMX), or may lack them (XLIFF)."""
    retranslate: bool = False
    """Whether to replace translations that the document already has."""

    @property
    def has_columns(self) -> bool:
        """Whether any option for columns or keys is given."""
        return bool(self.fields or self.source_columns or self.target_column or self.language_field)


NO_OPTIONS = DocumentOptions()
