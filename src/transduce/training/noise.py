"""Noise on the gradient, which dies away: it shakes deep and recurrent models out of bad places early on.

Neelakantan et al. 2015 (arXiv 1511.06807). What is drawn is a function of seed and update, so that a resumed run draws
the same, and every rank too.
"""

from __future__ import annotations

import torch
from torch import nn

from transduce.nn.dropout import mixed_key

DECAY = 0.55
"""The exponent by which the variance falls with the updates; the paper's gamma."""


def deviation(strength: float, update: int) -> float:
    """Return the noise's standard deviation: the root of strength / (1 + update)^0.55."""
    return float((strength / (1 + update) ** DECAY) ** 0.5)


def add_gradient_noise(model: nn.Module, strength: float, seed: int, update: int) -> None:
    """Add Gaussian noise to every gradient; a strength of 0 adds none."""
    if not strength:
        return
    generator = torch.Generator().manual_seed(mixed_key((seed, update)) >> 64)
    scale = deviation(strength, update)
    for parameter in model.parameters():
        if parameter.grad is not None:
            drawn = torch.randn(parameter.shape, generator=generator)
            parameter.grad.add_(drawn.to(parameter.grad), alpha=scale)
