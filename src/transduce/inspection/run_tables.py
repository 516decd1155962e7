"""A run in tables: progress, scores, events and settings, alone or next to another run."""

from __future__ import annotations

import reprlib
import statistics
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from transduce.inspection.run_record import Note, RunRecord, Times

MOST_ROWS = 2_000
"""Of validations; where there are more, some evenly spread."""
MOST_NOTES = 500
MOST_SHOWN = 17
"""Characters of a fingerprint's entry; a hash of 64 is too long to read."""
MOST_DETAIL = 500
"""Characters of what a note says."""

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
        "Best validation": {words(name): count(value) for name, value in worth.items()},
        "Final model": {words(name): count(value) for name, value in final.items()},
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
    """Return the values of a nested table as text, by the top table they stand in; without lists of tables."""
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
            *(_number(check.measures.get(name)) for name in names),
            "best so far" if check.best else "",
        ]
        for check in spread(run.checks, MOST_ROWS)
    ]
    return {"names": ["update", *map(words, names), ""], "rows": rows}


def notes(run: RunRecord) -> dict[str, Any]:
    """Return the newest of what happened, and how much there was before."""
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
    """Return the tables of several runs beside each other, group by group."""
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
    """Return a setting as it was written, or nearly so."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    return _BRIEF.repr(value)


def count(value: Any) -> str:
    """Return a measured value: thousands apart, four digits of a fraction."""
    if value is None or isinstance(value, float):
        return _number(value)
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else text(value)
