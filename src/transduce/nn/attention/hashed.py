"""Locality-sensitive hashing attention: the Reformer's (Kitaev et al. 2020, arXiv 2001.04451).

Queries and keys share one projection, and random rotations hash each position into a bucket. A position attends to the
nearest `reach` others of its own bucket, before it and, without a causal mask, after it; several rounds with different
rotations make it unlikely that two similar positions never share a bucket. Positions are sorted by bucket, so that
attention is banded in the sorted order: n·log n for the sort and n·reach for the rest.

Differs from the paper, which cuts the sorted sequence into equal chunks: there, later tokens move the chunk boundaries,
so incremental decoding would attend to other neighbours than training did. With a reach within the bucket both agree.

Letters: B sentences, H heads, O rounds, N positions, U buckets, Z chunks, C positions of a chunk, L keys of a chunk.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

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
from transduce.nn.attention.pattern import distances, neighbours
from transduce.nn.dropout import Dropout

ITSELF = -1e5
"""Score of a position with itself: low, so that it attends to itself only if its bucket has no other position.

Shared queries and keys would otherwise make every position its own best match (section 2 of the paper)."""


class Hashed(Kernel):
    """Each position attends to the nearest of its own bucket in every round; pairs of several rounds count once."""

    shares_query_and_key = True

    def __init__(self, scale: float, key_dim: int, buckets: int, rounds: int, reach: int) -> None:
        super().__init__()
        self.scale, self.buckets, self.rounds, self.reach = scale, buckets, rounds, reach
        self.rotations = nn.Parameter(torch.empty(rounds, key_dim, buckets // 2), requires_grad=False)

    def draw(self, generator: torch.Generator) -> None:
        """Draw the rotations at initialisation; they are saved with the weights and never trained."""
        self.rotations.normal_(generator=generator)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, causal: bool, dropout: Dropout
    ) -> Tensor:
        bucket_BHON = self._buckets(query, allowed)
        order_BHON = bucket_BHON.argsort(dim=-1, stable=True)
        rank_BHON = order_BHON.argsort(dim=-1)
        chunk = max(1, min(self.reach, query.shape[2]))

        def fold(numbers: Tensor) -> Tensor:
            """(B H O N X) in their own order -> (B H O Z C X), sorted by bucket."""
            sorted_BHONX = numbers.gather(3, order_BHON[..., None].expand(*order_BHON.shape, numbers.shape[-1]))
            filled = F.pad(sorted_BHONX, (0, 0, 0, -numbers.shape[3] % chunk))
            return torch.unflatten(filled, 3, (-1, chunk))

        def every_round(vectors: Tensor) -> Tensor:
            return fold(vectors[:, :, None].expand(-1, -1, self.rounds, -1, -1))

        query_C, key_C, value_C = every_round(query * self.scale), every_round(key), every_round(value)
        ahead_CL = distances(chunk, query_C.shape[3], not causal, query.device)
        itself_CL = ahead_CL == 0
        pair_allowed = self._meet(fold, bucket_BHON, rank_BHON, causal) | itself_CL
        score = query_C @ neighbours(key_C, not causal).transpose(-2, -1)
        score = score.masked_fill(itself_CL, ITSELF) + minus_infinity(pair_allowed, query)
        if self.rounds > 1:
            times = pair_allowed.long()
            for shift in range(1, self.rounds):  # count in how many rounds each pair occurs
                others = bucket_BHON.roll(shift, dims=2), rank_BHON.roll(shift, dims=2)
                times = times + (self._meet(fold, *others, causal) | itself_CL)
            score = score - times.clamp(min=1).to(score.dtype).log()
        total = score.logsumexp(dim=-1, keepdim=True)
        mixed = dropout((score - total).exp()) @ neighbours(value_C, not causal)
        return self._joined(mixed.flatten(3, 4), total.flatten(3, 4), rank_BHON)

    def scores(self, query: Tensor, key: Tensor, allowed: Tensor | None, causal: bool) -> Tensor:
        bucket_BHON = self._buckets(query, allowed)
        rank_BHON = bucket_BHON.argsort(dim=-1, stable=True).argsort(dim=-1)
        alike = bucket_BHON[..., :, None] == bucket_BHON[..., None, :]
        apart = rank_BHON[..., None, :] - rank_BHON[..., :, None]
        allowed_BHNN = (alike & (apart.abs() <= self.reach)).any(dim=2)
        if causal:
            allowed_BHNN = allowed_BHNN.tril()
        itself_NN = torch.eye(query.shape[2], dtype=torch.bool, device=query.device)
        return pattern_scores(query, key, allowed_BHNN, allowed, self.scale).masked_fill(itself_NN, ITSELF)

    def empty(self, rows: int, shape: HeadShape, like: Tensor) -> LayerPast:
        """All keys and values, and for each bucket the positions of its last tokens and its number of tokens."""
        per_bucket = (rows, shape.num_heads, self.rounds, self.buckets)
        ring = torch.full((*per_bucket, self.reach + 1), -1, dtype=torch.long, device=like.device)
        return (*no_slots(rows, shape, like), ring, torch.zeros(per_bucket, dtype=torch.long, device=like.device))

    def remember(self, query: Tensor, key: Tensor, value: Tensor, lengths: Tensor) -> LayerPast:
        place_T = torch.arange(key.shape[2], device=key.device)
        bucket_RHOT = self._buckets(query, place_T < lengths[:, None])  # padding has a bucket of its own
        count = torch.zeros(*bucket_RHOT.shape[:3], self.buckets + 1, dtype=torch.long, device=key.device)
        count = count.scatter_add(3, bucket_RHOT, torch.ones_like(bucket_RHOT))
        rank_RHOT = bucket_RHOT.argsort(dim=-1, stable=True).argsort(dim=-1)
        within_RHOT = rank_RHOT - (count.cumsum(dim=3) - count).gather(3, bucket_RHOT)
        size = self.reach + 1
        is_last = within_RHOT >= count.gather(3, bucket_RHOT) - size
        slot_RHOT = torch.where(is_last, bucket_RHOT, self.buckets) * size + within_RHOT % size
        ring = torch.full((*count.shape[:3], (self.buckets + 1) * size), -1, dtype=torch.long, device=key.device)
        ring = ring.scatter(3, slot_RHOT, place_T.expand_as(slot_RHOT))[..., : self.buckets * size]
        return key, value, torch.unflatten(ring, 3, (self.buckets, size)), count[..., : self.buckets]

    def step(self, new: NewToken, past: LayerPast) -> tuple[Tensor, LayerPast]:
        keys, values, ring, count_RHOU = past
        keys = put(keys, new.position, new.key, new.is_read, new.longest + 1)
        values = put(values, new.position, new.value, new.is_read, new.longest + 1)
        bucket_RHO1 = self._buckets(new.query[:, :, None], None)
        index = bucket_RHO1[..., None].expand(-1, -1, -1, 1, self.reach + 1)
        ring_RHOC = ring.gather(3, index)[:, :, :, 0]
        slot_RHO1 = count_RHOU.gather(3, bucket_RHO1) % (self.reach + 1)
        place_RHO1 = torch.where(
            new.is_read[:, None, None, None], new.position[:, None, None, None], ring_RHOC.gather(3, slot_RHO1)
        )
        ring_RHOC = ring_RHOC.scatter(3, slot_RHO1, place_RHO1)
        ring = ring.scatter(3, index, ring_RHOC[:, :, :, None])
        one = new.is_read[:, None, None, None].long().expand_as(bucket_RHO1)
        count_RHOU = count_RHOU.scatter_add(3, bucket_RHO1, one)
        key_RHM = ring_RHOC.flatten(2)
        bias_RHM = minus_infinity(key_RHM >= 0, new.query)
        sorted_RHM = key_RHM.sort(dim=-1).values
        times_RHM = torch.searchsorted(sorted_RHM, key_RHM, right=True) - torch.searchsorted(sorted_RHM, key_RHM)
        bias_RHM = bias_RHM - times_RHM.to(bias_RHM.dtype).log()
        is_itself = key_RHM == new.position[:, None, None]
        slot_RHM = key_RHM.clamp(min=0)
        key_RHMK = take(keys, slot_RHM)
        key_RHMK = torch.where(is_itself[..., None], 0.0, key_RHMK)
        bias_RHM = bias_RHM + (ITSELF * is_itself).to(bias_RHM.dtype)
        mixed = mix_few(new.query, key_RHMK, take(values, slot_RHM), bias_RHM, self.scale)
        return mixed, (keys, values, ring, count_RHOU)

    def _buckets(self, vectors: Tensor, allowed: Tensor | None) -> Tensor:
        """Bucket of each position in each round; padding has a bucket of its own.  (B H N K) -> (B H O N)."""
        turned = torch.einsum("bhnk,oku->bhonu", vectors.detach(), self.rotations.to(vectors.dtype))
        if self.buckets == 1:
            bucket_BHON = torch.zeros(turned.shape[:-1], dtype=torch.long, device=vectors.device)
        else:
            bucket_BHON = torch.cat([turned, -turned], dim=-1).argmax(dim=-1)
        return bucket_BHON if allowed is None else bucket_BHON.masked_fill(~allowed[:, None, None, :], self.buckets)

    def _meet(self, fold: Callable[[Tensor], Tensor], bucket: Tensor, rank: Tensor, causal: bool) -> Tensor:
        """Which of a chunk's keys each of its queries attends to.  (B H O N), (B H O N) -> (B H O Z C L)."""
        own_bucket, own_rank = fold(bucket[..., None] + 1), fold(rank[..., None])  # 0 pads the last chunk
        around_bucket, around_rank = (neighbours(own, not causal).transpose(-2, -1) for own in (own_bucket, own_rank))
        ahead = around_rank - own_rank
        near = (ahead <= 0) & (ahead >= -self.reach) if causal else ahead.abs() <= self.reach
        return near & (around_bucket == own_bucket) & (around_bucket > 0)

    def _joined(self, mixed: Tensor, total: Tensor, rank: Tensor) -> Tensor:
        """Undo the sort and average the rounds by their softmax totals.  (B H O N' V) -> (B H N V)."""
        share = total.gather(3, rank[..., None])
        mixed = mixed.gather(3, rank[..., None].expand(*rank.shape, mixed.shape[-1]))
        return (mixed * share.softmax(dim=2)).sum(dim=2)
