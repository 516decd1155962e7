"""Default settings for text encoders, chosen by objective and size of the corpus, with reasons.

Pre-training (objective mask) and fine-tuning follow BERT (Devlin et al. 2019, sections A.2 and A.3). What is trained
from random initialisation on labelled examples alone is smaller and learns faster (docs/explanation/decisions/
0034-defaults-of-text-encoders.md). Questions about contexts of any number of facts are for a memory network, with the
settings of recipes/babi.toml.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from transduce.config import Table
from transduce.tasks.text_encoding.config import Objective
from transduce.tasks.text_encoding.corpus import Example
from transduce.training.task import Defaults

MAX_EXAMPLES = 1_000_000
"""Examples that are counted; a larger corpus gets the settings of one of this size."""
SMALL = 50_000
"""Examples up to which a width of 128 learns as much as 256."""
PIECES_PER_WORD = 1.4
FEWEST_EPOCHS, MOST_EPOCHS, LABELLED_TOKENS = 3, 40, 1e6
"""Epochs of labelled examples, and the tokens after which a corpus has been seen often enough: it is memorised soon."""
CONTEXT_BATCH, CONTEXT_EPOCHS, LINEAR_SHARE = 32, 46, 0.46
"""Questions of an update of a memory network, its epochs, and the fraction of them without softmax (linear start)."""
CONTEXT_LENGTH, CONTEXT_TOKENS = 480, 16_384
METRICS = {"classify": "label_accuracy", "tag": "word_accuracy", "answer": "loss"}


class Amount(NamedTuple):
    """How much there is to learn from."""

    examples: int
    words: int
    """Of all texts together."""


def count_examples(examples: Iterable[Example]) -> Amount:
    """Count examples and their words, up to a bound."""
    count = words = 0
    for example in examples:
        count += 1
        words += sum(len(text.split()) for text in example.texts)
        if count >= MAX_EXAMPLES:
            break
    return Amount(count, words)


def choose_settings(objective: Objective, amount: Amount, has_contexts: bool = False) -> Defaults:
    """Choose tokenizer, model and training for a corpus; `has_contexts`: any number of texts per question."""
    if has_contexts:
        return _memory_network(amount)
    if objective == "mask":
        return _bert(updates=20_000, rate=5e-4, tokens=4096)
    width = 128 if amount.examples < SMALL else 256
    per_epoch = max(1.0, PIECES_PER_WORD * amount.words)
    epochs = float(f"{max(FEWEST_EPOCHS, min(MOST_EPOCHS, LABELLED_TOKENS / per_epoch)):.2g}")
    model: Table = {"name": "bert", "preset": "bert_mini"}
    if width == 128:
        model |= {"model_dim": 128, "ffn_dim": 512, "num_layers": 3}
    training: Table = {
        "batch_tokens": 2048,
        "epochs": epochs,
        "optimizer": "muon",
        "schedule": "linear",
        "learning_rate": 5e-3 if width == 128 else 4e-3,
        "warmup": 0.1,
        "max_grad_norm": 1.0,
        "validate_every": 0.1,
        "metric": METRICS[objective],
    }
    what = "3 layers of width 128" if width == 128 else "4 layers of width 256"
    more = " or more" if amount.examples == MAX_EXAMPLES else ""
    reasons = [
        f"{amount.examples:,} training examples{more}: {what}, WordPiece",
        f"{epochs:g} epochs in batches of 2,048 tokens, Muon, a learning rate that ends at zero; "
        "an encoder that is pre-trained on plain text (objective mask) learns more from as many examples",
    ]
    return Defaults({"tokenizer": _WORDPIECE, "model": model, "training": training}, reasons)


def choose_fine_tuning(objective: Objective) -> Defaults:
    """Choose training for an encoder that was pre-trained."""
    if objective == "mask":
        return _bert(updates=20_000, rate=5e-4, tokens=4096)
    return _bert(updates=2000, rate=2e-4, tokens=2048)


_WORDPIECE: Table = {"kind": "wordpiece", "vocab_size": 8000, "joint": True}


def _bert(updates: int, rate: float, tokens: int) -> Defaults:
    training: dict[str, Any] = {
        "batch_tokens": tokens,
        "updates": updates,
        "optimizer": "adamw",
        "weight_decay": 0.01,
        "schedule": "linear",
        "learning_rate": rate,
        "warmup": min(1000, updates // 10),
        "betas": [0.9, 0.999],
        "epsilon": 1e-6,
        "max_grad_norm": 1.0,
        "validate_every": min(1000, updates // 10),
    }
    reasons = [
        "a text encoder of 4 layers of width 256 with WordPiece, as in BERT",
        f"AdamW with a peak learning rate of {rate:g} and linear decay, as in BERT",
    ]
    model = {"name": "bert", "preset": "bert_mini"}
    return Defaults({"tokenizer": _WORDPIECE, "model": model, "training": training}, reasons)


def _memory_network(amount: Amount) -> Defaults:
    updates = max(100, CONTEXT_EPOCHS * amount.examples // CONTEXT_BATCH)
    linear = round(LINEAR_SHARE * updates)
    tables: Table = {
        "data": {"max_length": CONTEXT_LENGTH, "duplicates": "keep", "leakage": "keep", "validation_fraction": 0.1},
        "tokenizer": {"kind": "word", "min_frequency": 1, "lowercase": True},
        "model": {"preset": "memn2n", "hops": 3, "linear_updates": linear},
        "training": {
            "batch_tokens": CONTEXT_TOKENS,
            "micro_batch_tokens": CONTEXT_TOKENS,
            "bucket_size": CONTEXT_BATCH,
            "updates": updates,
            "optimizer": "adam",
            "schedule": "linear",
            "learning_rate": 0.005,
            "warmup": min(100, updates // 10),
            "max_grad_norm": 5.0,
            "validate_every": max(1, min(1000, updates // 20)),
            "metric": METRICS["classify"],
        },
    }
    reasons = [
        f"{amount.examples:,} questions about contexts: an end-to-end memory network of three hops",
        f"about {CONTEXT_EPOCHS} epochs: {updates:,} updates, the first {linear:,} without softmax (linear start); "
        "repeated questions are kept",
    ]
    return Defaults(tables, reasons)
