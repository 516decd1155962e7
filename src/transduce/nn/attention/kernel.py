"""Multi-head self-attention with an efficient attention kernel in place of the full softmax."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.nn.attention.dot_product import attention_scores, per_group
from transduce.nn.attention.multi_head import HeadShape, MultiHeadAttention, PackedLinear, split_heads
from transduce.nn.dropout import Dropout
from transduce.nn.position import UNRELATED, Relation
from transduce.nn.state import cat_padded, largest

# The interface of efficient attention kernels, which need not compute every pair of positions.
#
# A kernel is part of one layer's self-attention. Like a model it processes a whole sequence at once, or one more token
# given a past. Each kernel defines its own past (a few keys, all of them, a sum of constant size), as tensors with the
# rows first. For hooks, `scores` and `weights` compute every pair of positions, at full cost.
#
# Letters: B sentences, H heads, N positions, K and V widths of a head; R rows of a state, G heads of keys.

LayerPast = tuple[Tensor, ...]
"""The past of one layer, rows first; only the third axis may differ in size between two pasts."""
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
    """(R), its position."""
    is_read: Tensor
    """(R), False for rows without a new token: their past must not change."""
    longest: int
    """Maximum of the positions, known without a device synchronisation."""


class Kernel(nn.Module, ABC):
    """Attention within one sequence. Keys and values have as many heads as queries, except in `step`."""

    shares_query_and_key: ClassVar[bool] = False
    """Whether queries and keys share one projection."""

    @abstractmethod
    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, causal: bool, dropout: Dropout
    ) -> Tensor:
        """Attend within a whole sequence.  (B H N K), (B H N K), (B H N V), (B N) -> (B H N V)."""

    @abstractmethod
    def scores(self, query: Tensor, key: Tensor, allowed: Tensor | None, causal: bool) -> Tensor:
        """Return the scores of every pair, for hooks.  -> (B H N N)."""

    def weights(self, score: Tensor, key: Tensor, allowed: Tensor | None) -> Tensor:
        """Return the attention weights of these scores, for hooks.  -> (B H N N)."""
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


def pattern_scores(query: Tensor, key: Tensor, pair_allowed: Tensor, allowed: Tensor | None, scale: float) -> Tensor:
    """Score every pair of a pattern; padding attends to itself.  (B H N K), (… N N), (B N) -> (B H N N)."""
    if allowed is not None:
        itself_NN = torch.eye(query.shape[2], dtype=torch.bool, device=query.device)
        pair_allowed = pair_allowed & (allowed[:, None, None, :] | itself_NN)
    return attention_scores(query, key, pair_allowed, scale=scale)


def no_slots(rows: int, shape: HeadShape, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return an empty cache of keys and values.  -> (R G 0 K), (R G 0 V)."""
    groups = shape.key_value_heads
    return like.new_zeros(rows, groups, 0, shape.key_dim), like.new_zeros(rows, groups, 0, shape.value_dim)


def put(kept: Tensor, slot: Tensor, vector: Tensor, is_read: Tensor, size: int) -> Tensor:
    """Write a vector to a slot of each active row, growing to `size` slots.  (R G N K), (R), (R G K) -> (R G N K)."""
    if kept.shape[2] < size:
        kept = F.pad(kept, (0, 0, 0, max(size, 3 * kept.shape[2] // 2, FEWEST) - kept.shape[2]))
    row_R = torch.arange(len(kept), device=kept.device)
    kept[row_R, :, slot] = torch.where(is_read[:, None, None], vector, kept[row_R, :, slot])
    return kept


def take(kept: Tensor, slots: Tensor) -> Tensor:
    """Gather some slots of each head.  (R G N K), (R G M) -> (R G M K)."""
    return kept.gather(2, slots[..., None].expand(-1, -1, -1, kept.shape[3]))


def mix_few(query: Tensor, key: Tensor, value: Tensor, bias: Tensor, scale: float) -> Tensor:
    """Attend from one query per row to a few keys.  (R H K), (R G M K), (R G M V), (R 1|H M) -> (R H V)."""
    score_RHM = per_group(query[:, :, None] * scale, key.transpose(2, 3))[:, :, 0] + bias
    return per_group(score_RHM.softmax(dim=-1)[:, :, None], value)[:, :, 0]


def minus_infinity(allowed: Tensor, like: Tensor) -> Tensor:
    """Return the mask as a bias: zero, or minus infinity where attention is not allowed."""
    return torch.zeros(allowed.shape, dtype=like.dtype, device=like.device).masked_fill_(~allowed, -torch.inf)


# The decoding state of kernels: each layer has its own kind of past, and each row its own copy.
#
# Full attention shares the keys of a sentence among its beams (`nn.state`), since there are many. A window's keys or a
# sum of constant size are small, so here each row has its own, and beam search copies them.
#
# Letters: S sentences, W rows of each, R = S·W rows, T new tokens of each row.


@dataclass
class RowPast:
    """The pasts of all layers."""

    layers: list[LayerPast]
    lengths: Tensor
    """(S), number of past tokens of each sentence's rows."""
    new_lengths: Tensor
    """(S), number of new tokens of each sentence's rows."""
    longest: int
    """Maximum of `lengths`, known without a device synchronisation."""
    width: int
    """Rows per sentence."""
    uniform: ClassVar[bool] = False
    """Never eligible for the fast path, which needs the same position in all rows."""

    @classmethod
    def empty(cls, kernels: Sequence[Kernel], sentences: int, width: int, shape: HeadShape, like: Tensor) -> Self:
        """Return the past before the first token."""
        lengths = torch.zeros(sentences, dtype=torch.long, device=like.device)
        layers = [kernel.empty(sentences * width, shape, like) for kernel in kernels]
        return cls(layers, lengths, lengths, 0, width)

    def reserve(self, extra: int, lengths: Tensor | None = None) -> None:
        """Announce `extra` new tokens, of which each sentence takes `lengths`, or all."""
        self.new_lengths = torch.full_like(self.lengths, extra) if lengths is None else lengths

    def allowed(self, length: int) -> None:
        """Return None: kernels apply their own mask."""

    def query_positions(self, length: int) -> Tensor:
        """Return the positions of `length` new tokens of each row.  -> (S T·W)."""
        ahead_N = torch.arange(length, device=self.lengths.device).repeat_interleave(self.width)
        return self.lengths[:, None] + ahead_N

    def key_positions(self, length: int) -> Tensor:
        """Return the queries' positions: kernels support no encoding that needs distances between pairs."""
        return self.query_positions(length)

    def advance(self, lengths: Tensor | int) -> None:
        """Count the tokens just processed: one number for all sentences, or one per sentence."""
        self.lengths = self.lengths + lengths
        self.longest = self.longest + lengths if isinstance(lengths, int) else largest(self.lengths)

    def select(self, rows: Tensor) -> RowPast:
        """Return these rows, in this order: whole sentences, `width` rows each.  (S'·W)."""
        lengths = self.lengths.index_select(0, rows[:: self.width] // self.width)
        layers = [tuple(kept.index_select(0, rows) for kept in layer) for layer in self.layers]
        return replace(self, layers=layers, lengths=lengths, longest=largest(lengths))

    def join(self, other: RowPast) -> RowPast:
        """Return the rows of both."""
        lengths = torch.cat([self.lengths, other.lengths])
        layers = [
            tuple(cat_padded(both, padded=2) for both in zip(*pair, strict=True))
            for pair in zip(self.layers, other.layers, strict=True)
        ]
        return replace(self, layers=layers, lengths=lengths, longest=largest(lengths))


class KernelAttention(MultiHeadAttention):
    """Query, key and value come from the same sequence; the kernel decides which positions attend to which."""

    kernel: Kernel
    qkv_proj: PackedLinear

    def __init__(self, model_dim: int, shape: HeadShape, bias: bool, dropout: float, kernel: Kernel) -> None:
        query, key, value = shape.widths
        parts = [query, value] if kernel.shares_query_and_key else [query, key, value]
        inputs = {"kernel": kernel, "qkv_proj": PackedLinear(model_dim, parts, bias)}
        super().__init__(model_dim, shape, bias, dropout, inputs)

    def forward(
        self,
        hidden: Tensor,
        allowed: Tensor | None = None,
        causal: bool = False,
        relation: Relation = UNRELATED,
    ) -> Tensor:
        """Attend to the whole sequence, or to the past only.  (B N D), (B 1 1 N) -> (B N D)."""
        query, key, value = self._project(hidden, relation)
        allowed_BN = None if allowed is None else allowed[:, 0, 0]
        if self.needs_weights:
            key = self._each_head(key)
            score = self.score(self.kernel.scores(query, key, allowed_BN, causal))
            weight_BHNN = self.weight(self.kernel.weights(score, key, allowed_BN))
            mixed_BHNV = per_group(self.dropout(weight_BHNN), value)
        else:
            key, value = self._each_head(key), self._each_head(value)
            mixed_BHNV = self.kernel(query, key, value, allowed_BN, causal, self.dropout)
        return self.project_out(mixed_BHNV)

    def extend(
        self, hidden: Tensor, past: RowPast, layer: int, allowed: Tensor | None, relation: Relation = UNRELATED
    ) -> Tensor:
        """Append the new tokens to the past and attend to it with the kernel.  (S T·W D) -> (S T·W D)."""
        width = past.width
        query, key, value = (self._by_row(each, width) for each in self._project(hidden, relation))
        if past.longest == 0 and query.shape[2] > 1:  # a prompt is processed at once
            keys, values = self._each_head(key), self._each_head(value)
            mixed_RHTV = self.kernel(query, keys, values, None, True, self.dropout)
            past.layers[layer] = self.kernel.remember(query, key, value, past.new_lengths.repeat_interleave(width))
        else:
            mixed_RHTV = self._one_by_one(query, key, value, past, layer)
        by_sentence = torch.unflatten(mixed_RHTV, 0, (-1, width)).permute(0, 2, 3, 1, 4).flatten(2, 3)
        return self.project_out(by_sentence)

    def _one_by_one(self, query: Tensor, key: Tensor, value: Tensor, past: RowPast, layer: int) -> Tensor:
        """Process the new tokens one at a time.  (R H T K), (R G T K), (R G T V) -> (R H T V)."""
        position_R, new_R = (each.repeat_interleave(past.width) for each in (past.lengths, past.new_lengths))
        kept, mixed = past.layers[layer], []
        for time in range(query.shape[2]):
            vectors = query[:, :, time], key[:, :, time], value[:, :, time]
            is_read_R = new_R > time
            new = NewToken(*vectors, position_R + time * is_read_R, is_read_R, past.longest + time)
            mixed_RHV, kept = self.kernel.step(new, kept)
            mixed.append(mixed_RHV)
        past.layers[layer] = kept
        if not mixed:
            return query.new_zeros(*query.shape[:2], 0, self.shape.value_dim)
        return torch.stack(mixed, dim=2)

    def _project(self, hidden: Tensor, relation: Relation) -> tuple[Tensor, Tensor, Tensor]:
        """(B N D) -> (B H N K), (B G N K), (B G N V)."""
        shape = self.shape
        query, *key, value = self.qkv_proj.project(hidden)
        turned = [split_heads(each, shape.key_dim) for each in (query, *key)]
        if relation.turn is not None:
            turned = [relation.turn(vectors).type_as(vectors) for vectors in turned]
        keys = F.normalize(turned[0], dim=-1) if self.kernel.shares_query_and_key else turned[1]
        return self.query(turned[0]), self.key(keys), self.value(split_heads(value, shape.value_dim))

    def _each_head(self, vectors: Tensor) -> Tensor:
        """Repeat shared keys or values for every query head.  (B G N K) -> (B H N K)."""
        shared = self.shape.num_heads // vectors.shape[1]
        return vectors if shared == 1 else vectors.repeat_interleave(shared, dim=1)

    def _by_row(self, vectors: Tensor, width: int) -> Tensor:
        """(S H T·W K) -> (R H T K)."""
        return torch.unflatten(vectors, 2, (-1, width)).permute(0, 3, 1, 2, 4).flatten(0, 1)
