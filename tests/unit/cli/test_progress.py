"""What a person is told about a long translation: share, speed and time left, and nothing about a short one."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from transduce.cli import progress
from transduce.cli.progress import Follower, LiveProgress, PlainProgress, Rate, following
from transduce.cli.terminal import PLAIN_SECONDS
from transduce.inference.ctranslate2.engine import Parallelism


class Clock:
    """Time that passes when a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(progress.time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_speed_and_time_left_are_those_of_the_last_stretch() -> None:
    rate = Rate(10_000)
    rate.begin(1000)
    rate.add(lines=50, read=2000, seconds=10.0)
    assert (rate.share, rate.speed, rate.left()) == (0.2, 5.0, "0:01:20")
    for read in range(2500, 9001, 500):
        rate.add(lines=50, read=read, seconds=1.0)
    assert rate.share == 0.9
    assert 20 < rate.speed < 50
    rate.add(lines=50, read=10_000, seconds=1.0)
    assert (rate.share, rate.left()) == (1.0, "0:00:00")


def test_a_file_that_grows_is_never_more_than_done() -> None:
    rate = Rate(100)
    rate.add(lines=1, read=250, seconds=1.0)
    assert (rate.share, rate.left()) == (1.0, "0:00:00")
    assert Rate(0).left() == "0:00:00"


def test_plain_lines_come_every_few_seconds(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    follower = Follower(PlainProgress(), 1_000_000, "line")
    follower.resumed(4096)
    follower.calibrated(Parallelism(2, 1, 64), ctranslate2=True)
    follower.calibrated(Parallelism(1, 1), ctranslate2=False)
    follower.started(100_000)
    for step in range(1, 9):
        clock.now += PLAIN_SECONDS / 4
        follower.wrote(1000, 100_000 + 50_000 * step)
    assert capsys.readouterr().err.splitlines() == [
        "note: resumed at line 4,097",
        "chosen: 2 workers of 1 thread, batches of 64, the fastest of those tried here",
        "chosen: 1 thread, the fastest of those tried here",
        "30.0 % done, 400 lines/s, 0:00:35 left",
        "50.0 % done, 400 lines/s, 0:00:25 left",
    ]


def test_something_quick_is_not_followed(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    class Never:
        def show(self, share: float, speed: float, left: str) -> None:
            raise AssertionError

    follower = Follower(Never(), 1000, "line")
    clock.now += 60.0  # of loading a model
    follower.started(0)
    clock.now += 1.0
    follower.wrote(10, 1000)
    assert capsys.readouterr().err == ""


def test_a_terminal_has_a_bar_and_is_given_back() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    bar = LiveProgress(console)
    bar.show(0.25, 1234.5, "0:00:59")
    bar.show(0.5, 1234.5, "0:00:39")
    bar.close()
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "50.0 %" in shown and "1,234 lines/s" in shown and "0:00:39 left" in shown
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")
    LiveProgress(console).close()  # never shown


def test_what_has_no_size_has_no_progress(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with following(None, "line") as follower:
        follower.started(0)
        clock.now += 100.0
        follower.wrote(10, 0)
    assert capsys.readouterr().err == ""
