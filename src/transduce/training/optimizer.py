"""The optimizer, and its state by parameter name, so that a checkpoint does not depend on any order."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from transduce.training.config import TrainingConfig
from transduce.training.distributed.sharding import full, spread_like

MOMENTS = ("exp_avg", "exp_avg_sq", "step")


def build_optimizer(model: nn.Module, config: TrainingConfig) -> Optimizer:
    """Return a fused torch optimizer; weight decay applies to matrices only, not to biases and norms."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if config.optimizer == "sgd":
        return SGD(trained, lr=config.learning_rate, fused=True)
    groups = [
        {"params": [p for p in trained if p.dim() > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in trained if p.dim() <= 1], "weight_decay": 0.0},
    ]
    kind = AdamW if config.optimizer == "adamw" else Adam
    groups = [group for group in groups if group["params"]]
    return kind(groups, lr=config.learning_rate, betas=config.betas, eps=config.epsilon, fused=True)


def optimizer_tensors(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """Return the moments by name: `exp_avg/encoder.0.…`; plain gradient descent has none."""
    return {
        f"{moment}/{name}": optimizer.state[parameter][moment]
        for name, parameter in model.named_parameters()
        if parameter in optimizer.state
        for moment in MOMENTS
    }


def put_optimizer_tensors(model: nn.Module, optimizer: Optimizer, tensors: dict[str, Tensor]) -> None:
    """Restore saved moments."""
    for name, parameter in model.named_parameters():
        if f"step/{name}" in tensors:
            optimizer.state[parameter] = {
                moment: spread_like(tensors[f"{moment}/{name}"], parameter).clone() for moment in MOMENTS
            }


def optimizer_step(optimizer: Optimizer, rate: float) -> None:
    """Update the weights once, with this learning rate.

    In the first step torch allocates the moments one by one. Where memory runs out between the two of a weight, both
    are dropped, so that the next attempt allocates both.
    """
    for group in optimizer.param_groups:
        group["lr"] = rate
    try:
        optimizer.step()
    except (MemoryError, RuntimeError):
        for parameter, made in list(optimizer.state.items()):
            if any(moment not in made for moment in MOMENTS):
                del optimizer.state[parameter]
        raise


def gradient_norm(model: nn.Module) -> Tensor:
    """Return the norm of the whole gradient."""
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    return full(torch.nn.utils.get_total_norm(gradients))


def scale_gradients(model: nn.Module, factor: float) -> None:
    """Scale the whole gradient."""
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    torch._foreach_mul_(gradients, factor)
