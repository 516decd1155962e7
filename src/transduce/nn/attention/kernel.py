"""The interface of efficient attention kernels, which need not compute every pair of positions.

A kernel is part of one layer's self-attention. Like a model it works on a whole sequence at once, or on one more token
after a past. What it keeps of the past is its own choice (a few keys, all of them, a sum of constant size), as tensors
with the rows first. For hooks, `scores` and `weights` compute every pair of positions, at full cost.

Letters: B sentences, H heads, N positions, K and V widths of a head; R rows of a state, G heads of keys.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.nn.attention.dot_product import attention_scores, per_group
from transduce.nn.attention.multi_head import HeadShape
from transduce.nn.dropout import Dropout

LayerPast = tuple[Tensor, ...]
"""What one layer keeps, rows first; only the third axis may differ in size between two pasts."""
FEWEST = 16
"""Minimum number of slots."""


class NewToken(NamedTuple):
    """One more token of each row."""

    query: Tensor
    """(R H K)"""
    key: Tensor
    """(R G K)"""
    value: Tensor
    """(R G V)"""
    position: Tensor
    """(R), where it stands."""
    is_read: Tensor
    """(R), False for rows without a new token: their past must not change."""
    longest: int
    """No row stands further than this."""


class Kernel(nn.Module, ABC):
    """How the values of one sequence are mixed. Keys and values have as many heads as queries, but for `step`."""

    shares_query_and_key: ClassVar[bool] = False
    """Whether queries and keys are one and the same projection."""

    @abstractmethod
    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, causal: bool, dropout: Dropout
    ) -> Tensor:
        """Mix a whole sequence.  (B H N K), (B H N K), (B H N V), (B N) -> (B H N V)."""

    @abstractmethod
    def scores(self, query: Tensor, key: Tensor, allowed: Tensor | None, causal: bool) -> Tensor:
        """Return the scores of every pair the plain way, for hooks.  -> (B H N N)."""

    def weights(self, score: Tensor, key: Tensor, allowed: Tensor | None) -> Tensor:
        """Return the weights that these scores stand for, for hooks.  -> (B H N N)."""
        return score.softmax(dim=-1)

    @abstractmethod
    def empty(self, rows: int, shape: HeadShape, like: Tensor) -> LayerPast:
        """Return an empty past."""

    @abstractmethod
    def remember(self, query: Tensor, key: Tensor, value: Tensor, lengths: Tensor) -> LayerPast:
        """Return the past after a prompt of these lengths.  (R H T K), (R G T K), …, (R)."""

    @abstractmethod
    def step(self, new: NewToken, past: LayerPast) -> tuple[Tensor, LayerPast]:
        """Attend from the new token to the past and itself, and append it.  -> (R H V); consumes the past."""


def pattern_scores(query: Tensor, key: Tensor, seen: Tensor, allowed: Tensor | None, scale: float) -> Tensor:
    """Score every pair of a pattern; whatever is padding sees itself.  (B H N K), (… N N), (B N) -> (B H N N)."""
    if allowed is not None:
        itself_NN = torch.eye(query.shape[2], dtype=torch.bool, device=query.device)
        seen = seen & (allowed[:, None, None, :] | itself_NN)
    return attention_scores(query, key, seen, scale=scale)


def no_slots(rows: int, shape: HeadShape, like: Tensor) -> tuple[Tensor, Tensor]:
    """Slots for keys and values, none yet.  -> (R G 0 K), (R G 0 V)."""
    groups = shape.key_value_heads
    return like.new_zeros(rows, groups, 0, shape.key_dim), like.new_zeros(rows, groups, 0, shape.value_dim)


def put(kept: Tensor, slot: Tensor, vector: Tensor, is_read: Tensor, size: int) -> Tensor:
    """Put a vector into a slot of each row that reads, with room for `size`.  (R G N K), (R), (R G K) -> (R G N K)."""
    if kept.shape[2] < size:
        kept = F.pad(kept, (0, 0, 0, max(size, 3 * kept.shape[2] // 2, FEWEST) - kept.shape[2]))
    row_R = torch.arange(len(kept), device=kept.device)
    kept[row_R, :, slot] = torch.where(is_read[:, None, None], vector, kept[row_R, :, slot])
    return kept


def take(kept: Tensor, slots: Tensor) -> Tensor:
    """Gather some slots of each head.  (R G N K), (R G M) -> (R G M K)."""
    return kept.gather(2, slots[..., None].expand(-1, -1, -1, kept.shape[3]))


def mix_few(query: Tensor, key: Tensor, value: Tensor, bias: Tensor, scale: float) -> Tensor:
    """One query of each row over the few keys it looks at.  (R H K), (R G M K), (R G M V), (R 1|H M) -> (R H V)."""
    score_RHM = per_group(query[:, :, None] * scale, key.transpose(2, 3))[:, :, 0] + bias
    return per_group(score_RHM.softmax(dim=-1)[:, :, None], value)[:, :, 0]


def minus_infinity(allowed: Tensor, like: Tensor) -> Tensor:
    """What is added to scores: nothing, or minus infinity where looking is not allowed."""
    return torch.zeros(allowed.shape, dtype=like.dtype, device=like.device).masked_fill_(~allowed, -torch.inf)
