"""The output layer and the smoothed cross-entropy in one, a few rows at a time.

Scores over the vocabulary are the largest tensors of training. Here they are made, used and overwritten in one small
buffer, and the gradients are computed while they are there, so that neither the scores nor their gradient are ever
stored whole.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

CHUNK_ELEMENTS = 2**22
"""Scores in the buffer: 16 MB of float32, which stays in a cache or close to one."""


class CrossEntropy(NamedTuple):
    """Sums over N tokens."""

    smoothed: Tensor
    """What to minimise: the true token has probability 1 - ε, each of the K - 1 others ε / (K - 1)."""
    plain: Tensor
    """The negative log-likelihood; carries no gradient."""
    correct: Tensor
    """How many true tokens have the highest score; counted only where no gradient is wanted."""


def linear_cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, output: Tensor, smoothing: float
) -> CrossEntropy:
    """Score the vocabulary and compare with the true tokens.  (N D), (V D), (V), (N) -> sums.

    Gradients reach hidden, weight and bias. F.linear_cross_entropy works in chunks too, but not with smoothed labels.
    """
    wanted = torch.is_grad_enabled() and (hidden.requires_grad or weight.requires_grad)
    sums = _Fused.apply(hidden, weight, bias, output, smoothing, wanted)  # type: ignore[no-untyped-call]
    return CrossEntropy(*sums)


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, output: Tensor, smoothing: float, wanted: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        count, vocabulary = len(hidden), len(weight)
        share = smoothing / max(1, vocabulary - 1)
        rows = max(1, min(count, CHUNK_ELEMENTS // vocabulary))
        buffers = hidden.new_empty(2, rows, vocabulary)
        weight_sum_D = weight.sum(dim=0)
        bias_sum = 0.0 if bias is None else bias.sum()
        sums = hidden.new_zeros(3, dtype=torch.float64)  # smoothed, plain, correct
        hidden_grad = torch.empty_like(hidden) if wanted else None
        weight_grad = torch.zeros_like(weight) if wanted else None
        bias_grad = torch.zeros_like(bias) if wanted and bias is not None else None
        for start in range(0, count, rows):
            hidden_ND, output_N1 = hidden[start : start + rows], output[start : start + rows, None]
            score_NV, log_NV = buffers[:, : len(hidden_ND)]
            torch.mm(hidden_ND, weight.t(), out=score_NV)
            if bias is not None:
                score_NV += bias
            true_N1 = score_NV.gather(1, output_N1)
            torch._log_softmax(score_NV, 1, False, out=log_NV)
            log_true_N1 = log_NV.gather(1, output_N1)
            # The sum of all log-probabilities: the sum of all scores needs no pass over them, hidden · Σ weight.
            log_sum_N = hidden_ND @ weight_sum_D + bias_sum - vocabulary * (true_N1 - log_true_N1)[:, 0]
            log_true_N = log_true_N1[:, 0]
            smoothed_N = -(1.0 - smoothing) * log_true_N - share * (log_sum_N - log_true_N)
            sums[0] += smoothed_N.sum(dtype=torch.float64)
            sums[1] -= log_true_N.sum(dtype=torch.float64)
            if hidden_grad is None or weight_grad is None:
                sums[2] += (score_NV.max(dim=1, keepdim=True).values == true_N1).sum()
                continue
            # d smoothed / d score = probability - target; the part of the target that is the same for all tokens is
            # a rank-one term and is subtracted from the products instead of from every score.
            grad_NV = log_NV.exp_()
            grad_NV.scatter_add_(1, output_N1, torch.full_like(true_N1, share - (1.0 - smoothing)))
            torch.mm(grad_NV, weight, out=hidden_grad[start : start + rows])
            weight_grad.addmm_(grad_NV.t(), hidden_ND)
            if bias_grad is not None:
                bias_grad += grad_NV.sum(dim=0)
        if hidden_grad is not None and weight_grad is not None:
            hidden_grad -= share * weight_sum_D
            weight_grad -= share * hidden.sum(dim=0)
            if bias_grad is not None:
                bias_grad -= share * count
        ctx.grads = (hidden_grad, weight_grad, bias_grad)
        smoothed, plain, correct = sums.to(hidden.dtype)
        ctx.mark_non_differentiable(plain, correct)
        return smoothed, plain, correct

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        scale = upstream[0]
        grads = [None if grad is None else grad.mul_(scale) for grad in ctx.grads]
        ctx.grads = None  # used up: a second backward pass through one loss is not a thing of training
        return *grads, None, None, None
