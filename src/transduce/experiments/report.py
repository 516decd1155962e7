"""Files of a finding: the table as Markdown and JSON, the charts as one SVG."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transduce.errors import CannotCreate
from transduce.experiments.finding import Cell, Chart, Finding
from transduce.inspection.figure import as_svg, new_figure
from transduce.storage.atomic import write_file
from transduce.storage.filesystem import create_parents

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKERS = "osD^vXP*"
"""Markers of the lines in a chart, so that they differ without colours, too."""

CHARTS_PER_ROW = 2
"""More than three charts are in rows of this many."""


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[None]:
    """Create the output folder before measuring for minutes; remove a new one if nothing is written."""
    with create_parents(folder / "any", folder):
        if not os.access(folder, os.W_OK | os.X_OK):
            raise CannotCreate(f"{folder}: is not writable; choose another folder")
        yield


def save(finding: Finding, folder: Path, name: str) -> Iterator[Path]:
    """Write the files and yield their paths; the figure, which needs matplotlib, last."""
    numbers = json.dumps(finding.to_json(), ensure_ascii=False, indent=2, allow_nan=False) + "\n"
    for ending, content in (("json", numbers), ("md", markdown(finding)), ("svg", None)):
        path = folder / f"{name}.{ending}"
        write_file(path, draw(finding.charts) if content is None else content.encode())
        yield path


def cell_text(cell: Cell) -> str:
    """Format a cell: 1,024 and 0.0312 and 1.3e-05."""
    if isinstance(cell, str):
        return cell
    return f"{cell:,}" if isinstance(cell, int) else f"{cell:,.0f}" if 1000 <= abs(cell) < 1e6 else f"{cell:.3g}"


def table_text(finding: Finding) -> list[list[str]]:
    """Return the formatted table, header first."""
    return [list(finding.columns), *([cell_text(cell) for cell in row] for row in finding.rows)]


def setting_text(finding: Finding) -> str:
    """Return the sizes on one line."""
    return ", ".join(f"{name} {cell_text(cell)}" for name, cell in finding.setting.items())


def verdict_lines(finding: Finding) -> list[str]:
    """Return the outcome, then the checks that it follows from."""
    checks = [f"{'yes' if check.passed else 'no'}: {check.statement}" for check in finding.checks]
    return [f"The claim {finding.outcome}.", *checks]


def markdown(finding: Finding) -> str:
    """Return the finding as a Markdown section."""
    head, *rows = table_text(finding)
    left = [isinstance(cell, str) for cell in finding.rows[0]]
    lines = [head, ["---" if is_left else "---:" for is_left in left], *rows]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    outcome, *checks = verdict_lines(finding)
    listed = "\n".join(f"- {check}" for check in checks)
    return (
        f"## {finding.title}\n\nClaim: {finding.claim}\n\n{table}\n\nMeasured with {setting_text(finding)}.\n\n"
        f"**{outcome}**\n\n{listed}\n"
    )


def draw(charts: Sequence[Chart]) -> bytes:
    """Return the charts side by side as an SVG."""
    columns = len(charts) if len(charts) <= 3 else CHARTS_PER_ROW
    rows = -(-len(charts) // columns)
    figure = new_figure(6.4 * columns, 4.8 * rows)
    places = [axes for row in figure.subplots(rows, columns, squeeze=False) for axes in row]
    for axes, chart in zip(places, charts, strict=False):
        _draw_chart(axes, chart)
    for axes in places[len(charts) :]:
        axes.remove()
    return as_svg(figure)


def _draw_chart(axes: Axes, chart: Chart) -> None:
    for number, series in enumerate(chart.series):
        marker: dict[str, Any] = {"marker": MARKERS[number % len(MARKERS)], "markersize": 4}
        if series.low:
            below = [y - low for y, low in zip(series.y, series.low, strict=True)]
            above = [high - y for y, high in zip(series.y, series.high, strict=True)]
            marker |= {"yerr": [below, above], "capsize": 2, "elinewidth": 1}
        style = "-" if series.joined else ""
        if series.low or not series.joined:
            axes.errorbar(series.x, series.y, label=series.label, linestyle=style, **marker)
        else:
            axes.plot(series.x, series.y, label=series.label, markevery=max(1, len(series.x) // 12), **marker)
        for name, x, y in zip(series.names, series.x, series.y, strict=False):
            axes.annotate(name, (x, y), xytext=(4, 4), textcoords="offset points", fontsize=7)
    axes.set(title=chart.title, xlabel=chart.x_label, ylabel=chart.y_label)
    axes.set_xscale("log" if chart.log_x else "linear")
    axes.set_yscale("log" if chart.log_y else "linear")
    if chart.y_range is not None:
        axes.set_ylim(*chart.y_range)
    axes.grid(color="0.9")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False)
