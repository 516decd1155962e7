"""Pairs of sequences for small encoder-decoders: batches, loss, and greedy decoding.

Tokens 0, 1 and 2 pad, start and end a sequence; symbols follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor

from transduce.config import Config
from transduce.models.catalog import build
from transduce.models.interface import AnyTransducer, VocabularySizes
from transduce.nn.cpu.cross_entropy import CrossEntropy, linear_cross_entropy

PAD, START, END = range(3)
SPECIAL = 3
"""Number of special tokens."""


class PairBatch(NamedTuple):
    """Padded pairs."""

    source: Tensor
    """(B S), each with its end token."""
    target: Tensor
    """(B T + 1), each with start and end tokens."""


def batch_of(sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> PairBatch:
    """Pad sequences of symbols, which count from 0."""

    def padded(rows: list[list[int]]) -> Tensor:
        most = max(map(len, rows))
        return torch.tensor([row + [PAD] * (most - len(row)) for row in rows])

    shifted = [[[symbol + SPECIAL for symbol in row] for row in side] for side in (sources, targets)]
    return PairBatch(padded([[*row, END] for row in shifted[0]]), padded([[START, *row, END] for row in shifted[1]]))


def build_translator(config: Config, sources: int, targets: int, seed: int) -> AnyTransducer:
    """Build an encoder-decoder for so many symbols on either side."""
    return cast("AnyTransducer", build(config, VocabularySizes(sources + SPECIAL, targets + SPECIAL), seed))


def cross_entropy(model: AnyTransducer, batch: PairBatch, smoothing: float = 0.0) -> tuple[CrossEntropy, int]:
    """Return the sums of the loss with teacher forcing, and the number of tokens."""
    memory = model.encode(batch.source, batch.source != PAD)
    hidden_BTD, output_BT = model(batch.target[:, :-1], memory), batch.target[:, 1:]
    real_BT = output_BT != PAD
    weight, bias = model.output.weight, model.output.bias
    sums = linear_cross_entropy(hidden_BTD[real_BT], weight, bias, output_BT[real_BT], smoothing)
    return sums, int(real_BT.sum())


def loss(model: AnyTransducer, batch: PairBatch, smoothing: float = 0.0) -> Tensor:
    """Return the mean loss of a token."""
    sums, count = cross_entropy(model, batch, smoothing)
    return sums.smoothed / count


def greedy(model: AnyTransducer, source: Tensor, longest: int) -> list[list[int]]:
    """Return the symbols that greedy search writes for each source, up to the end token.  (B S)."""
    with torch.no_grad():
        state = model.start(model.encode(source, source != PAD))
        token_B = torch.full((len(source),), START)
        written = []
        for _ in range(longest + 1):
            hidden_BD, state = model.step(token_B, state)
            token_B = model.logits(hidden_BD).argmax(dim=-1)
            written.append(token_B)
            if bool((torch.stack(written) == END).any(dim=0).all()):
                break
    return [_before_end(row) for row in torch.stack(written, dim=1).tolist()]


def _before_end(row: list[int]) -> list[int]:
    length = row.index(END) if END in row else len(row)
    return [token - SPECIAL for token in row[:length]]


def share_correct(found: Sequence[Sequence[int]], truth: Sequence[Sequence[int]]) -> float:
    """Return the share of the true symbols that stand in their place."""
    pairs = (place for rows in zip(found, truth, strict=True) for place in zip(*rows, strict=False))
    return sum(one == true for one, true in pairs) / sum(map(len, truth))


def random_rows(count: int, length: int, symbols: int, generator: torch.Generator) -> list[list[int]]:
    """Return sequences of random symbols."""
    rows: list[list[int]] = torch.randint(symbols, (count, length), generator=generator).tolist()
    return rows
