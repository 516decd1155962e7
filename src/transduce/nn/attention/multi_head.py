"""Multi-head attention (section 3.2.2): attention in several subspaces at once.

`SelfAttention` attends within one sequence, `CrossAttention` from one sequence to another (the decoder to the encoder).
Projections of the same input are packed into one matrix: one product instead of three. The widths of a head's
keys and values are independent, as rows A and B of Table 3 need; several query heads may share one head of keys and
values (multi-query attention, Shazeer 2019; grouped-query attention, Ainslie et al. 2023).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transduce.nn.attention.dot_product import and_causal, attend, attention_scores, per_group
from transduce.nn.dropout import Dropout
from transduce.nn.hook import HookPoint
from transduce.nn.linear import Linear
from transduce.nn.position import UNRELATED, Relation, RelativeEmbeddings
from transduce.nn.state import KeyValues


@dataclass(frozen=True)
class HeadShape:
    """Number of heads and their widths."""

    num_heads: int
    key_dim: int
    value_dim: int
    key_value_heads: int
    """Heads of keys and values; as many as `num_heads`, or a divisor of it."""
    scaled: bool = True
    """Whether scores are divided by sqrt(K); T5 leaves that to its initialisation."""

    @classmethod
    def plain(cls, num_heads: int, key_dim: int, value_dim: int) -> HeadShape:
        """The paper's heads, each with its own keys and values."""
        return cls(num_heads, key_dim, value_dim, num_heads)

    @property
    def scale(self) -> float:
        """Factor of the scores."""
        return self.key_dim**-0.5 if self.scaled else 1.0

    @property
    def widths(self) -> list[int]:
        """Total widths of queries, keys and values over all heads."""
        return [
            self.num_heads * self.key_dim,
            self.key_value_heads * self.key_dim,
            self.key_value_heads * self.value_dim,
        ]


class PackedLinear(Linear):
    """Several projections of one input in one matrix; `parts` are their widths, each initialised for its own shape."""

    def __init__(self, in_dim: int, parts: list[int], bias: bool) -> None:
        super().__init__(in_dim, sum(parts), bias=bias)
        self.parts = parts

    @property
    def matrices(self) -> list[int]:
        return self.parts

    def project(self, hidden: Tensor) -> tuple[Tensor, ...]:
        """(B N D) -> one (B N P) per part."""
        return torch.split(self(hidden), self.parts, dim=-1)


class MultiHeadAttention(nn.Module):
    """What every kind of multi-head attention shares: hook points, dropout and the output projection."""

    def __init__(
        self, model_dim: int, shape: HeadShape, bias: bool, dropout: float, inputs: Mapping[str, nn.Module]
    ) -> None:
        """`inputs` are the submodules that come first by name: the input projections."""
        super().__init__()
        self.shape = shape
        self.scale = shape.scale
        for name, module in inputs.items():
            self.add_module(name, module)
        self.query, self.key, self.value = HookPoint(), HookPoint(), HookPoint()
        self.score, self.weight, self.head, self.output = HookPoint(), HookPoint(), HookPoint(), HookPoint()
        self.dropout = Dropout(dropout)
        self.out_proj = Linear(shape.num_heads * shape.value_dim, model_dim, bias=bias)

    @property
    def needs_weights(self) -> bool:
        """Whether a hook is attached to the scores or the weights, which fused kernels never compute."""
        return self.score.is_hooked or self.weight.is_hooked

    def project_out(self, heads: Tensor) -> Tensor:
        """Concatenate the heads and project them to the model's width.  (B H Q V) -> (B Q D)."""
        projected: Tensor = self.out_proj(self.head(heads).transpose(1, 2).flatten(-2))
        return self.output(projected)

    def mix(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        allowed: Tensor | None,
        causal: bool,
        relation: Relation = UNRELATED,
        embeddings: RelativeEmbeddings | None = None,
    ) -> Tensor:
        """Attend and project to the model's width.  (B H Q K), (B G M K), (B G M V) -> (B Q D)."""
        query, key, value = self.query(query), self.key(key), self.value(value)
        bias = relation.bias
        if embeddings is not None and relation.row is not None:
            bias = embeddings.scores(query * self.scale, relation.row)
        rate = self.dropout.rate if self.training else 0.0
        on_cpu = query.device.type == "cpu"  # where torch's kernel is slow with dropout, and dropout is keyed
        plain = self.needs_weights or embeddings is not None or (rate > 0 and on_cpu)
        if causal and (plain or allowed is not None or bias is not None):
            allowed, causal = and_causal(allowed, query.shape[2], query.device), False
        if plain:
            score_BHQM = self.score(attention_scores(query, key, allowed, bias, self.scale))
            weight_BHQM = self.dropout(self.weight(score_BHQM.softmax(dim=-1)))
            mixed_BHQV = per_group(weight_BHQM, value)
            if embeddings is not None and relation.row is not None:
                mixed_BHQV = mixed_BHQV + embeddings.mix(weight_BHQM, relation.row)
        else:
            mixed_BHQV = attend(query, key, value, allowed, causal, bias, self.scale, rate)
        return self.project_out(mixed_BHQV)


class SelfAttention(MultiHeadAttention):
    """Query, key and value all come from the same sequence."""

    qkv_proj: PackedLinear

    def __init__(
        self,
        model_dim: int,
        shape: HeadShape,
        bias: bool = False,
        dropout: float = 0.0,
        relative_embeddings: RelativeEmbeddings | None = None,
    ) -> None:
        super().__init__(model_dim, shape, bias, dropout, {"qkv_proj": PackedLinear(model_dim, shape.widths, bias)})
        self.relative_embeddings = relative_embeddings

    def forward(
        self,
        hidden: Tensor,
        allowed: Tensor | None = None,
        causal: bool = False,
        relation: Relation = UNRELATED,
    ) -> Tensor:
        """Attend to the whole sequence, or to the past only.  (B N D), (B 1 1 N) -> (B N D)."""
        query, key, value = self._project(hidden, relation)
        return self.mix(query, key, value, allowed, causal, relation, self.relative_embeddings)

    def extend(
        self,
        hidden: Tensor,
        past: KeyValues,
        layer: int,
        allowed: Tensor | None,
        relation: Relation = UNRELATED,
    ) -> Tensor:
        """Append the new tokens to the past and attend to all of it.  (S T·W D) -> (S T·W D)."""
        query, key, value = self._project(hidden, relation)
        key, value = past.write(layer, key, value)
        return self.mix(query, key, value, allowed, False, relation, self.relative_embeddings)

    def _project(self, hidden: Tensor, relation: Relation) -> tuple[Tensor, Tensor, Tensor]:
        """(B N D) -> (B H N K), (B G N K), (B G N V)."""
        query, key, value = self.qkv_proj.project(hidden)
        query, key = split_heads(query, self.shape.key_dim), split_heads(key, self.shape.key_dim)
        if relation.turn is not None:
            query, key = (relation.turn(vectors).type_as(vectors) for vectors in (query, key))
        return query, key, split_heads(value, self.shape.value_dim)


class CrossAttention(MultiHeadAttention):
    """The query comes from one sequence, key and value from another."""

    q_proj: Linear
    kv_proj: PackedLinear

    def __init__(self, model_dim: int, shape: HeadShape, bias: bool = False, dropout: float = 0.0) -> None:
        query_width, *widths = shape.widths
        inputs = {"q_proj": Linear(model_dim, query_width, bias=bias), "kv_proj": PackedLinear(model_dim, widths, bias)}
        super().__init__(model_dim, shape, bias, dropout, inputs)

    def project_memory(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Compute keys and values, once per sentence.  (B M D) -> (B G M K), (B G M V)."""
        key, value = self.kv_proj.project(memory)
        return split_heads(key, self.shape.key_dim), split_heads(value, self.shape.value_dim)

    def forward(self, hidden: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None) -> Tensor:
        """Attend to a projected memory; all beams of a sentence together.  (B Q D), (B G M K), (B G M V) -> (B Q D)."""
        return self.mix(split_heads(self.q_proj(hidden), self.shape.key_dim), key, value, allowed, False)


def split_heads(projected: Tensor, width: int) -> Tensor:
    """(B N H·K) -> (B H N K)."""
    return torch.unflatten(projected, -1, (-1, width)).transpose(1, 2)
