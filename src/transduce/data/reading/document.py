"""Documents of plain text, and the rows that a masked reader learns from.

A document is sentences, one a line, up to a blank line. It is cut into segments of whole sentences (longer ones are
cut), and a row is two segments that follow each other, or one where nobody asks whether they do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from transduce.data.reading.corpus import Example

LONGEST = 4096
"""Sentences of a document; one that goes on counts as several, so that memory does not grow with it."""


def documents(lines: Iterable[Example]) -> Iterator[list[Example]]:
    """Gather lines up to a blank one."""
    gathered: list[Example] = []
    for line in lines:
        if line.texts[0]:
            gathered.append(line)
        if gathered and (not line.texts[0] or len(gathered) == LONGEST):
            yield gathered
            gathered = []
    if gathered:
        yield gathered


def segments(sentences: Sequence[Sequence[int]], room: int) -> list[list[int]]:
    """Put whole sentences together as long as they fit; one that does not fit at all is cut."""
    found: list[list[int]] = []
    for sentence in sentences:
        parts = [list(sentence[start : start + room]) for start in range(0, len(sentence), room)]
        for part in parts:
            if found and len(found[-1]) + len(part) <= room:
                found[-1] += part
            else:
                found.append(part)
    return found


def paired(found: list[list[int]]) -> tuple[list[tuple[list[int], list[int]]], bool]:
    """Return segments two by two, and whether a single token is left over; a longer rest is cut in its middle."""
    pairs = [(found[place], found[place + 1]) for place in range(0, len(found) - 1, 2)]
    if len(found) % 2 == 0:
        return pairs, False
    last, middle = found[-1], len(found[-1]) // 2
    return ([*pairs, (last[:middle], last[middle:])], False) if middle else (pairs, True)
