"""Figures for papers, by matplotlib (the extra `plot`), drawn without a display or global state.

A label may be in any script: it uses the first installed font that has all its characters, and a character that no
font has is drawn as a box. Labels are never parsed as markup.
"""

from __future__ import annotations

import io
import textwrap
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from transduce.errors import MissingInput, SettingsError
from transduce.nn.position import sinusoids
from transduce.storage.atomic import write_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CELL = 0.26
"""Inches per token, for short sequences."""
LONGEST = 14.0
"""Maximum inches of a side of a map, for longer sequences."""
MAX_LABELS = 72
"""Maximum labels per side; with more tokens, every second, third, … has a label."""
DOTS_PER_INCH = 150
LABEL_LENGTH = 18
TITLE_WIDTH = 26
"""Characters of a line of a panel's title."""
BOX = "□"
UNDRAWABLE = ("Emoji", "Last Resort")
"""Fonts of coloured bitmaps, which Agg cannot draw, and of placeholder boxes."""


def draw_attention(
    weights: npt.NDArray[np.floating[Any]], rows: Sequence[str], columns: Sequence[str], title: str
) -> bytes:
    """Return a PNG of one attention map, dark where attention is high.  (rows, columns) -> file."""
    height, width = (min(LONGEST, max(1.0, CELL * count)) for count in weights.shape)
    figure = new_figure(width + 2.6, height + 2.2)
    axes = figure.add_subplot()
    shown = axes.imshow(weights, cmap="Blues", vmin=0.0, vmax=max(float(weights.max()), 1e-9), aspect="auto")
    _label(axes.yaxis, rows)
    _label(axes.xaxis, columns)
    axes.xaxis.tick_top()
    axes.tick_params(axis="x", labelrotation=90)
    axes.set_title(title, fontsize=11, pad=10)
    axes.spines[:].set_color("0.7")
    figure.colorbar(shown, ax=axes, shrink=0.8, pad=0.03).outline.set_visible(False)
    return as_png(figure)


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingInput("matplotlib is not installed; pip install 'transduce[plot]'") from None
    return Figure(figsize=(width, height), dpi=DOTS_PER_INCH, layout="constrained", facecolor="white")


def as_png(figure: Figure) -> bytes:
    """Return the figure as a PNG; a figure made without pyplot uses Agg."""
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def as_svg(figure: Figure) -> bytes:
    """Return the figure as an SVG with text as text; the same figure always gives the same bytes."""
    from matplotlib import rc_context

    file = io.BytesIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "transduce"}):
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def save(path: Path, image: bytes) -> None:
    """Write a picture atomically."""
    if path.suffix.lower() not in ("", ".png"):
        raise SettingsError(f"{path}: must end in .png, the image is a PNG file")
    write_file(path, image)


def printable(piece: str, length: int = LABEL_LENGTH) -> str:
    """Return a label: short, on one line, with boxes for invisible characters."""
    visible = "".join(
        BOX if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") else c for c in piece
    )
    return visible if len(visible) <= length else visible[: length - 1] + "…"


def set_title(axes: Any, text: str, size: float = 10) -> None:
    """Put a text above a panel, on several lines if it is long."""
    from matplotlib.font_manager import FontProperties

    lines = textwrap.wrap(text, TITLE_WIDTH) or [""]
    named = [_text_and_font(printable(line, TITLE_WIDTH)) for line in lines]
    font = FontProperties(fname=named[0][1], size=size)
    axes.set_title("\n".join(line for line, _ in named), fontproperties=font, parse_math=False)


def _label(axis: Any, pieces: Sequence[str]) -> None:
    """Label an axis with the pieces, as many as fit."""
    from matplotlib.font_manager import FontProperties

    stride = -(-len(pieces) // MAX_LABELS)
    places = range(0, len(pieces), stride)
    size = 9 if len(pieces) <= MAX_LABELS // 2 else 7
    named = [_text_and_font(printable(pieces[place])) for place in places]
    axis.set_ticks(places, labels=[text for text, _ in named], parse_math=False, usetex=False)
    axis.set_tick_params(length=0)
    for tick, (_, font) in zip(axis.get_major_ticks(), named, strict=True):
        for label in (tick.label1, tick.label2):
            label.set_fontproperties(FontProperties(fname=font, size=size))


@cache
def _text_and_font(text: str) -> tuple[str, str]:
    """Return the text, with boxes for characters that no font has, and the file of a font for it."""
    for font in _fonts():
        if all(ord(character) in _characters(font) for character in text):
            return text, font
    plain = next(_fonts())
    return "".join(character if ord(character) in _characters(plain) else BOX for character in text), plain


def _fonts() -> Iterator[str]:
    """Yield the font files to try: matplotlib's own first, which covers Latin, Greek, Cyrillic, Arabic and Hebrew."""
    from matplotlib import font_manager

    own = font_manager.findfont(font_manager.FontProperties(family="DejaVu Sans"))
    yield own
    for entry in sorted(
        font_manager.fontManager.ttflist, key=lambda entry: (abs(int(entry.weight) - 400), entry.fname)
    ):
        if entry.fname != own and entry.style == "normal" and not any(name in entry.name for name in UNDRAWABLE):
            yield entry.fname


@cache
def _characters(font: str) -> frozenset[int]:
    """Return the characters of a font; none if it cannot be read."""
    from matplotlib.ft2font import FT2Font

    try:
        return frozenset(FT2Font(font).get_charmap())
    except (RuntimeError, OSError):
        return frozenset()


# Figures of position encodings: the values, and the dot products between positions.

LARGEST = 4096
"""Maximum positions or channels; more than the picture has dots would only blur."""


def encodings(length: int, dim: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the sinusoids of section 3.5 and their dot products.  -> (length, dim), (length, length)."""
    for name, value in (("length", length), ("dim", dim)):
        if not 1 <= value <= LARGEST:
            raise SettingsError(f"{name} = {value} is invalid; give a number from 1 to {LARGEST}")
    signal_TD = sinusoids(length, dim).numpy()
    return signal_TD, signal_TD @ signal_TD.T


def draw_positions(length: int = 100, dim: int = 512) -> bytes:
    """Return a PNG of both pictures side by side.

    Left, each row is the encoding of one position: high frequencies in the first channels, low ones in the last. Right,
    darker cells are larger dot products: they depend on the distance alone, are greatest (dim / 2) on the diagonal, and
    fall off with ripples on both sides of it.
    """
    signal_TD, product_TT = encodings(length, dim)
    figure = new_figure(13.0, 5.6)
    left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
    waves = left.imshow(signal_TD, cmap="RdBu_r", vmin=-1.0, vmax=1.0, aspect="auto", interpolation="nearest")
    left.set(title="Position encodings", xlabel="channel (even: sine, odd: cosine)", ylabel="position")
    figure.colorbar(waves, ax=left, pad=0.02, label="value")
    alike = right.imshow(product_TT, cmap="Blues", interpolation="nearest")
    right.set(title="Dot products between positions", xlabel="position", ylabel="position")
    figure.colorbar(alike, ax=right, pad=0.02, label="dot product")
    for axes in (left, right):
        axes.locator_params(integer=True)
    return as_png(figure)
