"""Hook points: where activations can be recorded or replaced from outside the model.

A fused kernel never computes the attention weights, so attention whose scores or weights are hooked uses the plain
kernel instead; otherwise a hook point without hooks costs nothing. Hooks act on the whole module: to leave a model that
is in use undisturbed, hook a twin of it (`twin`).

Names: query, key, value, score and weight of an attention, `head` (each head's output, (B H Q V)), `output` (of an
attention or a feed-forward network), `residual` (of a block); read, write and slots of a Neural Turing Machine.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from transduce.errors import SettingsError, suggestion
from transduce.nn.cpu.packed import Freezable

HOOK_POINTS = ("query", "key", "value", "score", "weight", "head", "output", "residual", "read", "write", "slots")
"""Names of hook points; a model need not have all of them."""

Replacement = Callable[[Tensor], Tensor]
"""Activation -> its replacement, of the same shape."""


class HookPoint(nn.Module):
    """Returns its input. Hooks attach from outside with `register_forward_hook`, `record` or `replace`."""

    def __init__(self, replaceable: bool = True) -> None:
        """Not `replaceable` where the value was already used: recurrent decoders run hooks at the end of a pass."""
        super().__init__()
        self.replaceable = replaceable

    @property
    def is_hooked(self) -> bool:
        """Whether a hook is attached."""
        return bool(self._forward_hooks)

    def __call__(self, value: Tensor) -> Tensor:
        """Skip the machinery of `nn.Module` where no hook is attached."""
        return super().__call__(value) if self._forward_hooks else value

    def forward(self, value: Tensor) -> Tensor:
        return value


def is_hooked(module: nn.Module) -> bool:
    """Whether a hook is attached to any hook point inside."""
    return any(isinstance(part, HookPoint) and part.is_hooked for part in module.modules())


def hook_points(model: nn.Module, names: Sequence[str] = HOOK_POINTS, inside: str = "") -> dict[str, HookPoint]:
    """Return the hook points with these names by path, in the order of `named_modules`.

    `inside` is a part of the path, such as "cross_attention" or "encoder.0.".
    """
    for name in names:
        if name not in HOOK_POINTS:
            raise SettingsError(f"unknown hook point '{name}'{suggestion(name, HOOK_POINTS)}")
    return {
        path: module
        for path, module in model.named_modules()
        if isinstance(module, HookPoint) and path.rpartition(".")[2] in names and inside in path
    }


@contextmanager
def record(
    model: nn.Module, names: Sequence[str] = ("weight",), inside: str = "", last: int | None = None
) -> Iterator[dict[str, Tensor]]:
    """Record the activations at the hook points with these names, by path, inside the context.

    `inside` is a part of the path, and `last` the number of matching hook points to record, counted from the end. A
    hook point that is called again keeps the newest value. Values are detached from the graph but not copied. The
    hooks are removed when the context ends, with an exception or without.
    """
    recorded: dict[str, Tensor] = {}

    def keep(path: str) -> Callable[[Any, Any, Tensor], None]:
        def hook(_: Any, __: Any, value: Tensor) -> None:
            recorded[path] = value.detach()

        return hook

    points = list(hook_points(model, names, inside).items())
    with ExitStack() as stack:
        for path, point in points if last is None else points[-last:]:
            stack.callback(point.register_forward_hook(keep(path)).remove)
        yield recorded


@contextmanager
def replace(model: nn.Module, replacements: Mapping[str, Replacement]) -> Iterator[None]:
    """Replace the activations at these hook points, by path, inside the context: ablation and patching.

    Hooks run in the order in which they were attached: `record` inside `replace` records the replacement.
    """
    points = hook_points(model)
    with ExitStack() as stack:
        for path, replacement in replacements.items():
            if path not in points:
                raise SettingsError(f"the model has no hook point '{path}'{suggestion(path, points)}")
            if not points[path].replaceable:
                raise SettingsError(f"hook point '{path}' can be recorded but not replaced")
            stack.callback(points[path].register_forward_hook(_checked(path, replacement)).remove)
        yield


def _checked(path: str, replacement: Replacement) -> Callable[[Any, Any, Tensor], Tensor]:
    def hook(_: Any, __: Any, value: Tensor) -> Tensor:
        new = replacement(value)
        if new.shape != value.shape:
            raise SettingsError(
                f"hook point '{path}' passes a tensor of shape {tuple(value.shape)}, not {tuple(new.shape)}"
            )
        return new

    return hook


# Use a model without disturbing it: twins that share its weights, and temporary evaluation mode.
#
# Hooks, gradients and modes belong to modules. A twin has its own modules over the same weights, so that recording,
# ablation and gradients never affect a model that is in use, nor drop its packed weights.

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
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True
