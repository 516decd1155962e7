"""The door: verbs are found, help is quick, errors are one sentence whatever is in them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.cli.example import complaint
from transduce import __version__
from transduce.cli import main
from transduce.cli.main import LONGEST_MESSAGE, VERBS, run
from transduce.cli.terminal import visible
from transduce.errors import DataError


def fail_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `transduce positions` raise this."""

    def raise_it(*_: object) -> None:
        raise error

    monkeypatch.setattr("transduce.inspection.figure.draw_positions", raise_it)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_that_begins_as_its_line_does(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([verb, "--help"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith(f"Usage: transduce {verb}") and shown.err == ""


def test_help_lists_every_verb_and_loads_nothing_heavy() -> None:
    code = (
        "import sys; from transduce.cli.main import run, VERBS\n"
        "for verb in [*VERBS, '']: run([*filter(None, [verb]), '--help'])\n"
        "assert not {'torch', 'numpy', 'rich', 'tokenizers'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert all(f"  {verb}  " in done.stdout for verb in VERBS)


def test_without_a_verb_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 2
    assert capsys.readouterr().out.startswith("Usage: transduce")


def test_the_version_says_what_results_depend_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith(f"transduce {__version__}, torch 2.")


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("a\nb", r"a\nb"),
        ("red \x1b[31m", r"red \x1b[31m"),
        ("back\rhome", r"back\rhome"),
        ("\u202eevil", r"\u202eevil"),
        ("line\u2028line", r"line\u2028line"),
        ("half \ud800", r"half \ud800"),
        ("größer 東京 🙂 →", "größer 東京 🙂 →"),
    ],
)
def test_a_sentence_stays_on_one_line_and_cannot_steer_the_terminal(
    message: str, shown: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_with(DataError(message), monkeypatch)
    assert run(["positions"]) == 65
    assert capsys.readouterr().err == f"error: {shown}\n"
    assert visible(message) == shown


def test_a_very_long_sentence_is_cut_in_the_middle(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_with(DataError("begin" + "x" * 10**6 + "end"), monkeypatch)
    assert run(["positions"]) == 65
    said = complaint(capsys.readouterr())
    assert said.startswith("error: beginxxx") and said.endswith("xxxend") and len(said) < LONGEST_MESSAGE + 20


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (MemoryError(), 1, "out of memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), 1, "out of memory"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (main.Terminated(), 143, "terminated"),
        (OSError(28, "No space left on device", "runs/x"), 74, "runs/x: No space left on device"),
        (PermissionError(13, "Permission denied", "runs/x"), 66, "runs/x: Permission denied"),
    ],
)
def test_what_nobody_foresaw_is_a_sentence_too(
    error: BaseException, code: int, says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main, "_forget_output", lambda: None)  # the tests' own output stays open
    fail_with(error, monkeypatch)
    assert run(["positions"]) == code
    assert says in complaint(capsys.readouterr())


def test_a_fault_of_our_own_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(RuntimeError("the shapes do not fit"), monkeypatch)
    with pytest.raises(RuntimeError, match="the shapes do not fit"):
        run(["positions"])


def test_output_is_utf_8_in_every_locale(place: Path) -> None:
    command = [sys.executable, "-m", "transduce", "--help"]
    environment = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    done = subprocess.run(command, env=environment, check=True, capture_output=True)
    assert done.stdout.decode("utf-8").startswith("Usage")
    bad = [sys.executable, "-m", "transduce", "prepare", "--path", "größe.tsv", "--output", "new"]
    done = subprocess.run(bad, env=environment, check=False, capture_output=True)
    assert done.returncode == 66
    assert done.stderr.decode("utf-8").endswith(
        "error: größe.tsv: cannot be read (No such file or directory); check the path\n"
    )
