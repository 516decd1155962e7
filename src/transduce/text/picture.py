"""An image as one line of text: a square of pixels, one character each, row by row from the top left.

So an image can be used wherever a source can: in a TSV file next to its caption, on a command line, in a corpus. Any
characters can be used; those of the palette are drawn in their colours.
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
"""Character of a pixel -> name of its colour, and the colour for drawing."""
UNNAMED = "#bbbbbb"
"""Colour of a character outside the palette."""

_BYTE = re.compile("<0x[0-9A-F]{2}>")
"""A byte of a character that a character tokenizer lacks."""


def colours(pixels: Sequence[str], side: int) -> list[list[str]]:
    """Return the colour of each pixel, row by row."""
    drawn = [PALETTE.get(pixel, ("", UNNAMED))[1] for pixel in pixels]
    return [drawn[start : start + side] for start in range(0, side * side, side)]


def check_picture(text: str, tokens: Sequence[int], tokenizer: AnyTokenizer, side: int) -> None:
    """Check that a text is an image of this size with known pixels."""
    for place, (token, piece) in enumerate(zip(tokens, tokenizer.pieces(tokens), strict=True)):
        if token == tokenizer.unknown or _BYTE.fullmatch(piece):
            known = sorted(piece for piece in tokenizer.vocabulary if len(piece) == 1)
            raise DataError(
                f"{brief(text)}: pixel {place + 1:,} (row {place // side + 1}, column {place % side + 1}) is "
                f"unknown to the model; known pixels: {', '.join(known)}"
            )
    if len(tokens) != side * side:
        raise DataError(
            f"{brief(text)}: has {len(tokens):,} pixels, but the model expects images of {side} × {side} = "
            f"{side * side:,}; write one character per pixel, row by row, on one line"
        )
