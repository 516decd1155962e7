"""Multi-head self-attention with an efficient attention kernel in place of the full softmax."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.nn.attention.dot_product import per_group
from transduce.nn.attention.kernel import Kernel, NewToken
from transduce.nn.attention.multi_head import HeadShape, MultiHeadAttention, PackedLinear, split_heads
from transduce.nn.attention.past import RowPast
from transduce.nn.relative_position import UNRELATED, Relation


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
        """Append the new tokens to the past and attend to what the kernel keeps of it.  (S T·W D) -> (S T·W D)."""
        width = past.width
        query, key, value = (self._by_row(each, width) for each in self._project(hidden, relation))
        if past.longest == 0 and query.shape[2] > 1:  # a prompt is processed at once
            keys, values = self._each_head(key), self._each_head(value)
            mixed_RHTV = self.kernel(query, keys, values, None, True, self.dropout)
            past.layers[layer] = self.kernel.remember(query, key, value, past.reading.repeat_interleave(width))
        else:
            mixed_RHTV = self._one_by_one(query, key, value, past, layer)
        by_sentence = torch.unflatten(mixed_RHTV, 0, (-1, width)).permute(0, 2, 3, 1, 4).flatten(2, 3)
        return self.project_out(by_sentence)

    def _one_by_one(self, query: Tensor, key: Tensor, value: Tensor, past: RowPast, layer: int) -> Tensor:
        """(R H T K), (R G T K), (R G T V) -> (R H T V)."""
        position_R, reading_R = (each.repeat_interleave(past.width) for each in (past.lengths, past.reading))
        kept, mixed = past.layers[layer], []
        for time in range(query.shape[2]):
            vectors = query[:, :, time], key[:, :, time], value[:, :, time]
            is_read_R = reading_R > time
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
