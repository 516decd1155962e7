"""The models that are no pure translators learn too: a language model goes on, T5 copies, readers label every token."""

from __future__ import annotations

from pathlib import Path

import pytest

import transduce
from tests.learning.test_learning import RECIPES, exact_match, held_out
from tests.learning.test_neural_gpu import write
from transduce.config import Table, merge
from transduce.data.synthetic import SyntheticTask
from transduce.inference.text_encoder import TextEncoder, as_text
from transduce.recipe import Recipe, read_recipe
from transduce.run import train

pytestmark = pytest.mark.learning

TASK = SyntheticTask(task="reverse", size=8000, min_length=2, max_length=6, symbols=12)
TRAINING: Table = {
    "tokenizer": {"kind": "word", "min_frequency": 1},
    "training": {
        "batch_tokens": 800,
        "schedule": "linear",
        "learning_rate": 0.003,
        "warmup": 50,
        "max_grad_norm": 1.0,
        "label_smoothing": 0.0,
        "validate_every": 400,
        "decode_examples": 0,
    },
}
SMALL = {"model_dim": 64, "num_heads": 4, "ffn_dim": 128, "dropout": 0.0}


@pytest.mark.parametrize(
    ("model", "updates"),
    [
        ({"preset": "llama_mini", **SMALL, "num_layers": 2}, 1000),
        ({"preset": "lstm_mini", "model_dim": 128}, 1500),
    ],
    ids=["llama_mini", "lstm_mini"],
)
def test_a_language_model_goes_on_with_the_reverse_of_what_stands_before_the_arrow(
    tmp_path: Path, model: Table, updates: int
) -> None:
    """With rotary positions: lines stand anywhere in a block, and a table of positions learns that far more slowly."""
    pairs = list(TASK.pairs())
    seen = {pair.source for pair in pairs}
    unseen = [pair for pair in TASK.but(seed=7, size=1000, min_length=4).pairs() if pair.source not in seen]
    assert len(unseen) > 500
    (tmp_path / "text").write_text("".join(f"{pair.source} → {pair.target}\n" for pair in pairs))
    tables: Table = {
        "data": {
            "train": {"text": str(tmp_path / "text"), "document": "line"},
            "block_size": 32,
            "validation_fraction": 0.02,
        },
        "model": model,
        "training": {"updates": updates},
    }
    generator = transduce.load(train(Recipe.from_tables(merge(TRAINING, tables), "a test"), tmp_path / "run"))
    assert isinstance(generator, transduce.Generator)
    found = generator.generate([f"{pair.source} →" for pair in unseen], method="greedy", max_length=10)
    right = sum(text.strip() == pair.target for text, pair in zip(found, unseen, strict=True)) / len(unseen)
    print(f"{model['preset']}: {right:.4f} of {len(unseen)} unseen lines gone on with wholly right")
    assert right >= 0.95


def test_a_t5_copies_sequences_it_has_never_seen(tmp_path: Path) -> None:
    changes = [
        "model.name=t5",
        "model.activation=geglu",
        "data.train.max_length=6",
        "data.validation.max_length=6",
    ]
    recipe, _ = read_recipe(RECIPES / "copy.toml", [*changes, "training.decode_examples=0", "training.metric=loss"])
    sources, answers = held_out(recipe)
    translator = transduce.load(train(recipe, tmp_path / "run"))
    assert isinstance(translator, transduce.Translator)
    found = exact_match(translator, sources, answers, method="greedy")
    print(f"t5: {found:.4f} of {len(sources)} unseen sources wholly right")
    assert found >= 0.97


@pytest.mark.parametrize(
    "model",
    [
        {"preset": "bert_mini", "num_layers": 2, "attention_dropout": 0.0, "head_dropout": 0.0, "max_positions": 16},
        {"preset": "universal_encoder", "num_layers": 4, "ponder_cost": 0.0001},
    ],
    ids=lambda model: model["preset"],
)
def test_a_text_encoder_labels_every_word_with_the_one_that_stands_opposite(tmp_path: Path, model: Table) -> None:
    seen = frozenset(source for source, _ in write(tmp_path / "train.conll", TASK))
    unseen = write(tmp_path / "test.conll", TASK.but(seed=7, size=1000, min_length=4), seen)
    assert len(unseen) > 500
    files = {
        name: {"path": str(tmp_path / f"{file}.conll")} for name, file in (("train", "train"), ("validation", "test"))
    }
    tables: Table = {
        "data": {"objective": "tag", **files, "max_length": 16},
        "model": {**model, **SMALL},
        "training": {"updates": 1200},
    }
    reader = transduce.load(train(Recipe.from_tables(merge(TRAINING, tables), "a test"), tmp_path / "run"))
    assert isinstance(reader, TextEncoder)
    answers = reader.predict([source for source, _ in unseen])
    right = sum(as_text(answer) == target for answer, (_, target) in zip(answers, unseen, strict=True)) / len(unseen)
    print(f"{model['preset']}: {right:.4f} of {len(unseen)} unseen sequences wholly right")
    assert right >= 0.95
