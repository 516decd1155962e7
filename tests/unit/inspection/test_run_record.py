"""Reading a run's folder: times that run on over processes, runs that are not whole, damage said with its line."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.inspection.run_example import check, folder_of, moment, update
from transduce.errors import MissingInput, ModelFolderError
from transduce.inspection.run_record import Line, read_run, read_times
from transduce.inspection.run_report import state


def curves_of(*timing: dict[str, Any]) -> Any:
    return read_times(Line(Path("timing.jsonl"), at, line) for at, line in enumerate(timing, start=1))


def test_a_resumed_run_counts_on_and_never_runs_backwards() -> None:
    times = curves_of(
        moment(10, 100.0),
        moment(20, 150.0),
        moment(30, 250.0),
        {"event": "resumed", "seconds": 0.5, "at": 1.79e9, "update": 20},
        moment(30, 26.5),
        moment(40, 52.5),
    )
    assert times.speed == [(20, 130 / 50), (40, 130 / 26)]
    assert times.hours == [(n, pytest.approx(s / 3600)) for n, s in ((10, 100), (20, 150), (30, 276.5), (40, 302.5))]
    assert times.seconds == 302.5
    assert [note.update for note in times.resumed] == [20]


def test_a_run_killed_before_its_first_checkpoint_begins_again() -> None:
    times = curves_of(moment(10, 5.0), moment(20, 9.0), moment(10, 9.5), moment(20, 10.5))
    assert times.speed == [(20, 130.0)]
    assert [update for update, _ in times.hours] == [10, 20] and times.seconds == 19.5


def test_a_run_that_went_back_by_itself_counts_its_seconds_once() -> None:
    gone_back = {"event": "rolled_back", "seconds": 9.5, "at": 1.79e9, "update": 10}
    times = curves_of(moment(10, 5.0), moment(20, 9.0), gone_back, moment(20, 12.0), moment(30, 14.0))
    assert times.hours == [(n, pytest.approx(s / 3600)) for n, s in ((10, 5.0), (20, 12.0), (30, 14.0))]
    assert times.seconds == 14.0 and times.speed == [(30, 65.0)] and not times.resumed


def test_lines_of_one_moment_have_no_speed() -> None:
    assert curves_of(moment(10, 5.0), moment(20, 5.0), moment(30, 7.0)).speed == [(30, 65.0)]


@given(
    st.lists(
        st.lists(st.tuples(st.integers(1, 9), st.floats(0, 1e6), st.integers(0, 10**6)), min_size=1, max_size=8),
        max_size=4,
    )
)
@settings(max_examples=50, deadline=None)
def test_no_history_of_processes_gives_a_negative_speed_or_time(history: list[list[tuple[int, float, int]]]) -> None:
    lines: list[dict[str, Any]] = []
    reached = 0
    for process in history:
        lines.append({"event": "resumed", "seconds": 0.0, "update": reached // 2})
        reached, seconds, tokens = reached // 2, 0.0, reached // 2
        for step, took, learnt in process:
            reached, seconds, tokens = reached + step, seconds + took, tokens + learnt
            lines.append({"event": "update", "seconds": seconds, "update": reached, "tokens": tokens})
    times = curves_of(*lines)
    assert all(value >= 0 for _, value in times.speed)
    hours = [value for _, value in times.hours]
    assert hours == sorted(hours)
    for curve in (times.hours, times.speed):
        assert [place for place, _ in curve] == sorted({place for place, _ in curve})


def test_a_run_without_validation_pairs_is_finished_when_its_last_process_ended(tmp_path: Path) -> None:
    ended = {"event": "ended", "seconds": 2.0, "at": 1.79e9, "update": 2}
    resumed = {"event": "resumed", "seconds": 0.1, "at": 1.79e9, "update": 2}
    for timing, finished in (([moment(2, 1.0)], False), ([moment(2, 1.0), ended], True), ([ended, resumed], False)):
        assert read_run(folder_of(tmp_path, [update(2)], timing)).finished is finished


def test_a_stopped_run_with_a_model_is_not_finished_and_its_updates_are_all_counted(tmp_path: Path) -> None:
    resumed = {"event": "resumed", "seconds": 0.1, "at": 1.79e9, "update": 33}
    final = {"event": "final", "updates": [30], "loss": 1.0}
    found = read_run(folder_of(tmp_path, [update(30), final], [moment(30, 1.0), resumed]))
    assert (found.finished, found.updates) == (False, 33)
    assert state(found)["state"].startswith("stopped before its end, with a model")


def test_a_way_that_was_given_up_is_not_shown(tmp_path: Path) -> None:
    back = {"event": "rolled_back", "update": 35, "to": 20}
    lost = {"event": "skipped", "update": 34, "loss": "nan", "norm": "nan"}
    lines = [update(20), update(30), lost, update(35), back, update(21), update(23)]
    found = read_run(folder_of(tmp_path, lines, []))
    assert [place for place, _ in found.progress["loss"]] == [20, 21, 23]
    assert (found.updates, found.skipped) == (23, ())
    assert [note.event for note in found.notes] == ["rolled_back"]


def test_a_folder_without_a_journal_is_rejected_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ModelFolderError, match=r"is not a run \(no journal.jsonl\)"):
        read_run(tmp_path)
    with pytest.raises(MissingInput, match="no such folder"):
        read_run(tmp_path / "nowhere")
    (tmp_path / "journal.jsonl").mkdir()
    with pytest.raises(MissingInput, match="cannot be read"):
        read_run(tmp_path)


@pytest.mark.parametrize("name", ["journal", "timing"])
@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"",
        b"\x00\x00",
        b"\xff",
        b"[1]",
        b'{"update": 3}',
        b'{"event": 5}',
        b"[" * 100_000,
        b'{"event": "update", "update": "3", "seconds": 1}',
        b'{"event": "update", "update": true, "seconds": 1}',
        b'{"event": "update", "update": -1, "seconds": 1}',
        b'{"event": "update", "update": 3, "seconds": 1, "tokens": "many"}',
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, name: str, line: bytes) -> None:
    folder_of(tmp_path, [update(1), update(2)], [moment(1, 1.0), moment(2, 2.0)])
    path = tmp_path / f"{name}.jsonl"
    first, second, _ = path.read_bytes().split(b"\n")
    path.write_bytes(first + b"\n" + line + b"\n" + second + b"\n")
    with pytest.raises(ModelFolderError, match=re.escape(f"{path}:2: ")):
        read_run(tmp_path)


@pytest.mark.parametrize("samples", ["abc", [["a", "b"]], [["a", "b", 3]], [5], {"a": 1}])
def test_samples_that_are_no_texts_are_damage(tmp_path: Path, samples: Any) -> None:
    folder_of(tmp_path, [update(1), check(2, 1.0, True, samples=samples)])
    with pytest.raises(ModelFolderError, match=r"journal.jsonl:2: 'samples'"):
        read_run(tmp_path)


@pytest.mark.parametrize("seconds", [None, -1.0, math.nan, math.inf, 1e300])
def test_times_that_are_none_are_damage(seconds: float | None) -> None:
    with pytest.raises(ModelFolderError, match=r"timing.jsonl:1: 'seconds' is not a time"):
        curves_of({"event": "update", "update": 1, "seconds": seconds})


@pytest.mark.parametrize("content", [b"", b"\x89PNG\x00\xff binary"])
def test_an_ended_run_with_an_empty_or_binary_journal_is_not_finished(tmp_path: Path, content: bytes) -> None:
    folder = folder_of(tmp_path / "run", [], [moment(3, 1.0), {**moment(3, 2.0), "event": "ended"}])
    (folder / "journal.jsonl").write_bytes(content)
    with pytest.raises(ModelFolderError, match=r"journal\.jsonl"):
        read_run(folder)
