"""How well a vocabulary fits a text: tokens per word, and how much of the text it cannot represent."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from transduce.text.tokenizer import AnyTokenizer
from transduce.training.initial_checkpoint import InitialCheckpoint

SAMPLED_PAIRS = 10_000
"""Pairs that a vocabulary is measured on."""
_BYTE = re.compile("<0x[0-9A-F]{2}>")


@dataclass(frozen=True)
class VocabularyCoverage:
    """Counts over some text."""

    words: int
    tokens: int
    unknown: int
    """Unknown tokens."""
    broken: int
    """Tokens that are single bytes of a character: how lossless tokenizers spell characters they lack."""

    @property
    def tokens_per_word(self) -> float:
        """The lower the better; 1.1 to 1.5 are common for the language a tokenizer was trained on."""
        return self.tokens / max(1, self.words)

    def __str__(self) -> str:
        """Summarise in a few words."""
        text = f"{self.tokens_per_word:.2f} tokens per word"
        for count, what in ((self.unknown, "unknown"), (self.broken, "single bytes of a character")):
            if count:
                text += f", {count / max(1, self.tokens):.2%} of them {what}"
        return text


def coverage(tokenizer: AnyTokenizer, texts: Iterable[str]) -> VocabularyCoverage:
    """Count the tokens of texts; words are separated by spaces."""
    lines = list(texts)
    rows = tokenizer.encode_batch(lines)
    shown = tokenizer.pieces(range(tokenizer.size))
    bytes_ = {token for token, piece in enumerate(shown) if _BYTE.search(piece)}
    return VocabularyCoverage(
        words=sum(len(line.split()) for line in lines),
        tokens=sum(map(len, rows)),
        unknown=sum(map(tokenizer.count_unknown, rows)),
        broken=sum(token in bytes_ for row in rows for token in row),
    )


def vocabulary_fit(
    checkpoint: InitialCheckpoint, new: Iterable[tuple[str, str]], before: Iterable[tuple[str, str]] | None
) -> list[str]:
    """Describe how well a checkpoint's vocabulary fits new text, next to the text that it was trained on, if known.

    Plain text comes as pairs without a source.
    """
    sides = (("source", checkpoint.found.source_tokenizer), ("target", checkpoint.found.target_tokenizer))
    fits, own = _both_sides(checkpoint, new), None if before is None else _both_sides(checkpoint, before)
    reasons = []
    for side, (name, tokenizer) in enumerate(sides):
        if not fits[side].words:
            continue
        compared = "" if own is None else f" (in {checkpoint.data}: {own[side]})"
        reasons.append(f"keeping the {tokenizer.size:,} {name} tokens of {checkpoint.name}: {fits[side]}{compared}")
    return reasons


def _both_sides(
    checkpoint: InitialCheckpoint, pairs: Iterable[tuple[str, str]]
) -> tuple[VocabularyCoverage, VocabularyCoverage]:
    sample = list(islice(pairs, SAMPLED_PAIRS))
    source = coverage(checkpoint.found.source_tokenizer, (source for source, _ in sample))
    return source, coverage(checkpoint.found.target_tokenizer, (target for _, target in sample))
