"""Attention to a fixed number of sums of positions: Linformer (Wang et al. 2020, arXiv 2006.04768)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from transduce.errors import DataError
from transduce.nn.attention.kernel import Kernel, LayerPast, NewToken
from transduce.nn.attention.multi_head import HeadShape
from transduce.nn.dropout import Dropout


class LowRank(Kernel):
    """Keys and values of n positions become `rank` of each, by learned sums over positions; all heads share them.

    A sum over positions holds the future, so this is for encoders only. Padding adds nothing to the sums.
    """

    def __init__(self, scale: float, rank: int, limit: int) -> None:
        super().__init__()
        self.scale, self.limit = scale, limit
        self.keys = nn.Parameter(torch.empty(rank, limit))
        self.values = nn.Parameter(torch.empty(rank, limit))

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, causal: bool, dropout: Dropout
    ) -> Tensor:
        assert not causal, "the settings reject this kernel with a causal mask"
        sum_BHRV = self._part(self.values, allowed, value) @ value
        mixed: Tensor = dropout(self.scores(query, key, allowed).softmax(dim=-1)) @ sum_BHRV
        return mixed

    def scores(self, query: Tensor, key: Tensor, allowed: Tensor | None, causal: bool = False) -> Tensor:
        """Scores of the sums.  -> (B H N rank)."""
        sum_BHRK = self._part(self.keys, allowed, key) @ key
        return query * self.scale @ sum_BHRK.transpose(-2, -1)

    def weights(self, score: Tensor, key: Tensor, allowed: Tensor | None) -> Tensor:
        """The share of each position's value through the sums, which may be negative and need not sum to one."""
        return score.softmax(dim=-1) @ self._part(self.values, allowed, key)

    def empty(self, rows: int, shape: HeadShape, like: Tensor) -> LayerPast:
        raise AssertionError("the settings reject this kernel in a decoder")

    def remember(self, query: Tensor, key: Tensor, value: Tensor, lengths: Tensor) -> LayerPast:
        raise AssertionError("the settings reject this kernel in a decoder")

    def step(self, new: NewToken, past: LayerPast) -> tuple[Tensor, LayerPast]:
        raise AssertionError("the settings reject this kernel in a decoder")

    def _part(self, weight: Tensor, allowed: Tensor | None, like: Tensor) -> Tensor:
        """The sums' weights of as many positions as there are.  -> (B 1 rank N) or (rank N)."""
        length = like.shape[2]
        if length > self.limit:
            raise DataError(
                f"a text of {length} tokens does not fit low-rank attention that learned sums over {self.limit} "
                "positions; shorten the text, or train with a larger max_positions"
            )
        part_RN = weight[:, :length].to(like.dtype)
        return part_RN if allowed is None else part_RN * allowed[:, None, None, :]
