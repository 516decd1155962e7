"""A document on its way in: windows of segments, how far the file was read, and a hash of all that was handed out."""

from __future__ import annotations

import hashlib
import itertools
import queue
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from transduce.text.document import Segment
from transduce.text.lines import STDIN, Meter

T = TypeVar("T")

CHARACTERS_PER_LINE = 256
"""Of a window's lines on average: where lines are longer a window has fewer, so that its memory is bounded."""
TYPED_LINES = 512
"""The most lines that are answered together where they come as somebody writes them."""
PATIENCE = 0.02
"""Seconds that a line which is there waits for the next one."""


def is_file(path: str) -> bool:
    """Whether a path is a file's, which is all there; not a pipe's or standard input's."""
    try:
        return path != STDIN and Path(path).is_file()
    except OSError:  # whoever opens it says why
        return False


@dataclass(frozen=True)
class Window:
    """Segments that are answered together."""

    first: int
    """The number of its first segment, from 0."""
    segments: list[Segment]
    read: int = 0
    """Bytes of the file up to its end, about."""
    digest: str = ""
    """SHA-256 of all segments up to its end, as they came in."""

    @property
    def texts(self) -> list[str]:
        """All that is to be translated."""
        return [text for segment in self.segments for text in segment.texts]

    @property
    def languages(self) -> list[str | None]:
        """For each text the language that the document asks for."""
        return [segment.to for segment in self.segments for _ in segment.texts]


class Source:
    """The segments of a document, each handed out once."""

    def __init__(self, segments: Iterable[Segment], meter: Meter | None = None) -> None:
        self._segments, self._meter = iter(segments), meter or Meter()
        self._hash = hashlib.sha256()
        self._taken, self._bytes = 0, 0

    def skip(self, count: int) -> str:
        """Pass over segments that were answered before; return the hash of them, as a window has it."""
        for segment in itertools.islice(self._segments, count):
            self._note(segment)
        return self._hash.hexdigest()

    def sample(self, lines: int) -> list[str]:
        """Return the next texts, some of those that the next window has, and leave them to be handed out."""
        seen = list(_cut(self._segments, lines))
        self._segments = itertools.chain(seen, self._segments)
        return [text for segment in seen for text in segment.texts][:lines]

    @property
    def read(self) -> int:
        """Bytes of the file that what was handed out takes there, about."""
        return self._meter.at(self._bytes)

    def windows(self, lines: int) -> Iterator[Window]:
        """Yield windows that depend on what is in the document alone: so many lines, or fewer if they are long."""
        while segments := list(_cut(self._segments, lines)):
            yield self._window(segments)

    def windows_as_they_come(self) -> Iterator[Window]:
        """Yield windows of whatever has arrived: small ones from somebody who types and waits."""
        for segments in _as_they_come(self._segments):
            yield self._window(segments)

    def _window(self, segments: list[Segment]) -> Window:
        first = self._taken
        for segment in segments:
            self._note(segment)
        return Window(first, segments, self.read, self._hash.hexdigest())

    def _note(self, segment: Segment) -> None:
        content = segment.write(segment.texts).encode("utf-8", "surrogatepass")
        self._hash.update(content)
        self._taken, self._bytes = self._taken + 1, self._bytes + len(content)


def _cut(segments: Iterator[Segment], lines: int) -> Iterator[Segment]:
    """Yield segments until they have so many lines, or as many characters as so many lines have."""
    left, room = lines, lines * CHARACTERS_PER_LINE
    while left > 0 and room > 0 and (segment := next(segments, None)) is not None:
        left -= max(1, len(segment.texts))
        room -= sum(map(len, segment.texts))
        yield segment


def _as_they_come(items: Iterator[T]) -> Iterator[list[T]]:
    arrived: queue.Queue[T | BaseException | None] = queue.Queue(maxsize=2 * TYPED_LINES)

    def read() -> None:
        try:
            for item in items:
                arrived.put(item)
            arrived.put(None)
        except BaseException as error:  # handed over to the main thread, which raises it
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
            if len(window) == TYPED_LINES:
                break
            try:
                item = arrived.get(timeout=PATIENCE)
            except queue.Empty:
                break
        if window:
            yield window
