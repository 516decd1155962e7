"""Every setting that is chosen from a corpus can be overridden alone: the other choices stay, or yield and say so."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from transduce.errors import SettingsError
from transduce.recipe import Recipe, read_recipe

DRAW = random.Random(7)
STEMS = [f"{a}{b}{c}" for a in "bdfgkl" for b in "aeiou" for c in "mnprst"]
WORDS = [first + second for first in STEMS for second in STEMS[:5]]
LINES = {
    "forms": [f"{word} N;{case};SG\t{word}{case.lower()}" for word in STEMS for case in ("DAT", "GEN")],
    "sounds": [f"{word}\t{' '.join(word.upper())}" for word in STEMS],
    "sentences": ["\t".join(" ".join(DRAW.choices(WORDS, k=6)) for _ in range(2)) for _ in range(2000)],
}
OTHER: dict[str, list[Any]] = {
    "kind": ["bpe", "character", "byte", "word", "unigram"],
    "source_kind": ["bpe", "character", "word"],
    "target_kind": ["bpe", "character", "feature"],
    "joint": [True, False],
    "vocab_size": [300, 700],
    "min_frequency": [1, 3],
    "name": ["transformer", "rnn"],
    "preset": ["small", "paper_base"],
    "num_layers": [2],
    "model_dim": [64],
    "ffn_dim": [96],
    "tied_embeddings": ["none", "target"],
    "positions": ["sinusoidal", "alibi", "learned"],
    "attention_dropout": [0.0],
    "activation_dropout": [0.0],
    "attention": ["window", "linear"],
    "decoder_attention": ["performer"],
    "batch_tokens": [512, "auto"],
    "epochs": [2.0],
    "updates": [10],
    "time_budget": ["20m"],
    "optimizer": ["adamw", "adam", "muon"],
    "schedule": ["noam", "constant"],
    "learning_rate": [0.01],
    "warmup": [7, 0.2],
    "max_grad_norm": [0.0],
    "validate_every": [5, 0.5],
    "patience": [0],
    "keep_last": [1, 2],
    "average_checkpoints": [1, 7],
    "tune_search": [False, True],
    "guided_alignment": [0.0, 0.7],
    "recombination": [0.0, 0.5],
    "r_drop": [0.0, 5.0],
    "compile": [True],
}
"""Values to override with; every chosen setting must be here."""
SINGLE = {"kind", "updates", "time_budget", "joint"}
"""Settings that decide what is chosen, and may not be chosen themselves."""


@pytest.fixture
def corpus(tmp_path: Path) -> dict[str, dict[str, str]]:
    """The table [data.train] of each corpus."""
    for name, lines in LINES.items():
        (tmp_path / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    (tmp_path / "text.txt").write_text("\n".join(LINES["sentences"]))
    return {
        **{name: {"path": str(tmp_path / f"{name}.tsv")} for name in LINES},
        "text": {"text": str(tmp_path / "text.txt")},
    }


def chosen_for(train: dict[str, str], *changes: str) -> tuple[Recipe, list[str]]:
    return read_recipe(None, changes, {"data": {"train": train}})


@pytest.mark.parametrize("name", [*LINES, "text"])
def test_every_chosen_setting_can_be_overridden_alone(name: str, corpus: dict[str, dict[str, str]]) -> None:
    plain, _ = chosen_for(corpus[name])
    chosen = plain.task.choose_settings({}).tables
    for table, settings in chosen.items():
        further = SINGLE & OTHER.keys() if table == "tokenizer" else set()
        for setting in {*settings, *(further & {"kind", *(["joint"] if name != "text" else [])})}:
            if setting in ("betas", "weight_decay", "max_positions", "dropout"):
                continue  # plain numbers of plain text, which no other setting depends on
            for value in OTHER[setting]:
                if name == "text" and (table, setting, value) in NOT_FOR_TEXT:
                    continue
                recipe, _ = chosen_for(corpus[name], f"{table}.{setting}={json.dumps(value)}")
                assert recipe.to_tables()[table].get(setting, value) == value, (setting, value)


@pytest.mark.parametrize("setting", ["model.attention", "model.decoder_attention", "training.compile"])
def test_what_chosen_settings_do_not_support_replaces_them(setting: str, corpus: dict[str, dict[str, str]]) -> None:
    for value in OTHER[setting.partition(".")[2]]:
        recipe, _ = chosen_for(corpus["forms"], f"{setting}={json.dumps(value)}")
        assert (recipe.model.positions != "rotary") == setting.startswith("model")
        assert (recipe.training.guided_alignment == 0) == setting.startswith("training")


def test_a_model_without_attention_learns_without_alignments(corpus: dict[str, dict[str, str]]) -> None:
    assert chosen_for(corpus["forms"])[0].training.guided_alignment > 0
    recipe, _ = chosen_for(corpus["forms"], "model={preset='sutskever'}")
    assert recipe.training.guided_alignment == 0 and not recipe.data.align


NOT_FOR_TEXT = {("model", "preset", "small"), ("model", "preset", "paper_base")}
"""Plain text needs another family."""


def test_the_kind_of_one_side_leaves_the_other_as_chosen(corpus: dict[str, dict[str, str]]) -> None:
    recipe, reasons = chosen_for(corpus["sounds"], "tokenizer.source_kind=byte")
    found = recipe.tokenizer
    assert (found.kinds, found.joint, found.min_frequency) == (("byte", "word"), False, 1)
    assert any("the target is symbols" in reason for reason in reasons)
    recipe, _ = chosen_for(corpus["forms"], "tokenizer.target_kind=bpe")
    assert (recipe.tokenizer.kinds, recipe.tokenizer.joint) == (("feature", "bpe"), False)
    recipe, _ = chosen_for(corpus["sentences"], "tokenizer.source_kind=character")
    assert (recipe.tokenizer.kinds, recipe.tokenizer.joint) == (("character", "bpe"), False)


def test_the_chosen_model_may_be_named(corpus: dict[str, dict[str, str]]) -> None:
    plain, _ = chosen_for(corpus["forms"])
    assert chosen_for(corpus["forms"], "model.name=transformer")[0].model == plain.model
    assert chosen_for(corpus["text"], "model.name=gpt")[0].model == chosen_for(corpus["text"])[0].model


def test_what_contradicts_the_corpus_names_the_other_setting(corpus: dict[str, dict[str, str]]) -> None:
    with pytest.raises(Exception, match=r"tokenizer.joint = true"):
        chosen_for(corpus["sounds"], "model.tied_embeddings=all")
    recipe, _ = chosen_for(corpus["sounds"], "model.tied_embeddings=all", "tokenizer.joint=true")
    assert recipe.tokenizer.joint and recipe.tokenizer.kinds == ("bpe", "bpe")


@pytest.mark.parametrize(
    ("change", "table"), [("num_layers=2", "model"), ("warmup=9", "training"), ("beam_size=2", "search")]
)
def test_a_setting_without_its_table_is_told_which(change: str, table: str, corpus: dict[str, dict[str, str]]) -> None:
    with pytest.raises(SettingsError, match=f"--set {table}.{change}"):
        chosen_for(corpus["sentences"], change)
