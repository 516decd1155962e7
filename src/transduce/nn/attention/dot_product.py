"""Scaled dot-product attention (section 3.2.1), the plain way and the fused way."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.nn.mask import and_causal

SHORT = 128 * 128
"""Weights per head up to which, on a CPU, plain products beat the fused kernel: measured forwards and backwards for
sentences of 8 to 64 tokens, they take 0.8 to 0.9 of its time with one thread and 0.3 to 0.7 with two."""


def attention_scores(query: Tensor, key: Tensor, allowed: Tensor | None = None) -> Tensor:
    """Return QK^T / sqrt(K), minus infinity where looking is not allowed.  (B H Q K), (B H M K) -> (B H Q M)."""
    score_BHQM = query @ key.transpose(-2, -1) / math.sqrt(key.shape[-1])
    return score_BHQM if allowed is None else score_BHQM.masked_fill(~allowed, -torch.inf)


def attention_weights(query: Tensor, key: Tensor, allowed: Tensor | None = None) -> Tensor:
    """Return softmax(QK^T / sqrt(K)).  (B H Q K), (B H M K) -> (B H Q M)."""
    return attention_scores(query, key, allowed).softmax(dim=-1)


def attend(query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, causal: bool) -> Tensor:
    """Return softmax(QK^T / sqrt(K)) V by whichever kernel is faster for these shapes.  -> (B H Q V).

    `causal` stands for the triangle mask where there is no other; it needs as many queries as keys.
    """
    if query.device.type == "cpu" and query.shape[2] * key.shape[2] <= SHORT:
        return short_attention(query, key, value, and_causal(None, query.shape[2], query.device) if causal else allowed)
    return fused_attention(query, key, value, allowed, causal)


def short_attention(query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None) -> Tensor:
    """Two batched products with the softmax between, for sentences whose weights are few enough to keep."""
    score_BHQM = (query / math.sqrt(key.shape[-1])) @ key.transpose(-2, -1)
    if allowed is not None:  # adding is several times faster than filling by a boolean mask
        score_BHQM += torch.zeros_like(allowed, dtype=score_BHQM.dtype).masked_fill_(~allowed, -torch.inf)
    return score_BHQM.softmax(dim=-1) @ value


def fused_attention(query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, causal: bool) -> Tensor:
    """The kernel of torch that never stores the weights; with it, memory grows with n and not with n²."""
    return F.scaled_dot_product_attention(query, key, value, attn_mask=allowed, is_causal=causal)
