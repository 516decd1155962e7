"""Relative position encodings, used in self-attention instead of encodings that are added to embeddings.

The module is called once per pass for the whole stack: it returns the `Relation` of queries to keys, and each layer's
self-attention uses it. Positions are given for both, so that the same module serves a whole sequence, a prompt, and one
more token after any past.

Letters: S sentences or 1, Q queries, M keys, H heads, K width of a head's keys.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Turn(NamedTuple):
    """Rotation of queries, and of the keys of the same tokens; cosine and sine (S 1 Q K)."""

    cosine: Tensor
    sine: Tensor

    def __call__(self, vectors: Tensor) -> Tensor:
        """Rotate each pair of channels, c and c + K/2.  (S H Q K) -> (S H Q K)."""
        first, second = vectors.chunk(2, dim=-1)
        return vectors * self.cosine + torch.cat([-second, first], dim=-1) * self.sine


class Relation(NamedTuple):
    """Position information for self-attention; empty where positions were added to the embeddings."""

    turn: Turn | None = None
    bias: Tensor | None = None
    """Added to scores, (S H Q M)."""
    row: Tensor | None = None
    """Row of the relative embeddings for each pair, (S Q M)."""


UNRELATED = Relation()


class RelativePositions(nn.Module, ABC):
    """Computes the relation of queries to keys."""

    @abstractmethod
    def forward(self, query: Tensor, key: Tensor) -> Relation:
        """Positions of queries (S Q) and keys (S M) -> their relation."""


class Unrelated(RelativePositions):
    """No relative positions."""

    def forward(self, query: Tensor, key: Tensor) -> Relation:
        return UNRELATED


class Rotary(RelativePositions):
    """Su et al. 2021: queries and keys are rotated in proportion to position; their product depends on distance.

    Angles are computed in float32 whatever the model's precision, as in every public model that uses them.
    """

    def __init__(self, key_dim: int, base: float = 10_000.0) -> None:
        super().__init__()
        self.key_dim, self.base = key_dim, base

    def forward(self, query: Tensor, key: Tensor) -> Relation:
        channel = torch.arange(0, self.key_dim, 2, device=query.device).float() / self.key_dim
        angle_SQC = query[:, :, None].float() * (1.0 / self.base**channel)
        angle_S1QK = torch.cat([angle_SQC, angle_SQC], dim=-1)[:, None]
        return Relation(turn=Turn(angle_S1QK.cos(), angle_S1QK.sin()))


class Alibi(RelativePositions):
    """Press et al. 2022: a penalty linear in distance, with a fixed slope per head."""

    slope: Tensor

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.register_buffer("slope", torch.tensor(alibi_slopes(num_heads)), persistent=False)

    def forward(self, query: Tensor, key: Tensor) -> Relation:
        distance_SQM = (query[:, :, None] - key[:, None, :]).abs()
        return Relation(bias=-self.slope[:, None, None] * distance_SQM[:, None])


def alibi_slopes(num_heads: int) -> list[float]:
    """Return 2^(-8/H), 2^(-16/H), …; where H is no power of two, those of the next lower power and some in between."""
    power = 2 ** math.floor(math.log2(num_heads))
    slopes = [2.0 ** (-8.0 * (head + 1) / power) for head in range(power)]
    between = [2.0 ** (-4.0 * (head + 1) / power) for head in range(0, 2 * power, 2)]
    return slopes + between[: num_heads - power]


class Buckets(RelativePositions):
    """Raffel et al. 2020 (T5): a learned bias per head and bucket of distances, far ones by their logarithm.

    An encoder uses half of the buckets for later positions; a decoder all of them for earlier ones.
    """

    def __init__(self, num_heads: int, buckets: int, max_distance: int, bidirectional: bool) -> None:
        super().__init__()
        self.buckets, self.max_distance, self.bidirectional = buckets, max_distance, bidirectional
        self.weight = nn.Parameter(torch.empty(buckets, num_heads))

    def forward(self, query: Tensor, key: Tensor) -> Relation:
        bucket_SQM = self._bucket(key[:, None, :] - query[:, :, None])
        bias_SQMH = F.embedding(bucket_SQM, self.weight)
        return Relation(bias=bias_SQMH.permute(0, 3, 1, 2))

    def _bucket(self, ahead: Tensor) -> Tensor:
        buckets, offset = self.buckets, torch.zeros_like(ahead)
        if self.bidirectional:
            buckets //= 2
            offset = (ahead > 0) * buckets
            distance = ahead.abs()
        else:
            distance = (-ahead).clamp(min=0)
        exact = buckets // 2
        stretch = torch.log(distance.clamp(min=1).float() / exact) / math.log(self.max_distance / exact)
        far = (exact + (stretch * (buckets - exact)).long()).clamp(max=buckets - 1)
        return offset + torch.where(distance < exact, distance, far)


class Clipped(RelativePositions):
    """Shaw et al. 2018: every layer has vectors for each clipped distance, in `RelativeEmbeddings`."""

    def __init__(self, max_distance: int) -> None:
        super().__init__()
        self.max_distance = max_distance

    def forward(self, query: Tensor, key: Tensor) -> Relation:
        ahead_SQM = key[:, None, :] - query[:, :, None]
        return Relation(row=ahead_SQM.clamp(-self.max_distance, self.max_distance) + self.max_distance)


class RelativeEmbeddings(nn.Module):
    """Shaw's a^K and a^V of one layer, shared by all heads."""

    def __init__(self, key_dim: int, value_dim: int, max_distance: int) -> None:
        super().__init__()
        self.keys = nn.Parameter(torch.empty(2 * max_distance + 1, key_dim))
        self.values = nn.Parameter(torch.empty(2 * max_distance + 1, value_dim))

    def scores(self, query: Tensor, row: Tensor) -> Tensor:
        """Scores of each query with the key of each distance.  (S H Q K), (S Q M) -> (S H Q M)."""
        score_SHQC = query @ self.keys.t()
        return score_SHQC.gather(-1, row[:, None].expand(len(query), query.shape[1], -1, -1))

    def mix(self, weight: Tensor, row: Tensor) -> Tensor:
        """Weighted sum of the value vectors of the distances.  (S H Q M), (S Q M) -> (S H Q V)."""
        by_distance_SHQC = weight.new_zeros(*weight.shape[:-1], len(self.values))
        by_distance_SHQC = by_distance_SHQC.scatter_add(-1, row[:, None].expand_as(weight), weight)
        return by_distance_SHQC @ self.values
