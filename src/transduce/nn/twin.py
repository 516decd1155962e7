"""Use a model without disturbing it: twins that share its weights, and temporary evaluation mode.

Hooks, gradients and modes belong to modules. A twin has its own modules over the same weights, so that recording,
ablation and gradients never affect a model that is in use, nor drop its packed weights.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import nn

from transduce.nn.cpu.packed import Freezable
from transduce.nn.hook import HookPoint

ModuleT = TypeVar("ModuleT", bound=nn.Module)


def twin(model: ModuleT, share_packed: bool = False) -> ModuleT:
    """Return a copy of a model that shares the memory of its weights; gradients, hooks and modes are its own.

    With `share_packed` it also uses the model's packed weights, so that it computes the same to the last bit, and the
    same in int8.
    """
    memo: dict[int, object] = {}
    with torch.no_grad():
        for parameter in model.parameters():
            memo[id(parameter)] = nn.Parameter(parameter.data, requires_grad=parameter.requires_grad)
        copied = copy.deepcopy(model, memo)
    for module in copied.modules():
        if isinstance(module, HookPoint):
            module._forward_hooks.clear()
    if share_packed:
        for own, copied_module in zip(model.modules(), copied.modules(), strict=True):
            if isinstance(own, Freezable) and isinstance(copied_module, Freezable):
                copied_module.share_packed(own)
    return copied


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Put the model in evaluation mode, and restore the mode of every module afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
