"""What the documents tell a user to type exists and is accepted; the quick commands are run."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import click
import pytest
from torch.distributed.run import get_args_parser

from tests.documents.markdown import DOCUMENTS, ROOT, blocks, commands, name
from transduce.cli.main import run
from transduce.cli.main import transduce as program

README = ROOT / "README.md"
INSPECT, TRAIN = ROOT / "docs/how-to/inspect.md", ROOT / "docs/how-to/train.md"
CONTEXT = program.make_context("transduce", [], resilient_parsing=True)
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
SHOWN = [(name(path), words) for path in DOCUMENTS for words in commands(path)]
"""(document, command) of every shell block of every document."""


def own(words: list[str]) -> list[str]:
    """`.venv/bin/transduce` and `transduce` are one program, and so is what `torchrun` starts."""
    if words[0] != "torchrun":
        return [words[0].removeprefix(".venv/bin/"), *words[1:]]
    options = get_args_parser().parse_args(words[1:])
    assert options.module
    return [options.training_script, *options.training_script_args]


def test_the_first_screen_has_the_two_commands_and_a_picture() -> None:
    screen = README.read_text(encoding="utf-8").splitlines()[:24]
    assert {"make demo", "make test"} <= {line.partition("#")[0].strip() for line in screen}
    (picture,) = re.findall(r"!\[[^]]+\]\(([^)]+)\)", "\n".join(screen))
    assert (ROOT / picture).read_bytes().startswith(b"\x89PNG")


def test_demo_and_test_are_targets_of_the_makefile() -> None:
    assert {"demo", "test"} <= TARGETS


def test_every_command_of_the_documents_exists_and_takes_what_it_is_given() -> None:
    assert len(SHOWN) > 100
    faults = [f"{page}: {' '.join(words)}: {fault}" for page, words in SHOWN if (fault := fault_of(words))]
    assert faults == []


def fault_of(words: list[str]) -> str | None:
    try:
        check(words)
    except (click.ClickException, AssertionError) as error:
        return str(error)
    return None


def check(words: list[str]) -> None:
    """Raise unless a command exists and takes these options and arguments."""
    program_name, *arguments = own(words)
    if program_name == "transduce":
        verb, *options = arguments
        command = command_of(verb)
        command.make_context(verb, options)  # raises when an option or argument is unknown or missing
    elif program_name == "make":
        assert set(arguments) <= TARGETS
    elif program_name == "pip":
        extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
        assert {extra for words in re.findall(r"\[(.*)\]", " ".join(arguments)) for extra in words.split(",")} <= extras
    elif program_name in ("python", "pytest"):
        assert (ROOT / arguments[0]).exists()
    elif program_name in ("sbatch", "kubectl"):
        (script,) = [word for word in arguments if word.startswith("deploy/")]
        assert (ROOT / script).exists()
    else:  # test_serving_guide.py runs the calls of curl
        assert program_name in ("cat", "curl", "echo", "openssl", "printf"), "say in this test how to check it"


def command_of(verb: str) -> click.Command:
    command = program.get_command(CONTEXT, verb)
    assert command is not None, f"there is no command {verb}"
    return command


def test_every_command_has_a_guide_and_a_help_page(capsys: pytest.CaptureFixture[str]) -> None:
    guides = {words[1] for page, words in SHOWN if "reference" not in page and own(words)[0] == "transduce"}
    for verb in program.list_commands(CONTEXT):
        assert verb in guides or verb == "demo", f"no guide shows {verb}"
        assert run([verb, "--help"]) == 0
        assert f"Usage: transduce {verb}" in capsys.readouterr().out


def test_cost_prints_what_the_guide_says(capsys: pytest.CaptureFixture[str]) -> None:
    (words,) = [words for words in commands(INSPECT) if words[:2] == ["transduce", "cost"]]
    (shown,) = [block for block in blocks(INSPECT, "text") if block.startswith("parameters\n")]
    assert run(words[1:]) == 0
    assert capsys.readouterr().out.startswith(shown)
    assert run([*words[1:], "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["parameters"] == 63_045_632
    assert "63,045,632" in shown


def test_a_dry_run_gives_the_recipe_that_the_guide_promises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for side, words in (("de", "eins zwei drei"), ("en", "one two three")):
        Path(f"train.{side}").write_text("".join(f"{word}\n" for word in words.split()), encoding="utf-8")
    (dry,) = [words for words in commands(TRAIN) if "--dry-run" in words]
    assert run(dry[1:]) == 0
    first = capsys.readouterr()
    assert first.err.startswith("chosen: 3 training pairs\n")
    Path("recipe.toml").write_text(first.out, encoding="utf-8")
    assert run(["train", "--recipe", "recipe.toml", "--dry-run"]) == 0
    again = capsys.readouterr()
    assert (again.out, again.err) == (first.out, "")


def test_positions_draws_what_the_guide_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra plot: pip install 'transduce[plot]' removes this skip")
    monkeypatch.chdir(tmp_path)
    (words,) = [words for words in commands(INSPECT) if words[:2] == ["transduce", "positions"]]
    assert run(words[1:]) == 0
    assert Path("positions.png").stat().st_size > 10_000
