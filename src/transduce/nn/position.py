"""Position encodings: added to embeddings (section 3.5), or relative ones in self-attention."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.errors import DataError
from transduce.nn.dropout import Dropout, keyed_bits

Signals = Callable[[int, int], Tensor]
"""(length, width) -> an encoding for each position."""


def sinusoids(length: int, dim: int) -> Tensor:
    """Position encodings of section 3.5: even channels sine, odd cosine, wavelengths 2π … 10000·2π.  -> (length, dim).

    Differs from the paper: nothing.
    """
    position_T1 = torch.arange(length, dtype=torch.float64)[:, None]
    rate_C = torch.exp(torch.arange(0, dim, 2, dtype=torch.float64) * (-math.log(10000.0) / dim))
    signal_TD = torch.empty(length, dim, dtype=torch.float64)
    signal_TD[:, 0::2] = torch.sin(position_T1 * rate_C)
    signal_TD[:, 1::2] = torch.cos(position_T1 * rate_C[: dim // 2])
    return signal_TD


def halved_sinusoids(length: int, dim: int) -> Tensor:
    """The same encodings in Marian's layout: all sines first, then all cosines.  -> (length, dim)."""
    signal_TD = sinusoids(length, dim)
    return torch.cat([signal_TD[:, 0::2], signal_TD[:, 1::2]], dim=1)


def shifted_sinusoids(length: int, dim: int) -> Tensor:
    """Encodings in fairseq's layout (M2M100, NLLB): sines first, from position 2 on, rates down to 1/10000 itself."""
    half = dim // 2
    rate_C = torch.exp(torch.arange(half, dtype=torch.float64) * (-math.log(10000.0) / max(half - 1, 1)))
    angle_TC = torch.arange(2, length + 2, dtype=torch.float64)[:, None] * rate_C
    signal_TD = torch.zeros(length, dim, dtype=torch.float64)  # an odd channel stays empty
    signal_TD[:, :half], signal_TD[:, half : 2 * half] = angle_TC.sin(), angle_TC.cos()
    return signal_TD


class SinusoidalPositions(nn.Module):
    """Fixed sinusoids; the table is computed on demand, grows for longer texts and is never saved."""

    limit: int | None = None
    """No maximum length."""
    table: Tensor

    def __init__(self, dim: int, expected_length: int = 512, signals: Signals = sinusoids) -> None:
        super().__init__()
        self.dim, self.expected_length, self.signals = dim, expected_length, signals
        self.register_buffer("table", torch.empty(0, dim), persistent=False)

    def first(self, length: int) -> Tensor:
        """Return the signals of positions 0 … length - 1.  -> (length, D)."""
        return self._reach(length)[:length]

    def at(self, positions: Tensor, longest: int) -> Tensor:
        """Return the signals of given positions, all below `longest`.  (R T) -> (R T D)."""
        return self._reach(longest)[positions]

    def _reach(self, length: int) -> Tensor:
        """Return a table of at least this length; another thread may replace it by a shorter one at any time."""
        table = self.table
        if length > len(table):
            size = max(length, self.expected_length, 2 * len(table))
            with torch.inference_mode(False):  # a table made in inference mode may be used in training later
                table = self.table = self.signals(size, self.dim).to(table)
        return table


class LearnedPositions(nn.Module):
    """A learned vector for each position (Table 3, row E); longer texts are an error."""

    def __init__(self, dim: int, limit: int) -> None:
        super().__init__()
        self.limit: int | None = limit
        self.weight = nn.Parameter(torch.empty(limit, dim))

    def first(self, length: int) -> Tensor:
        """Return the vectors of positions 0 … length - 1.  -> (length, D)."""
        self._check(length)
        return self.weight[:length]

    def at(self, positions: Tensor, longest: int) -> Tensor:
        """Return the vectors of given positions, all below `longest`.  (R T) -> (R T D)."""
        self._check(longest)
        return self.weight[positions]

    def _check(self, length: int) -> None:
        if length > len(self.weight):
            raise DataError(
                f"a text of {length} tokens does not fit a model that learned {len(self.weight)} positions; "
                "shorten the text, or train with sinusoidal positions or a larger max_positions"
            )


class NoPositions(nn.Module):
    """Nothing is added: positions are encoded in attention, see `RelativePositions`."""

    limit: int | None = None
    zero: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("zero", torch.zeros(1), persistent=False)

    def first(self, length: int) -> Tensor:
        """-> (length, 1)."""
        return self.zero.expand(length, 1)

    def at(self, positions: Tensor, longest: int) -> Tensor:
        """(R T) -> (R T 1)."""
        return self.zero.expand(*positions.shape, 1)


Positions = SinusoidalPositions | LearnedPositions | NoPositions


class RandomOffsets(nn.Module):
    """Offset of each row's positions: 0, or in training random up to `most`, to generalise to longer texts.

    Dehghani et al. 2019, section 3. Offsets are keyed like dropout: they depend neither on resuming nor on
    micro-batches.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most
        self.site = Dropout(0.0)
        """Holds the key of the pass, like every dropout of the model."""

    def forward(self, tokens: Tensor) -> Tensor:
        """(B N) -> (B)."""
        if not self.training or self.most == 0:
            return torch.zeros(len(tokens), dtype=torch.long, device=tokens.device)
        if self.site.key is None or tokens.device.type != "cpu":
            return torch.randint(0, self.most + 1, (len(tokens),), device=tokens.device)
        bits_B2 = keyed_bits(self.site.key, self.site.site, self.site.calls, tokens.new_zeros(len(tokens), 2)).long()
        self.site.calls += 1
        return ((bits_B2[:, 0] + 2**15) * 2**16 + bits_B2[:, 1] + 2**15) % (self.most + 1)


# Relative position encodings, used in self-attention instead of encodings that are added to embeddings.
#
# The module is called once per pass for the whole stack: it returns the `Relation` of queries to keys, and each
# layer's self-attention uses it. Positions are given for both, so that the same module serves a whole sequence, a
# prompt, and one more token after any past.
#
# Letters: S sentences or 1, Q queries, M keys, H heads, K width of a head's keys.


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
