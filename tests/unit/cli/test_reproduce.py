"""`transduce reproduce`: what it lists, prints, writes and refuses."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.unit.cli.example import complaint
from transduce.cli.main import run
from transduce.experiments import scaling
from transduce.experiments.catalog import EXPERIMENTS
from transduce.model_folder import ModelFolder, save_model
from transduce.models.catalog import build
from transduce.models.gpt import gpt_mini
from transduce.models.interface import VocabularySizes
from transduce.text.tokenizer.tokenizer import TokenizerConfig
from transduce.text.tokenizer.training import train_tokenizer


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = scaling.ScalingSetting(key_dims=(4, 64), sentences=3, length=7)
    monkeypatch.setattr(scaling, "measure", partial(scaling.measure, setting=small))
    monkeypatch.chdir(tmp_path)


def test_without_a_name_it_lists_the_claims(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reproduce"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(EXPERIMENTS)


def test_a_claim_is_printed_and_written(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra plot: pip install 'transduce[plot]' removes this skip")
    assert run(["reproduce", "scaling", "--seed", "3"]) == 0
    out, err = capsys.readouterr()
    assert "The claim holds" in out and "gradient at score" in out and "seed 3, threads 1" in out
    assert out.endswith("reproduced/scaling.json\nreproduced/scaling.md\nreproduced/scaling.svg\n")
    assert err == "width …\n"
    assert json.loads(Path("reproduced/scaling.json").read_text())["setting"]["seed"] == 3


def test_without_matplotlib_there_is_everything_but_the_picture(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert run(["reproduce", "scaling", "--output", "a/b"]) == 0
    out, err = capsys.readouterr()
    assert out.endswith("a/b/scaling.json\na/b/scaling.md\n")
    assert "no figure: matplotlib" in err
    assert not Path("a/b/scaling.svg").exists()


def test_an_unknown_name_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reproduce", "scalling"]) == 2
    assert "did you mean 'scaling'?" in complaint(capsys.readouterr())
    assert not Path("reproduced").exists()


def test_a_folder_that_cannot_be_written_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    Path("taken").write_text("")
    assert run(["reproduce", "scaling", "--output", "taken"]) == 73
    out, err = capsys.readouterr()
    assert out == "" and "error: taken: " in err


@pytest.fixture
def author(tmp_path: Path) -> Path:
    """The folder of a language model that has learned nothing."""
    tokenizer = train_tokenizer("word", ["a b c d"] * 2, TokenizerConfig(kind="word"))
    config = gpt_mini().but(model_dim=16, num_heads=2, ffn_dim=16, num_layers=3)
    model = build(config, VocabularySizes(tokenizer.size, tokenizer.size), seed=1)
    save_model(tmp_path / "author", ModelFolder(model, config, tokenizer, tokenizer), "a card")
    return tmp_path / "author"


def test_heads_of_a_given_language_model_are_looked_at(author: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("texts").write_text("a b a c b a\n\nd c b a d c b a\n")
    assert run(["reproduce", "head-roles", "--model", str(author), "--text", "texts"]) == 0
    assert "texts 2" in capsys.readouterr().out
    rows = json.loads(Path("reproduced/head-roles.json").read_text())["rows"]
    assert [row[:3] for row in rows] == [["decoder", layer, head] for layer in (1, 2, 3) for head in (1, 2)]


def test_heads_of_a_given_translator_are_looked_at(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reproduce", "head-roles", "--model", "run", "--text", "a.txt"]) == 0
    rows = json.loads(Path("reproduced/head-roles.json").read_text())["rows"]
    assert [row[:3] for row in rows] == [[stack, 1, head] for stack in ("encoder", "decoder") for head in (1, 2)]


def test_a_model_that_cannot_be_measured_is_rejected(author: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("texts").write_text("a b\n")
    Path("empty").write_text("\n")
    Path("short").write_text("a\n")
    for words, fact in [
        (["scaling", "--model", "author"], "--model"),
        (["head-roles", "--text", "texts"], "--model"),
        (["head-roles", "--target-language", "de"], "--model"),
        (["head-roles", "--model", "author", "--target-language", "de"], "--target-language"),
        (["head-roles", "--model", "author", "--text", "empty"], "empty: "),
        (["head-roles", "--model", "author", "--text", "short"], "two tokens"),
        (["head-roles", "--model", "nowhere"], "nowhere"),
    ]:
        assert run(["reproduce", *words]) != 0
        error = capsys.readouterr().err.splitlines()[-1]
        assert error.startswith("error: ") and fact in error
        assert not Path("reproduced").exists()


def test_a_folder_that_was_there_stays_when_nothing_comes_of_it(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    assert run(["reproduce", "head-roles", "--model", "nowhere", "--output", "mine"]) == 66
    assert (tmp_path / "mine").is_dir()
