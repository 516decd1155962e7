"""`transduce inspect`: a translation, its likely tokens, a page and a picture."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.unit.cli.example import change_config
from tests.unit.small_language_model import save_writer, writer
from transduce.cli.main import run
from transduce.inference import generator
from transduce.model_folder import ModelFolder, save_model
from transduce.models.catalog import build
from transduce.models.interface import VocabularySizes
from transduce.models.recurrent_lm import RecurrentLmConfig
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


def test_without_matplotlib_there_is_everything_but_the_picture(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert run(["inspect", "run", "a b c", "--output", "look"]) == 0
    out, err = capsys.readouterr()
    assert "look.html" in out and "look.png" not in out and "no picture: matplotlib" in err
    assert Path("look.html").exists() and not Path("look.png").exists()


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


def test_a_turing_machine_of_several_languages_needs_a_target_language(
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


def test_of_a_language_model_the_next_tokens_and_what_is_attended_to_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    save_writer(tmp_path / "author")
    assert run(["inspect", "author", "the cat", "--top", "3", "--max-length", "2", "--layer", "2", "--head", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("the cat  →  ")
    assert len(lines[1].split()) == len(lines[2].split()) == 2 + 2 * 3  # two tokens, each with three candidates
    table = lines.index("  next token    probability    logit")
    chances = [float(line.split()[-2]) for line in lines[table + 1 : table + 4]]
    assert chances == sorted(chances, reverse=True)
    assert any(line.startswith("  attends to") for line in lines)
    assert lines[-2:] == ["page     attention.html", "picture  attention.png"]
    assert Path("attention.png").read_bytes().startswith(b"\x89PNG")


def test_of_a_language_model_json_has_every_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    save_writer(tmp_path / "author")
    assert run(["inspect", "author", "the cat", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["prompt"] == "the cat" and found["page"] == "attention.html"
    assert len(found["steps"]) == len(found["tokens"]) == 8 and len(found["next_tokens"]) == 10
    assert found["steps"][-1]["token"] is None and found["steps"][-1]["top"] == found["next_tokens"]
    assert sum(one["mean"] for one in found["attended"]) <= 1.0 + 1e-5


def test_the_example_prompts_are_one_page_with_a_picture_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(generator, "EXAMPLE_PROMPTS", ("the cat", "a dog\nlay"))
    save_writer(tmp_path / "author")
    assert run(["inspect", "author", "--example-prompts", "--output", "known"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("next token ") == 2
    assert shown.count("known.html") == 1 and shown.count(".png") == 2
    page = Path("known.html").read_text(encoding="utf-8")
    assert "the cat" in page and r"a dog\nlay" in page
    assert sorted(path.name for path in tmp_path.glob("*.png")) == ["known-1.png", "known-2.png"]


def test_options_without_effect_and_missing_texts_are_rejected(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    author = str(save_writer(tmp_path / "author"))
    for arguments, word in (
        ([author, "a", "--second", "b"], "--second"),
        ([author, "a", "--kind", "cross"], "cross"),
        ([author, "a", "--layer", "3"], "layer 3"),
        ([author, "a", "--example-prompts"], "--example-prompts"),
        ([author, " "], "empty"),
        ([author], "TEXT"),
        (["run", "a", "--max-length", "3"], "--max-length"),
        (["run", "--example-prompts"], "not a language model"),
    ):
        assert run(["inspect", *arguments]) == 2, arguments
        error = capsys.readouterr().err
        assert word in error and "Traceback" not in error, arguments


def test_a_language_model_without_attention_shows_its_next_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tokenizer = writer().target_tokenizer
    config = RecurrentLmConfig(cell="gru", model_dim=7, num_layers=1, dropout=0.0)
    model = build(config, VocabularySizes(tokenizer.size, tokenizer.size), seed=3)
    save_model(tmp_path / "gru", ModelFolder(model, config, tokenizer, tokenizer, {}), "a test's")
    assert run(["inspect", "gru", "the cat"]) == 0
    shown = capsys.readouterr().out
    assert "next token" in shown and "no attention" in shown and ".png" not in shown
    assert Path("attention.html").exists()
    assert run(["inspect", "gru", "the cat", "--layer", "1"]) == 2
    assert "no attention" in capsys.readouterr().err
