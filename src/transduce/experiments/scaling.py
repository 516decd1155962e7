"""With and without the division by √d_k (section 3.2.1 and its footnote 4).

Queries and keys are sampled as in the footnote: independent values of mean 0 and variance 1. Scores, softmax and
gradients then depend on the width alone; nothing is trained.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from transduce.experiments.finding import Chart, ClaimCheck, Finding, Report, Series, silent
from transduce.nn.attention.dot_product import attention_scores, per_group
from transduce.rng import torch_generator

CLOSE = 0.1
"""Relative difference allowed between a measured variance and that of the footnote."""
STEADY = 0.05
"""Relative change of the entropy that still counts as constant."""
VANISHING = 0.01
"""A gradient below this share of another counts as vanishing."""


@dataclass(frozen=True)
class ScalingSetting:
    """Widths and sample sizes."""

    key_dims: tuple[int, ...] = (4, 16, 64, 256, 1024)
    """In rising order."""
    paper_dim: int = 64
    """The width of the paper's base model, one of `key_dims`."""
    sentences: int = 64
    length: int = 64
    """Queries per sentence, and keys per query."""


DEFAULT = ScalingSetting()


class AttentionStatistics(NamedTuple):
    """Statistics of one attention: means over queries, for gradients medians (those of a typical query)."""

    variance: float
    entropy: float
    """In nats; at most the logarithm of the number of keys."""
    largest: float
    score_gradient: float
    query_gradient: float


def measure(seed: int = 1, report: Report = silent, setting: ScalingSetting = DEFAULT) -> Finding:
    """Sample queries, keys and values of every width, and attend with and without the division."""
    plain, scaled = [], []
    for key_dim in setting.key_dims:
        report("width", key_dim)
        inputs = sample_inputs(key_dim, setting, seed)
        plain.append(attention_statistics(*inputs, scale=1.0))
        scaled.append(attention_statistics(*inputs, scale=key_dim**-0.5))
    return Finding(
        title="Division by √d_k",
        claim="without the division by √d_k, wide keys saturate the softmax, so that its gradients vanish; with it, "
        "scores keep variance 1 at every width.",
        setting={"queries": setting.sentences * setting.length, "keys per query": setting.length},
        columns=(
            "d_k",
            "divided",
            "variance",
            "entropy",
            "largest weight",
            "gradient at scores",
            "gradient at queries",
        ),
        rows=tuple(
            (key_dim, divided, *one)
            for key_dim, *both in zip(setting.key_dims, plain, scaled, strict=True)
            for divided, one in zip(("no", "yes"), both, strict=True)
        ),
        charts=_charts(setting, plain, scaled),
        checks=_checks(setting, plain, scaled),
    )


def sample_inputs(key_dim: int, setting: ScalingSetting, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values of one head, all values standard normal.  -> (B 1 N K) each."""
    generator = torch_generator(seed)
    shape = (setting.sentences, 1, setting.length, key_dim)
    query, key, value = (torch.randn(shape, generator=generator) for _ in range(3))
    return query, key, value


def attention_statistics(query: Tensor, key: Tensor, value: Tensor, scale: float) -> AttentionStatistics:
    """Attend, and backpropagate a gradient of norm 1 from each output."""
    query = query.clone().requires_grad_()
    score_BHQM = attention_scores(query, key, scale=scale)
    weight_BHQM = score_BHQM.softmax(dim=-1)
    mixed_BHQV = per_group(weight_BHQM, value)
    one_BHQV = torch.full_like(mixed_BHQV, value.shape[-1] ** -0.5)
    score_gradient, query_gradient = torch.autograd.grad(mixed_BHQV, (score_BHQM, query), one_BHQV)
    return AttentionStatistics(
        variance=score_BHQM.var().item(),
        entropy=torch.special.entr(weight_BHQM).sum(dim=-1).mean().item(),
        largest=weight_BHQM.amax(dim=-1).mean().item(),
        score_gradient=score_gradient.norm(dim=-1).median().item(),
        query_gradient=query_gradient.norm(dim=-1).median().item(),
    )


def _checks(
    setting: ScalingSetting, plain: list[AttentionStatistics], scaled: list[AttentionStatistics]
) -> tuple[ClaimCheck, ...]:
    widest, most = setting.key_dims[-1], math.log(setting.length)
    ratios = [one.variance / key_dim for one, key_dim in zip(plain, setting.key_dims, strict=True)]
    variances, entropies = [one.variance for one in scaled], [one.entropy for one in scaled]
    at_paper = setting.key_dims.index(setting.paper_dim)
    ratio_at_paper = plain[at_paper].query_gradient / scaled[at_paper].query_gradient
    lost = [getattr(plain[-1], name) / getattr(scaled[-1], name) for name in ("score_gradient", "query_gradient")]
    return (
        ClaimCheck(
            f"without the division the variance of scores is d_k ({min(ratios):.3f} to {max(ratios):.3f} of it)",
            all(abs(ratio - 1) < CLOSE for ratio in ratios),
        ),
        ClaimCheck(
            f"with it the variance is 1 at every width ({min(variances):.3f} to {max(variances):.3f})",
            all(abs(variance - 1) < CLOSE for variance in variances),
        ),
        ClaimCheck(
            f"without it the softmax sharpens with width: entropy {plain[0].entropy:.2f} at d_k = "
            f"{setting.key_dims[0]}, {plain[-1].entropy:.2f} at {widest}, at most {most:.2f}",
            plain[-1].entropy < plain[0].entropy / 2,
        ),
        ClaimCheck(
            f"with it the entropy stays within {STEADY:.0%} ({min(entropies):.2f} to {max(entropies):.2f})",
            max(entropies) < min(entropies) * (1 + STEADY),
        ),
        ClaimCheck(
            f"at d_k = {widest} the scores of a typical query get less than {VANISHING:.0%} of the gradient they get "
            f"with the division ({lost[0]:.2g} of it)",
            lost[0] < VANISHING,
        ),
        ClaimCheck(
            f"so does the query itself, although longer keys scale its gradient up ({lost[1]:.2g})",
            lost[1] < VANISHING,
        ),
        ClaimCheck(
            f"already at the paper's d_k = {setting.paper_dim} a typical query gets less gradient without the division "
            f"({ratio_at_paper:.2g} of that with it)",
            ratio_at_paper < 1,
        ),
    )


def _charts(
    setting: ScalingSetting, plain: list[AttentionStatistics], scaled: list[AttentionStatistics]
) -> tuple[Chart, ...]:
    def chart(title: str, name: str, y_label: str, log_y: bool = True) -> Chart:
        lines = {"without √d_k": plain, "with √d_k": scaled}
        series = (
            Series(label, setting.key_dims, tuple(getattr(one, name) for one in found))
            for label, found in lines.items()
        )
        return Chart(title, "d_k", y_label, tuple(series), log_x=True, log_y=log_y)

    return (
        chart("Variance of scores", "variance", "variance"),
        chart("Entropy of the softmax", "entropy", "nats", log_y=False),
        chart("Gradient at the scores, typical query", "score_gradient", "norm"),
    )
