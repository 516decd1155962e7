"""Dry runs: a model on the meta device, to count FLOPs and bytes without computing.

The model stands on torch's `meta` device, where tensors have shapes and no values. Every matrix product passes the
counter there, also those that a CPU's fused kernels would hide from it (attention, LSTM).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from transduce.models.interface import AnyTransducer, EncoderModel, Model

Outcome = TypeVar("Outcome")


class Unpadded(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Gives values to the masks and lengths of tensors that have none: the one sentence run here has no padding.

    A boolean scalar is True, `nonzero` finds every position, and any other scalar is `length`.
    """

    def __init__(self, length: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.length = length

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default and args[0].is_meta:
            return True if args[0].dtype == torch.bool else self.length
        if func is torch.ops.aten.nonzero.default and args[0].is_meta:
            return args[0].new_empty(args[0].numel(), args[0].dim(), dtype=torch.long)
        return func(*args, **(kwargs or {}))


@dataclass(frozen=True)
class Observation:
    """What one sentence costs."""

    encode_flops: int
    """Reading the source."""
    forward_flops: int
    """Reading the whole target and scoring every token, as training does."""
    step_flops: int
    """Reading the target's last token and scoring the next, as search does."""
    kept_bytes: int
    """What autograd keeps of the first two for the backward pass, without weights."""
    score_bytes: int
    """The scores over the vocabulary of the whole target."""
    state_bytes: int
    """What search carries into the target's last step, for one row."""


def observe(model: Model, source_length: int, target_length: int) -> Observation:
    """Run one pair of sentences, or for a text encoder one text, through a model on the meta device."""
    if model.has_target:
        return _observe_transducer(cast("AnyTransducer", model), source_length, target_length)
    return _observe_encoder(cast("EncoderModel", model), source_length)


def _observe_encoder(model: EncoderModel, length: int) -> Observation:
    """Only encoding: the cost of the head per token counts as a step."""
    model.train()
    with Unpadded(length), kept_for_backward(model) as kept:
        allowed_BN = torch.ones(1, length, dtype=torch.bool, device="meta")
        encoding, encoded = counted(lambda: model(_tokens(length), allowed_BN))
        scores, headed = counted(lambda: encoding.states if model.head is None else model.head(encoding))
    kept_bytes = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    return Observation(encoded, headed, (encoded + headed) // length, kept_bytes, size([scores]), 0)


def _observe_transducer(model: AnyTransducer, source_length: int, target_length: int) -> Observation:
    """First as training does, then as search does."""
    model.train()
    with Unpadded(source_length), kept_for_backward(model) as kept:
        allowed_BS = torch.ones(1, source_length, dtype=torch.bool, device="meta")
        memory, encode = counted(lambda: model.encode(_tokens(source_length), allowed_BS))
    with Unpadded(target_length), kept_for_backward(model, kept):
        score_BTV, forward = counted(lambda: model.logits(model(_tokens(target_length), memory)))
    model.eval()
    before = target_length - 1
    with torch.no_grad(), Unpadded(before):
        state = model.start(memory, 1)
        if before:
            _, state = model.extend(_tokens(before), torch.full((1,), before, device="meta"), state)
        state_bytes = size(tensors(state))
        _, step = counted(lambda: model.logits(model.step(_tokens(1)[:, 0], state)[0]))
    kept_bytes = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    return Observation(encode, forward, step, kept_bytes, size([score_BTV]), state_bytes)


def counted(work: Callable[[], Outcome]) -> tuple[Outcome, int]:
    """Do some work; return what came of it and the operations of its matrix products."""
    with FlopCounterMode(display=False) as counter:
        outcome = work()
    return outcome, int(counter.get_total_flops())


@contextmanager
def kept_for_backward(model: nn.Module, kept: dict[int, Tensor] | None = None) -> Iterator[dict[int, Tensor]]:
    """Collect what autograd saves, by storage: views of one tensor are kept once, and weights are there anyway."""
    kept = {} if kept is None else kept
    weights = {parameter.untyped_storage()._cdata for parameter in model.parameters()}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()._cdata
        if storage not in weights:
            kept.setdefault(storage, tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        yield kept


def tensors(value: object) -> Iterator[Tensor]:
    """Find the tensors in a state, however it is put together."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors(item)
    elif is_dataclass(value):
        for field in fields(value):
            yield from tensors(getattr(value, field.name))


def size(values: Iterable[Tensor]) -> int:
    """Return the bytes of some tensors."""
    return sum(value.numel() * value.element_size() for value in values)


def _tokens(length: int) -> Tensor:
    return torch.zeros(1, length, dtype=torch.long, device="meta")
