"""Readers and language models that start from another: what is taken, what is new, what is watched."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.end_to_end.test_training_text_encoders import TABLES, recipe_of, text
from transduce.config import Table, merge, write_toml
from transduce.recipe import Recipe, read_recipe
from transduce.run import train
from transduce.storage.journal import read_journal


def recipe(place: Path, tables: Table) -> Recipe:
    (place / "new.toml").write_text(write_toml(tables))
    return read_recipe(place / "new.toml")[0]


def test_a_text_encoder_takes_what_fits_and_its_head_is_new(tmp_path: Path) -> None:
    train(recipe_of(tmp_path, "mask"), tmp_path / "read")
    (tmp_path / "tag").write_text(text("tag"))
    tables = merge(TABLES, {"data": {"objective": "tag", "train": {"path": str(tmp_path / "tag")}}})
    del tables["tokenizer"], tables["model"]
    changes: Table = {"initial_checkpoint": str(tmp_path / "read"), "freeze": ["[!h]*"], "updates": 3}
    recorded: list[str] = []

    class Listening:
        def __getattr__(self, name: str) -> object:
            return lambda message: recorded.append(message) if name == "warn" else None

    train(recipe(tmp_path, merge(tables, {"training": changes})), tmp_path / "tags", reporter=Listening())  # type: ignore[arg-type]
    assert any("weights loaded" in message and "new (head." in message for message in recorded)
    old, now = (load_file(tmp_path / run / "model/model.safetensors") for run in ("read", "tags"))
    same = [name for name in now if name in old and not name.startswith("head.")]
    assert len(same) > 10 and all(torch.equal(now[name], old[name]) for name in same)
    assert [name for name in now if name not in old and not name.startswith("head.")] == []


def test_a_language_model_goes_on_with_other_text_and_the_old_is_watched(tmp_path: Path) -> None:
    for name, words in (("old", "the sea rose and fell "), ("new", "a ship sleeps in the harbour ")):
        (tmp_path / f"{name}.txt").write_text("\n\n".join(words * (3 + n % 3) for n in range(60)))
    model = {"name": "gpt", "model_dim": 14, "num_heads": 2, "ffn_dim": 19, "num_layers": 1, "max_positions": 23}
    tables: Table = {
        "data": {"train": {"text": str(tmp_path / "old.txt")}, "block_size": 23},
        "training": {"threads": 1, "batch_tokens": 101, "updates": 7, "validate_every": 7, "learning_rate": 0.01},
    }
    first = merge(tables, {"tokenizer": {"kind": "bpe", "vocab_size": 270}, "model": model})
    first["data"]["validation"] = {"text": str(tmp_path / "old.txt")}
    first["training"] |= {"schedule": "constant", "warmup": 0}
    train(recipe(tmp_path, first), tmp_path / "first")
    later = merge(tables, {"data": {"train": {"text": str(tmp_path / "new.txt")}}})
    later["data"]["extra_validation"] = {"text": str(tmp_path / "old.txt")}
    later["training"] |= {"initial_checkpoint": str(tmp_path / "first")}
    train(recipe(tmp_path, later), tmp_path / "later")
    final = read_journal(tmp_path / "first/journal.jsonl")[-1]
    before = next(event for event in read_journal(tmp_path / "later/journal.jsonl") if event["event"] == "validation")
    assert before["extra_loss"] == pytest.approx(final["loss"], rel=1e-6)
    assert before["extra_bits_per_byte"] == pytest.approx(final["bits_per_byte"], rel=1e-6)
