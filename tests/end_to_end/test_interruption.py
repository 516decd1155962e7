"""What comes from outside while the program works: signals, readers who go away, full disks, a second process."""

from __future__ import annotations

import contextlib
import os
import pty
import resource
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.cli.example import RECIPE, complaint, snapshot, start
from transduce.cli.main import run
from transduce.cli.progress import PreparationProgress
from transduce.storage.filesystem import locked

PATIENCE = 60.0
"""Seconds until a test gives up waiting."""
LONG = ["updates=130", "validate_every=30", "keep_last=2", "average_checkpoints=2", "decode_examples=0"]
"""A run that lasts long enough to be stopped, whose model is an average of checkpoints."""


def changes(*settings: str) -> list[str]:
    return [word for setting in settings for word in ("--set", f"training.{setting}")]


def wait_until(true: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert process.poll() is None, f"it ended: {process.communicate()}"
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.005)


def ended(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    """Wait for the end; return the exit code and the message of a stop, after checking what was written."""
    out, err = process.communicate(timeout=PATIENCE)
    assert not {b"\x1b"[0], b"\r"[0]} & set(out + err), "control characters do not belong into redirected output"
    return process.returncode, complaint((out.decode(), err.decode()), label="")


def has(path: Path, text: str) -> Callable[[], bool]:
    return lambda: path.exists() and text in path.read_text(encoding="utf-8")


def test_a_run_stopped_twice_ends_as_if_it_never_had_been(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ctrl-C, then SIGTERM, then the end; the weights and the journal are those of an uninterrupted run, bit by bit."""
    assert run(["train", "--recipe", "recipe.toml", *changes(*LONG), "--output", "whole"]) == 0
    capsys.readouterr()

    process = start("train", "--recipe", "recipe.toml", *changes(*LONG), "--output", "stopped")
    journal = place / "stopped/journal.jsonl"
    wait_until(has(journal, '"event": "update"'), process)
    process.send_signal(signal.SIGSTOP)  # it holds its breath, and its folder
    assert run(["train", "--resume", "stopped"]) == 75
    assert "another process" in complaint(capsys.readouterr())
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGCONT)
    code, message = ended(process)
    assert code == 130
    assert message.startswith("stopped at update ") and "`transduce train --resume stopped`" in message

    process = start("train", "--resume", "stopped")
    wait_until(has(journal, '"event": "validation"'), process)
    process.send_signal(signal.SIGTERM)
    assert ended(process)[0] == 143
    assert not (place / "stopped/model").exists()

    assert run(["train", "--resume", "stopped"]) == 0
    for name in ("journal.jsonl", "recipe.toml", "model/model.safetensors", "model/README.md", "model/manifest.json"):
        assert (place / "stopped" / name).read_bytes() == (place / "whole" / name).read_bytes(), name
    assert snapshot(place / "stopped/checkpoints") == snapshot(place / "whole/checkpoints")


def test_resuming_a_run_that_has_ended_changes_nothing(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = snapshot(place / "run")
    assert run(["train", "--resume", "run"]) == 0
    after = snapshot(place / "run")
    assert {name for name in before if before[name] != after[name]} == {"timing.jsonl"}
    assert before.keys() == after.keys()


def test_a_damaged_newest_checkpoint_is_passed_over_with_a_note(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = snapshot(place / "run")
    shutil.rmtree(place / "run/model")
    weights = place / "run/checkpoints/update-00000020/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x7f")
    assert run(["train", "--resume", "run"]) == 0
    notes = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: ") and "resuming" in line]
    assert len(notes) == 1
    assert "update-00000020/model.safetensors: " in notes[0] and "from update 10" in notes[0]
    assert {**snapshot(place / "run"), "timing.jsonl": ""} == {**before, "timing.jsonl": ""}


def test_ctrl_c_before_the_first_update_leaves_nothing(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(progress: PreparationProgress, stage: str, count: int) -> None:
        if stage.startswith("tokenising"):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(PreparationProgress, "show", interrupt)
    assert run(["train", "--recipe", "recipe.toml", "--output", "new/deep/run"]) == 130
    assert complaint(capsys.readouterr(), label="") == "interrupted"
    assert not (place / "new").exists()


@pytest.mark.parametrize(("number", "message"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated")])
def test_prepare_that_is_stopped_leaves_nothing(place: Path, number: signal.Signals, message: str) -> None:
    process = start("prepare", "--source", "-", "--target", "b.txt", "--output", "new", stdin=subprocess.PIPE)
    wait_until(lambda: (place / ".new.writing/work").exists(), process)
    process.send_signal(number)
    assert ended(process) == (128 + number, message)
    assert not [path for path in place.iterdir() if "new" in path.name]


def test_translate_that_is_stopped_leaves_no_half_file_and_no_abort(place: Path) -> None:
    """While it waits for more of standard input: Python itself would abort on the way out."""
    process = start("translate", "run", "--output", "out.txt", stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b"a b\n")  # the first bytes say that these are plain lines
    process.stdin.flush()
    wait_until(lambda: any(path.name.startswith(".out.txt") for path in place.iterdir()), process)
    process.send_signal(signal.SIGINT)
    assert ended(process) == (130, "interrupted")
    assert not [path for path in place.iterdir() if "out" in path.name]


def test_a_closed_pipe_ends_it_quietly(place: Path) -> None:
    process = start("translate", "run", stdin=subprocess.PIPE)
    assert process.stdin and process.stdout and process.stderr
    process.stdin.write(b"a b\n")
    process.stdin.flush()
    assert process.stdout.readline().endswith(b"\n")
    process.stdout.close()
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(b"a b\n" * 2000)
        process.stdin.close()
    assert process.stderr.read() == b""
    assert process.wait(PATIENCE) == 128 + signal.SIGPIPE
    process.stderr.close()


def test_training_goes_on_when_nobody_reads_its_messages(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w", buffering=1) as gone:
        monkeypatch.setattr("sys.stderr", gone)
        assert run(["train", "--recipe", "recipe.toml", "--output", "new"]) == 0
        with pytest.raises(BrokenPipeError):
            gone.write("nobody\n")
        with contextlib.suppress(BrokenPipeError):
            gone.close()
    assert (place / "new/model/manifest.json").exists()


def test_standard_output_on_a_full_disk_is_a_sentence(place: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full to write to; Linux removes this skip")
    with Path("/dev/full").open("wb") as full:
        process = start("prepare", "--source", "a.txt", "--target", "b.txt", "--output", "new", stdout=full)
        assert process.stderr
        message = process.stderr.read().decode()
        process.stderr.close()
    assert process.wait(PATIENCE) == 74
    assert complaint(("", message)) == "error: standard output: No space left on device"


def test_closed_streams_are_no_reason_to_fail(place: Path) -> None:
    command = f"{sys.executable} -m transduce prepare --source a.txt --target b.txt --output new"
    assert subprocess.run(f"{command} <&- >&- 2>&-", shell=True, check=False).returncode == 0
    assert subprocess.run(f"{command}/new <&- >&- 2>&-", shell=True, check=False).returncode == 0


@pytest.fixture
def little_room(place: Path) -> Iterator[None]:
    """No file may grow beyond 9,000 bytes: the system's answer is the same as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (9_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("little_room")
def test_a_full_disk_while_training_leaves_no_half_checkpoint(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "--recipe", "recipe.toml", "--output", "new"]) == 74
    message = complaint(capsys.readouterr())
    assert "update-00000010: " in message and "File too large" in message
    assert list((place / "new/checkpoints").iterdir()) == []


@pytest.mark.usefixtures("little_room")
@pytest.mark.parametrize(
    "command",
    [
        "prepare --source long --target other --output new",
        "train --source long --target other --output new",
        "translate run long --n-best 2 --output new.txt",
        "inspect run a --output new",
        "positions --output new.png",
    ],
)
def test_a_full_disk_is_reported_and_leaves_nothing(
    command: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "long").write_text("".join(f"a b c d e {row}\n" for row in range(600)))  # 8,290 bytes; more come out
    (place / "other").write_bytes((place / "long").read_bytes())
    assert run(command.split()) == 74
    assert "File too large" in complaint(capsys.readouterr())
    assert not [path.name for path in place.iterdir() if "new" in path.name]


def test_a_folder_that_somebody_trains_in_is_busy(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with locked(place / "run", "training"):
        for command in (["--resume", "run"], ["--recipe", "recipe.toml", "--output", "run"]):
            assert run(["train", *command]) == 75
            assert "another process" in complaint(capsys.readouterr())


def test_a_file_without_read_permission_is_an_error(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything; run the tests as another user to remove this skip")
    (place / "a.txt").chmod(0)
    assert run(["translate", "run", "a.txt"]) == 66
    assert "a.txt: " in complaint(capsys.readouterr())


def test_a_terminal_gets_a_live_display_and_has_its_cursor_back_after_ctrl_c(place: Path) -> None:
    (place / "recipe.toml").write_text(RECIPE.replace("updates = 20", "updates = 100000"))
    terminal, end = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    command = ("train", "--recipe", "recipe.toml", "--output", "new")
    process = start(*command, stdin=end, stdout=end, stderr=end, env=environment)
    os.close(end)
    shown, stopped, deadline = b"", False, time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                part = os.read(terminal, 65_536)
            except OSError:  # the other end is closed: it has ended
                break
            shown += part
        if not stopped and b"tokens/s" in shown and b"validation loss" in shown:
            process.send_signal(signal.SIGINT)
            stopped = True
    os.close(terminal)
    assert process.wait(PATIENCE) == 130
    hide, show = b"\x1b[?25l", b"\x1b[?25h"
    assert hide in shown and shown.rindex(show) > shown.rindex(hide)
    assert shown.rindex(b"stopped at update") > shown.rindex(show)
