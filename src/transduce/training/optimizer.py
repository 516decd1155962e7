"""The optimizer, the learning-rate schedules, and a moving average of the weights.

Optimizer state is saved by parameter name, so that a checkpoint does not depend on the order of parameters.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from transduce.model_folder import weights_of
from transduce.models.interface import Model
from transduce.training.config import TrainingConfig
from transduce.training.distributed import full, is_sharded, local, spread_like
from transduce.training.muon import BUFFER, FOUND_INF, Muon, hidden_matrices

MOMENTS = ("exp_avg", "exp_avg_sq", "step")
"""Adam's state of a parameter, by the names of torch."""


def build_optimizer(model: nn.Module, config: TrainingConfig) -> Optimizer:
    """Return a fused torch optimizer; weight decay applies to matrices only, not to biases and norms."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if config.optimizer == "sgd":
        return SGD(trained, lr=config.learning_rate, fused=True)
    matrices = [] if config.optimizer != "muon" else [one for one in hidden_matrices(model) if one.weight.requires_grad]
    by_muon = {id(matrix.weight) for matrix in matrices}
    others = [parameter for parameter in trained if id(parameter) not in by_muon]
    groups = [
        {"params": [p for p in others if p.dim() > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in others if p.dim() <= 1], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]] or groups[:1]  # torch accepts an empty group, not no group
    kind = Adam if config.optimizer == "adam" else AdamW
    adam = kind(groups, lr=config.learning_rate, betas=config.betas, eps=config.epsilon, fused=True)
    if not isinstance(adam, AdamW) or not matrices:
        return adam
    return Muon(matrices, adam, config.learning_rate, config.weight_decay, sharded=is_sharded(model))


def state_values(model: nn.Module, optimizer: Optimizer, everywhere: bool = False) -> int:
    """Return the number of values of the optimizer's state, two per weight, or one with Muon; on this rank, or all."""
    if isinstance(optimizer, SGD):
        return 0
    by_muon = {id(matrix.weight) for matrix in optimizer.matrices} if isinstance(optimizer, Muon) else set()
    return sum(
        (parameter if everywhere else local(parameter)).numel() * (1 if id(parameter) in by_muon else 2)
        for parameter in model.parameters()
        if parameter.requires_grad
    )


def step_values(optimizer: Optimizer) -> int:
    """Return the number of values that a step itself takes: the updates of all matrices, with Muon."""
    matrices = optimizer.matrices if isinstance(optimizer, Muon) else []
    return sum(local(matrix.weight).numel() for matrix in matrices)


def expected_state(optimizer: Optimizer, parameter: Tensor) -> tuple[str, ...]:
    """Return the names of a parameter's state: Adam's moments, or the momentum of a matrix that Muon updates."""
    if isinstance(optimizer, SGD):
        return ()
    is_matrix = isinstance(optimizer, Muon) and any(matrix.weight is parameter for matrix in optimizer.matrices)
    return (BUFFER,) if is_matrix else MOMENTS


def optimizer_tensors(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """Return the moments by name: `exp_avg/encoder.0.…`, `momentum_buffer/encoder.0.…`; plain SGD has none."""
    return {
        f"{moment}/{name}": value
        for name, parameter in model.named_parameters()
        if parameter in optimizer.state
        for moment, value in optimizer.state[parameter].items()
    }


def put_optimizer_tensors(model: nn.Module, optimizer: Optimizer, tensors: dict[str, Tensor]) -> None:
    """Restore saved moments; a weight that never had a gradient has none. Moments of another optimizer are an error."""
    saved: dict[str, set[str]] = {}
    for key in tensors:
        moment, name = key.split("/", 1)
        saved.setdefault(name, set()).add(moment)
    for name, parameter in model.named_parameters():
        moments = expected_state(optimizer, parameter)
        if name not in saved:
            continue
        if saved[name] != set(moments):
            raise ValueError(f"the state of '{name}' is {', '.join(sorted(saved[name]))}, not {', '.join(moments)}")
        optimizer.state[parameter] = {
            moment: spread_like(tensors[f"{moment}/{name}"], parameter).clone() for moment in moments
        }


def optimizer_step(optimizer: Optimizer, rate: float, skip: Tensor | None = None) -> None:
    """Update the weights once, with this learning rate.

    `skip` leaves weights and state as they are where it is true, a value on the device that nobody here reads: as
    torch.amp.GradScaler does it, by the attribute `found_inf` of fused optimizers.

    In the first step torch allocates the moments one by one. Where memory runs out between the two of a weight, both
    are dropped, so that the next attempt allocates both.
    """
    for group in optimizer.param_groups:
        group["lr"] = rate
    vars(optimizer)[FOUND_INF] = None if skip is None else skip.float()
    try:
        optimizer.step()
    except (MemoryError, RuntimeError):
        for parameter, made in list(optimizer.state.items()):
            if any(moment not in made for moment in expected_state(optimizer, parameter)):
                del optimizer.state[parameter]
        raise
    finally:
        del vars(optimizer)[FOUND_INF]


def gradient_norm(model: nn.Module) -> Tensor:
    """Return the norm of the whole gradient."""
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    return full(torch.nn.utils.get_total_norm(gradients))


def scale_gradients(model: nn.Module, factor: float | Tensor) -> None:
    """Scale the whole gradient."""
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    torch._foreach_mul_(gradients, factor)


# Learning-rate schedules.

Schedule = Callable[[int], float]
"""update, from 1 -> learning rate."""

ENDING = ("cosine", "linear")
"""Schedules that depend on the number of updates of the run."""


def noam(factor: float, model_dim: int, warmup: int) -> Schedule:
    """factor · d^-0.5 · min(update^-0.5, update · warmup^-1.5): section 5.3."""

    def rate(update: int) -> float:
        rising = update * warmup**-1.5 if warmup else math.inf
        return float(factor * model_dim**-0.5 * min(update**-0.5, rising))

    return rate


def inverse_sqrt(peak: float, warmup: int) -> Schedule:
    """Linear warmup to the peak, then inverse square root: noam with an explicit peak."""

    def rate(update: int) -> float:
        steps = max(1, warmup)
        return peak * min(update / steps, math.sqrt(steps / update))

    return rate


def cosine(peak: float, warmup: int, updates: int) -> Schedule:
    """Linear warmup, then half a cosine to zero at the last update."""

    def rate(update: int) -> float:
        if update <= warmup:
            return peak * update / warmup
        done = (update - warmup) / max(1, updates - warmup)
        return 0.5 * peak * (1.0 + math.cos(math.pi * min(1.0, done)))

    return rate


def linear(peak: float, warmup: int, updates: int) -> Schedule:
    """Linear warmup, then linear decay to zero just after the last update."""

    def rate(update: int) -> float:
        if update <= warmup:
            return peak * update / warmup
        return peak * max(0.0, 1.0 - (update - warmup - 1) / max(1, updates - warmup))

    return rate


def constant(peak: float, warmup: int) -> Schedule:
    """Linear warmup, then constant."""
    return lambda update: peak * min(1.0, update / max(1, warmup))


def build_schedule(config: TrainingConfig, model_dim: int) -> Schedule:
    """Return the schedule of `training.schedule`."""
    rate, warmup, updates = config.learning_rate, config.warmup_updates, config.updates
    schedules: dict[str, Callable[[], Schedule]] = {
        "noam": lambda: noam(rate, model_dim, warmup),
        "inverse_sqrt": lambda: inverse_sqrt(rate, warmup),
        "cosine": lambda: cosine(rate, warmup, updates),
        "linear": lambda: linear(rate, warmup, updates),
        "constant": lambda: constant(rate, warmup),
    }
    return schedules[config.schedule]()


class Ema:
    """Exponential moving average of the weights (Polyak & Juditsky 1992): an update's enter with weight 1 - `decay`."""

    def __init__(self, model: Model, decay: float) -> None:
        self.model, self.decay = model, decay
        self.weights = {name: weight.detach().clone() for name, weight in weights_of(model).items()}

    def update(self, update: int) -> None:
        """Add the weights of an update; early ones count more, so that the random initialisation does not linger."""
        decay = min(self.decay, (1 + update) / (10 + update))
        torch._foreach_lerp_(list(self.weights.values()), self._now(), 1.0 - decay)

    def put(self, weights: dict[str, Tensor]) -> None:
        """Restore a saved average."""
        for name, weight in weights.items():
            self.weights[name].copy_(spread_like(weight, self.weights[name]))

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Give the model its averaged weights inside the context."""
        kept = [weight.clone() for weight in self._now()]
        self._set(list(self.weights.values()))
        try:
            yield
        finally:
            self._set(kept)

    def _now(self) -> list[Tensor]:
        return [weight.detach() for weight in weights_of(self.model).values()]

    def _set(self, values: list[Tensor]) -> None:
        for weight, value in zip(self._now(), values, strict=True):
            weight.copy_(value)
