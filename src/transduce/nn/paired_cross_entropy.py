"""R-Drop (Liang et al. 2021): two passes with different dropout must give the true token, and must agree.

The loss of a token is ½(CE₁ + CE₂) + α/4 (KL(P₁‖P₂) + KL(P₂‖P₁)), half of the paper's equation 4, so that a learning
rate means the same with it and without. As in `cross_entropy` the scores are made, used and overwritten a few rows at
a time, and the gradients are computed while they are there.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from transduce.nn import cross_entropy
from transduce.nn.cross_entropy import CrossEntropy, even_rows
from transduce.nn.product import FullProducts, HalfProducts, Products


def paired_cross_entropy(
    hiddens: tuple[Tensor, Tensor],
    weight: Tensor,
    bias: Tensor | None,
    output: Tensor,
    smoothing: float,
    alpha: float,
    half: bool = False,
) -> CrossEntropy:
    """Score the vocabulary from both passes and compare.  2 × (N D), (V D), (V), (N) -> sums.

    `plain` is the mean of both negative log-likelihoods; hits are not counted. `half` rounds the products.
    """
    with torch.autocast(weight.device.type, enabled=False):  # differences of logarithms need all their digits
        first, second = (hidden.to(weight.dtype) for hidden in hiddens)
        sums = _Paired.apply(first, second, weight, bias, output, smoothing, alpha, half)  # type: ignore[no-untyped-call]
    return CrossEntropy(*sums)


class _Paired(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        first: Tensor,
        second: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        output: Tensor,
        smoothing: float,
        alpha: float,
        half: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        count, vocabulary = len(first), len(weight)
        rows = even_rows(count, max(1, cross_entropy.CHUNK_ELEMENTS // (2 * vocabulary)))
        products: Products = HalfProducts(weight) if half else FullProducts(weight)
        sums = first.new_zeros(3, dtype=torch.float64)
        first_grad, second_grad = torch.empty_like(first), torch.empty_like(second)
        weight_grad = torch.zeros_like(weight)
        bias_grad = None if bias is None else torch.zeros_like(bias)
        for start in range(0, count, max(1, rows)):
            part = slice(start, start + rows)
            output_N1 = output[part, None]
            log_NV = _log_probabilities(first[part], products, bias)
            other_NV = _log_probabilities(second[part], products, bias)
            plain = -(log_NV.gather(1, output_N1) + other_NV.gather(1, output_N1)).sum(dtype=torch.float64) / 2
            spread = -(log_NV.sum(dtype=torch.float64) + other_NV.sum(dtype=torch.float64)) / 2
            share = smoothing / max(1, vocabulary - 1)
            difference_NV = log_NV - other_NV
            p_NV, q_NV = log_NV.exp_(), other_NV.exp_()
            forward_N1 = (p_NV * difference_NV).sum(dim=1, keepdim=True)
            backward_N1 = -(q_NV * difference_NV).sum(dim=1, keepdim=True)
            sums[0] += (1.0 - smoothing) * plain + share * (spread - plain)
            sums[0] += alpha / 4 * (forward_N1.sum(dtype=torch.float64) + backward_N1.sum(dtype=torch.float64))
            sums[1] += plain
            apart_NV = p_NV - q_NV
            grads = (
                (first, first_grad, p_NV / 2 + alpha / 4 * (p_NV * (difference_NV - forward_N1) + apart_NV)),
                (second, second_grad, q_NV / 2 - alpha / 4 * (q_NV * (difference_NV + backward_N1) + apart_NV)),
            )
            for hidden, hidden_grad, grad_NV in grads:
                grad_NV -= share / 2
                grad_NV.scatter_add_(1, output_N1, torch.full_like(forward_N1, (share - (1.0 - smoothing)) / 2))
                if bias_grad is not None:
                    bias_grad += grad_NV.sum(dim=0)
                factor_NV = products.factor(grad_NV)
                products.backward(factor_NV, out=hidden_grad[part])
                products.add_outer(weight_grad, factor_NV, hidden[part])
        ctx.grads = (first_grad, second_grad, weight_grad, bias_grad)
        smoothed, plain, hits = sums.to(first.dtype)
        ctx.mark_non_differentiable(plain, hits)
        return smoothed, plain, hits

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        scale = upstream[0]
        grads = [None if grad is None else grad.mul_(scale) for grad in ctx.grads]
        ctx.grads = None  # used up
        return *grads, None, None, None, None


def _log_probabilities(hidden: Tensor, products: Products, bias: Tensor | None) -> Tensor:
    score_NV = products.forward(hidden)
    if bias is not None:
        score_NV += bias
    return score_NV.log_softmax(dim=1)
