"""`transduce train --init-from`: a run that starts from what another has learned."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import transduce
from tests.unit.cli.example import complaint, rewrite_manifest, snapshot
from transduce.cli.main import run
from transduce.recipe import read_recipe
from transduce.run import train
from transduce.storage.journal import read_journal
from transduce.storage.manifest import sha256
from transduce.training.reporter import Silent, Step

NEW = """
[data]
train = {task = "copy", size = 200, max_length = 6, symbols = 7}
validation = {task = "copy", size = 20, seed = 2, max_length = 6, symbols = 7}
extra_validation = {prepared = "run"}

[training]
batch_tokens = 128
updates = 8
validate_every = 4
log_every = 2
threads = 1
decode_examples = 5
average_checkpoints = 2
"""


@pytest.fixture
def new(place: Path) -> Path:
    """The place with a recipe for another task."""
    (place / "new.toml").write_text(NEW)
    return place


def started(*more: str, output: str = "next") -> int:
    return run(["train", "--init-from", "run", "--recipe", "new.toml", *more, "--output", output])


def test_a_run_starts_where_the_other_ended(new: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert started() == 0
    shown = capsys.readouterr().err
    assert "1.00 tokens per word" in shown.splitlines()[0]
    assert "learning rate 0.001" in shown
    events = read_journal(new / "next/journal.jsonl")
    final = read_journal(new / "run/journal.jsonl")[-1]
    before, *later = [event for event in events if event["event"] == "validation"]
    assert before["update"] == 0 and before["extra_loss"] == pytest.approx(final["loss"], rel=1e-6)
    assert before["extra_bleu"] == final["bleu"] and not before["best"]
    assert later[-1]["loss"] < before["loss"] and all("extra_loss" in event for event in later)
    assert events[0]["initial_checkpoint"] == sha256(new / "run/model/manifest.json")
    tables = tomllib.loads((new / "next/recipe.toml").read_text())
    assert tables["training"]["initial_checkpoint"] == "run" and tables["training"]["schedule"] == "linear"
    assert tables["tokenizer"] == {"folder": "run", "joint": True, "min_frequency": 2}
    assert tables["model"] == tomllib.loads((new / "run/recipe.toml").read_text())["model"]
    assert tables["search"]["max_extra"] == 5
    card = (new / "next/model/README.md").read_text()
    assert "starting from run" in card and f"| loss | {before['extra_loss']:.4f} |" in card
    assert "extra validation loss" in shown
    assert transduce.load("next")("a b") is not None


def test_a_model_folder_alone_is_enough(new: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.move(new / "run/model", new / "alone")
    shutil.rmtree(new / "run/data")
    assert run(["train", "--init-from", "alone", "--source", "a.txt", "--target", "b.txt", "--dry-run"]) == 0
    shown = capsys.readouterr()
    assert "width 16" in shown.err
    tables = tomllib.loads(shown.out)
    assert tables["training"]["learning_rate"] == pytest.approx(2e-4)
    assert tables["model"]["model_dim"] == 16 and "extra_validation" not in tables["data"]


def test_the_saved_recipe_gives_the_same_run(new: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert started() == 0
    capsys.readouterr()
    assert run(["train", "--recipe", "next/recipe.toml", "--output", "again"]) == 0
    assert "chosen" not in capsys.readouterr().err
    assert {**snapshot(new / "again"), "timing.jsonl": ""} == {**snapshot(new / "next"), "timing.jsonl": ""}


def test_frozen_weights_stay_to_the_last_bit_and_have_no_moments(new: Path) -> None:
    assert started("--freeze", "encoder.*", "--freeze", "*embedding*", "--set", "training.ema_decay=0.9") == 0
    old, now = load_file(new / "run/model/model.safetensors"), load_file(new / "next/model/model.safetensors")
    still = [name for name in old if name.startswith("encoder.") or "embedding" in name]
    assert 0 < len(still) < len(old)
    assert all(torch.equal(now[name], old[name]) for name in still)
    assert all(not torch.equal(now[name], old[name]) for name in old if name not in still)
    moments = load_file(new / "next/checkpoints/update-00000008/optimizer.safetensors")
    assert {name.partition("/")[2] for name in moments} == old.keys() - set(still)


class Crash(Silent):
    """Dies at an update."""

    def step(self, step: Step) -> None:
        if step.update == 6:
            raise KeyboardInterrupt


@pytest.mark.parametrize("gone", [False, True])
def test_a_run_that_died_goes_on_to_the_same_bytes(new: Path, gone: bool) -> None:
    changes = ["training.initial_checkpoint=run", "training.freeze=['decoder.*']", "training.ema_decay=0.9"]
    recipe, _ = read_recipe(Path("new.toml"), changes)
    train(recipe, "whole")
    with pytest.raises(KeyboardInterrupt):
        train(recipe, "died", reporter=Crash())
    if gone:
        shutil.rmtree(new / "run")  # it was needed for the beginning only
    assert run(["train", "--resume", "died"]) == 0
    assert {**snapshot(new / "died"), "timing.jsonl": ""} == {**snapshot(new / "whole"), "timing.jsonl": ""}


def test_a_run_does_not_go_on_from_another_beginning(new: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe, _ = read_recipe(Path("new.toml"), ["training.initial_checkpoint=run"])
    with pytest.raises(KeyboardInterrupt):
        train(recipe, "died", reporter=Crash())
    (new / "run/model/README.md").write_text("another card")
    rewrite_manifest(new / "run/model")
    assert run(["train", "--resume", "died"]) == 65
    assert "initial_checkpoint" in complaint(capsys.readouterr())


def test_new_words_start_as_the_mean_of_what_stood_for_them(new: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wider = ("--set", "data.train.symbols=9", "--extend-vocabulary", "5", "--set", "training.learning_rate=1e-12")
    assert started(*wider) == 0
    assert "2 " in capsys.readouterr().err
    old, now = load_file(new / "run/model/model.safetensors"), load_file(new / "next/model/model.safetensors")
    name = "source_embedding.weight"
    assert len(now[name]) == len(old[name]) + 2
    torch.testing.assert_close(now[name][: len(old[name])], old[name])
    torch.testing.assert_close(now[name][-1], old[name][transduce.load("run").source.unknown])


def test_a_machine_that_knows_tokens_by_their_number_takes_no_more_of_them(
    new: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (new / "ntm.toml").write_text(
        'data = {train = {task = "copy", size = 90, symbols = 7}}\ntokenizer = {kind = "word", min_frequency = 1}\n'
        'model = {preset = "ntm_lstm", hidden_dim = 7, slots = 5, slot_dim = 3}\n'
        "training = {threads = 1, updates = 2, validate_every = 2, batch_tokens = 60}\n"
    )
    assert run(["train", "--recipe", "ntm.toml", "--output", "machine"]) == 0
    (new / "more.toml").write_text(
        'data = {train = {task = "copy", size = 90, symbols = 9}}\ntraining = {threads = 1, updates = 2}\n'
    )
    capsys.readouterr()
    more = ["--init-from", "machine", "--recipe", "more.toml", "--extend-vocabulary", "5", "--output", "next"]
    assert run(["train", *more]) == 2
    assert "error: " in capsys.readouterr().err.splitlines()[-1]


def test_what_contradicts_the_initial_checkpoint_is_rejected(new: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for more, words in [
        ("--set model.num_layers=2", "model.num_layers"),
        ("--set model.name=rnn", "transformer"),
        ("--set model.preset=tiny", "model"),
        ("--set tokenizer.kind=bpe", "tokenizer.kind"),
        ("--freeze encodr.*", "did you mean 'encoder.*'?"),
        ("--freeze *", "training.freeze"),
        ("--extra-validation nowhere", "nowhere: "),
    ]:
        assert started(*more.split()) != 0
        assert words in complaint(capsys.readouterr()), more
        assert not (new / "next").exists() or not any((new / "next").iterdir())


def test_rates_of_dropout_may_be_others(new: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert started("--set", "model.dropout=0.25", "--dry-run") == 0
    assert tomllib.loads(capsys.readouterr().out)["model"]["dropout"] == 0.25


def test_there_is_nothing_to_extend_without_a_beginning(new: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "--source", "a.txt", "--target", "b.txt", "--extend-vocabulary", "3", "--dry-run"]) != 0
    assert "--from" in complaint(capsys.readouterr())


def test_a_corpus_of_other_tokens_is_rejected(new: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["prepare", "--source", "a.txt", "--target", "b.txt", "--tokenizer", "byte", "--output", "other"]) == 0
    capsys.readouterr()
    assert (
        run(["train", "--init-from", "run", "--prepared", "other", "--set", "training.updates=2", "--output", "x"]) != 0
    )
    assert "run: " in complaint(capsys.readouterr())


def test_a_corpus_can_be_prepared_with_the_tokenizers_of_a_run(new: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["prepare", "--recipe", "new.toml", "--set", "tokenizer.folder=run", "--output", "tokens"]) == 0
    capsys.readouterr()
    arguments = [
        "train",
        "--init-from",
        "run",
        "--prepared",
        "tokens",
        "--set",
        "training.updates=2",
        "--output",
        "next",
    ]
    assert run(arguments) == 0
    assert (new / "tokens/tokenizer.json").read_bytes() == (new / "run/model/tokenizer.json").read_bytes()
