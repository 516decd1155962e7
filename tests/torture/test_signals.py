"""SIGTERM and SIGINT wherever they come: saved at that update, out with 143 or 130, and resumed as if nothing was."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.torture.example import UPDATES, Run, Tally, differences, sizes
from tests.torture.fork_server import ForkServer, Outcome

AT_ONCE, SOON = 1.0, 10.0
"""Seconds that a second signal, and a first, may take to end the program."""

Moment = tuple[str, int]
PREPARING: list[Moment] = [("reading", 1), ("training", 1), ("tokenising", 1)]
UPDATING: list[Moment] = [
    ("gradient", 1),
    ("gradient", 9),
    ("gradient", 14),
    ("optimizer", 1),
    ("optimizer", 6),  # a checkpoint is due
    ("optimizer", 19),
    ("reported", 1),
    ("reported", 12),
    ("reported", 17),
    ("reported", 19),
]
VALIDATING: list[Moment] = [("validating", 1), ("validating", 3), ("translating", 1), ("translating", 2)]
SAVING: list[Moment] = [("saving", number) for number in (1, 9, 17, 24, 61)]
TWICE: list[list[Moment]] = [
    [("gradient", 9), ("gradient", 9)],
    [("validating", 2), ("validating", 2)],
    [("gradient", 9), ("saving", 11)],  # while it saves because of the first
]
FIFTY = [([moment], number) for moment in PREPARING + UPDATING + VALIDATING + SAVING for number in (15, 2)]
FIFTY += [(moments, number) for moments in TWICE for number in (15, 2)]


def name(moments: list[Moment], number: int) -> str:
    return f"{signal.Signals(number).name} " + " then ".join(f"{moment} {call}" for moment, call in moments)


def interrupted(run: Run, note: Path, moments: list[Moment], number: int) -> tuple[Outcome, dict[str, Any], float]:
    """Send signals at moments; return how it ended, what was noted at the last signal, and the seconds since."""
    signals = [{"moment": moment, "call": call, "number": number} for moment, call in moments]
    outcome = run.go(signals=signals, note=str(note), root=str(run.place))
    ended = time.time()
    assert note.exists(), f"the moment never came: {outcome}"
    noted: dict[str, Any] = json.loads(note.read_text())
    return outcome, noted, ended - note.stat().st_mtime


def stopped(run: Run, whole: Run, note: Path, moments: list[Moment], number: int) -> None:
    """One situation, from the signal to the comparison with a run that was never interrupted."""
    outcome, noted, seconds = interrupted(run, note, moments, number)
    assert outcome.code == 128 + number, outcome
    if moments[0] in PREPARING:
        assert not run.folder.exists()
        assert seconds < AT_ONCE
    elif len(moments) == 1:
        assert f"stopped at update {noted['update']}, everything is saved" in outcome.last_line
        assert run.saved() == noted["update"]
        assert seconds < SOON
    else:
        assert outcome.last_line == ("terminated" if number == 15 else "interrupted")
        assert run.saved() <= noted["update"]
        assert not list(run.folder.rglob(".*.writing"))
        assert seconds < AT_ONCE
    end = run.go()
    assert end.code == 0, end
    assert differences(run.result(), whole.result()) == []


def test_there_are_fifty_situations() -> None:
    assert len({name(*situation) for situation in FIFTY}) == 50


@sizes(4, 50)
def test_a_signal_saves_and_ends_and_the_run_goes_on_as_itself(
    size: int, fork_server: ForkServer, whole: Run, place: Path, tally: Tally
) -> None:
    chosen = random.Random(7).sample(FIFTY, size)
    for number, situation in enumerate(chosen):
        run = Run(fork_server, place, f"run-{number}")
        try:
            stopped(run, whole, place / f"note-{number}", *situation)
        except AssertionError as error:
            raise AssertionError(f"{name(*situation)}: {error}") from error
        shutil.rmtree(run.folder)
    tally("situations in which SIGTERM or SIGINT came, saved at that update, resumed bit-identical", size)


@sizes(1, 10)
def test_a_signal_from_outside_at_any_time(
    size: int, fork_server: ForkServer, whole: Run, place: Path, tally: Tally
) -> None:
    draw, seconds = random.Random(11), whole.seconds
    for trial in range(size):
        run, number = Run(fork_server, place, f"run-{trial}"), draw.choice((signal.SIGTERM, signal.SIGINT))
        child = fork_server.start(*run.command)
        time.sleep(draw.uniform(0.1, 0.9) * seconds)
        os.kill(child.pid, number)
        outcome = fork_server.wait(child)
        assert outcome.code in (128 + number, 0), outcome
        if "everything is saved" in outcome.err:
            assert f"stopped at update {run.saved()}," in outcome.last_line
        assert run.go().code == 0
        assert differences(run.result(), whole.result()) == []
    tally("signals from outside at a random time, resumed bit-identical", size)


@pytest.mark.parametrize("number", [15, pytest.param(2, marks=pytest.mark.torture)])
def test_a_signal_while_the_model_is_written_loses_nothing(
    number: int, fork_server: ForkServer, whole: Run, place: Path
) -> None:
    run = Run(fork_server, place)
    outcome, _, seconds = interrupted(run, place / "note", [("finishing", 1)], number)
    assert (outcome.code, run.saved()) == (128 + number, UPDATES)
    assert seconds < AT_ONCE
    assert not (run.folder / "model").exists()
    assert run.go().code == 0
    assert differences(run.result(), whole.result()) == []


@pytest.mark.torture
def test_a_signal_while_a_checkpoint_is_read_loses_nothing(fork_server: ForkServer, whole: Run, place: Path) -> None:
    run = Run(fork_server, place)
    interrupted(run, place / "note", [("reported", 8)], 15)
    outcome, _, _ = interrupted(run, place / "note", [("restoring", 1)], 15)
    assert (outcome.code, run.saved()) == (143, 8)
    assert run.go().code == 0
    assert differences(run.result(), whole.result()) == []
