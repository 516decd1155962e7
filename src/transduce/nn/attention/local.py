"""Attention to a neighbourhood: in time and memory n·w, for a band of w around every position.

A sequence is folded into chunks as long as the band is wide. What a position sees then stands in its own chunk or in
the ones beside it, so that three chunks (two, where the future is hidden) hold every key that a chunk needs.

Letters: B sentences, H heads, N positions, C positions of a chunk, L keys that a chunk looks at, E further keys.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.nn.attention.kernel import minus_infinity
from transduce.nn.dropout import Dropout


def split_residues(vectors: Tensor, stride: int, multiple: int = 1) -> Tensor:
    """Every stride-th position side by side, each such row padded.  (… N K) -> (… stride A K)."""
    length = vectors.shape[-2]
    filled = F.pad(vectors, (0, 0, 0, -length % (stride * multiple)))
    return torch.unflatten(filled, -2, (-1, stride)).transpose(-3, -2)


def merge_residues(rows: Tensor, length: int) -> Tensor:
    """Undo `split_residues`.  (… stride A K) -> (… N K)."""
    return rows.transpose(-3, -2).flatten(-3, -2)[..., :length, :]


def neighbours(chunks: Tensor, after: bool) -> Tensor:
    """Put the chunk before, and the one after, beside each.  (… Z C K) -> (… Z L K)."""
    if chunks.shape[-3] == 1:
        return chunks
    shifted = [F.pad(chunks[..., :-1, :, :], (0, 0, 0, 0, 1, 0)), chunks]
    if after:
        shifted.append(F.pad(chunks[..., 1:, :, :], (0, 0, 0, 0, 0, 1)))
    return torch.cat(shifted, dim=-2)


def distances(chunk: int, chunks: int, after: bool, device: torch.device) -> Tensor:
    """How far each key that a chunk looks at stands ahead of each of its positions.  -> (C L)."""
    sides = 0 if chunks == 1 else 1 + after
    asked_L = torch.arange(chunk * (1 + sides), device=device) - (chunk if sides else 0)
    return asked_L - torch.arange(chunk, device=device)[:, None]


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
    """Mix the values within `window` steps of `dilation` around each position.  (B H N K) … -> (B H N V).

    `visible` (B N) says which keys may be looked at; a position always sees itself unless `sees_itself` (N) says no.
    `further` (B H N E) are scores that stand in the same softmax; their weights are returned beside.
    """
    length, device = query.shape[2], query.device
    chunk = max(1, min(window, -(-length // dilation)))

    def fold(vectors: Tensor) -> Tensor:
        """(B H N K) -> (B H dilation Z C K)."""
        return torch.unflatten(split_residues(vectors, dilation, chunk), -2, (-1, chunk))

    query_C, key_C, value_C = fold(query), fold(key), fold(value)
    ahead_CL = distances(chunk, query_C.shape[3], not causal, device)
    band_CL = (ahead_CL.abs() <= window) & (ahead_CL <= 0 if causal else torch.ones_like(ahead_CL, dtype=torch.bool))
    seen = band_CL & neighbours(fold(visible[:, None, :, None]), not causal).transpose(-2, -1)
    itself = ahead_CL == 0
    if sees_itself is not None:
        beyond = -length % (dilation * chunk)
        own = F.pad(sees_itself, (0, beyond), value=True)[None, None, :, None]
        itself = itself & fold(own)
    score = query_C @ neighbours(key_C, not causal).transpose(-2, -1) + minus_infinity(seen | itself, query)
    few = score.shape[-1]
    if further is not None:
        score = torch.cat([score, fold(further)], dim=-1)
    weight = dropout(score.softmax(dim=-1))
    mixed = weight[..., :few] @ neighbours(value_C, not causal)

    def unfold(chunks: Tensor) -> Tensor:
        return merge_residues(chunks.flatten(-3, -2), length)

    return unfold(mixed), None if further is None else unfold(weight[..., few:])
