"""How likely a language model finds a text of any length, document after document."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from transduce.decoding.sliding import sliding_scores
from transduce.models.interface import AnyTransducer
from transduce.text.any_tokenizer import AnyTokenizer
from transduce.text.plain import Piece, encode_pieces

USUAL_WINDOW = 256
"""Tokens that a model without a limit of its own is given at once."""


@dataclass(frozen=True)
class TextScore:
    """How likely a model finds a text."""

    log_probability: float
    tokens: int
    """Those that were scored: all of the text, and the end of each document."""
    words: int
    bytes: int


@dataclass
class _Counted:
    """Documents as one stream of tokens, and how much text went through it."""

    tokenizer: AnyTokenizer
    scored: int = 0
    words: int = 0
    bytes: int = 0

    def tokens(self, pieces: Iterable[Piece]) -> Iterator[int]:
        """An end token before every document and behind the last, as in training."""
        for piece in pieces:
            self.words += len(piece.text.split())
            self.bytes += len(piece.text.encode())
            yield from [self.tokenizer.end] if piece.begins else []
            yield from encode_pieces(self.tokenizer, [piece])[0]
        if self.bytes:
            yield self.tokenizer.end


def score_text(
    model: AnyTransducer, tokenizer: AnyTokenizer, pieces: Iterable[Piece], window: int, stride: int
) -> TextScore:
    """Score every token of some documents once, with a window that moves on by `stride` tokens."""
    counted, found = _Counted(tokenizer), 0.0
    for scores in sliding_scores(model, counted.tokens(pieces), window, stride):
        found += math.fsum(scores)
        counted.scored += len(scores)
    return TextScore(found, counted.scored, counted.words, counted.bytes)
