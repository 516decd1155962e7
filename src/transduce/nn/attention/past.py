"""What kernels remember while decoding: each layer its own kind of past, every row its own copy of it.

Plain attention shares the keys of a sentence among its beams (`nn.state`), for they are many. A window's keys or a sum
of constant size are few, so here each row has its own, and a row that goes on from another's past copies it.

Letters: S sentences, W rows of each, R = S·W rows, T new tokens of each row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.nn.attention.kernel import Kernel, LayerPast
from transduce.nn.attention.multi_head import HeadShape


@dataclass
class RowPast:
    """The pasts of all layers."""

    layers: list[LayerPast]
    lengths: Tensor
    """(S), how many tokens each sentence's rows have read."""
    reading: Tensor
    """(S), how many of the new tokens each sentence's rows read now."""
    longest: int
    """The largest of `lengths`, known without asking the device."""
    width: int
    """Rows of each sentence."""
    uniform: ClassVar[bool] = False
    """Rows are never taken together in one step."""

    @classmethod
    def empty(cls, kernels: Sequence[Kernel], sentences: int, width: int, shape: HeadShape, like: Tensor) -> Self:
        """Nothing was read yet."""
        lengths = torch.zeros(sentences, dtype=torch.long, device=like.device)
        layers = [kernel.empty(sentences * width, shape, like) for kernel in kernels]
        return cls(layers, lengths, lengths, 0, width)

    def reserve(self, extra: int, lengths: Tensor | None = None) -> None:
        """Say that `extra` tokens come, of which each sentence reads `lengths`, or all."""
        self.reading = torch.full_like(self.lengths, extra) if lengths is None else lengths

    def allowed(self, length: int) -> None:
        """Kernels know themselves what may be looked at."""

    def query_positions(self, length: int) -> Tensor:
        """At which position each of `length` new tokens of each row stands.  -> (S T·W)."""
        ahead_N = torch.arange(length, device=self.lengths.device).repeat_interleave(self.width)
        return self.lengths[:, None] + ahead_N

    def key_positions(self, length: int) -> Tensor:
        """Only positions that are heard of without their distances go with kernels, and those ask nothing more."""
        return self.query_positions(length)

    def advance(self, lengths: Tensor | int) -> None:
        """Count the tokens just read: the same for all sentences, or for each its own."""
        self.lengths = self.lengths + lengths
        self.longest = self.longest + lengths if isinstance(lengths, int) else _most(self.lengths)

    def select(self, rows: Tensor) -> RowPast:
        """Return these rows, in this order: whole sentences, in each of them any of its own rows.  (S'·W)."""
        lengths = self.lengths.index_select(0, rows[:: self.width] // self.width)
        layers = [tuple(kept.index_select(0, rows) for kept in layer) for layer in self.layers]
        return replace(self, layers=layers, lengths=lengths, longest=_most(lengths))

    def join(self, other: RowPast) -> RowPast:
        """Return the rows of both."""
        lengths = torch.cat([self.lengths, other.lengths])
        layers = [
            tuple(_stacked(*both) for both in zip(*pair, strict=True))
            for pair in zip(self.layers, other.layers, strict=True)
        ]
        return replace(self, layers=layers, lengths=lengths, longest=_most(lengths))


def _stacked(first: Tensor, second: Tensor) -> Tensor:
    """Rows of both, with as many slots as the larger has.  (R G N …), (R' G N' …) -> (R + R' G N'' …)."""
    slots = max(first.shape[2], second.shape[2])
    beyond = (0, 0) * (first.dim() - 3)
    return torch.cat([F.pad(kept, (*beyond, 0, slots - kept.shape[2])) for kept in (first, second)])


def _most(lengths: Tensor) -> int:
    return int(lengths.max()) if len(lengths) else 0
