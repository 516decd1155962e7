"""Attention in fixed patterns: a sliding window (Beltagy et al. 2020), and strides (Child et al. 2019).

Both cache keys and values in slots, and a new token attends only to the slots of its pattern. A window's slots are a
ring buffer: positions out of reach are overwritten. A stride attends to every earlier position again sooner or later,
so all of them stay in the cache.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.nn.attention.dot_product import attention_scores
from transduce.nn.attention.kernel import (
    Kernel,
    LayerPast,
    NewToken,
    minus_infinity,
    mix_few,
    no_slots,
    pattern_scores,
    put,
    take,
)
from transduce.nn.attention.multi_head import HeadShape
from transduce.nn.dropout import Dropout

# Banded attention: n·w in time and memory, for a band of w positions around each query.
#
# A sequence is split into chunks as long as the band is wide. The keys of a query are then in its own chunk or in the
# adjacent ones, so that three chunks (two with a causal mask) hold every key of a chunk.
#
# Letters: B sentences, H heads, N positions, C positions of a chunk, L keys of a chunk, E extra keys.


def split_residues(vectors: Tensor, stride: int, multiple: int = 1) -> Tensor:
    """Group positions by their residue modulo `stride`, padded to a multiple.  (… N K) -> (… stride A K)."""
    length = vectors.shape[-2]
    filled = F.pad(vectors, (0, 0, 0, -length % (stride * multiple)))
    return torch.unflatten(filled, -2, (-1, stride)).transpose(-3, -2)


def merge_residues(rows: Tensor, length: int) -> Tensor:
    """Undo `split_residues`.  (… stride A K) -> (… N K)."""
    return rows.transpose(-3, -2).flatten(-3, -2)[..., :length, :]


def neighbours(chunks: Tensor, after: bool) -> Tensor:
    """Concatenate each chunk with the one before and, if `after`, the one after.  (… Z C K) -> (… Z L K)."""
    if chunks.shape[-3] == 1:
        return chunks
    shifted = [F.pad(chunks[..., :-1, :, :], (0, 0, 0, 0, 1, 0)), chunks]
    if after:
        shifted.append(F.pad(chunks[..., 1:, :, :], (0, 0, 0, 0, 0, 1)))
    return torch.cat(shifted, dim=-2)


def distances(chunk: int, chunks: int, after: bool, device: torch.device) -> Tensor:
    """Distance from each query of a chunk to each of the chunk's keys, positive for later keys.  -> (C L)."""
    sides = 0 if chunks == 1 else 1 + after
    key_L = torch.arange(chunk * (1 + sides), device=device) - (chunk if sides else 0)
    return key_L - torch.arange(chunk, device=device)[:, None]


def band_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    visible: Tensor,
    window: int,
    dilation: int,
    causal: bool,
    dropout: Dropout,
    further: Tensor | None = None,
    sees_itself: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Attend to the positions within `window` steps of `dilation` around each query.  (B H N K) … -> (B H N V).

    `visible` (B N) is the mask over keys; a position always attends to itself unless `sees_itself` (N) is False there.
    `further` (B H N E) are scores of extra keys in the same softmax; their weights are returned too.
    """
    length, device = query.shape[2], query.device
    chunk = max(1, min(window, -(-length // dilation)))

    def fold(vectors: Tensor) -> Tensor:
        """(B H N K) -> (B H dilation Z C K)."""
        return torch.unflatten(split_residues(vectors, dilation, chunk), -2, (-1, chunk))

    query_C, key_C, value_C = fold(query), fold(key), fold(value)
    ahead_CL = distances(chunk, query_C.shape[3], not causal, device)
    band_CL = (ahead_CL.abs() <= window) & (ahead_CL <= 0 if causal else torch.ones_like(ahead_CL, dtype=torch.bool))
    pair_allowed = band_CL & neighbours(fold(visible[:, None, :, None]), not causal).transpose(-2, -1)
    itself = ahead_CL == 0
    if sees_itself is not None:
        beyond = -length % (dilation * chunk)
        own = F.pad(sees_itself, (0, beyond), value=True)[None, None, :, None]
        itself = itself & fold(own)
    score = query_C @ neighbours(key_C, not causal).transpose(-2, -1) + minus_infinity(pair_allowed | itself, query)
    few = score.shape[-1]
    if further is not None:
        score = torch.cat([score, fold(further)], dim=-1)
    weight = dropout(score.softmax(dim=-1))
    mixed = weight[..., :few] @ neighbours(value_C, not causal)

    def unfold(chunks: Tensor) -> Tensor:
        return merge_residues(chunks.flatten(-3, -2), length)

    return unfold(mixed), None if further is None else unfold(weight[..., few:])


class Pattern(Kernel):
    """Softmax attention to a fixed subset of positions, which subclasses define."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    @abstractmethod
    def attends(self, query: Tensor, key: Tensor) -> Tensor:
        """Whether a query attends to a key, before any causal mask.  (… 1), (M) -> (… M)."""

    @abstractmethod
    def attended_positions(self, position: Tensor, longest: int) -> tuple[Tensor, Tensor]:
        """Return the positions that new tokens attend to, and which of them exist.  (R) -> (R M), (R M)."""

    @abstractmethod
    def slot(self, position: Tensor) -> Tensor:
        """Return the cache slot of a position."""

    @abstractmethod
    def last_in(self, slot: Tensor, lengths: Tensor) -> Tensor:
        """Return the position cached in each slot after `lengths` tokens, negative if none.  (N), (R 1) -> (R N)."""

    @abstractmethod
    def slots(self, length: int) -> int:
        """Return the number of cache slots for a text of `length` tokens."""

    def scores(self, query: Tensor, key: Tensor, allowed: Tensor | None, causal: bool) -> Tensor:
        place_N = torch.arange(query.shape[2], device=query.device)
        allowed_NN = self.attends(place_N[:, None], place_N)
        if causal:
            allowed_NN = allowed_NN & (place_N <= place_N[:, None])
        return pattern_scores(query, key, allowed_NN, allowed, self.scale)

    def empty(self, rows: int, shape: HeadShape, like: Tensor) -> LayerPast:
        return no_slots(rows, shape, like)

    def remember(self, query: Tensor, key: Tensor, value: Tensor, lengths: Tensor) -> LayerPast:
        slot_N = torch.arange(self.slots(key.shape[2]), device=key.device)
        place_RGN = self.last_in(slot_N, lengths[:, None]).clamp(min=0)[:, None].expand(-1, key.shape[1], -1)
        return take(key, place_RGN), take(value, place_RGN)

    def step(self, new: NewToken, past: LayerPast) -> tuple[Tensor, LayerPast]:
        slot_R, size = self.slot(new.position), self.slots(new.longest + 1)
        keys, values = (
            put(kept, slot_R, vector, new.is_read, size)
            for kept, vector in zip(past, (new.key, new.value), strict=True)
        )
        key_RM, exists_RM = self.attended_positions(new.position, new.longest)
        slot_RGM = self.slot(key_RM.clamp(min=0))[:, None].expand(-1, keys.shape[1], -1)
        bias_R1M = minus_infinity(exists_RM, new.query)[:, None]
        return mix_few(new.query, take(keys, slot_RGM), take(values, slot_RGM), bias_R1M, self.scale), (keys, values)


class Window(Pattern):
    """Each position attends to `window` others on either side, `dilation` apart, and to the first few of the text.

    Those first ones are global: all positions attend to them, and without a causal mask they attend to all positions.
    With a causal mask only the `window` positions to the left remain.
    """

    def __init__(self, scale: float, window: int, dilation: int = 1, global_tokens: int = 0) -> None:
        super().__init__(scale)
        self.window, self.dilation, self.global_tokens = window, dilation, global_tokens
        self.ring = window * dilation + 1

    def attends(self, query: Tensor, key: Tensor) -> Tensor:
        apart = (query - key).abs()
        near = (apart <= self.window * self.dilation) & (apart % self.dilation == 0)
        return near | (key < self.global_tokens) | (query < self.global_tokens)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, causal: bool, dropout: Dropout
    ) -> Tensor:
        length, few = query.shape[2], min(self.global_tokens, query.shape[2])
        place_N = torch.arange(length, device=query.device)
        real_BN = torch.ones_like(place_N, dtype=torch.bool)[None] if allowed is None else allowed
        query = query * self.scale
        further = None
        if few:
            allowed_BNE = real_BN[:, None, :few].expand(-1, length, -1)
            if causal:
                allowed_BNE = allowed_BNE & (place_N[:few] <= place_N[:, None])
            further = query @ key[:, :, :few].transpose(-2, -1) + minus_infinity(allowed_BNE, query)[:, None]
        local = place_N >= few  # global tokens are among the extra keys: do not count them twice
        mixed, weight_BHNE = band_attention(
            query, key, value, real_BN & local, self.window, self.dilation, causal, dropout, further, local
        )
        if weight_BHNE is None:
            return mixed
        mixed = mixed + weight_BHNE @ value[:, :, :few]
        if causal:
            return mixed
        wide_BHEN = attention_scores(query[:, :, :few], key, real_BN[:, None, None], scale=1.0).softmax(dim=-1)
        return torch.cat([dropout(wide_BHEN) @ value, mixed[:, :, few:]], dim=2)

    def attended_positions(self, position: Tensor, longest: int) -> tuple[Tensor, Tensor]:
        steps = torch.arange(min(self.window, longest // self.dilation) + 1, device=position.device)
        near_RM = position[:, None] - steps * self.dilation
        first_E = torch.arange(min(self.global_tokens, longest + 1), device=position.device)
        key_RM = torch.cat([near_RM, first_E.expand(len(position), -1)], dim=1)
        exists_RM = torch.cat([near_RM >= len(first_E), first_E <= position[:, None]], dim=1)
        return key_RM, exists_RM

    def slot(self, position: Tensor) -> Tensor:
        beyond = position - self.global_tokens
        return torch.where(beyond < 0, position, self.global_tokens + beyond % self.ring)

    def last_in(self, slot: Tensor, lengths: Tensor) -> Tensor:
        rounds = (lengths - 1 - slot).div(self.ring, rounding_mode="floor")
        place_RN = torch.where(slot < self.global_tokens, slot, slot + rounds * self.ring)
        return torch.where(slot < lengths, place_RN, -1)

    def slots(self, length: int) -> int:
        return min(length, self.global_tokens + self.ring)


class Strided(Pattern):
    """Each position attends to the `stride` - 1 nearest on either side, and to every stride-th of all others.

    With a stride near the square root of the length, two layers connect every pair at a cost of n·√n. Child et al.
    either give the two patterns to different heads or merge them in one head; this is the merged form.
    """

    def __init__(self, scale: float, stride: int) -> None:
        super().__init__(scale)
        self.stride = stride

    def attends(self, query: Tensor, key: Tensor) -> Tensor:
        apart = (query - key).abs()
        return (apart < self.stride) | (apart % self.stride == 0)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, causal: bool, dropout: Dropout
    ) -> Tensor:
        length, stride = query.shape[2], min(self.stride, query.shape[2])  # a longer stride covers no more
        real_BN = torch.ones(1, length, dtype=torch.bool, device=query.device) if allowed is None else allowed
        query = query * self.scale
        query_A, key_A, value_A = (split_residues(each, stride) for each in (query, key, value))
        place_A = torch.arange(query_A.shape[3], device=query.device)
        far_AA = place_A < place_A[:, None] if causal else place_A != place_A[:, None]
        pair_allowed = far_AA & split_residues(real_BN[:, None, :, None], stride).transpose(-2, -1)
        score = query_A @ key_A.transpose(-2, -1) + minus_infinity(pair_allowed, query)
        further_BHNA = merge_residues(score, length)
        mixed, weight_BHNA = band_attention(query, key, value, real_BN, stride - 1, 1, causal, dropout, further_BHNA)
        assert weight_BHNA is not None
        return mixed + merge_residues(split_residues(weight_BHNA, stride) @ value_A, length)

    def attended_positions(self, position: Tensor, longest: int) -> tuple[Tensor, Tensor]:
        near_S = torch.arange(min(self.stride, longest + 1), device=position.device)
        far_A = self.stride * torch.arange(1, longest // self.stride + 1, device=position.device)
        key_RM = position[:, None] - torch.cat([near_S, far_A])
        return key_RM, key_RM >= 0

    def slot(self, position: Tensor) -> Tensor:
        return position

    def last_in(self, slot: Tensor, lengths: Tensor) -> Tensor:
        return torch.where(slot < lengths, slot, -1)

    def slots(self, length: int) -> int:
        return length
