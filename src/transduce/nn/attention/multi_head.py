"""Multi-head attention (section 3.2.2): the same question asked in several subspaces at once.

`SelfAttention` asks and answers within one sequence, `CrossAttention` asks another (the decoder asks the
encoder). Projections that read the same input stand in one matrix: one product instead of three.
Per-head widths of keys and values are independent, as rows A and B of Table 3 need.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from transduce.nn.attention.dot_product import attend, attention_scores
from transduce.nn.dropout import Dropout
from transduce.nn.mask import and_causal
from transduce.nn.product import Linear
from transduce.nn.state import KeyValues
from transduce.nn.tap import Tap


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

    def __init__(self, model_dim: int, num_heads: int, value_dim: int, bias: bool, dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.query, self.key, self.value = Tap(), Tap(), Tap()
        self.score, self.weight = Tap(), Tap()
        self.dropout = Dropout(dropout)
        self.merge = Linear(num_heads * value_dim, model_dim, bias=bias)

    def split(self, projected: Tensor) -> Tensor:
        """(B N H·K) -> (B H N K)."""
        return torch.unflatten(projected, -1, (self.num_heads, -1)).transpose(1, 2)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, causal: bool) -> Tensor:
        """Mix the values and return to the model's width.  (B H Q K), (B H M K), (B H M V) -> (B Q D)."""
        query, key, value = self.query(query), self.key(key), self.value(value)
        plain = self.score.listening or self.weight.listening or (self.training and self.dropout.rate > 0)
        if causal and (plain or allowed is not None):
            allowed, causal = and_causal(allowed, query.shape[2], query.device), False
        if plain:
            weight_BHQM = self.weight(self.score(attention_scores(query, key, allowed)).softmax(dim=-1))
            mixed_BHQV = self.dropout(weight_BHQM) @ value
        else:
            mixed_BHQV = attend(query, key, value, allowed, causal)
        merged: Tensor = self.merge(mixed_BHQV.transpose(1, 2).flatten(-2))
        return merged


class SelfAttention(nn.Module):
    """Query, key and value all come from the same sequence."""

    def __init__(
        self, model_dim: int, num_heads: int, key_dim: int, value_dim: int, bias: bool = False, dropout: float = 0.0
    ) -> None:
        super().__init__()
        widths = [num_heads * key_dim, num_heads * key_dim, num_heads * value_dim]
        self.query_key_value = PackedLinear(model_dim, widths, bias)
        self.heads = Heads(model_dim, num_heads, value_dim, bias, dropout)

    def forward(self, hidden: Tensor, allowed: Tensor | None = None, causal: bool = False) -> Tensor:
        """Look at the whole sequence, or at the past only.  (B N D), (B 1 1 N) -> (B N D)."""
        query, key, value_BHNV = map(self.heads.split, self.query_key_value.project(hidden))
        mixed: Tensor = self.heads(query, key, value_BHNV, allowed, causal)
        return mixed

    def extend(self, hidden: Tensor, past: KeyValues, layer: int, allowed: Tensor | None) -> Tensor:
        """Look at what a state remembers and at the new tokens, which it now remembers too.  (S T·W D) -> (S T·W D)."""
        query, key, value_SHTV = map(self.heads.split, self.query_key_value.project(hidden))
        key, value_SHMV = past.write(layer, key, value_SHTV)
        mixed: Tensor = self.heads(query, key, value_SHMV, allowed, False)
        return mixed


class CrossAttention(nn.Module):
    """The query comes from one sequence, key and value from another."""

    def __init__(
        self, model_dim: int, num_heads: int, key_dim: int, value_dim: int, bias: bool = False, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.query = Linear(model_dim, num_heads * key_dim, bias=bias)
        self.key_value = PackedLinear(model_dim, [num_heads * key_dim, num_heads * value_dim], bias)
        self.heads = Heads(model_dim, num_heads, value_dim, bias, dropout)

    def read(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Prepare what can be asked, once per sentence.  (B M D) -> (B H M K), (B H M V)."""
        key, value = map(self.heads.split, self.key_value.project(memory))
        return key, value

    def forward(self, hidden: Tensor, key: Tensor, memory_value: Tensor, allowed: Tensor | None) -> Tensor:
        """Ask what `read` prepared; all beams of a sentence together.  (B Q D), (B H M K), (B H M V) -> (B Q D)."""
        query = self.heads.split(self.query(hidden))
        mixed: Tensor = self.heads(query, key, memory_value, allowed, False)
        return mixed
