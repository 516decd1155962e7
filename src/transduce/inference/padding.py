"""Token sequences of different lengths as padded batches."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from transduce.models.interface import AnyTransducer
from transduce.text.tokenizer.special import Specials

T = TypeVar("T")
Tokens = Sequence[Sequence[int]]

BATCH_TOKENS = 4096
"""Tokens per side, padding included, of one batch; a longer pair is not read at all."""


def source_batch(sources: Tokens, specials: Specials, device: torch.device) -> tuple[Tensor, Tensor]:
    """Pad sources, each with its end token.  -> tokens (B S), allowed (B S)."""
    rows = [torch.tensor([*source, specials.end]) for source in sources]
    tokens_BS = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=specials.pad)
    length_B1 = torch.tensor([[len(row)] for row in rows])
    allowed_BS = torch.arange(tokens_BS.shape[1]) < length_B1
    return tokens_BS.to(device), allowed_BS.to(device)


def target_batch(targets: Tokens, specials: Specials, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Pad targets.  -> decoder input (B T), expected output (B T), which of it is not padding (B T)."""
    output_BT, real_BT = source_batch(targets, specials, device)
    start_B1 = torch.full((len(targets), 1), specials.start, device=device)
    return torch.cat([start_B1, output_BT[:, :-1]], dim=1), output_BT, real_BT


def windows(items: Iterable[T], size: int = 1024) -> Iterator[list[T]]:
    """Yield lists of `size` items, which are sorted by length and batched together."""
    rest = iter(items)
    while window := list(itertools.islice(rest, size)):
        yield window


def in_batches(
    read: Callable[[AnyTransducer, Tokens, Tokens, Specials, Specials], Sequence[T]],
    model: AnyTransducer,
    sources: Tokens,
    targets: Tokens,
    source: Specials,
    target: Specials,
) -> list[T | None]:
    """Read any number of pairs in batches of similar length; None for one that is too long to be read at once."""
    limits = [min(limit or BATCH_TOKENS, BATCH_TOKENS) for limit in (model.max_source, model.max_target)]
    lengths = [max(len(one), len(other)) for one, other in zip(sources, targets, strict=True)]
    fitting = [row for row in range(len(sources)) if len(sources[row]) < limits[0] and len(targets[row]) < limits[1]]
    order = sorted(fitting, key=lengths.__getitem__)
    found: list[T | None] = [None] * len(sources)
    while order:
        count = max(1, BATCH_TOKENS // (lengths[order[-1]] + 1))
        batch, order = order[-count:], order[:-count]
        each = read(model, [sources[row] for row in batch], [targets[row] for row in batch], source, target)
        for row, one in zip(batch, each, strict=True):
            found[row] = one
    return found
