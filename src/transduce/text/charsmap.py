"""SentencePiece's "precompiled charsmap": which characters are written as which others before text is cut into pieces.

It is a table of rules such as "ﬁ → fi" or "e + ◌́ → é", usually those of NFKC, frozen as they were when the model was
trained, so that no newer Unicode changes what a model reads. In a file it is a double-array trie (Aoe 1989, in the
layout of darts-clone) over the UTF-8 of what is replaced, and one string of all replacements. At each place of a text
the longest rule applies; nothing is looked at twice.

There are 200,000 rules, nearly all of them for letters with several accents, so they are looked up when a text needs
them and remembered. What `tokenizers` has for such tables is another thing: it looks at a letter with its accents as a
whole, takes the shortest rule, and so loses accents.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

MAX_BYTES = 16 * 2**20
"""Largest table that is read; that of NFKC has a quarter of a megabyte."""
MAX_RULE = 32
"""Characters that a rule replaces at most; those of NFKC have four."""
MAX_REPLACEMENT = 256
"""Longest text that a rule writes, in bytes; those of NFKC have at most 33."""
MAX_REMEMBERED = 2**16

_LABEL, _VALUE, _IS_VALUE, _HAS_VALUE = 0x800000FF, 0x7FFFFFFF, 0x80000000, 0x100
"""Parts of a unit of the trie: the byte that leads to it, or its value and the mark of one; whether it has a value."""


class Charsmap:
    """Rules for characters. Most texts need those for one character only, for which Python has a fast way."""

    def __init__(self, units: tuple[int, ...] = (), texts: bytes = b"") -> None:
        self._units, self._texts = units, texts
        self._single = _Remembered(self)
        self._apart: set[tuple[str, str]] = set()
        """Neighbours that no rule joins."""

    @classmethod
    def read(cls, content: bytes) -> Charsmap:
        """Read what a model file holds, nothing for no rules; raises ValueError for what is none."""
        if not content:
            return cls()
        size = int.from_bytes(content[:4], "little")
        if not 4 <= size < len(content) - 4 or size % 4 or len(content) > MAX_BYTES:
            raise ValueError("its rules for characters are cut short, or too many")
        units = np.frombuffer(content, dtype="<u4", count=size // 4, offset=4)
        texts = content[4 + size :]
        texts.decode("utf-8")  # UnicodeDecodeError is a ValueError
        begins = units[units & _IS_VALUE > 0].astype(np.int64) & _VALUE
        letters = np.frombuffer(texts, dtype=np.uint8)
        ends = np.append(np.flatnonzero(letters == 0), len(letters) + MAX_REPLACEMENT)
        if begins.size and begins.max() >= len(letters):
            raise ValueError("a rule for characters leads out of its table")
        if np.any(ends[np.searchsorted(ends, begins)] - begins >= MAX_REPLACEMENT) or np.any(letters[begins] >> 6 == 2):
            raise ValueError("what a rule for characters writes is cut short")
        return cls(tuple(units.tolist()), texts)

    def apply(self, text: str) -> str:
        """Return a text with every rule applied."""
        if not self._units:
            return text
        if len(self._single) + len(self._apart) > MAX_REMEMBERED:
            self._single.clear()
            self._apart.clear()
        if self._apart.issuperset(pairwise(text)):
            return text.translate(self._single)
        pairs = set(pairwise(text)) - self._apart
        joined = {pair for pair in pairs if self._goes_on(*pair)}
        self._apart |= pairs - joined
        return "".join(self._replaced(text)) if joined else text.translate(self._single)

    def longest(self, text: str, place: int) -> tuple[int, str | None]:
        """Return where the longest rule that applies at a place of a text ends, and what it writes there."""
        found, rule, node = place + 1, None, 0
        for end in range(place, min(len(text), place + MAX_RULE)):
            child = self._child(node, text[end])
            if child is None:
                break
            node = child
            if (written := self._written(node)) is not None:
                found, rule = end + 1, written
        return found, rule

    def _replaced(self, text: str) -> Iterator[str]:
        place = 0
        while place < len(text):
            end, written = self.longest(text, place)
            yield text[place] if written is None else written
            place = end

    def _goes_on(self, first: str, second: str) -> bool:
        """Whether some rule begins with these two characters."""
        node = self._child(0, first)
        return node is not None and self._child(node, second) is not None

    def _child(self, node: int, character: str) -> int | None:
        """Go on from a node by the bytes of one character."""
        units = self._units
        for byte in character.encode("utf-8"):
            node = _base(node, units[node]) ^ byte
            if not byte or node >= len(units) or units[node] & _LABEL != byte:
                return None
        return node

    def _written(self, node: int) -> str | None:
        """What the rule that ends at a node writes, if one does."""
        place = _base(node, self._units[node])
        if not self._units[node] & _HAS_VALUE or place >= len(self._units) or not self._units[place] & _IS_VALUE:
            return None
        begin = self._units[place] & _VALUE
        return self._texts[begin : self._texts.index(b"\0", begin)].decode("utf-8")


class _Remembered(dict[int, str]):
    """What each character alone becomes, by its number, for `str.translate`."""

    def __init__(self, rules: Charsmap) -> None:
        self._rules = rules

    def __missing__(self, number: int) -> str:
        _, written = self._rules.longest(chr(number), 0)
        self[number] = chr(number) if written is None else written
        return self[number]


def _base(node: int, unit: int) -> int:
    """Where the children of a node are, each at its byte from there (by exclusive or); the value is at zero."""
    return node ^ ((unit >> 10) << ((unit & 0x200) >> 6))
