"""One answer to one text, and how answers to the parts of a text become an answer to all of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Translation:
    """One answer to one line."""

    text: str
    score: float
    """Log-probability divided by the length penalty; sums over the parts of a line that was split."""
    ended: bool = True
    """False where the maximum length cut it off."""
    missing: tuple[str, ...] = ()
    """Terms that were asked for and could not be said."""
    links: tuple[tuple[int, int], ...] = ()
    """Which word of the source each word came from, (source, target), both from 0; only if that was asked for."""

    def then(self, glue: str, other: Translation, source: str) -> Translation:
        """This answer and that to the next part; `source` is all that stands before that part."""
        text = self.text + glue
        before, behind = _words_before(source), _words_before(text)
        return Translation(
            text + other.text,
            self.score + other.score,
            self.ended and other.ended,
            self.missing + other.missing,
            (*self.links, *((read + before, written + behind) for read, written in other.links)),
        )


def together(
    found: Sequence[Sequence[Translation]], sources: Sequence[str], glue: Callable[[int, str, str], str]
) -> list[Translation]:
    """Put the answers to the parts of a text together: all the best ones, all the second best, …

    `sources` are the parts with the white space behind them; `glue` is what stands before a part, by its number and
    the two answers.
    """
    joined, *others = found
    for number, answers in enumerate(others, start=1):
        source = "".join(sources[:number])
        pairs = zip(joined, answers, strict=False)
        joined = [one.then(glue(number, one.text, other.text), other, source) for one, other in pairs]
    return list(joined)


def _words_before(text: str) -> int:
    """The number of the next word; where no white space ends a text, its last word goes on."""
    return len(text.split()) - bool(text and not text[-1].isspace())
