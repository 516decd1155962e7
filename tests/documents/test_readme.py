"""What the README tells a person to type exists and is accepted; the quick commands are run."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from torch.distributed.run import get_args_parser

from tests.documents.markdown import DOCUMENTS, ROOT, blocks, commands, name
from transduce.cli.main import VERBS, run
from transduce.cli.main import transduce as program

README = ROOT / "README.md"
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
SHOWN = [(name(path), words) for path in DOCUMENTS for words in commands(path)]
"""(document, command) of every shell block of every document."""


def words_of(shown: tuple[str, list[str]]) -> str:
    return f"{shown[0]}: {' '.join(shown[1])}"


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


@pytest.mark.parametrize("shown", SHOWN, ids=words_of)
def test_every_command_of_the_documents_exists_and_takes_what_it_is_given(shown: tuple[str, list[str]]) -> None:
    program_name, *arguments = own(shown[1])
    if program_name == "transduce":
        verb, *options = arguments
        assert verb in VERBS
        command = program.get_command(program.make_context("transduce", [verb]), verb)
        assert command is not None
        command.make_context(verb, options)  # raises when an option or argument is unknown or missing
    elif program_name == "make":
        assert set(arguments) <= TARGETS
    elif program_name == "pip":
        extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
        assert {extra for words in re.findall(r"\[(.*)\]", " ".join(arguments)) for extra in words.split(",")} <= extras
    elif program_name in ("python", "pytest"):
        assert (ROOT / arguments[0]).exists()
    else:
        assert program_name in ("cat", "echo"), f"{program_name}: say in this test how to check it"


@pytest.mark.parametrize("verb", VERBS)
def test_the_readme_shows_every_verb(verb: str) -> None:
    assert f"transduce {verb}" in README.read_text(encoding="utf-8")


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_stands_in_a_document(verb: str) -> None:
    command = program.get_command(program.make_context("transduce", [verb]), verb)
    assert command is not None
    everything = "\n".join(path.read_text(encoding="utf-8") for path in DOCUMENTS)
    options = {name for parameter in command.params for name in parameter.opts if name.startswith("--")}
    assert {name for name in options if not re.search(rf"{name}(?![\w-])", everything)} == set()


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_answers_to_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([verb, "--help"]) == 0
    assert f"Usage: transduce {verb}" in capsys.readouterr().out


def test_cost_prints_what_the_readme_says(capsys: pytest.CaptureFixture[str]) -> None:
    (words,) = [words for words in commands(README) if words[:2] == ["transduce", "cost"]]
    (shown,) = [block for block in blocks(README, "text") if block.startswith("parameters\n")]
    assert run(words[1:]) == 0
    assert capsys.readouterr().out.startswith(shown)
    assert run([*words[1:], "--set", "model.num_layers=2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["parameters"] < 63_045_632


def test_a_dry_run_gives_the_recipe_that_the_readme_promises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for side, words in (("de", "eins zwei drei"), ("en", "one two three")):
        Path(f"train.{side}").write_text("".join(f"{word}\n" for word in words.split()), encoding="utf-8")
    (dry,) = [words for words in commands(README) if "--dry-run" in words]
    assert run(dry[1:]) == 0
    first = capsys.readouterr()
    assert first.err.startswith("chosen: 3 training pairs\n")
    Path("recipe.toml").write_text(first.out, encoding="utf-8")
    assert run(["train", "--recipe", "recipe.toml", "--dry-run"]) == 0
    again = capsys.readouterr()
    assert (again.out, again.err) == (first.out, "")


def test_positions_draws_what_the_readme_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra plot: pip install 'transduce[plot]' removes this skip")
    monkeypatch.chdir(tmp_path)
    (words,) = [words for words in commands(README) if words[:2] == ["transduce", "positions"]]
    assert run(words[1:]) == 0
    assert Path("positions.png").stat().st_size > 10_000
