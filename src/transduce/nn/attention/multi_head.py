"""Multi-head attention (section 3.2.2): the same question asked in several subspaces at once.

`SelfAttention` asks and answers within one sequence, `CrossAttention` asks another (the decoder asks the
encoder). Projections that read the same input stand in one matrix: one product instead of three.
Per-head widths of keys and values are independent, as rows A and B of Table 3 need; several heads may share one
head of keys and values (Shazeer 2019; Ainslie et al. 2023).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transduce.nn.attention.dot_product import attend, attention_scores, per_group
from transduce.nn.dropout import Dropout
from transduce.nn.hook import HookPoint
from transduce.nn.linear import Linear
from transduce.nn.mask import and_causal
from transduce.nn.relative_position import UNRELATED, DistanceVectors, Relation
from transduce.nn.state import KeyValues


@dataclass(frozen=True)
class HeadShape:
    """How many heads there are, and how wide."""

    num_heads: int
    key_dim: int
    value_dim: int
    key_value_heads: int
    """Heads of keys and values; as many as `num_heads`, or a divisor of it."""
    scaled: bool = True
    """Whether scores are divided by sqrt(K); T5 leaves that to its first weights."""

    @classmethod
    def plain(cls, num_heads: int, key_dim: int, value_dim: int) -> HeadShape:
        """The paper's heads, each with keys and values of its own."""
        return cls(num_heads, key_dim, value_dim, num_heads)

    @property
    def widths(self) -> list[int]:
        """Of all heads' queries, keys and values."""
        return [
            self.num_heads * self.key_dim,
            self.key_value_heads * self.key_dim,
            self.key_value_heads * self.value_dim,
        ]


class PackedLinear(Linear):
    """Several projections of one input side by side; `parts` are their widths, each initialised for its own shape."""

    def __init__(self, in_dim: int, parts: list[int], bias: bool) -> None:
        super().__init__(in_dim, sum(parts), bias=bias)
        self.parts = parts

    def project(self, hidden: Tensor) -> tuple[Tensor, ...]:
        """(B N D) -> one (B N P) per part."""
        return torch.split(self(hidden), self.parts, dim=-1)


class Heads(nn.Module):
    """What both kinds of attention share: the kernel with its taps, and the way back to the model's width."""

    def __init__(self, model_dim: int, shape: HeadShape, bias: bool, dropout: float) -> None:
        super().__init__()
        self.shape = shape
        self.scale = shape.key_dim**-0.5 if shape.scaled else 1.0
        self.query, self.key, self.value = HookPoint(), HookPoint(), HookPoint()
        self.score, self.weight = HookPoint(), HookPoint()
        self.dropout = Dropout(dropout)
        self.merge = Linear(shape.num_heads * shape.value_dim, model_dim, bias=bias)

    def split(self, projected: Tensor, width: int) -> Tensor:
        """(B N H·K) -> (B H N K)."""
        return torch.unflatten(projected, -1, (-1, width)).transpose(1, 2)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        allowed: Tensor | None,
        causal: bool,
        relation: Relation = UNRELATED,
        distances: DistanceVectors | None = None,
    ) -> Tensor:
        """Mix the values and return to the model's width.  (B H Q K), (B G M K), (B G M V) -> (B Q D)."""
        query, key, value = self.query(query), self.key(key), self.value(value)
        bias = relation.bias
        if distances is not None and relation.row is not None:
            bias = distances.scores(query * self.scale, relation.row)
        dropped = self.training and self.dropout.rate > 0
        plain = self.score.listening or self.weight.listening or dropped or distances is not None
        if causal and (plain or allowed is not None or bias is not None):
            allowed, causal = and_causal(allowed, query.shape[2], query.device), False
        if plain:
            score_BHQM = self.score(attention_scores(query, key, allowed, bias, self.scale))
            weight_BHQM = self.dropout(self.weight(score_BHQM.softmax(dim=-1)))
            mixed_BHQV = per_group(weight_BHQM, value)
            if distances is not None and relation.row is not None:
                mixed_BHQV = mixed_BHQV + distances.mix(weight_BHQM, relation.row)
        else:
            mixed_BHQV = attend(query, key, value, allowed, causal, bias, self.scale)
        merged: Tensor = self.merge(mixed_BHQV.transpose(1, 2).flatten(-2))
        return merged


class SelfAttention(nn.Module):
    """Query, key and value all come from the same sequence."""

    def __init__(
        self,
        model_dim: int,
        shape: HeadShape,
        bias: bool = False,
        dropout: float = 0.0,
        distances: DistanceVectors | None = None,
    ) -> None:
        super().__init__()
        self.query_key_value = PackedLinear(model_dim, shape.widths, bias)
        self.heads = Heads(model_dim, shape, bias, dropout)
        self.distances = distances

    def forward(
        self,
        hidden: Tensor,
        allowed: Tensor | None = None,
        causal: bool = False,
        relation: Relation = UNRELATED,
    ) -> Tensor:
        """Look at the whole sequence, or at the past only.  (B N D), (B 1 1 N) -> (B N D)."""
        query, key, value_BGNV = self._project(hidden, relation)
        mixed: Tensor = self.heads(query, key, value_BGNV, allowed, causal, relation, self.distances)
        return mixed

    def extend(
        self,
        hidden: Tensor,
        past: KeyValues,
        layer: int,
        allowed: Tensor | None,
        relation: Relation = UNRELATED,
    ) -> Tensor:
        """Look at what a state remembers and at the new tokens, which it now remembers too.  (S T·W D) -> (S T·W D)."""
        query, key, value_SGTV = self._project(hidden, relation)
        key, value_SGMV = past.write(layer, key, value_SGTV)
        mixed: Tensor = self.heads(query, key, value_SGMV, allowed, False, relation, self.distances)
        return mixed

    def _project(self, hidden: Tensor, relation: Relation) -> tuple[Tensor, Tensor, Tensor]:
        """(B N D) -> (B H N K), (B G N K), (B G N V)."""
        shape = self.heads.shape
        query, key, value = self.query_key_value.project(hidden)
        query, key = self.heads.split(query, shape.key_dim), self.heads.split(key, shape.key_dim)
        if relation.turn is not None:
            query, key = (relation.turn(vectors).type_as(vectors) for vectors in (query, key))
        return query, key, self.heads.split(value, shape.value_dim)


class CrossAttention(nn.Module):
    """The query comes from one sequence, key and value from another."""

    def __init__(self, model_dim: int, shape: HeadShape, bias: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        query_width, *widths = shape.widths
        self.query = Linear(model_dim, query_width, bias=bias)
        self.key_value = PackedLinear(model_dim, widths, bias)
        self.heads = Heads(model_dim, shape, bias, dropout)

    def read(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Prepare what can be asked, once per sentence.  (B M D) -> (B G M K), (B G M V)."""
        key, value = self.key_value.project(memory)
        return self.heads.split(key, self.heads.shape.key_dim), self.heads.split(value, self.heads.shape.value_dim)

    def forward(self, hidden: Tensor, key: Tensor, memory_value: Tensor, allowed: Tensor | None) -> Tensor:
        """Ask what `read` prepared; all beams of a sentence together.  (B Q D), (B G M K), (B G M V) -> (B Q D)."""
        query = self.heads.split(self.query(hidden), self.heads.shape.key_dim)
        mixed: Tensor = self.heads(query, key, memory_value, allowed, False)
        return mixed
