"""Default settings for plain text, chosen by its size, with reasons.

A language model that is much larger than its text memorises it, so the model grows with the corpus (Kaplan et al. 2020;
Hoffmann et al. 2022: about twenty tokens per parameter, which small corpora never reach). Training follows common
practice since GPT-3: AdamW with betas of 0.9 and 0.95, weight decay of 0.1, a cosine schedule, gradients clipped at 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from transduce.config import Table
from transduce.errors import DataError
from transduce.training.task import Defaults

MAX_CHARACTERS = 2**30
"""Characters that are counted; a larger corpus gets the settings of one of this size."""
SMALL, LARGE = 5_000_000, 500_000_000
"""Characters below which tokens are characters, and from which on the model has the size of GPT-2."""
CHARACTERS_PER_TOKEN = 4
"""Characters of a BPE token, approximately."""


def count_characters(texts: Iterable[str]) -> int:
    """Count characters, up to a bound."""
    characters = 0
    for text in texts:
        characters += len(text)
        if characters >= MAX_CHARACTERS:
            break
    if not characters:
        raise DataError("the training corpus is empty; give a file with some text")
    return min(characters, MAX_CHARACTERS)


def choose_settings(
    characters: int, given: Table | None, choose_model: Callable[[int, list[str]], tuple[Table, float]]
) -> Defaults:
    """Choose tokenizer, model and training for plain text.

    `given` is the table [tokenizer] as written; `choose_model` returns [model] and the learning rate.
    """
    chosen = choose_tokenizer(characters, given)
    tokenizer, reasons = chosen.tables["tokenizer"], chosen.reasons
    by_characters = characters < SMALL
    model, rate = choose_model(characters, reasons)
    tokens = 8192 if by_characters else 16_384 if characters < LARGE else 65_536
    per_epoch = max(1, characters // (1 if by_characters else CHARACTERS_PER_TOKEN) // tokens)
    updates = max(500, min(100_000, (30 if by_characters else 10) * per_epoch))
    every = max(50, min(1000, updates // 20))
    reasons.append(f"{updates:,} updates of {tokens:,} tokens, validated every {every:,}")
    training: Table = {
        "batch_tokens": tokens,
        "updates": updates,
        "optimizer": "adamw",
        "betas": [0.9, 0.95],
        "weight_decay": 0.1,
        "schedule": "cosine",
        "learning_rate": rate,
        "warmup": max(1, min(1000, updates // 20)),
        "max_grad_norm": 1.0,
        "validate_every": every,
        "patience": 10,
    }
    return Defaults({"tokenizer": tokenizer, "model": model, "training": training}, reasons)


def choose_tokenizer(characters: int, given: Table | None = None) -> Defaults:
    """Choose the tokenizer alone, to complete the settings of [tokenizer] that are given."""
    reasons = [f"{characters:,} characters of text" + (" or more" if characters == MAX_CHARACTERS else "")]
    kind = (given or {}).get("kind")
    if (kind or ("character" if characters < SMALL else "bpe")) == "character":
        tokenizer: Table = {"kind": "character", "vocab_size": 1000}
        reason = "a small text: tokens are characters"
    else:
        tokenizer = {"kind": "bpe", "vocab_size": 8000 if characters < LARGE else 32_000}
        reason = f"one BPE vocabulary of {tokenizer['vocab_size']:,} tokens"
    reasons += [] if kind else [reason]
    return Defaults({"tokenizer": tokenizer}, reasons)


def choose_decoder(characters: int, reasons: list[str]) -> tuple[Table, float]:
    """Choose the model and its learning rate for language modelling."""
    if characters < SMALL:
        reasons.append("a small model: gpt_mini with a context of 256 tokens, dropout 0.2")
        return {"preset": "gpt_mini", "max_positions": 256, "dropout": 0.2}, 2e-3
    if characters < LARGE:
        reasons.append("a modern decoder of laptop size: llama_mini, dropout 0.1")
        return {"preset": "llama_mini", "dropout": 0.1}, 1e-3
    reasons.append("a large corpus: GPT-2, small")
    return {"preset": "gpt2"}, 6e-4


def choose_encoder_decoder(characters: int, reasons: list[str]) -> tuple[Table, float]:
    """Choose the model and its learning rate for span corruption."""
    preset = "t5_mini" if characters < LARGE else "t5_v1_1_small"
    reasons.append(f"an encoder-decoder model: {preset}")
    return {"preset": preset, "dropout": 0.1}, 1e-3
