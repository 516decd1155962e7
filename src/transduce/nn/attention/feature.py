"""Attention as a product of features: linear Transformers (Katharopoulos et al. 2020) and Performers (Choromanski et
al. 2021).

Where a weight is φ(q)·φ(k) instead of exp(q·k), the sum over keys can be taken first: φ(K)'V has a size that does not
depend on the length of the text. A decoder needs nothing but that sum so far; it is a recurrent network after all.

Letters: F features; the values have one more channel, all ones, whose sum is what the weights are divided by.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.errors import DataError
from transduce.nn.attention.dot_product import and_causal, per_group
from transduce.nn.attention.kernel import Kernel, LayerPast, NewToken
from transduce.nn.attention.multi_head import HeadShape
from transduce.nn.dropout import Dropout

CHUNK = 128
"""Positions whose pairs are looked at one by one where the future is hidden; what came before them is one sum."""
LARGEST_EXPONENT = 40.0
"""Features of keys stay below exp of this, and so do sums of millions of them in float32."""


class FeatureMap(nn.Module, ABC):
    """φ: vectors of a head → features, none below zero."""

    size: int
    """How many features."""

    @abstractmethod
    def of_query(self, query: Tensor) -> Tensor:
        """(… K) -> (… F), up to a factor for each query, which division takes away."""

    @abstractmethod
    def of_key(self, key: Tensor) -> Tensor:
        """(… K) -> (… F), up to one factor for all keys that there could ever be."""


class EluFeatures(FeatureMap):
    """elu(x) + 1, the feature map of Katharopoulos et al."""

    def __init__(self, key_dim: int) -> None:
        super().__init__()
        self.size = key_dim

    def of_query(self, query: Tensor) -> Tensor:
        return F.elu(query) + 1.0

    def of_key(self, key: Tensor) -> Tensor:
        return F.elu(key) + 1.0


class RandomFeatures(FeatureMap):
    """exp(w·x - |x|²/2) for random w: positive, and right on average about exp(q·k) (FAVOR+).

    The w are drawn with the model's first weights, orthogonal in blocks, kept with them and never trained. Nothing that
    is done to an exponent depends on other keys, so that a token means the same whenever it is read. Of a key it is
    bounded: w·x - |x|²/2 can be |w|²/2, which is more than float32 holds where heads are wide, but hardly ever is.
    """

    def __init__(self, key_dim: int, size: int, scale: float) -> None:
        super().__init__()
        self.size, self.root = size, scale**0.5
        self.projection = nn.Parameter(torch.empty(size, key_dim), requires_grad=False)

    def draw(self, generator: torch.Generator) -> None:
        """Orthogonal projection, as long as Gaussian vectors are."""
        size, dim = self.projection.shape
        blocks = []
        for _ in range(-(-size // dim)):
            basis, triangle = torch.linalg.qr(torch.randn(dim, dim, generator=generator))
            blocks.append((basis * triangle.diagonal().sign()).t())  # without the signs some projection are likelier
        lengths = torch.randn(size, dim, generator=generator).norm(dim=1, keepdim=True)
        self.projection.copy_(torch.cat(blocks)[:size] * lengths)

    def of_query(self, query: Tensor) -> Tensor:
        exponent = self._exponent(query)
        return (exponent - exponent.detach().amax(dim=-1, keepdim=True)).exp()

    def of_key(self, key: Tensor) -> Tensor:
        return self._exponent(key).clamp(max=LARGEST_EXPONENT).exp()

    def _exponent(self, vectors: Tensor) -> Tensor:
        vectors = vectors * self.root
        return F.linear(vectors, self.projection) - vectors.square().sum(dim=-1, keepdim=True) / 2


class FeatureAttention(Kernel):
    """Linear in time and memory; a past is one matrix for each head, of constant size."""

    def __init__(self, features: FeatureMap) -> None:
        super().__init__()
        self.features = features

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, causal: bool, dropout: Dropout
    ) -> Tensor:
        """The weights are never made, so there is nothing to drop out; the settings say so."""
        query_BHNF, key_BHNF = self.features.of_query(query), self._keys(key, allowed)
        if causal:
            return _divided(_sum_before(query_BHNF, key_BHNF, _with_ones(value)))
        return _divided(query_BHNF @ (key_BHNF.transpose(-2, -1) @ _with_ones(value)))

    def scores(self, query: Tensor, key: Tensor, allowed: Tensor | None, causal: bool) -> Tensor:
        """The score is the logarithm of φ(q)·φ(k), so that its softmax is the weight, as everywhere."""
        score_BHNN = (self.features.of_query(query) @ self._keys(key, allowed).transpose(-2, -1)).log()
        if causal:
            score_BHNN = score_BHNN.masked_fill(~and_causal(None, query.shape[2], query.device), -torch.inf)
        return score_BHNN

    def empty(self, rows: int, shape: HeadShape, like: Tensor) -> LayerPast:
        return (like.new_zeros(rows, shape.key_value_heads, self.features.size, shape.value_dim + 1),)

    def remember(self, query: Tensor, key: Tensor, value: Tensor, lengths: Tensor) -> LayerPast:
        is_read_RT = torch.arange(key.shape[2], device=key.device) < lengths[:, None]
        return (self._keys(key, is_read_RT).transpose(-2, -1) @ _with_ones(value),)

    def step(self, new: NewToken, past: LayerPast) -> tuple[Tensor, LayerPast]:
        (sum_RGFV,) = past
        key_RGF = self.features.of_key(new.key) * new.is_read[:, None, None]
        sum_RGFV = sum_RGFV + key_RGF[..., None] * _with_ones(new.value)[:, :, None]
        query_RH1F = self.features.of_query(new.query)[:, :, None]
        return _divided(per_group(query_RH1F, sum_RGFV))[:, :, 0], (sum_RGFV,)

    def _keys(self, key: Tensor, allowed: Tensor | None) -> Tensor:
        features = self.features.of_key(key)
        return features if allowed is None else features * allowed[:, None, :, None]


def _sum_before(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Σ over m ≤ n of (φ(q_n)·φ(k_m)) v_m, chunk by chunk.  (B H N F), (B H N F), (B H N V) -> (B H N V)."""
    length = query.shape[2]
    chunk = max(1, min(CHUNK, length))
    query_C, key_C, value_C = (
        torch.unflatten(F.pad(each, (0, 0, 0, -length % chunk)), 2, (-1, chunk)) for each in (query, key, value)
    )
    sums_BHZFV = key_C.transpose(-2, -1) @ value_C
    before_BHZFV = F.pad(sums_BHZFV.cumsum(dim=2)[:, :, :-1], (0, 0, 0, 0, 1, 0))
    within = (query_C @ key_C.transpose(-2, -1)).tril()
    return (query_C @ before_BHZFV + within @ value_C).flatten(2, 3)[:, :, :length]


def _with_ones(value: Tensor) -> Tensor:
    return F.pad(value, (0, 1), value=1.0)


def _divided(mixed: Tensor) -> Tensor:
    """Divide by the last channel, where the weights were added up.

    The gradient of a quotient has the square of what it is divided by below it, and features can be so small that there
    is none in float32. So both are divided by that sum first, which makes it 1; of a sum as good as nothing, nothing
    is left.
    """
    total = mixed[..., -1:]
    size = total.detach().clamp(min=torch.finfo(mixed.dtype).tiny ** 0.8)
    return (mixed[..., :-1] / size) / (total / size).clamp(min=0.5)


# Attention to a fixed number of sums of positions: Linformer (Wang et al. 2020, arXiv 2006.04768).


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
