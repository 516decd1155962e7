"""`transduce inspect`: a translation, its likely tokens, a page and a picture."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.example import change_config
from transduce.cli.main import run
from transduce.recipe import read_recipe
from transduce.run import train

RECIPES = Path(__file__).parents[3] / "recipes"


def test_it_prints_the_steps_and_writes_a_page_and_a_picture(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", "run", "a b c", "--output", "look", "--top", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("a b c  →  ")
    assert lines[-2:] == ["page     look.html", "picture  look.png"]
    assert all("←" in line for line in lines[-2 - len(lines[0].split("→")[1].split()) : -2])
    for line in lines[1:-2]:
        if "←" in line:
            continue
        probability, *others = line.split()[1:]
        assert len(others) == 6 and 0 < float(probability) <= 1
        assert [float(value) for value in others[1::2]] == sorted(map(float, others[1::2]), reverse=True)
    assert (place / "look.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert (place / "look.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("options", [["--kind", "encoder"], ["--layer", "1"], ["--layer", "1", "--head", "2"]])
def test_one_head_or_a_mean_can_be_drawn(options: list[str], place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", "run", "a b c", *options]) == 0
    assert (place / "attention.png").exists()


def test_what_is_printed_cannot_steer_the_terminal(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", "run", "a \x1b[2J\u202e b"]) == 0
    shown = capsys.readouterr().out
    assert not {"\x1b", "\r", "\u202e"} & set(shown)
    assert shown.startswith(r"a \x1b[2J\u202e b  →  ")


def test_of_a_long_text_the_first_part_is_inspected_with_a_note(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["inspect", "run", "a b " * 300]) == 0
    shown = capsys.readouterr()
    assert shown.err.startswith("note: ") and "first part" in shown.err
    assert len(shown.out.splitlines()[0].partition("  →  ")[0].split()) == 256


def test_a_model_folder_can_be_looked_into_too(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change_config(notes={})(place / "run/model")
    assert run(["inspect", "run/model", "a"]) == 0


SPOKEN = """
[data]
train = [{task = "copy", size = 50, target_language = "same"}, {task = "reverse", size = 50, target_language = "back"}]
validation_fraction = 0.0

[tokenizer]
kind = "word"
min_frequency = 1

[model]
name = "turing_machine"
hidden_dim = 8
slots = 4
slot_dim = 3

[training]
updates = 1
threads = 1
"""


def test_a_turing_machine_of_several_languages_is_asked_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("recipe.toml").write_text(SPOKEN, encoding="utf-8")
    train("recipe.toml", "run")
    for language in ("same", "back"):
        assert run(["inspect", "run", "a b c", "--target-language", language]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in lines[1:5]] == [f">>{language}<<", "a", "b", "c"]


def test_of_a_turing_machine_the_memory_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    recipe, _ = read_recipe(RECIPES / "copy-ntm.toml", ["training.updates=1", "data.train.size=50", "model.slots=5"])
    train(recipe, tmp_path / "run")
    assert run(["inspect", "run", "a b c", "--output", "look"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("a b c  →  ") and lines[-1] == "picture  look.png"
    assert [line.split()[0] for line in lines[1:4]] == ["a", "b", "c"]
    assert all(line.split()[1::2] == ["write", "read"] for line in lines[1:-1])
    assert Path("look.png").read_bytes().startswith(b"\x89PNG")
    assert run(["inspect", "run", "a b c", "--layer", "1"]) == 2
    assert "--layer has no effect" in capsys.readouterr().err
