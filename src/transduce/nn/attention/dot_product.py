"""Scaled dot-product attention (section 3.2.1), with plain products or torch's fused kernel.

Keys and values may have fewer heads than queries (G of them): neighbouring query heads then share one, and are folded
into the query axis, so that nothing is copied.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from transduce.nn.cpu.cross_entropy import FITS

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
    dropout: float = 0.0,
) -> Tensor:
    """Return softmax(QK^T / sqrt(K) + bias) V by whichever kernel is faster for these shapes.  -> (B H Q V).

    `causal` stands for the triangle mask where there is no other; it needs as many queries as keys. `short_attention`
    is for training only: its rows depend, in the last bit, on the scores of the rest of the batch. `dropout` of the
    weights is for GPUs, whose kernels draw it themselves.
    """
    exporting = torch.compiler.is_exporting()  # to a graph for all lengths
    if exporting or query.device.type != "cpu" or query.shape[2] * key.shape[2] > SHORT:
        return fused_attention(query, key, value, allowed, causal, bias, scale, dropout)
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
    dropout: float = 0.0,
) -> Tensor:
    """Torch's kernel, which never stores the weights: memory grows with n instead of n²."""
    if bias is not None:
        bias = bias.to(query.dtype)
        allowed = bias if allowed is None else torch.where(allowed, bias, -torch.inf)
    shared = query.shape[1] != key.shape[1]
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=allowed, dropout_p=dropout, is_causal=causal, scale=scale, enable_gqa=shared
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


# Scaled dot-product attention for training on short sentences: two batched products with a softmax between.
#
# On a CPU with AVX-512 torch's softmax takes five times as long for rows of eleven weights as for as many rows of
# twenty, and more than both products together. Here the softmax is an exponential, a sum and a quotient, each over
# all heads at once, and the backward pass is written out, so that only the inputs and the weights are saved for it.


def short_attention(query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, scale: float) -> Tensor:
    """Return softmax(QK^T · scale) V, masked by `allowed`.  (B H Q K), (B H M K), (B H M V) -> (B H Q V)."""
    mixed: Tensor = _ShortAttention.apply(query, key, value, allowed, scale)  # type: ignore[no-untyped-call]
    return mixed


class _ShortAttention(torch.autograd.Function):
    """Heads are one batch of matrices, N = B · H."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, scale: float) -> Tensor:
        query_NQK, key_NMK, value_NMV = query.flatten(0, 1), key.flatten(0, 1), value.flatten(0, 1)
        shape = *query.shape[:3], key.shape[2]
        weight_NQM = _weights(_product(query_NQK, key_NMK.transpose(1, 2), scale).view(shape), allowed).flatten(0, 1)
        ctx.save_for_backward(query_NQK, key_NMK, value_NMV, weight_NQM)
        ctx.scale, ctx.heads = scale, query.shape[:2]
        return torch.unflatten(torch.bmm(weight_NQM, value_NMV), 0, ctx.heads)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        query_NQK, key_NMK, value_NMV, weight_NQM = ctx.saved_tensors
        grad_NQV = upstream[0].flatten(0, 1)
        value_grad = torch.bmm(weight_NQM.transpose(1, 2), grad_NQV)
        # Backward pass of a softmax: weight · (grad - Σ weight · grad).
        score_grad = torch.bmm(grad_NQV, value_NMV.transpose(1, 2)).mul_(weight_NQM)
        score_grad.addcmul_(weight_NQM, score_grad.sum(dim=-1, keepdim=True), value=-1.0)
        query_grad = _product(score_grad, key_NMK, ctx.scale)
        key_grad = _product(score_grad.transpose(1, 2), query_NQK, ctx.scale)
        grads = (torch.unflatten(grad, 0, ctx.heads) for grad in (query_grad, key_grad, value_grad))
        return *grads, None, None


def _product(left: Tensor, right: Tensor, scale: float) -> Tensor:
    """Multiply matrices and scale the result, in one pass.  (N A C), (N C E) -> (N A E)."""
    made = left.new_empty(len(left), left.shape[1], right.shape[2])
    return torch.baddbmm(made, left, right, beta=0.0, alpha=scale)


def _weights(score: Tensor, allowed: Tensor | None) -> Tensor:
    """Turn scores into weights, in place.  (B H Q M)."""
    low, high = score.aminmax()
    fits = bool((low > -FITS) & (high < FITS))  # no exponential overflows, so no row needs its maximum subtracted
    if allowed is not None:  # adding is several times faster than filling by a boolean mask
        score += torch.zeros_like(allowed, dtype=score.dtype).masked_fill_(~allowed, -torch.inf)
    if not fits:
        score -= score.amax(dim=-1, keepdim=True)
    score.exp_()
    return score.div_(score.sum(dim=-1, keepdim=True))
