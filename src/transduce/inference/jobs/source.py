"""The input of a job: windows of document segments, the position in the file, and a hash of what was read."""

from __future__ import annotations

import hashlib
import itertools
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from transduce.text.document.formats import Document, DocumentKind
from transduce.text.document.segment import NO_OPTIONS, DocumentOptions, DocumentSegment
from transduce.text.lines import STDIN, Meter

T = TypeVar("T")

CHARACTERS_PER_LINE = 256
"""Average of a window: with longer lines it has fewer of them, so that its memory is bounded."""
STREAM_LINES = 512
"""Maximum lines of a window where lines arrive one by one."""
STREAM_WAIT = 0.02
"""Seconds that a line waits for the next one."""


def is_file(path: str) -> bool:
    """Whether a path is that of a regular file, not of a pipe or standard input."""
    try:
        return path != STDIN and Path(path).is_file()
    except OSError:  # `open` reports why
        return False


@dataclass(frozen=True)
class DocumentWindow:
    """Segments that are translated together."""

    first: int
    """The number of its first segment, from 0."""
    segments: list[DocumentSegment]
    read: int = 0
    """Bytes of the file up to its end, approximately."""
    digest: str = ""
    """SHA-256 of all segments up to its end."""
    encode: Callable[[str], bytes] = str.encode
    """Encodes text as the document is encoded."""

    @property
    def texts(self) -> list[str]:
        """The texts to translate."""
        return [text for segment in self.segments for text in segment.texts]

    @property
    def languages(self) -> list[str | None]:
        """The target language that the document gives for each text."""
        return [segment.target_language for segment in self.segments for _ in segment.texts]


class Source:
    """The segments of a document, each returned once."""

    def __init__(
        self,
        segments: Iterable[DocumentSegment],
        meter: Meter | None = None,
        encode: Callable[[str], bytes] = str.encode,
        first: int = 0,
    ) -> None:
        """Wrap segments, of which the first has the number `first`."""
        self._segments, self._meter, self._encode = iter(segments), meter or Meter(), encode
        self._hash = hashlib.sha256()
        self._taken, self._bytes = first, 0

    @classmethod
    def open(cls, path: str, kind: DocumentKind | None = None, options: DocumentOptions = NO_OPTIONS) -> Source:
        """Open a document."""
        meter = Meter()
        document = Document(path, kind, options, meter)
        return cls(document.segments, meter, document.encode)

    def skip(self, count: int) -> str:
        """Skip segments that were translated before; return their hash, as a window has it."""
        for segment in itertools.islice(self._segments, count):
            self._note(segment)
        return self._hash.hexdigest()

    def sample(self, lines: int) -> list[str]:
        """Return the next texts without consuming them."""
        seen = list(_cut(self._segments, lines))
        self._segments = itertools.chain(seen, self._segments)
        return [text for segment in seen for text in segment.texts][:lines]

    @property
    def read(self) -> int:
        """Bytes of the file that were consumed, approximately."""
        return self._meter.at(self._bytes)

    def windows(self, lines: int) -> Iterator[DocumentWindow]:
        """Yield windows of `lines` lines, or fewer long ones; they depend on the document alone."""
        while segments := list(_cut(self._segments, lines)):
            yield self._window(segments)

    def windows_as_they_come(self) -> Iterator[DocumentWindow]:
        """Yield windows of whatever has arrived."""
        for arrived in _as_they_come(self._segments):
            yield self._window(arrived)

    def _window(self, segments: list[DocumentSegment]) -> DocumentWindow:
        first = self._taken
        for segment in segments:
            self._note(segment)
        return DocumentWindow(first, segments, self.read, self._hash.hexdigest(), self._encode)

    def _note(self, segment: DocumentSegment) -> None:
        content = self._encode(segment.original)
        self._hash.update(content)
        self._taken, self._bytes = self._taken + 1, self._bytes + len(content)


def _cut(segments: Iterator[DocumentSegment], lines: int) -> Iterator[DocumentSegment]:
    """Yield segments up to `lines` lines, or the characters of as many average lines, markup included."""
    left, room = lines, lines * CHARACTERS_PER_LINE
    while left > 0 and room > 0 and (segment := next(segments, None)) is not None:
        left -= max(1, len(segment.texts))
        room -= len(segment.original)
        yield segment


def _as_they_come(items: Iterator[T]) -> Iterator[list[T]]:
    arrived: queue.Queue[T | BaseException | None] = queue.Queue(maxsize=2 * STREAM_LINES)

    def read() -> None:
        try:
            for item in items:
                arrived.put(item)
            arrived.put(None)
        except BaseException as error:  # raised in the main thread
            arrived.put(error)

    threading.Thread(target=read, daemon=True).start()
    ended = False
    while not ended:
        window: list[T] = []
        item = arrived.get()
        while True:
            if isinstance(item, BaseException):
                raise item
            if item is None:
                ended = True
                break
            window.append(item)
            if len(window) == STREAM_LINES:
                break
            try:
                item = arrived.get(timeout=STREAM_WAIT)
            except queue.Empty:
                break
        if window:
            yield window
