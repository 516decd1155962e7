"""From summed gradients to new weights: clipping, noise, the optimizer, and what an update is worth reporting.

An update whose loss or gradient is not finite is skipped. On a CPU the numbers are at hand. On a GPU asking for one of
them would make the host wait for all work that it has queued, and then the GPU wait for the host. There the loss is
summed, the gradient clipped and a bad update skipped on the device, and what an update did is read later, for many
updates at once (`read`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from transduce import rng
from transduce.models.ancestors.neural_gpu import relaxed_sets
from transduce.nn.linear import sum_dtype
from transduce.training.config import TrainingConfig
from transduce.training.distributed import Ranks, is_sharded
from transduce.training.memory import SharedShortage
from transduce.training.optimizer import gradient_norm, optimizer_step, scale_gradients


class StepResult(NamedTuple):
    """What one update did."""

    loss: float
    """Sum over its tokens."""
    tokens: int
    gradient_norm: float
    finite: bool


class QueuedResult(NamedTuple):
    """What one update does on a device that may not have computed it yet."""

    values: Tensor
    """(2): the summed loss and the gradient norm."""
    tokens: int


def read(results: Sequence[StepResult | QueuedResult]) -> list[StepResult]:
    """Return what updates did, waiting for the device once."""
    queued = [result.values for result in results if isinstance(result, QueuedResult)]
    values = iter(torch.stack(queued).tolist() if queued else [])
    found = []
    for result in results:
        if isinstance(result, QueuedResult):
            loss, norm = next(values)
            result = StepResult(loss, result.tokens, norm, math.isfinite(loss) and math.isfinite(norm))
        found.append(result)
    return found


class WeightUpdate(ABC):
    """Updates the weights of one model by the gradients that it holds."""

    def __init__(self, model: nn.Module, optimizer: Optimizer, config: TrainingConfig) -> None:
        self.model, self.optimizer, self.config = model, optimizer, config

    @abstractmethod
    def loss(self, smoothed: Tensor, weight: float) -> Any:
        """Return the weighted loss of one micro-batch, as it is summed."""

    @abstractmethod
    def total(self, losses: Sequence[Any], short: bool, ranks: Ranks) -> Any:
        """Sum the losses of this rank's micro-batches, then those of all ranks.

        `short`: this rank ran out of memory; then all ranks raise `SharedShortage`.
        """

    @abstractmethod
    def __call__(self, loss: Any, tokens: int, update: int, rate: float) -> StepResult | QueuedResult:
        """Update the weights, unless the loss or the gradient is not finite."""


class HostUpdate(WeightUpdate):
    """Decides on the host."""

    def loss(self, smoothed: Tensor, weight: float) -> float:
        return weight * float(smoothed)

    def total(self, losses: Sequence[float], short: bool, ranks: Ranks) -> float:
        if ranks.world == 1:
            return math.fsum(losses)
        total = torch.tensor([math.fsum(losses), short], dtype=torch.float64)
        ranks.add_up([total])
        if total[1] > 0:
            raise SharedShortage
        return float(total[0])

    def __call__(self, loss: float, tokens: int, update: int, rate: float) -> StepResult:
        norm = float(gradient_norm(self.model))
        finite = math.isfinite(norm) and math.isfinite(loss)
        if finite:
            if 0 < self.config.max_grad_norm < norm:
                scale_gradients(self.model, self.config.max_grad_norm / norm)
            add_gradient_noise(self.model, self.config.gradient_noise, self.config.seed, update)
            optimizer_step(self.optimizer, rate)
            pull_sets_together(self.model, self.config.relaxation_updates, update)
        return StepResult(loss, tokens, norm, finite)


class DeviceUpdate(WeightUpdate):
    """Decides on the device, without a word to the host."""

    def loss(self, smoothed: Tensor, weight: float) -> Tensor:
        return weight * smoothed

    def total(self, losses: Sequence[Tensor], short: bool, ranks: Ranks) -> Tensor:
        if ranks.any(short):  # by a message between hosts, not from the device
            raise SharedShortage
        device = next(self.model.parameters()).device
        total = torch.zeros(1, dtype=sum_dtype(device), device=device)
        if losses:
            total += torch.stack(list(losses)).sum(dtype=total.dtype)
        ranks.add_up([total])
        return total[0]

    def __call__(self, loss: Tensor, tokens: int, update: int, rate: float) -> QueuedResult:
        norm = gradient_norm(self.model).to(loss.dtype)
        finite = loss.isfinite() & norm.isfinite()
        if self.config.max_grad_norm > 0:
            scale_gradients(self.model, (self.config.max_grad_norm / norm).clamp(max=1.0).float())
        add_gradient_noise(self.model, self.config.gradient_noise, self.config.seed, update)
        optimizer_step(self.optimizer, rate, skip=~finite)
        return QueuedResult(torch.stack([loss, norm]), tokens)


def build_update(model: nn.Module, optimizer: Optimizer, config: TrainingConfig, device: torch.device) -> WeightUpdate:
    """Return how this model is updated.

    The fused optimizers' skipping is documented for CUDA; a sharded model has its norm on all ranks, and relaxation
    changes weights besides the optimizer.
    """
    decided_on_host = device.type in ("cpu", "mps") or is_sharded(model) or config.relaxation_updates
    return (HostUpdate if decided_on_host else DeviceUpdate)(model, optimizer, config)


# Annealed gradient noise (Neelakantan et al. 2015, arXiv 1511.06807).

DECAY = 0.55
"""Exponent by which the variance decays with the updates; the paper's gamma."""


def deviation(strength: float, update: int) -> float:
    """Return the noise's standard deviation: the root of strength / (1 + update)^0.55."""
    return float((strength / (1 + update) ** DECAY) ** 0.5)


def add_gradient_noise(model: nn.Module, strength: float, seed: int, update: int) -> None:
    """Add Gaussian noise to every gradient; a strength of 0 adds none.

    It helps deep and recurrent models out of poor regions early in training. It is a function of seed and update, so
    that a resumed run and every rank draw the same. It is drawn on the CPU, the same for every device.
    """
    if not strength:
        return
    generator = rng.torch_generator(rng.key(seed, update) >> 64)
    scale = deviation(strength, update)
    for parameter in model.parameters():
        if parameter.grad is not None:
            drawn = torch.randn(parameter.shape, generator=generator)
            parameter.grad.add_(drawn.to(parameter.grad), alpha=scale)


# Parameter sharing relaxation (Kaiser & Sutskever 2016, section 3).


def pull(until: int, update: int) -> float:
    """Return the fraction of the way to the mean: the square of the elapsed fraction of `until`, then 1."""
    return min(1.0, update / until) ** 2


def pull_sets_together(model: nn.Module, until: int, update: int) -> None:
    """Move all sets of weights towards their mean, so that they are equal at update `until`; 0 leaves them separate.

    The steps of a recurrence start with separate weights and end with shared ones. Differs from the paper, which adds
    the distance between the sets to the loss with a growing weight: here the fraction is a function of the update alone
    and ends at 1, so that a run is the same however often it is stopped.
    """
    if until:
        for sets in relaxed_sets(model):
            sets.pull_together(pull(until, update))
