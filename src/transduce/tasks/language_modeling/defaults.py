"""Settings for a person who gives plain text and nothing else: what, and why.

A language model that is much larger than its text learns it by heart, so the model grows with the corpus (Kaplan et al.
2020; Hoffmann et al. 2022: some twenty tokens for each parameter, which small corpora never reach). Training follows
what is usual since GPT-3: AdamW with betas of 0.9 and 0.95, weight decay of 0.1, a cosine, gradients clipped at 1.
"""

from __future__ import annotations

from collections.abc import Iterable

from transduce.config import Table
from transduce.errors import DataError
from transduce.tasks.translation.defaults import KINDS, Advice

COUNTED = 2**30
"""Characters that are counted; a larger corpus gets the settings of one of this size."""
LITTLE, MUCH = 5_000_000, 500_000_000
"""Characters below which tokens are characters, and from which on the model is GPT-2's size."""
PER_TOKEN = 4
"""Characters that a piece of BPE has, about."""


def measure(texts: Iterable[str]) -> int:
    """Count characters, up to a bound."""
    characters = 0
    for text in texts:
        characters += len(text)
        if characters >= COUNTED:
            break
    if not characters:
        raise DataError("the training corpus is empty; give a file with some text")
    return min(characters, COUNTED)


def advise_text(characters: int, given: Table | None = None, corrupt: bool = False) -> Advice:
    """Choose tokenizer, model and training for plain text; `given` is what a person said of the tokenizer, `corrupt`
    whether pairs are made of it for a model that reads and writes."""
    chosen = advise_text_tokenizer(characters, given)
    tokenizer, reasons = chosen.tables["tokenizer"], chosen.reasons
    by_characters = characters < LITTLE
    model, rate = _model(characters, corrupt, reasons)
    tokens = 8192 if by_characters else 16_384 if characters < MUCH else 65_536
    per_epoch = max(1, characters // (1 if by_characters else PER_TOKEN) // tokens)
    updates = max(500, min(100_000, (30 if by_characters else 10) * per_epoch))
    every = max(50, min(1000, updates // 20))
    reasons.append(f"{updates:,} updates of {tokens:,} tokens, checked every {every:,}")
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
    return Advice({"tokenizer": tokenizer, "model": model, "training": training}, reasons)


def advise_text_tokenizer(characters: int, given: Table | None = None) -> Advice:
    """Choose the tokenizer alone."""
    reasons = [f"{characters:,} characters of text" + (" or more" if characters == COUNTED else "")]
    if characters < LITTLE:
        tokenizer: Table = {"kind": "character", "vocab_size": 1000}
        what = "little text: its tokens are characters"
    else:
        tokenizer = {"kind": "bpe", "vocab_size": 8000 if characters < MUCH else 32_000}
        what = f"one BPE vocabulary of {tokenizer['vocab_size']:,} tokens"
    reasons += [] if KINDS & (given or {}).keys() else [what]
    return Advice({"tokenizer": tokenizer}, reasons)


def _model(characters: int, corrupt: bool, reasons: list[str]) -> tuple[Table, float]:
    if corrupt:
        preset = "t5_mini" if characters < MUCH else "t5_v1_1_small"
        reasons.append(f"to read and to write: {preset}")
        return {"preset": preset, "dropout": 0.1}, 1e-3
    if characters < LITTLE:
        reasons.append("a small model for it: gpt_mini, which reads 256 tokens at once, dropout 0.2")
        return {"preset": "gpt_mini", "max_positions": 256, "dropout": 0.2}, 2e-3
    if characters < MUCH:
        reasons.append("a modern decoder of laptop size: llama_mini, dropout 0.1")
        return {"preset": "llama_mini", "dropout": 0.1}, 1e-3
    reasons.append("a large corpus: GPT-2, small")
    return {"preset": "gpt2"}, 6e-4
