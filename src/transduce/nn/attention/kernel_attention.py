"""Multi-head self-attention whose values are mixed by a kernel handed to it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.nn.attention.dot_product import per_group
from transduce.nn.attention.kernel import Kernel, NewToken
from transduce.nn.attention.multi_head import HeadShape, PackedLinear
from transduce.nn.attention.past import RowPast
from transduce.nn.dropout import Dropout
from transduce.nn.hook import HookPoint
from transduce.nn.linear import Linear
from transduce.nn.relative_position import UNRELATED, Relation


class KernelAttention(nn.Module):
    """Query, key and value come from the same sequence; what is looked at is the kernel's affair."""

    def __init__(self, model_dim: int, shape: HeadShape, bias: bool, dropout: float, kernel: Kernel) -> None:
        super().__init__()
        self.shape, self.kernel = shape, kernel
        query, key, value = shape.widths
        parts = [query, value] if kernel.one_vector else [query, key, value]
        self.query_key_value = PackedLinear(model_dim, parts, bias)
        self.query, self.key, self.value = HookPoint(), HookPoint(), HookPoint()
        self.score, self.weight = HookPoint(), HookPoint()
        self.dropout = Dropout(dropout)
        self.merge = Linear(shape.num_heads * shape.value_dim, model_dim, bias=bias)

    def forward(
        self,
        hidden: Tensor,
        allowed: Tensor | None = None,
        causal: bool = False,
        relation: Relation = UNRELATED,
    ) -> Tensor:
        """Look at the whole sequence, or at the past only.  (B N D), (B 1 1 N) -> (B N D)."""
        query, key, value = self._project(hidden, relation)
        allowed_BN = None if allowed is None else allowed[:, 0, 0]
        if self.score.listening or self.weight.listening:
            score, weight_BHNN = self.kernel.look(query, self._each_head(key), allowed_BN, causal)
            self.score(score)
            mixed_BHNV = per_group(self.dropout(self.weight(weight_BHNN)), value)
        else:
            key, value = self._each_head(key), self._each_head(value)
            mixed_BHNV = self.kernel(query, key, value, allowed_BN, causal, self.dropout)
        merged: Tensor = self.merge(mixed_BHNV.transpose(1, 2).flatten(-2))
        return merged

    def extend(
        self, hidden: Tensor, past: RowPast, layer: int, allowed: Tensor | None, relation: Relation = UNRELATED
    ) -> Tensor:
        """Look at what the rows remember and at the new tokens, now remembered too.  (S T·W D) -> (S T·W D)."""
        width = past.width
        query, key, value = (self._by_row(each, width) for each in self._project(hidden, relation))
        if past.longest == 0 and query.shape[2] > 1:  # a prompt is read at once
            seen = query, self._each_head(key), self._each_head(value)
            mixed_RTD = self.kernel(*seen, None, True, self.dropout).transpose(1, 2).flatten(2)
            past.layers[layer] = self.kernel.remember(query, key, value, past.reading.repeat_interleave(width))
        else:
            mixed_RTD = self._one_by_one(query, key, value, past, layer)
        merged: Tensor = self.merge(torch.unflatten(mixed_RTD, 0, (-1, width)).transpose(1, 2).flatten(1, 2))
        return merged

    def _one_by_one(self, query: Tensor, key: Tensor, value: Tensor, past: RowPast, layer: int) -> Tensor:
        """(R H T K), (R G T K), (R G T V) -> (R T H·V)."""
        position_R, reading_R = (each.repeat_interleave(past.width) for each in (past.lengths, past.reading))
        kept, mixed = past.layers[layer], []
        for time in range(query.shape[2]):
            vectors = query[:, :, time], key[:, :, time], value[:, :, time]
            is_read_R = reading_R > time
            new = NewToken(*vectors, position_R + time * is_read_R, is_read_R, past.longest + time)
            mixed_RHV, kept = self.kernel.step(new, kept)
            mixed.append(mixed_RHV.flatten(1))
        past.layers[layer] = kept
        return torch.stack(mixed, dim=1) if mixed else query.new_zeros(len(query), 0, self.merge.in_features)

    def _project(self, hidden: Tensor, relation: Relation) -> tuple[Tensor, Tensor, Tensor]:
        """(B N D) -> (B H N K), (B G N K), (B G N V)."""
        shape = self.shape
        query, *key, value = self.query_key_value.project(hidden)
        turned = [_split(each, shape.key_dim) for each in (query, *key)]
        if relation.turn is not None:
            turned = [relation.turn(vectors).type_as(vectors) for vectors in turned]
        asked = F.normalize(turned[0], dim=-1) if self.kernel.one_vector else turned[1]
        return self.query(turned[0]), self.key(asked), self.value(_split(value, shape.value_dim))

    def _each_head(self, vectors: Tensor) -> Tensor:
        """A copy of shared keys or values for every head.  (B G N K) -> (B H N K)."""
        shared = self.shape.num_heads // vectors.shape[1]
        return vectors if shared == 1 else vectors.repeat_interleave(shared, dim=1)

    def _by_row(self, vectors: Tensor, width: int) -> Tensor:
        """(S H T·W K) -> (R H T K)."""
        return torch.unflatten(vectors, 2, (-1, width)).permute(0, 3, 1, 2, 4).flatten(0, 1)


def _split(projected: Tensor, width: int) -> Tensor:
    """(B N H·K) -> (B H N K)."""
    return torch.unflatten(projected, -1, (-1, width)).transpose(1, 2)
