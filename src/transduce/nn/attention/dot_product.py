"""Scaled dot-product attention (section 3.2.1), the plain way and the fused way."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def attention_scores(query: Tensor, key: Tensor, allowed: Tensor | None = None) -> Tensor:
    """Return QK^T / sqrt(K), minus infinity where looking is not allowed.  (B H Q K), (B H M K) -> (B H Q M)."""
    score_BHQM = query @ key.transpose(-2, -1) / math.sqrt(key.shape[-1])
    return score_BHQM if allowed is None else score_BHQM.masked_fill(~allowed, -torch.inf)


def attention_weights(query: Tensor, key: Tensor, allowed: Tensor | None = None) -> Tensor:
    """Return softmax(QK^T / sqrt(K)).  (B H Q K), (B H M K) -> (B H Q M)."""
    return attention_scores(query, key, allowed).softmax(dim=-1)


def fused_attention(query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, causal: bool) -> Tensor:
    """Return softmax(QK^T / sqrt(K)) V without ever storing the weights.  -> (B H Q V).

    `causal` stands for the triangle mask, which the kernel then need not read; it needs as many queries as keys.
    """
    return F.scaled_dot_product_attention(query, key, value, attn_mask=allowed, is_causal=causal)
