"""Pictures as SVG: plain text that any browser and notebook shows, without scripts or outside requests.

All text is escaped and short, with boxes for invisible characters; what does not fit is in the tooltip.
"""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from transduce.inspection.figure import printable
from transduce.inspection.page import framed, saved_page
from transduce.storage.atomic import write_file

INK, SOFT, EDGE, PAPER = "#1b1f24", "#5b6470", "#d5dae1", "#ffffff"
BLUE, ORANGE = (8, 81, 156), (179, 88, 6)
"""Ends of the colour scales; safe for colour-blind readers."""
ROW = 22
"""Height of a row of a matrix."""
LETTER = 7.2
"""Width of a letter at size 12."""


class Picture(ABC):
    """What can be drawn: as an SVG file, by itself in a notebook, or as an interactive page."""

    view: ClassVar[str]
    """Name of its view in `page/views/catalog.js`."""
    page_title: ClassVar[str]

    @abstractmethod
    def to_svg(self) -> str:
        """Return a picture as the text of an SVG file."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""

    def to_html(self) -> str:
        """Return a self-contained, interactive page."""
        return saved_page(self.view, self.to_json(), self.page_title)

    def save_html(self, path: str | Path) -> None:
        """Write the page."""
        write_file(Path(path), self.to_html().encode())

    def save_svg(self, path: str | Path) -> None:
        """Write the picture."""
        write_file(Path(path), self.to_svg().encode())

    def _repr_html_(self) -> str:
        """Show the page in a notebook, in a sandboxed frame."""
        return framed(self.to_html(), self.page_title)


@dataclass(frozen=True)
class Cell:
    """One cell of a matrix."""

    text: str = ""
    shade: float = 0.0
    """Colour: from -1 (orange) over 0 (white) to 1 (blue)."""
    hover: str = ""
    """Tooltip."""


def colour(shade: float) -> str:
    """Return the colour of a value from -1 (orange) over 0 (white) to 1 (blue)."""
    strength, end = min(1.0, abs(shade)), BLUE if shade >= 0 else ORANGE
    return "#" + "".join(f"{round(255 + (channel - 255) * strength):02x}" for channel in end)


def text(x: float, y: float, content: str, *, size: int = 12, anchor: str = "start", fill: str = INK) -> str:
    """Return a line of text; `anchor` is start, middle or end."""
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{fill}"'
    return f"<text {place}>{html.escape(printable(content, 400))}</text>"


def box(x: float, y: float, width: float, height: float, fill: str, stroke: str = "none", hover: str = "") -> str:
    """Return a rectangle with a tooltip."""
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="3"'
    tooltip = f"<title>{html.escape(printable(hover, 400))}</title>" if hover else ""
    return f'<rect {place} fill="{fill}" stroke="{stroke}">{tooltip}</rect>'


def line(start: tuple[float, float], end: tuple[float, float], stroke: str, width: float = 1.0) -> str:
    """Return a straight line."""
    (x, y), (to_x, to_y) = start, end
    place = f'x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}"'
    return f'<line {place} stroke="{stroke}" stroke-width="{width:.1f}"/>'


def document(parts: Sequence[str], width: float, height: float, label: str) -> str:
    """Return the text of an SVG file on white paper; `label` describes it to a screen reader."""
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    name = html.escape(printable(label, 400))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" font-family="system-ui, sans-serif">'
    paper = f'<rect width="{width:.0f}" height="{height:.0f}" fill="{PAPER}"/>'
    return "\n".join([head, f"<title>{name}</title>", paper, *parts, "</svg>\n"])


def draw_matrix(
    title: str,
    rows: Sequence[str],
    columns: Sequence[str],
    cells: Sequence[Sequence[Cell]],
    width: float | Sequence[float] = 60.0,
) -> str:
    """Return a picture of labelled rows of cells; `width` is that of each column, or of all."""
    margin = 20 + LETTER * max((len(printable(row)) for row in rows), default=0)
    widths = [float(width)] * len(columns) if isinstance(width, int | float) else list(width)
    edges = [margin, *(margin + sum(widths[: number + 1]) for number in range(len(widths)))]
    parts = [text(8, 18, title, size=13)]
    parts += [
        text(x + own / 2, 42, printable(name, int(own / LETTER)), size=11, anchor="middle", fill=SOFT)
        for x, own, name in zip(edges, widths, columns, strict=False)
    ]
    for number, (name, row) in enumerate(zip(rows, cells, strict=True)):
        y = 50 + ROW * number
        parts.append(text(margin - 6, y + 15, printable(name), anchor="end"))
        for x, own, cell in zip(edges, widths, row, strict=False):
            parts.append(box(x, y, own - 2, ROW - 2, colour(cell.shade), EDGE, cell.hover))
            ink = PAPER if abs(cell.shade) > 0.55 else INK
            shown = printable(cell.text, int(own / LETTER))
            parts.append(text(x + own / 2 - 1, y + 14, shown, size=11, anchor="middle", fill=ink))
    total = max(edges[-1] + 10, 20 + LETTER * len(title))
    return document(parts, total, 60 + ROW * len(rows), title)
