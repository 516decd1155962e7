"""The Neural GPU learns an algorithm: it answers in the place of the question, a label for every token."""

from __future__ import annotations

from pathlib import Path

import pytest

import transduce
from transduce.config import Table
from transduce.data.synthetic import SyntheticTask
from transduce.inference.text_encoder import TextEncoder, as_text
from transduce.recipe import Recipe
from transduce.run import train

pytestmark = pytest.mark.learning

TASK = SyntheticTask(task="reverse", size=5000, min_length=2, max_length=6, symbols=10)
TABLES: Table = {
    "tokenizer": {"kind": "word", "min_frequency": 1, "joint": True},
    "model": {"preset": "neural_gpu", "model_dim": 32, "height": 2, "num_sets": 1, "dropout": 0.0},
    "training": {
        "batch_tokens": 400,
        "updates": 1200,
        "schedule": "linear",
        "learning_rate": 0.005,
        "warmup": 50,
        "max_grad_norm": 1.0,
        "gradient_noise": 0.0001,
        "curriculum": 8,
        "label_smoothing": 0.0,
        "validate_every": 400,
        "decode_examples": 0,
    },
}


def write(path: Path, task: SyntheticTask, seen: frozenset[str] = frozenset()) -> list[tuple[str, str]]:
    """Write questions with their answers, a token per line, and return them."""
    pairs = [(pair.source, pair.target) for pair in task.pairs() if pair.source not in seen]
    sentences = (zip(source.split(), target.split(), strict=True) for source, target in pairs)
    path.write_text("\n".join("".join(f"{word} {label}\n" for word, label in sentence) for sentence in sentences))
    return pairs


def test_it_reverses_sequences_it_has_never_seen(tmp_path: Path) -> None:
    seen = frozenset(source for source, _ in write(tmp_path / "train.conll", TASK))
    unseen = write(tmp_path / "test.conll", TASK.but(seed=7, size=1000, min_length=4), seen)
    assert len(unseen) > 500
    data = {
        "objective": "tag",
        "train": {"path": str(tmp_path / "train.conll")},
        "validation": {"path": str(tmp_path / "test.conll")},
        "max_length": 16,
    }
    reader = transduce.load(train(Recipe.from_tables({**TABLES, "data": data}, "a test"), tmp_path / "run"))
    assert isinstance(reader, TextEncoder)
    answers = reader.predict([source for source, _ in unseen])
    right = sum(as_text(answer) == target for answer, (_, target) in zip(answers, unseen, strict=True)) / len(unseen)
    print(f"reverse: {right:.4f} of {len(unseen)} unseen sequences wholly right")
    assert right >= 0.95
