"""An image as one line of text: a square of pixels, one character each, row by row from the top left.

So an image can be used wherever a source can: in a TSV file next to its caption, on a command line, in a corpus. Any
characters can be used; those of the palette and of the RGB sets are drawn in their colours. `text.image_file` reads
PNG and JPEG files into this form.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

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
"""Colour of a character outside the palette and the RGB sets."""

ColourSet = Literal["palette", "rgb64", "rgb512", "rgb4096"]
"""The colours that pixels are rounded to: the nine of the palette, or 4, 8 or 16 levels each of red, green and blue."""
RGB_SETS: dict[ColourSet, tuple[int, int]] = {"rgb64": (4, 0xE000), "rgb512": (8, 0xE040), "rgb4096": (16, 0xE240)}
"""Levels of each channel, and the first character of the set: private-use characters, a range for each set."""
MAX_LISTED = 40
"""Known pixels that an error lists; of more it gives the number."""

Pixels = NDArray[np.uint8]
"""(P P 3): red, green and blue of each pixel."""

_BYTE = re.compile("<0x[0-9A-F]{2}>")
"""A byte of a character that a character tokenizer lacks."""


@cache
def colour_table(colours: ColourSet) -> dict[str, tuple[int, int, int]]:
    """Return red, green and blue of each character of a colour set."""
    if colours == "palette":
        return {letter: _rgb(drawn) for letter, (_, drawn) in PALETTE.items()}
    levels, first = RGB_SETS[colours]
    values = [round(level * 255 / (levels - 1)) for level in range(levels)]
    every = [(red, green, blue) for red in values for green in values for blue in values]
    return {chr(first + number): value for number, value in enumerate(every)}


def encode_pixels(pixels: Pixels, colours: ColourSet) -> str:
    """Return an image as text, each pixel as the nearest colour of a set.  (P P 3) -> P · P characters."""
    characters = list(colour_table(colours))
    flat: NDArray[np.int64] = pixels.reshape(-1, 3).astype(np.int64)
    if colours == "palette":
        known = np.array(list(colour_table(colours).values()))
        nearest: NDArray[Any] = ((flat[:, None] - known) ** 2).sum(axis=-1).argmin(axis=1)
    else:
        levels = RGB_SETS[colours][0]
        nearest = (flat * (levels - 1) + 127) // 255 @ np.array([levels * levels, levels, 1])
    return "".join([characters[place] for place in nearest.tolist()])


def decode_pixels(text: str, side: int) -> Pixels:
    """Return the colours of an image as text; strangers are grey.  -> (P P 3)."""
    return np.array([[_rgb(drawn) for drawn in row] for row in colours(text, side)], dtype=np.uint8)


def colours(pixels: Sequence[str], side: int) -> list[list[str]]:
    """Return the colour of each pixel, row by row."""
    drawn = [_drawn().get(pixel, UNNAMED) for pixel in pixels]
    return [drawn[start : start + side] for start in range(0, side * side, side)]


def check_picture(text: str, tokens: Sequence[int], tokenizer: AnyTokenizer, side: int) -> None:
    """Check that a text is an image of this size with known pixels."""
    for place, (token, piece) in enumerate(zip(tokens, tokenizer.pieces(tokens), strict=True)):
        if token == tokenizer.unknown or _BYTE.fullmatch(piece):
            known = sorted(piece for piece in tokenizer.vocabulary if len(piece) == 1)
            listed = ", ".join(known) if len(known) <= MAX_LISTED else f"{len(known):,} colours"
            raise DataError(
                f"{brief(text)}: pixel {place + 1:,} (row {place // side + 1}, column {place % side + 1}) is "
                f"unknown to the model; known pixels: {listed}"
            )
    if len(tokens) != side * side:
        raise DataError(
            f"{brief(text)}: has {len(tokens):,} pixels, but the model expects images of {side} × {side} = "
            f"{side * side:,}; write one character per pixel, row by row, on one line, or give the path of a .png or "
            ".jpg file"
        )


@cache
def _drawn() -> dict[str, str]:
    """The colour for drawing of every character that has one."""
    sets = [colour_table(name) for name in ("palette", *RGB_SETS)]
    return {character: "#" + bytes(value).hex() for table in sets for character, value in table.items()}


def _rgb(drawn: str) -> tuple[int, int, int]:
    red, green, blue = bytes.fromhex(drawn.removeprefix("#"))
    return red, green, blue
