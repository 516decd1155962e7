"""Linear-time attention: linear Transformers (Katharopoulos et al. 2020), Performers (Choromanski et al. 2021) and
Linformer (Wang et al. 2020).

With weights φ(q)·φ(k) instead of exp(q·k), the sum over keys can be computed first: the size of φ(K)'V does not depend
on the length of the text. A decoder's state is that running sum alone, so it is a recurrent network.

Letters: F features; values have one more channel, all ones, which accumulates the normaliser of the weights.
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
"""Chunk length of causal attention: pairs within a chunk are computed one by one, earlier chunks are one sum."""
LARGEST_EXPONENT = 40.0
"""Exponents of key features are clamped to this, so that sums of millions of them fit in float32."""


class FeatureMap(nn.Module, ABC):
    """φ: a head's queries or keys → non-negative features."""

    size: int
    """Number of features."""

    @abstractmethod
    def of_query(self, query: Tensor) -> Tensor:
        """(… K) -> (… F), up to a factor per query, which the normalisation cancels."""

    @abstractmethod
    def of_key(self, key: Tensor) -> Tensor:
        """(… K) -> (… F), up to one constant factor for all keys."""


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
    """exp(w·x - |x|²/2) for random w: positive, and an unbiased estimate of exp(q·k) (FAVOR+).

    The w are drawn at initialisation, orthogonal in blocks, saved with the weights and never trained. No exponent
    depends on other keys, so that incremental decoding gives the same features as a whole sequence. A key's exponent is
    clamped: w·x - |x|²/2 can reach |w|²/2, which overflows float32 in wide heads, though it hardly ever does.
    """

    def __init__(self, key_dim: int, size: int, scale: float) -> None:
        super().__init__()
        self.size, self.root = size, scale**0.5
        self.projection = nn.Parameter(torch.empty(size, key_dim), requires_grad=False)

    def draw(self, generator: torch.Generator) -> None:
        """Draw orthogonal rows with the norms of Gaussian vectors."""
        size, dim = self.projection.shape
        blocks = []
        for _ in range(-(-size // dim)):
            basis, triangle = torch.linalg.qr(torch.randn(dim, dim, generator=generator))
            blocks.append((basis * triangle.diagonal().sign()).t())  # the signs make the distribution uniform (Haar)
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
    """Linear in time and memory; the past is one matrix of constant size per head."""

    def __init__(self, features: FeatureMap) -> None:
        super().__init__()
        self.features = features

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, causal: bool, dropout: Dropout
    ) -> Tensor:
        """Weights are never computed, so there is no attention dropout; the settings reject it."""
        query_BHNF, key_BHNF = self.features.of_query(query), self._keys(key, allowed)
        if causal:
            return _divided(_sum_before(query_BHNF, key_BHNF, _with_ones(value)))
        return _divided(query_BHNF @ (key_BHNF.transpose(-2, -1) @ _with_ones(value)))

    def scores(self, query: Tensor, key: Tensor, allowed: Tensor | None, causal: bool) -> Tensor:
        """Return log(φ(q)·φ(k)), whose softmax is the weights, as with the other kernels."""
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
    """Divide by the last channel, the sum of the weights.

    The gradient of a quotient divides by the square of the denominator, which underflows in float32 where features are
    small. So both sides are first divided by the detached sum, which makes the denominator 1; where the sum is close to
    zero, so is the result.
    """
    total = mixed[..., -1:]
    size = total.detach().clamp(min=torch.finfo(mixed.dtype).tiny ** 0.8)
    return (mixed[..., :-1] / size) / (total / size).clamp(min=0.5)


# Linformer (Wang et al. 2020, arXiv 2006.04768): keys and values are projected to a fixed number of positions.


class LowRank(Kernel):
    """Projects the keys and values of n positions to `rank` positions; all heads share the learned projections.

    A projection over positions includes later ones, so this kernel is for encoders only. Padding contributes zero.
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
        """Return the scores of the projected keys.  -> (B H N rank)."""
        sum_BHRK = self._part(self.keys, allowed, key) @ key
        return query * self.scale @ sum_BHRK.transpose(-2, -1)

    def weights(self, score: Tensor, key: Tensor, allowed: Tensor | None) -> Tensor:
        """Return each position's weight through the projection; it may be negative, and rows need not sum to one."""
        return score.softmax(dim=-1) @ self._part(self.values, allowed, key)

    def empty(self, rows: int, shape: HeadShape, like: Tensor) -> LayerPast:
        raise AssertionError("the settings reject this kernel in a decoder")

    def remember(self, query: Tensor, key: Tensor, value: Tensor, lengths: Tensor) -> LayerPast:
        raise AssertionError("the settings reject this kernel in a decoder")

    def step(self, new: NewToken, past: LayerPast) -> tuple[Tensor, LayerPast]:
        raise AssertionError("the settings reject this kernel in a decoder")

    def _part(self, weight: Tensor, allowed: Tensor | None, like: Tensor) -> Tensor:
        """The projection of the first N positions, zero at padding.  -> (B 1 rank N) or (rank N)."""
        length = like.shape[2]
        if length > self.limit:
            raise DataError(
                f"a text of {length} tokens does not fit low-rank attention that learned sums over {self.limit} "
                "positions; shorten the text, or train with a larger max_positions"
            )
        part_RN = weight[:, :length].to(like.dtype)
        return part_RN if allowed is None else part_RN * allowed[:, None, None, :]
