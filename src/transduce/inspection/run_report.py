"""One page about one run, or about two side by side: curves, samples, settings, events."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transduce.inspection.page import assemble
from transduce.inspection.run_record import LARGEST, Curve, RunRecord
from transduce.inspection.run_tables import check_table, count, flattened, groups, notes, spread, summary, text, words
from transduce.storage.atomic import write_file

MOST_POINTS = 2_000
"""Of one curve; where there are more, each stretch keeps its lowest and its highest."""
MANY_POINTS, MOST_MEANS = 500, 200
"""A curve of more points is drawn pale, with the means of MOST_MEANS stretches over it."""
MOST_MOMENTS = 200
"""Validations whose samples are shown; where there are more, some evenly spread."""

CHARTS = {
    "loss": (
        "Training loss",
        "Per target token as it is minimised, mean since the last line. Strokes at the foot are skipped updates.",
    ),
    "validation loss": ("Validation loss", "Negative log-likelihood per target token, in nats."),
    "perplexity": ("Validation perplexity", "The exponential of the validation loss."),
    "accuracy": ("Token accuracy", "Share of validation tokens predicted correctly, given the true ones before."),
    "bits_per_byte": ("Bits per byte", "Size of the validation text if the model compressed it."),
    "bleu": ("BLEU", "Of the translations of validation sources."),
    "chrf": ("chrF", "Of the translations of validation sources."),
    "learning rate": ("Learning rate", "As the schedule sets it."),
    "gradient norm": ("Gradient norm", "Before clipping, of the update that was logged."),
    "speed": (
        "Target tokens per second",
        "Between two lines of the log; validations and saves between them count too.",
    ),
    "memory": ("Memory (MiB)", "Resident in the training process when the line was written."),
}
"""Title and explanation of each curve; other scores of translations go in after chrF, under their own names."""

LOGARITHMIC = {"loss", "validation loss", "perplexity", "gradient norm", "learning rate"}
NOISY = {"loss", "gradient norm", "speed"}
FROM_ZERO = {"speed", "memory", "learning rate"}


def save_report(runs: Sequence[RunRecord], path: Path) -> None:
    """Write the page about one or two runs."""
    write_file(path, page(runs).encode())


def page(runs: Sequence[RunRecord]) -> str:
    """Return the whole page."""
    styles, scripts = ["base.css", "report.css"], ["element.js", "chart.js", "report.js"]
    return assemble("report.html", styles, scripts, content(runs))


def content(runs: Sequence[RunRecord]) -> dict[str, Any]:
    """Return what the page shows, as plain values."""
    shown = [_curves(run) for run in runs]
    return {
        "charts": [_chart(name) for name in _chart_names(shown)],
        "runs": [
            {
                "label": label,
                "curves": {name: _columns(thin(curve)) for name, curve in curves.items() if curve},
                "means": {
                    name: _columns(means(curve))
                    for name, curve in curves.items()
                    if name in NOISY and len(curve) > MANY_POINTS
                },
                "clocks": {"tokens": _columns(thin(run.progress["tokens"])), "hours": _columns(thin(run.times.hours))},
                "skipped": spread([note.update for note in run.skipped if note.update is not None], MOST_POINTS),
                "best": max((check.update for check in run.checks if check.best), default=None),
                "checks": check_table(run),
                "moments": [
                    {"update": check.update, "samples": list(check.samples)}
                    for check in spread([check for check in run.checks if check.samples], MOST_MOMENTS)
                ],
                "notes": notes(run),
            }
            for run, label, curves in zip(runs, labels(runs), shown, strict=True)
        ],
        "summary": groups([summary(run) for run in runs]),
        "recipe": groups([flattened(run.recipe, text) for run in runs]),
        "data": groups([flattened(run.data, count) for run in runs]),
    }


def labels(runs: Sequence[RunRecord]) -> list[str]:
    """Return what to call each run: its folder's name, or the whole path where two have one name."""
    names = [run.folder.resolve().name or str(run.folder) for run in runs]
    return names if len(set(names)) == len(names) else [str(run.folder) for run in runs]


def thin(curve: Curve, most: int = MOST_POINTS) -> Curve:
    """Return at most `most` points: of each stretch the lowest and the highest, so that no spike is lost."""
    if len(curve) <= most:
        return list(curve)
    first, *inner, last = curve
    stretches = (most - 2) // 2
    kept = [first]
    for stretch in range(stretches):
        points = inner[stretch * len(inner) // stretches : (stretch + 1) * len(inner) // stretches]
        kept += sorted({min(points, key=_value), max(points, key=_value)})
    return [*kept, last]


def means(curve: Curve, stretches: int = MOST_MEANS) -> Curve:
    """Return the mean of each stretch of a curve that has more points, at its middle: the trend under the noise."""
    parts = [curve[i * len(curve) // stretches : (i + 1) * len(curve) // stretches] for i in range(stretches)]
    return [(part[len(part) // 2][0], statistics.fmean(map(_value, part))) for part in parts]


def _curves(run: RunRecord) -> dict[str, Curve]:
    """Return every curve of a run, by the name of its chart."""
    checks: dict[str, Curve] = {}
    for check in run.checks:
        for name, value in check.measures.items():
            if value is not None and abs(value) < LARGEST:
                checks.setdefault("validation loss" if name == "loss" else name, []).append((check.update, value))
    return {
        "loss": run.progress["loss"],
        **checks,
        "learning rate": run.progress["learning_rate"],
        "gradient norm": run.progress["gradient_norm"],
        "speed": run.times.speed,
        "memory": [(update, value / 2**20) for update, value in run.times.memory],
    }


def _chart_names(shown: Sequence[Mapping[str, Curve]]) -> list[str]:
    """Return the charts that have a curve, in order."""
    there = {name: None for curves in shown for name, curve in curves.items() if curve}
    known, place = list(CHARTS), list(CHARTS).index("learning rate")
    order = [*known[:place], *(name for name in there if name not in CHARTS), *known[place:]]
    return [name for name in order if name in there]


def _chart(name: str) -> dict[str, Any]:
    is_extra = name.startswith("extra_")
    default = "Of the extra validation pairs." if is_extra else "Of the translations of validation sources."
    title, about = CHARTS.get(name, (words(name).capitalize(), default))
    return {
        "name": name,
        "title": title,
        "about": about,
        "logarithmic": name in LOGARITHMIC,
        "zero": name in FROM_ZERO,
    }


def _columns(curve: Curve) -> list[list[float]]:
    """Return the updates and the values of a curve, six digits of each."""
    return [[update for update, _ in curve], [float(f"{value:.6g}") for _, value in curve]]


def _value(point: tuple[int, float]) -> float:
    return point[1]
