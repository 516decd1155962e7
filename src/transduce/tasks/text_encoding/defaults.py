"""Default settings for training a text encoder: BERT's, at a size for laptops."""

from __future__ import annotations

from typing import Any

from transduce.training.task import Defaults


def choose_settings(objective: str) -> Defaults:
    """Choose tokenizer, model and training for an objective (Devlin et al. 2019, section A.2 and A.3)."""
    mask = objective == "mask"
    training: dict[str, Any] = {
        "batch_tokens": 4096 if mask else 2048,
        "updates": 20_000 if mask else 2000,
        "optimizer": "adamw",
        "weight_decay": 0.01,
        "schedule": "linear",
        "learning_rate": 5e-4 if mask else 2e-4,
        "warmup": 1000 if mask else 200,
        "betas": [0.9, 0.999],
        "epsilon": 1e-6,
        "max_grad_norm": 1.0,
        "validate_every": 1000 if mask else 200,
    }
    reasons = [
        "a text encoder of 4 layers of width 256 with WordPiece, as in BERT",
        f"AdamW with a peak learning rate of {training['learning_rate']:g} and linear decay, as in BERT",
    ]
    tokenizer = {"kind": "wordpiece", "vocab_size": 8000, "joint": True}
    model = {"name": "bert", "preset": "bert_mini"}
    return Defaults({"tokenizer": tokenizer, "model": model, "training": training}, reasons)
