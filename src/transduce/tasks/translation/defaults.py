"""Settings chosen from the corpus, for a person who gives two files and nothing else: what, and why.

The rules follow what is published for small data (Araabi and Monz 2020; Wu et al. 2021; Sennrich and Zhang 2019):
small models with much dropout and few merges, larger ones as the corpus grows; and what was measured
(docs/explanation/decisions/0018-small-corpus-defaults.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

from transduce.config import Table
from transduce.errors import DataError
from transduce.text.sentence import count_unspaced

SURVEYED = 1_000_000
"""Pairs that are counted; a larger corpus gets the settings of one of this size or more."""
LOOKED_AT = 100_000
"""Pairs whose words are looked at."""
KINDS = {"kind", "source_kind", "target_kind"}
"""Settings of [tokenizer] by which a person says what a token is; then nothing is chosen there."""
FEW_PAIRS = 50_000
"""Pairs up to which a width of 128 learns as much from an update as twice that."""
PLENTY = 300_000
"""Pairs from which on a corpus regularises itself."""
LITTLE, MUCH = 300_000, 10_000_000
"""Target tokens of what a model that has learned already goes on with."""
FEW_WORDS = 300
"""A side with no more different words than this is written in symbols, not in words, …"""
UNSPACED_WORD = 4
"""Characters of a script without spaces between words that are taken for one, rather too many than too few."""
OFTEN = 5
"""… if they stand there this often on average; in a small corpus of text most words stand once."""


@dataclass(frozen=True)
class Survey:
    """What a corpus looks like."""

    pairs: int
    source: Side
    target: Side


@dataclass(frozen=True)
class Side:
    """One side of a corpus: means per line, and how many different words (counted up to a bound)."""

    characters: float
    words: float
    distinct_words: int


@dataclass(frozen=True)
class Advice:
    """Tables of a recipe, and a sentence for each choice."""

    tables: Table
    reasons: list[str]


def survey(texts: Iterable[tuple[str, str]], pairs: int | None = None) -> Survey:
    """Look at the first pairs of text, and count all up to a bound unless it is known how many there are."""
    left = iter(texts)
    looked, sides = 0, [[0, 0], [0, 0]]
    distinct: list[set[str]] = [set(), set()]
    for pair in islice(left, LOOKED_AT):
        looked += 1
        for side, (text, counts) in enumerate(zip(pair, sides, strict=True)):
            words = text.split()
            counts[0] += len(text)
            counts[1] += max(len(words), count_unspaced(text) // UNSPACED_WORD)
            if len(distinct[side]) <= FEW_WORDS:
                distinct[side].update(words)
    pairs = looked + sum(1 for _ in islice(left, SURVEYED - looked)) if pairs is None else pairs
    if not pairs:
        raise DataError("the training corpus is empty; give files with at least one line")
    seen = [Side(c / looked, w / looked, len(d)) for (c, w), d in zip(sides, distinct, strict=True)]
    return Survey(min(pairs, SURVEYED), *seen)


def advise(found: Survey, given: Table | None = None) -> Advice:
    """Choose tokenizer, model and training for a corpus; `given` is what a person said of the tokenizer."""
    tokens = advise_tokenizer(found, given)
    tokenizer, reasons = tokens.tables["tokenizer"], tokens.reasons
    lengths = {"word": found.target.words, "character": found.target.characters}
    per_line = lengths.get(tokenizer.get("target_kind", tokenizer.get("kind")), found.target.characters / 4)
    model, training = _model(found.pairs, per_line, reasons)
    chosen = bool(KINDS & (given or {}).keys())
    if not {**({"joint": True} if chosen else tokenizer), **(given or {})}["joint"]:
        model["tied_embeddings"] = "target"
    return Advice({"tokenizer": tokenizer, "model": model, "training": training}, reasons)


def advise_tokenizer(found: Survey, given: Table | None = None) -> Advice:
    """Choose the tokenizer alone."""
    reasons = [f"{found.pairs:,} training pairs" + (" or more" if found.pairs == SURVEYED else "")]
    said = [] if KINDS & (given or {}).keys() else reasons
    sides = (("source", found.source), ("target", found.target))
    kinds = {f"{name}_kind": _kind(side, found.pairs, name, said) for name, side in sides}
    one = set(kinds.values())
    if (given or {}).get("joint") and len(one) == 1 and (kind := one.pop()):
        return Advice({"tokenizer": {"joint": True, "kind": kind, "vocab_size": 4000, "min_frequency": 1}}, reasons)
    size = 4000 if found.pairs < 20_000 else 10_000 if found.pairs < 300_000 else 32_000
    if any(kinds.values()) and not (given or {}).get("joint"):
        named = {name: kind or "bpe" for name, kind in kinds.items()}
        size = size if "bpe" in named.values() else 4000
        return Advice({"tokenizer": {"joint": False, **named, "vocab_size": size, "min_frequency": 1}}, reasons)
    said.append(f"text on both sides: one BPE vocabulary of {size:,} tokens for both")
    return Advice({"tokenizer": {"kind": "bpe", "joint": True, "vocab_size": size}}, reasons)


def advise_going_on(amount: str, target_tokens: float, rate: float, why: str, given: Table) -> Advice:
    """Choose how a model that has learned already goes on with another corpus of about so many tokens.

    A small rate, so that what was learned is bent and not broken, risen to in a few updates, because the moments of
    the optimizer start from nothing; it falls to nothing in a line, and a few epochs are enough. `amount` says how
    much text there is, and `given` is what a person said of the training.
    """
    tokens = given.get("batch_tokens", 2048 if target_tokens < LITTLE else 4096)
    epochs = 20 if target_tokens < LITTLE else 10 if target_tokens < MUCH else 3
    size = tokens if isinstance(tokens, int) else 4096
    per_epoch = max(1, int(target_tokens / size))
    updates = given.get("updates", max(200, min(20_000, epochs * per_epoch)))
    every = min(updates, max(20, min(1000, per_epoch, updates // 10)))
    training: dict[str, Any] = {
        "batch_tokens": tokens,
        "updates": updates,
        "schedule": "linear",
        "learning_rate": rate,
        "warmup": min(500, updates // 10),
        "max_grad_norm": 1.0,
        "validate_every": every,
        "patience": 5,
        "keep_last": 5,
        "average_checkpoints": 5,
    }
    reasons = [amount, *([] if "learning_rate" in given else [f"learning rate {rate:.2g}: {why}"])]
    chosen = {**training, **given}
    reasons.append(
        f"at most {updates:,} updates of {tokens} tokens, {chosen['warmup']:,} of them to warm up, "
        f"checked every {chosen['validate_every']:,}"
    )
    return Advice({"training": training}, reasons)


def _kind(side: Side, pairs: int, name: str, reasons: list[str]) -> str | None:
    if side.distinct_words <= FEW_WORDS and pairs * side.words >= OFTEN * side.distinct_words:
        reasons.append(f"the {name} has {side.distinct_words} different words: each is a token of its own")
        return "word"
    if side.words < 1.5:
        reasons.append(f"the {name} is single words: its tokens are characters")
        return "character"
    return None


def _model(pairs: int, tokens_per_line: float, reasons: list[str]) -> tuple[Table, Table]:
    if pairs < 10_000:
        model: Table = {"name": "transformer", "preset": "small", "num_layers": 3, "model_dim": 128, "ffn_dim": 512}
        rate, warmup, epochs, what = 2e-3, 400, 100, "a very small corpus: 3 + 3 layers of 128, norms in front"
    elif pairs < FEW_PAIRS:
        model = {"name": "transformer", "preset": "small", "model_dim": 128, "ffn_dim": 512}
        rate, warmup, epochs, what = 5e-3, 2000, 40, "a small corpus: 4 + 4 layers of 128, norms in front"
    elif pairs < PLENTY:
        model = {"name": "transformer", "preset": "small"}
        rate, warmup, epochs, what = 1e-3, 1000, 40, "a corpus of middle size: 4 + 4 layers of 256, norms in front"
    else:
        model = {"name": "transformer", "preset": "paper_base", "norm": "pre"}
        rate, warmup, epochs, what = 7e-4, 4000, 10, "a large corpus: the paper's base model with norms in front"
    tokens = 2048 if pairs < 10_000 else 4096
    per_epoch = max(1, int(pairs * (tokens_per_line + 1) / tokens))
    updates = max(500, min(100_000, epochs * per_epoch))
    every = max(50, min(2000, per_epoch, updates // 10))
    warmup = min(warmup, updates // 5)
    reasons.append(f"{what}, dropout {0.3 if pairs < PLENTY else 0.1}")
    reasons.append(
        f"about {epochs} epochs are at most {updates:,} updates of {tokens:,} tokens, checked every {every:,}"
    )
    training: dict[str, Any] = {
        "batch_tokens": tokens,
        "updates": updates,
        "optimizer": "adam",
        "schedule": "inverse_sqrt",
        "learning_rate": rate,
        "warmup": warmup,
        "max_grad_norm": 1.0,
        "validate_every": every,
        "patience": 10,
        "keep_last": 5,
        "average_checkpoints": 5,
    }
    return model, training
