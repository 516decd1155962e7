"""The likeliest cut of a text into pieces of a Unigram model (Kudo 2018), in the very arithmetic of SentencePiece.

`tokenizers` does this faster, but adds scores in double precision where SentencePiece has single. That matters where
two cuts are equally good: "1000" may be "1 0 00" or "1 00 0", and which of them SentencePiece takes depends on how sums
are rounded. Such texts, and no others, are cut here.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping

UNKNOWN_PENALTY = 10.0
"""How much worse than the worst piece a character is that no piece covers."""


def repetitions(pieces: Iterable[str]) -> list[str]:
    """Return what a text must have in it for two cuts of it to be equally good, as a list of pieces decides it.

    Two cuts have the same pieces in another order only where a piece is some string several times over, "00", and
    that string stands in the text once more than that, "000".
    """
    found: dict[str, str] = {}
    for piece in sorted(pieces, key=len):
        root = piece[: (piece + piece).index(piece, 1)]
        if root != piece:
            found.setdefault(root, piece + root)
    return list(found.values())


class ExactUnigram:
    """Cuts texts with one table of pieces."""

    def __init__(self, scores: Mapping[str, float], worst: float) -> None:
        """`worst` is the lowest score of a usual piece."""
        self._scores = dict(scores)
        self._longest = max(map(len, scores))
        self._unknown = _single(worst - UNKNOWN_PENALTY)

    def cut(self, text: str) -> list[str]:
        """Return the pieces of a text, and its characters that no piece covers, one by one."""
        best = array("f", [0.0]) * (len(text) + 1)
        begins = [-1] * (len(text) + 1)
        """Where the last piece begins, of the best way to come to each place."""
        for begin in range(len(text)):
            for end in range(begin + 1, min(len(text), begin + self._longest) + 1):
                score = self._scores.get(text[begin:end])
                if score is None and end == begin + 1:
                    score = self._unknown
                if score is not None:
                    total = _single(best[begin] + score)
                    if begins[end] < 0 or total > best[end]:
                        best[end], begins[end] = total, begin
        pieces, end = [], len(text)
        while end > 0:
            pieces.append(text[begins[end] : end])
            end = begins[end]
        return pieces[::-1]


def _single(number: float) -> float:
    """Round to single precision."""
    return array("f", [number])[0]
