"""The entry point: commands are found, help is quick and readable, errors are one line whatever is in them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.cli.example import complaint
from transduce import __version__
from transduce.cli import main
from transduce.cli.main import LONGEST_MESSAGE, NAMES, run
from transduce.cli.options import _SEARCH_OPTIONS
from transduce.cli.terminal import visible
from transduce.cli.translate import command as translate
from transduce.errors import DataError
from transduce.inference.search.options import SearchOptions
from transduce.training.interruption import Interrupted


def fail_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `transduce positions` raise this."""

    def raise_it(*_: object) -> None:
        raise error

    monkeypatch.setattr("transduce.inspection.figure.draw_positions", raise_it)


def test_every_command_has_help_with_groups_and_examples(capsys: pytest.CaptureFixture[str]) -> None:
    for name in NAMES:
        assert run([name, "--help"]) == 0
        shown = capsys.readouterr()
        assert shown.out.startswith(f"Usage: transduce {name}") and shown.err == ""
        assert "General options:\n  -q, --quiet" in shown.out
        assert f"Examples:\n  transduce {name}" in shown.out or f"| transduce {name}" in shown.out


def test_help_fits_the_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in (80, 120):
        monkeypatch.setenv("COLUMNS", str(columns))
        for name in NAMES:
            run([name, "--help"])
            assert max(map(len, capsys.readouterr().out.splitlines())) <= columns, name


def test_defaults_in_the_help_of_search_options_are_those_of_the_settings() -> None:
    named = {option: re.search(r"\(default: (.*)\)", text) for option, _, _, text in _SEARCH_OPTIONS}
    shown = {option[2:].replace("-", "_"): found[1] for option, found in named.items() if found}
    fields = SearchOptions.model_fields
    assert shown and all(str(fields[name].default) == value for name, value in shown.items())
    assert "(default: 4)" in str(next(p.help for p in translate.params if p.name == "beam_size"))
    assert fields["beam_size"].default == 4 and fields["temperature"].default == 1.0


def test_quiet_silences_notes_and_verbose_adds_them(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty.txt").write_text("\na b\n")
    errors = {}
    for option in ("--quiet", None, "--verbose"):
        assert run(["translate", "run", "empty.txt", "--greedy", *([option] if option else [])]) == 0
        shown = capsys.readouterr()
        assert shown.out.count("\n") == 2
        errors[option] = shown.err
    assert errors["--quiet"] == "" and "empty lines: 1" in str(errors[None])
    assert "finished in " in errors["--verbose"] and "finished in " not in str(errors[None])
    assert run(["translate", "run", "none.txt", "-q"]) == 66
    assert "none.txt" in complaint(capsys.readouterr())
    assert run(["train", "--recipe", "recipe.toml", "--output", "silent", "-q"]) == 0
    assert capsys.readouterr() == ("silent\n", "")


def test_options_and_commands_are_completed() -> None:
    for words, expected in (("transduce pre", "predict"), ("transduce train --validation-p", "--validation-path")):
        environment = {**os.environ, "_TRANSDUCE_COMPLETE": "bash_complete", "COMP_WORDS": words}
        environment["COMP_CWORD"] = str(words.count(" "))
        code = "from transduce.cli.main import transduce; transduce(prog_name='transduce')"
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
        )
        assert f"plain,{expected}\n" in done.stdout


def test_help_lists_every_command_and_loads_nothing_heavy() -> None:
    code = (
        "import sys; from transduce.cli.main import run, NAMES\n"
        "for name in [*NAMES, '']: run([*filter(None, [name]), '--help'])\n"
        "assert not {'torch', 'numpy', 'rich', 'tokenizers'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert all(f"  {name}  " in done.stdout for name in NAMES)


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
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
    expected_message = complaint(capsys.readouterr())
    assert (
        expected_message.startswith("error: beginxxx")
        and expected_message.endswith("xxxend")
        and len(expected_message) < LONGEST_MESSAGE + 20
    )


def test_unexpected_errors_are_one_line_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main, "_discard_output", lambda: None)  # the tests' own output stays open
    for error, code, words in [
        (MemoryError(), 1, "out of memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), 1, "out of memory"),
        (OSError(28, "No space left on device", "runs/x"), 74, "runs/x: No space left on device"),
        (PermissionError(13, "Permission denied", "runs/x"), 66, "runs/x: Permission denied"),
    ]:
        fail_with(error, monkeypatch)
        assert run(["positions"]) == code
        assert words in complaint(capsys.readouterr())


def test_a_stop_is_no_error(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for stop, code, words in [
        (KeyboardInterrupt(), 130, "interrupted"),
        (main.Terminated(), 143, "terminated"),
        (Interrupted(15, 7, "runs/x"), 143, "stopped at update 7"),
    ]:
        fail_with(stop, monkeypatch)
        assert run(["positions"]) == code
        assert complaint(capsys.readouterr(), label="").startswith(words)


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
    assert "error: größe.tsv: " in done.stderr.decode("utf-8")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["translate", "file.txt"], "file.txt: is a file"),
        (["translate", "downloaded"], "transduce import downloaded"),
        (
            ["train", "--path", "p.tsv", "--text", "file.txt", "--output", "run"],
            "pairs (--path) or plain text (--text)",
        ),
        (["prepare", "--recipe", "text.toml", "--output", "out"], "set validation_fraction"),
        (["export", "downloaded"], "Choose from: ctranslate2, huggingface"),
        (["import", "downloaded", "--output", "out"], "'llava' cannot be imported; supported: "),
    ],
)
def test_an_error_names_the_remedy(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "downloaded").mkdir()
    (tmp_path / "downloaded/config.json").write_text('{"model_type": "llava"}', encoding="utf-8")
    (tmp_path / "file.txt").write_text("a b\n", encoding="utf-8")
    recipe = '[data]\ntrain = {text = "file.txt"}\nvalidation_max_size = 10\n'
    (tmp_path / "text.toml").write_text(recipe, encoding="utf-8")
    assert run(arguments) != 0
    assert words in capsys.readouterr().err


def test_no_garbage_is_collected_before_everything_is_imported_and_then_as_usual() -> None:
    code = (
        "import gc, sys; from transduce.cli import main\n"
        "usual = gc.get_threshold(); main._postpone_collection()\n"
        "before = sum(one['collections'] for one in gc.get_stats())\n"
        "import torch\n"
        "assert sum(one['collections'] for one in gc.get_stats()) == before\n"
        "gc.collect()\n"
        "assert gc.get_threshold() == usual and not gc.callbacks"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["train", "a.de", "a.en"], "unexpected arguments a.de a.en: `transduce train` takes options (see"),
        (["merge", "out", "more"], "unexpected argument more: `transduce merge` takes OUTPUT and options (see"),
    ],
)
def test_surplus_arguments_are_told_what_a_command_takes(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert says in complaint(capsys.readouterr())
