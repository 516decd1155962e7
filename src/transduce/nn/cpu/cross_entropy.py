"""Output layer and label-smoothed cross-entropy, fused and computed in chunks of rows.

Scores over the vocabulary are the largest tensors of training. Here they are computed, used and overwritten in one
small buffer together with their gradients, so that neither is ever stored whole.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from transduce.nn.linear import FullProducts, HalfProducts, Products, sum_dtype

CHUNK_ELEMENTS = 2**22
"""Scores in the buffer: 16 MB of float32, about the size of a CPU cache."""
DEVICE_CHUNK_ELEMENTS = 2**26
"""The same on a GPU: 256 MB. Products of few rows are slow there, and each chunk launches some 20 kernels."""
FITS = 60.0
"""Scores up to this cannot overflow float32, whose limit is exp(88), even summed over a vocabulary."""


class CrossEntropy(NamedTuple):
    """Sums over N tokens."""

    smoothed: Tensor
    """The loss, with label smoothing: the true token has probability 1 - ε, each of the K - 1 others ε / (K - 1)."""
    plain: Tensor
    """The negative log-likelihood; carries no gradient."""
    correct: Tensor
    """Number of tokens predicted correctly; counted only without gradients."""


def linear_cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, output: Tensor, smoothing: float, half: bool = False
) -> CrossEntropy:
    """Score the vocabulary and compare with the true tokens.  (N D), (V D), (V), (N) -> sums.

    Gradients flow to hidden, weight and bias. `half`, or autocast on a GPU, computes the products, scores included, in
    bfloat16, and the rest in float32. F.linear_cross_entropy works in chunks too, but without label smoothing.
    """
    half = half or _is_autocast(hidden.device)
    trained = (hidden, weight) if bias is None else (hidden, weight, bias)
    wanted = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in trained)
    with torch.autocast(hidden.device.type, enabled=False):  # products in the precision that the hidden states have
        weight, bias = weight.to(hidden.dtype), None if bias is None else bias.to(hidden.dtype)
        sums = _Fused.apply(hidden, weight, bias, output, smoothing, wanted, half)  # type: ignore[no-untyped-call]
    return CrossEntropy(*sums)


class _WithGradients(torch.autograd.Function):
    """A loss whose forward pass computes its gradients too; the last four arguments have none."""

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        scale = upstream[0]
        grads = [None if grad is None else grad.mul_(scale) for grad in ctx.grads]
        ctx.grads = None  # freed: training runs one backward pass per loss
        return *grads, None, None, None, None


class _Fused(_WithGradients):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        output: Tensor,
        smoothing: float,
        wanted: bool,
        half: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        count, vocabulary = len(hidden), len(weight)
        share = smoothing / max(1, vocabulary - 1)
        rows = even_rows(count, max(1, chunk_elements(hidden.device) // vocabulary))
        products: Products = HalfProducts(weight) if half else FullProducts(weight)
        buffer_NV = hidden.new_empty(rows, vocabulary)
        weight_sum_D = weight.sum(dim=0)
        bias_sum = 0.0 if bias is None else bias.sum()
        wide = sum_dtype(hidden.device)
        sums = hidden.new_zeros(3, dtype=wide)  # smoothed, plain, correct
        hidden_grad = torch.empty_like(hidden) if wanted else None
        weight_grad = torch.zeros_like(weight) if wanted and not count else None
        bias_grad = torch.zeros_like(bias) if wanted and bias is not None else None
        for start in range(0, count, max(1, rows)):
            hidden_ND, output_N1 = hidden[start : start + rows], output[start : start + rows, None]
            score_NV = _at_least_single(products.forward(hidden_ND, out=buffer_NV[: len(hidden_ND)]))
            if bias is not None:
                score_NV += bias
            true_N1 = score_NV.gather(1, output_N1)
            peak_N1 = score_NV.amax(dim=1, keepdim=True)
            part_NV, shift_N1 = _exponentials(score_NV, peak_N1)
            total_N1 = part_NV.sum(dim=1, keepdim=True)
            log_total_N1 = total_N1.log() + shift_N1
            log_true_N1 = true_N1 - log_total_N1
            # The sum of all log-probabilities: the sum of all scores needs no pass over them, hidden · Σ weight.
            log_sum_N1 = (hidden_ND @ weight_sum_D + bias_sum)[:, None] - vocabulary * log_total_N1
            smoothed_N1 = -(1.0 - smoothing) * log_true_N1 - share * (log_sum_N1 - log_true_N1)
            sums[0] += smoothed_N1.sum(dtype=wide)
            sums[1] -= log_true_N1.sum(dtype=wide)
            if hidden_grad is None:
                sums[2] += (peak_N1 == true_N1).sum()
                continue
            # d smoothed / d score = part / total - target. Dividing by the total is left to the small sides of the
            # products; the share that is the same for all tokens is a rank-one term, subtracted from them below.
            part_NV.scatter_add_(1, output_N1, (share - (1.0 - smoothing)) * total_N1)
            if bias_grad is not None:
                bias_grad += (part_NV / total_N1).sum(dim=0)
            part_NV = products.factor(part_NV)
            products.backward(part_NV, out=hidden_grad[start : start + rows]).div_(total_N1)
            weight_grad = products.add_outer(weight_grad, part_NV, products.factor(hidden_ND / total_N1))
        if hidden_grad is not None and weight_grad is not None:
            hidden_grad -= share * weight_sum_D
            weight_grad -= share * hidden.sum(dim=0)
            if bias_grad is not None:
                bias_grad -= share * count
        ctx.grads = (hidden_grad, weight_grad, bias_grad)
        smoothed, plain, correct = sums.to(torch.promote_types(hidden.dtype, torch.float32))
        ctx.mark_non_differentiable(plain, correct)
        return smoothed, plain, correct


def _exponentials(score: Tensor, peak: Tensor) -> tuple[Tensor, Tensor]:
    """Turn scores into exp(score - shift) in place, and return them with the shift of each row.  (N V), (N 1).

    Scores whose exponentials cannot overflow need no shift, which saves a pass. On a GPU the test would force a
    synchronisation, so it is for CPUs only.
    """
    if score.device.type == "cpu" and bool((peak.abs() < FITS).all()):
        return score.exp_(), torch.zeros_like(peak)
    return score.sub_(peak).exp_(), peak


def _at_least_single(score: Tensor) -> Tensor:
    """Convert half-precision scores to float32, since they are too coarse for a softmax."""
    return score.float() if score.dtype.itemsize < 4 else score


def chunk_elements(device: torch.device) -> int:
    """Return the scores that are computed at a time."""
    return CHUNK_ELEMENTS if device.type == "cpu" else DEVICE_CHUNK_ELEMENTS


def _is_autocast(device: torch.device) -> bool:
    """Whether products on this device are to be bfloat16; on a CPU `half_products` says it."""
    return device.type != "cpu" and torch.is_autocast_enabled(device.type)


def even_rows(count: int, most: int) -> int:
    """Return the rows per chunk, so that all chunks have about the same size: products of few rows are slow."""
    return -(-count // max(1, -(-count // most)))


# R-Drop (Liang et al. 2021): two passes with different dropout masks, and a penalty on their disagreement.
#
# The loss of a token is ½(CE₁ + CE₂) + α/4 (KL(P₁‖P₂) + KL(P₂‖P₁)), half of the paper's equation 4, so that the
# learning rate need not change. As in `linear_cross_entropy`, scores and gradients are computed in chunks of rows.


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

    `plain` is the mean of both negative log-likelihoods; `correct` is not counted. `half` as above.
    """
    half = half or _is_autocast(weight.device)
    with torch.autocast(weight.device.type, enabled=False):  # differences of logarithms need full precision
        first, second = (hidden.to(weight.dtype) for hidden in hiddens)
        sums = _Paired.apply(first, second, weight, bias, output, smoothing, alpha, half)  # type: ignore[no-untyped-call]
    return CrossEntropy(*sums)


class _Paired(_WithGradients):
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
        share, pull = smoothing / max(1, vocabulary - 1), alpha / 4
        rows = even_rows(count, max(1, chunk_elements(first.device) // (2 * vocabulary)))
        products: Products = HalfProducts(weight) if half else FullProducts(weight)
        buffers = first.new_empty(4, rows, vocabulary)
        weight_sum_D = weight.sum(dim=0)
        bias_sum = 0.0 if bias is None else bias.sum()
        wide = sum_dtype(first.device)
        sums = first.new_zeros(3, dtype=wide)  # smoothed, plain; correct is not counted
        hidden_grads = torch.empty_like(first), torch.empty_like(second)
        weight_grad = torch.zeros_like(weight)
        bias_grad = None if bias is None else torch.zeros_like(bias)
        for start in range(0, count, max(1, rows)):
            part = slice(start, start + rows)
            output_N1 = output[part, None]
            first_NV, second_NV, *spare = buffers[:, : len(output_N1)]
            _score(first[part], products, bias, first_NV)
            _score(second[part], products, bias, second_NV)
            log_true_N1 = (first_NV.gather(1, output_N1) + second_NV.gather(1, output_N1)) / 2
            slopes, total_N1, apart_N1 = _compare(first_NV, second_NV, spare, pull)
            log_true_N1 -= total_N1
            # As in `_Fused` the sum of all scores needs no pass over them; both are means over the two passes.
            score_sum_N1 = ((first[part] + second[part]) @ weight_sum_D / 2 + bias_sum)[:, None]
            log_rest_N1 = score_sum_N1 - vocabulary * total_N1 - log_true_N1
            smoothed_N1 = -(1.0 - smoothing) * log_true_N1 - share * log_rest_N1 + pull * apart_N1
            sums[0] += smoothed_N1.sum(dtype=wide)
            sums[1] -= log_true_N1.sum(dtype=wide)
            true_share_N1 = torch.full_like(total_N1, (share - (1.0 - smoothing)) / 2)
            for hidden, hidden_grad, slope_NV in zip((first, second), hidden_grads, slopes, strict=True):
                slope_NV.scatter_add_(1, output_N1, true_share_N1)
                if bias_grad is not None:
                    bias_grad += slope_NV.sum(dim=0)
                factor_NV = products.factor(slope_NV)
                products.backward(factor_NV, out=hidden_grad[part])
                weight_grad = products.add_outer(weight_grad, factor_NV, hidden[part])
        for hidden, hidden_grad in zip((first, second), hidden_grads, strict=True):
            hidden_grad -= share / 2 * weight_sum_D
            weight_grad -= share / 2 * hidden.sum(dim=0)
        if bias_grad is not None:
            bias_grad -= share * count
        ctx.grads = (*hidden_grads, weight_grad, bias_grad)
        smoothed, plain, hits = sums.to(first.dtype)
        ctx.mark_non_differentiable(plain, hits)
        return smoothed, plain, hits


def _score(hidden: Tensor, products: Products, bias: Tensor | None, out: Tensor) -> None:
    products.forward(hidden, out=out)
    if bias is not None:
        out += bias


def _compare(
    first: Tensor, second: Tensor, spare: list[Tensor], pull: float
) -> tuple[tuple[Tensor, Tensor], Tensor, Tensor]:
    """Compare the scores of both passes; they and two `spare` tensors are overwritten.  (N V) each.

    Return the gradients of ½(log total₁ + log total₂) + pull · (KL(P₁‖P₂) + KL(P₂‖P₁)) with respect to both scores,
    the first term, and the factor of pull in the second.  2 × (N V), (N 1), (N 1).
    """
    apart_NV, p_NV = spare
    torch.sub(first, second, out=apart_NV)
    first_total_N1 = _softmax(first, out=p_NV)
    q_NV = first
    second_total_N1 = _softmax(second, out=q_NV)
    apart_NV -= first_total_N1 - second_total_N1  # log P₁ - log P₂
    forward_N1 = torch.linalg.vecdot(p_NV, apart_NV)[:, None]
    backward_N1 = -torch.linalg.vecdot(q_NV, apart_NV)[:, None]
    apart_NV *= pull
    first_slope_NV = torch.add(apart_NV, 0.5 + pull * (1.0 - forward_N1), out=second)
    first_slope_NV.mul_(p_NV).sub_(q_NV, alpha=pull)
    second_slope_NV = torch.sub(0.5 + pull * (1.0 - backward_N1), apart_NV, out=apart_NV)
    second_slope_NV.mul_(q_NV).sub_(p_NV, alpha=pull)
    return (first_slope_NV, second_slope_NV), (first_total_N1 + second_total_N1) / 2, forward_N1 + backward_N1


def _softmax(score: Tensor, out: Tensor) -> Tensor:
    """Write the softmax to `out`, and return the logarithm of each row's total.  (N V) -> (N 1)."""
    torch.softmax(score, dim=1, out=out)
    # The most probable token has exp(its score) / total, from which the total follows without more exponentials.
    return score.amax(dim=1, keepdim=True) - out.amax(dim=1, keepdim=True).log()
