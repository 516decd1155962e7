"""A translation of a file that real signals stop, on a terminal and elsewhere, and a second process beside it."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.end_to_end.test_bulk import left
from tests.end_to_end.test_interruption import PATIENCE, wait_until
from tests.unit.cli.example import complaint, start
from transduce.cli.main import run


def many(place: Path, count: int) -> None:
    (place / "x.txt").write_text("".join(f"{'a b c d e f g '[: 2 * (n % 7) + 1]}\n" for n in range(count)))


def has_begun(place: Path) -> bool:
    note = place / "out.txt.progress.json"
    return note.exists() and json.loads(note.read_text())["done"]["segments"] > 0


def ended(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    return process.wait(PATIENCE), process.communicate()[1].decode()


def test_real_signals_and_a_second_process(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Stopped three times, once without a chance to say goodbye; the end is as if nothing had happened."""
    many(place, 6_000)
    command = ["translate", "run", "x.txt", "--output", "out.txt", "--engine", "torch", "--beam-size", "3"]
    done = 0
    for number, code in ((signal.SIGKILL, -9), (signal.SIGINT, 130), (signal.SIGTERM, 143)):
        process = start(*command)
        wait_until(lambda: has_begun(place) and _segments(place) > done, process)  # noqa: B023
        if number == signal.SIGINT:
            process.send_signal(signal.SIGSTOP)  # it holds its breath, and its output
            assert run(command) == 75
            assert "out.txt: another process is writing it; wait for it to end" in complaint(capsys.readouterr())
            process.send_signal(signal.SIGCONT)
        process.send_signal(number)
        found, message = ended(process)
        assert found == code
        assert ("resumed at line" in message) is (done > 0)
        if number != signal.SIGKILL:
            assert message.splitlines()[-2].startswith("note: the translations so far are in out.txt.part")
        done = _segments(place)
        assert not (place / "out.txt").exists()
    assert run(command) == 0
    assert f"resumed at line {done + 1:,}\n" in capsys.readouterr().err
    stopped = (place / "out.txt").read_bytes()
    assert left(place) == {"out.txt"}
    assert run(command) == 0
    assert (place / "out.txt").read_bytes() == stopped
    assert stopped.count(b"\n") == 6_000


def _segments(place: Path) -> int:
    return int(json.loads((place / "out.txt.progress.json").read_text())["done"]["segments"])


def test_a_terminal_shows_how_far_it_is_and_has_its_cursor_back_after_ctrl_c(place: Path) -> None:
    many(place, 60_000)
    terminal, end = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    process = start(
        *("translate", "run", "x.txt", "--output", "out.txt", "--engine", "torch", "--threads", "1"),
        stdin=end,
        stdout=end,
        stderr=end,
        env=environment,
    )
    os.close(end)
    shown, stopped, deadline = b"", False, time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                shown += os.read(terminal, 65_536)
            except OSError:  # the other end is closed: it has ended
                break
        if not stopped and b"lines/s" in shown:
            process.send_signal(signal.SIGINT)
            stopped = True
    os.close(terminal)
    assert process.wait(PATIENCE) == 130
    assert shown.rindex(b"\x1b[?25h") > shown.rindex(b"\x1b[?25l")
    assert b" left" in shown and b"translations so far are in out.txt.part" in shown
