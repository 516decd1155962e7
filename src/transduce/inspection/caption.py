"""Attention of a captioner, drawn over the picture for each word: as an SVG, or as a PNG like figure 5 of the paper."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import numpy as np
import numpy.typing as npt

from transduce.errors import SettingsError
from transduce.inspection.figure import as_png, new_figure, save, set_title
from transduce.inspection.maps import AttentionMaps, Weights
from transduce.models.ancestors.captioner import Captioner
from transduce.models.interface import AnyTransducer
from transduce.storage.atomic import write_file

PANEL, GAP, LABEL = 160, 12, 22
"""Sizes in SVG units: a picture, the gap between two, and the word above one."""
MAX_COLUMNS = 5
SHADE = 0.8
"""Darkness of a region with no attention."""
FIGURE_COLUMNS, INCHES, LABEL_INCHES = 5, 1.9, 0.35
"""Panels of a row of the PNG, and the size of each."""
FINE = 112
"""Cells of a side of a heat map, interpolated between the regions."""
HEAT, VEIL, MAX_ALPHA = "YlOrRd", 0.55, 0.75
"""Colours of the heat map, how pale the picture under it is, and the opacity at the maximum."""

Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False, repr=False)
class RegionAttention:
    """One caption, and the attention to every region when each of its words was chosen."""

    words: tuple[str, ...]
    """T words; the last is the end token, unless the caption was cut off."""
    weights: Weights
    """(T G G), sum 1 for each word; rows from the top, columns from the left."""
    colours: Sequence[Sequence[str]]
    """Colour of each pixel, (P P) values such as #ff0000."""
    caption: str = ""
    """The generated text."""
    image: Pixels | None = None
    """The picture for drawing, any number of pixels, (… … 3); None takes `colours`."""

    def peak(self, word: int) -> tuple[int, int, float]:
        """Return the region with the most attention for a word: row, column (both from 0) and weight."""
        row, column = np.unravel_index(int(self.weights[word].argmax()), self.weights[word].shape)
        return int(row), int(column), float(self.weights[word][row, column])

    def over_pixels(self, word: int) -> Weights:
        """Return a word's weights spread over the pixels of each region.  -> (P P)."""
        pixels = len(self.colours) // self.weights.shape[1]
        spread: Weights = np.kron(self.weights[word], np.ones((pixels, pixels), dtype=np.float32)) / pixels**2
        return spread

    def to_svg(self) -> str:
        """Return the drawing: the picture, then for each word the picture, darkened where it has no attention."""
        panels = len(self.words) + 1
        columns = min(panels, MAX_COLUMNS)
        width, height = PANEL + GAP, PANEL + GAP + LABEL
        whole_width, whole_height = GAP + columns * width, GAP + -(-panels // columns) * height
        drawn = "".join(
            f'<g transform="translate({GAP + number % columns * width} {GAP + number // columns * height})">{panel}</g>'
            for number, panel in enumerate(self._panels())
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole_width} {whole_height}" '
            f'width="{whole_width}" height="{whole_height}" font-family="sans-serif" font-size="14">'
            f'<title>{_text(self.caption)}</title><rect width="100%" height="100%" fill="#f4f4f4"/>'
            f'<defs><g id="picture" shape-rendering="crispEdges">{self._picture()}</g></defs>{drawn}</svg>\n'
        )

    def save_svg(self, path: str | Path) -> None:
        """Write the drawing."""
        if Path(path).suffix.lower() != ".svg":
            raise SettingsError(f"{path}: must end in .svg, the drawing is an SVG file")
        write_file(Path(path), self.to_svg().encode())

    def to_png(self) -> bytes:
        """Return the figure: the picture, then for each word the picture under a heat map (needs the extra `plot`).

        Each map has its own scale, from no attention to the word's maximum, which is printed above it.
        """
        picture = self._pixels()
        panels, columns = len(self.words) + 1, min(len(self.words) + 1, FIGURE_COLUMNS)
        rows = -(-panels // columns)
        figure = new_figure(INCHES * columns, (INCHES + LABEL_INCHES) * rows)
        grid = figure.subplots(rows, columns, squeeze=False).flatten()
        for number, axes in enumerate(grid):
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_color("0.75")
            if number < panels:
                axes.imshow(picture, extent=(0, 1, 0, 1), interpolation="nearest")
            else:
                axes.set_axis_off()
            if number == 0:
                set_title(axes, self.caption or "(no words)")
            elif number < panels:
                self._draw_heat(axes, number - 1)
        return as_png(figure)

    def save_png(self, path: str | Path) -> None:
        """Write the figure (needs the extra `plot`)."""
        save(Path(path), self.to_png())

    def _draw_heat(self, axes: Any, word: int) -> None:
        """Draw the attention of a word over the picture: pale where there is none, coloured where there is."""
        share_GG = self.weights[word] / max(float(self.weights[word].max()), 1e-9)
        fine = smooth(share_GG, FINE)
        axes.imshow(np.ones((1, 1, 3)), extent=(0, 1, 0, 1), alpha=VEIL)
        shown = axes.imshow(fine, extent=(0, 1, 0, 1), cmap=HEAT, vmin=0.0, vmax=1.0, alpha=MAX_ALPHA * fine)
        shown.set_interpolation("nearest")
        set_title(axes, f"{self.words[word]}  {self.weights[word].max():.2f}")

    def _pixels(self) -> Pixels:
        """Return the picture for drawing."""
        if self.image is not None:
            return self.image
        rows = [[tuple(bytes.fromhex(colour.removeprefix("#"))) for colour in row] for row in self.colours]
        return np.array(rows, dtype=np.uint8)

    def _repr_svg_(self) -> str:
        """Show the drawing in a notebook."""
        return self.to_svg()

    def _panels(self) -> Iterator[str]:
        """Yield the panels: the picture alone, then one for each word."""
        place = f'<use href="#picture" transform="translate(0 {LABEL})"/>'
        yield f'<text y="14" fill="#666">the picture</text>{place}'
        for number, word in enumerate(self.words):
            shade = f'<g transform="translate(0 {LABEL})" shape-rendering="crispEdges">{self._shade(number)}</g>'
            yield f'<text y="14">{_text(word)}</text>{place}{shade}'

    def _picture(self) -> str:
        """Return the picture as SVG; adjacent pixels of one colour are one rectangle."""
        side = PANEL / len(self.colours)
        found = []
        for row, pixels in enumerate(self.colours):
            column = 0
            for colour, run in groupby(pixels):
                length = len(list(run))
                found.append(_rectangle(column * side, row * side, length * side, side, f'fill="{colour}"'))
                column += length
        return "".join(found)

    def _shade(self, word: int) -> str:
        """Return the shading as SVG: the less attention a region has, relative to the maximum, the darker it is."""
        side = PANEL / self.weights.shape[1]
        darkness = SHADE * (1 - self.weights[word] / max(float(self.weights[word].max()), 1e-9))
        return "".join(
            _rectangle(column * side, row * side, side, side, f'fill-opacity="{value:.3f}"')
            for row, values in enumerate(darkness)
            for column, value in enumerate(values)
        )


def region_attention_of(
    model: AnyTransducer, maps: AttentionMaps, colours: Sequence[Sequence[str]], image: Pixels | None = None
) -> RegionAttention:
    """Return the attention of a captioner by region, from its maps by pixel; `image` is the picture for drawing."""
    assert isinstance(model, Captioner)
    grid, pixels = model.config.grid, model.config.region_side
    weight_TS = maps.mean("cross")[:, : model.config.side**2]
    weight_TGG: Weights = weight_TS.reshape(-1, grid, pixels, grid, pixels).sum(axis=(2, 4))
    return RegionAttention(maps.target_pieces[1:], weight_TGG, colours, maps.translation, image)


def smooth(weights: Weights, side: int) -> Weights:
    """Interpolate linearly between the centres of the regions.  (G G) -> (side side)."""
    grid = len(weights)
    place = (np.arange(side) + 0.5) * grid / side - 0.5
    rows = np.stack([np.interp(place, np.arange(grid), column) for column in weights.T], axis=1)
    fine: Weights = np.stack([np.interp(place, np.arange(grid), row) for row in rows]).astype(np.float32)
    return fine


def _rectangle(x: float, y: float, width: float, height: float, rest: str) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" {rest}/>'


def _text(text: str) -> str:
    """Escape text for XML; characters that XML does not allow become boxes."""
    return escape("".join(character if character.isprintable() else "□" for character in text))
