"""A picture as one line of text: a square of pixels, a character for each, row after row from the top left.

So a picture can stand wherever a source stands: in a TSV file beside its caption, on a command line, in a corpus. Any
characters will do, as any colours do to a model that learns them; those of the palette are drawn in their colours.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from transduce.errors import DataError, brief
from transduce.text.tokenizer import AnyTokenizer

PALETTE = {
    "w": ("white", "#ffffff"),
    "r": ("red", "#d62728"),
    "g": ("green", "#2ca02c"),
    "b": ("blue", "#1f5fd0"),
    "y": ("yellow", "#f2d413"),
    "o": ("orange", "#ff8c1a"),
    "p": ("purple", "#8e44ad"),
    "c": ("cyan", "#25c9d6"),
    "k": ("black", "#1a1a1a"),
}
"""The letter of a pixel -> the name of its colour, and how it is drawn."""
UNNAMED = "#bbbbbb"
"""How a character outside of the palette is drawn."""

_BYTE = re.compile("<0x[0-9A-F]{2}>")
"""How a tokenizer of characters shows a byte of one that it lacks."""


def colours(pixels: Sequence[str], side: int) -> list[list[str]]:
    """Return how each pixel is drawn, row by row."""
    drawn = [PALETTE.get(pixel, ("", UNNAMED))[1] for pixel in pixels]
    return [drawn[start : start + side] for start in range(0, side * side, side)]


def check_picture(text: str, tokens: Sequence[int], tokenizer: AnyTokenizer, side: int) -> None:
    """Say no to a text that is no picture of this size, or has a pixel that the tokenizer does not know."""
    for place, (token, piece) in enumerate(zip(tokens, tokenizer.pieces(tokens), strict=True)):
        if token == tokenizer.unknown or _BYTE.fullmatch(piece):
            known = sorted(piece for piece in tokenizer.vocabulary if len(piece) == 1)
            raise DataError(
                f"{brief(text)}: pixel {place + 1:,} (row {place // side + 1}, column {place % side + 1}) is of no "
                f"colour that the model knows; it knows {', '.join(known)}"
            )
    if len(tokens) != side * side:
        raise DataError(
            f"{brief(text)}: has {len(tokens):,} pixels, but the model reads pictures of {side} × {side} = "
            f"{side * side:,}; write one character for each, row after row, on one line"
        )
