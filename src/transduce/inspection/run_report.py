"""One page about one run, or about two side by side: curves, samples, settings, events."""

from __future__ import annotations

import reprlib
import statistics
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from transduce.inspection.page import saved_page
from transduce.inspection.run_record import LARGEST, Curve, Note, RunRecord, Times
from transduce.storage.atomic import write_file

MOST_POINTS = 2_000
"""Maximum points per curve; of more, each interval keeps its lowest and its highest."""
MANY_POINTS, MOST_MEANS = 500, 200
"""A curve of more than MANY_POINTS is drawn pale, under the means of MOST_MEANS intervals."""
MOST_MOMENTS = 200
"""Maximum validations with samples; of more, an even selection is shown."""

CHARTS = {
    "loss": (
        "Training loss",
        "Per target token as it is minimised, mean since the last line. Strokes at the bottom are skipped updates.",
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
    names = labels(runs)
    title = f"Training run: {names[0]}" if len(names) == 1 else f"Training runs: {' against '.join(names)}"
    return saved_page("run", content(runs), title)


def content(runs: Sequence[RunRecord]) -> dict[str, Any]:
    """Return the content of the page as JSON values."""
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
    """Return a label for each run: its folder's name, or the whole path if two names are equal."""
    names = [run.folder.resolve().name or str(run.folder) for run in runs]
    return names if len(set(names)) == len(names) else [str(run.folder) for run in runs]


def thin(curve: Curve, most: int = MOST_POINTS) -> Curve:
    """Return at most `most` points: of each interval the lowest and the highest, so that no spike is lost."""
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
    """Return the mean of each interval of a long curve, at its middle: the trend under the noise."""
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


# A run in tables: progress, scores, events and settings, alone or next to another run.

MOST_ROWS = 2_000
"""Maximum rows of validations; of more, an even selection is shown."""
MOST_NOTES = 500
MOST_SHOWN = 17
"""Characters of a fingerprint's entry; a hash of 64 is too long to read."""
MOST_DETAIL = 500
"""Maximum characters of a note."""

Item = TypeVar("Item")
Values = dict[str, str]
"""Values as text, by name."""

_BRIEF = reprlib.Repr()
_BRIEF.maxlist = _BRIEF.maxdict = _BRIEF.maxtuple = 20
_BRIEF.maxstring = _BRIEF.maxother = _BRIEF.maxlong = 200


def state(run: RunRecord) -> Values:
    """Return the progress of the run."""
    training = (run.recipe or {}).get("training")
    planned = training.get("updates") if isinstance(training, dict) else None
    values = {
        "state": _ending(run),
        "updates": f"{run.updates:,} of {planned:,}" if isinstance(planned, int) else f"{run.updates:,}",
    }
    if run.progress["epoch"]:
        values["epochs started"] = f"{run.progress['epoch'][-1][1] + 1:,.0f}"
    if run.progress["tokens"]:
        values["target tokens trained on"] = f"{run.progress['tokens'][-1][1]:,.0f}"
    resumed = len(run.times.resumed)
    return {**values, "skipped updates": f"{len(run.skipped):,}", "times resumed": f"{resumed:,}"}


def _ending(run: RunRecord) -> str:
    if run.finished:
        return "finished"
    if run.final is not None:
        return "stopped before its end, with a model made from its checkpoints; can be resumed"
    return "not finished: still running, or interrupted"


def summary(run: RunRecord) -> dict[str, Values]:
    """Return the summary of a run: progress, scores, time and memory."""
    best = next((check for check in reversed(run.checks) if check.best), None)
    worth = {} if best is None else {"update": best.update, **best.measures}
    final = {name: value for name, value in (run.final or {}).items() if name != "event"}
    began = {words(name): _cut(text(value), MOST_SHOWN) for name, value in run.began.items() if name != "event"}
    return {
        "Progress": state(run),
        "Best validation": {words(name): measure(name, value) for name, value in worth.items()},
        "Final model": {words(name): measure(name, value) for name, value in final.items()},
        "Machine": {**_times(run.times), **began},
    }


def _times(times: Times) -> Values:
    values = {}
    if times.seconds:
        hours, seconds = divmod(round(times.seconds), 3600)
        values["training time"] = f"{hours:,} h {seconds // 60:02} min {seconds % 60:02} s"
    if times.speed:
        values["target tokens per second"] = f"{statistics.median(speed for _, speed in times.speed):,.0f} (median)"
    if times.memory:
        values["largest memory"] = f"{max(memory for _, memory in times.memory) / 2**20:,.0f} MiB"
    if times.last_written is not None and 0 <= times.last_written < 2**35:
        values["last line written"] = f"{datetime.fromtimestamp(times.last_written, UTC):%Y-%m-%d %H:%M:%S} UTC"
    return values


def flattened(table: Mapping[str, Any] | None, write: Callable[[Any], str]) -> dict[str, Values]:
    """Return the values of a nested table as text, by top-level table; without lists of tables."""
    found_in: dict[str, Values] = {}
    for name, value in (table or {}).items():
        inside = isinstance(value, Mapping)
        values = found_in.setdefault(name if inside else "", {})
        waiting = [(name, value)] if not inside else [*value.items()]
        while waiting:
            place, found = waiting.pop(0)
            if isinstance(found, Mapping):
                waiting[:0] = [(f"{place}.{key}", each) for key, each in found.items()]
            elif not (isinstance(found, list) and any(isinstance(each, Mapping) for each in found)):
                values[place] = write(found)
    return found_in


def check_table(run: RunRecord) -> dict[str, Any]:
    """Return every validation as a row of text."""
    names = list(dict.fromkeys(name for check in run.checks for name in check.measures))
    rows = [
        [
            f"{check.update:,}",
            *(measure(name, check.measures.get(name)) for name in names),
            "best so far" if check.best else "",
        ]
        for check in spread(run.checks, MOST_ROWS)
    ]
    return {"names": ["update", *map(words, names), ""], "rows": rows}


def notes(run: RunRecord) -> dict[str, Any]:
    """Return the latest events, and the number of earlier ones."""
    happened: list[Note] = sorted([*run.skipped, *run.notes, *run.times.resumed], key=lambda note: note.update or 0)
    rows = [
        ["" if note.update is None else f"{note.update:,}", note.event, _cut(note.detail, MOST_DETAIL)]
        for note in happened
    ]
    return {"rows": rows[-MOST_NOTES:], "earlier": max(0, len(rows) - MOST_NOTES)}


def spread(items: Sequence[Item], most: int) -> list[Item]:
    """Return at most `most` items, evenly spread, with the first and the last."""
    if len(items) <= most:
        return list(items)
    return [items[place * (len(items) - 1) // (most - 1)] for place in range(most)]


def groups(tables: Sequence[Mapping[str, Values]]) -> list[dict[str, Any]]:
    """Return the tables of several runs side by side, group by group."""
    titles = dict.fromkeys(title for table in tables for title in table)
    return [
        {"title": title, "rows": _side_by_side([table.get(title, {}) for table in tables])}
        for title in titles
        if any(table.get(title) for table in tables)
    ]


def _side_by_side(tables: Sequence[Values]) -> list[list[str | None]]:
    """Return rows of a name and its value in each table."""
    names = dict.fromkeys(name for table in tables for name in table)
    return [[name, *(table.get(name) for table in tables)] for name in names]


def _cut(long: str, most: int) -> str:
    return long if len(long) <= most else long[: most - 1] + "…"


def words(name: str) -> str:
    """Return `word_error_rate` as words."""
    return name.replace("_", " ")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def text(value: Any) -> str:
    """Format a setting as in the recipe, or nearly so."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    return _BRIEF.repr(value)


NOT_RATES = {"loss", "perplexity", "bits_per_byte", "bleu", "chrf"}
"""Scores that are not shares of something; all others are percentages, as in the terminal."""


def measure(name: str, value: Any) -> str:
    """Format a score by its name: a rate as a percentage; updates as a list."""
    if isinstance(value, float) and name.removeprefix("extra_") not in NOT_RATES:
        return f"{100 * value:.2f} %"
    if isinstance(value, list):
        return ", ".join(map(count, value))
    return count(value)


def count(value: Any) -> str:
    """Format a measured value: with thousands separators, or with four significant digits."""
    if value is None or isinstance(value, float):
        return _number(value)
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else text(value)
