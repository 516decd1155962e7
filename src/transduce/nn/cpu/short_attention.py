"""Scaled dot-product attention for training on short sentences: two batched products with a softmax between.

On a CPU with AVX-512 torch's softmax takes five times as long for rows of eleven weights as for as many rows of twenty,
and more than both products together. Here the softmax is an exponential, a sum and a quotient, each over all heads at
once, and the backward pass is written out, so that only the inputs and the weights are saved for it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from transduce.nn.cpu.cross_entropy import FITS


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
