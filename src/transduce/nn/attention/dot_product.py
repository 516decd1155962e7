"""Scaled dot-product attention (section 3.2.1), with plain products or torch's fused kernel.

Keys and values may have fewer heads than queries (G of them): neighbouring query heads then share one, and are folded
into the query axis, so that nothing is copied.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.nn.cpu.short_attention import short_attention

SHORT = 128 * 128
"""Weights per head up to which, on a CPU, plain products beat the fused kernel: measured forward and backward for
sentences of 8 to 64 tokens, they take 0.8 to 0.9 of its time with one thread and 0.3 to 0.7 with two."""
SHORT_ROW = 24
"""Keys up to which a hand-written softmax beats torch's in training: measured for 4 heads of 32, attention takes 0.6 of
its time with 6 to 11 keys, 0.9 with 20, and torch's is faster from 32 on."""


def attention_scores(
    query: Tensor,
    key: Tensor,
    allowed: Tensor | None = None,
    bias: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """Return QK^T / sqrt(K) + bias, minus infinity where not allowed.  (B H Q K), (B G M K) -> (B H Q M)."""
    scale = key.shape[-1] ** -0.5 if scale is None else scale
    score_BHQM = per_group(query * scale, key.transpose(-2, -1))
    if bias is not None:
        score_BHQM = score_BHQM + bias
    return score_BHQM if allowed is None else score_BHQM.masked_fill(~allowed, -torch.inf)


def attention_weights(query: Tensor, key: Tensor, allowed: Tensor | None = None) -> Tensor:
    """Return softmax(QK^T / sqrt(K)).  (B H Q K), (B G M K) -> (B H Q M)."""
    return attention_scores(query, key, allowed).softmax(dim=-1)


def per_group(rows: Tensor, matrix: Tensor) -> Tensor:
    """Multiply each head's rows with its group's matrix.  (B H Q A), (B G A C) -> (B H Q C)."""
    heads, groups = rows.shape[1], matrix.shape[1]
    if heads == groups:
        return rows @ matrix
    folded_BGNA = rows.reshape(len(rows), groups, -1, rows.shape[-1])
    return (folded_BGNA @ matrix).view(*rows.shape[:-1], -1)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    allowed: Tensor | None,
    causal: bool,
    bias: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """Return softmax(QK^T / sqrt(K) + bias) V by whichever kernel is faster for these shapes.  -> (B H Q V).

    `causal` stands for the triangle mask where there is no other; it needs as many queries as keys. `short_attention`
    is for training only: its rows depend, in the last bit, on the scores of the rest of the batch.
    """
    if query.device.type != "cpu" or query.shape[2] * key.shape[2] > SHORT:
        return fused_attention(query, key, value, allowed, causal, bias, scale)
    scale = key.shape[-1] ** -0.5 if scale is None else scale
    allowed = and_causal(None, query.shape[2], query.device) if causal else allowed
    if torch.is_grad_enabled() and key.shape[2] <= SHORT_ROW and bias is None and query.shape[1] == key.shape[1]:
        return short_attention(query, key, value, allowed, scale)
    score_BHQM = per_group(query * scale, key.transpose(-2, -1))
    if bias is not None:
        score_BHQM = score_BHQM + bias
    if allowed is not None:  # adding is several times faster than filling by a boolean mask
        score_BHQM += torch.zeros_like(allowed, dtype=score_BHQM.dtype).masked_fill_(~allowed, -torch.inf)
    return per_group(score_BHQM.softmax(dim=-1), value)


def fused_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    allowed: Tensor | None,
    causal: bool,
    bias: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """Torch's kernel, which never stores the weights: memory grows with n instead of n²."""
    if bias is not None:
        bias = bias.to(query.dtype)
        allowed = bias if allowed is None else torch.where(allowed, bias, -torch.inf)
    shared = query.shape[1] != key.shape[1]
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=allowed, is_causal=causal, scale=scale, enable_gqa=shared
    )


# Attention masks: boolean, True means "may attend".


def padding_allowed(tokens: Tensor, pad: int) -> Tensor:
    """Return which positions hold a real token.  (B S) -> (B S)."""
    return tokens != pad


def causal_allowed(length: int, device: torch.device | None = None) -> Tensor:
    """Return the triangle of section 3.2.3: position q may attend to m <= q.  -> (length, length)."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def and_causal(allowed: Tensor | None, length: int, device: torch.device) -> Tensor:
    """Combine a mask with the causal triangle.  (B 1 1 N) or None -> (B 1 N N) or (1 1 N N)."""
    triangle_NN = causal_allowed(length, device)[None, None]
    return triangle_NN if allowed is None else allowed & triangle_NN
