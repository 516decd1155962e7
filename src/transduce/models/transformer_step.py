"""The decoder of a Transformer, one token at a time: the same arithmetic as in its blocks, with nothing in between.

A step of a small model is a hundred products of a few microseconds each, and calling modules, asking taps and dropping
nothing out costs more than they do. So the weights of all layers are collected once per batch of sentences, and a step
goes through them by itself. Nobody can listen to it, it cannot train, and all sentences must stand at the same
position; for whatever else the decoder's blocks are there, and a law says that both agree.

Letters: S sentences, W rows of each, R = S·W rows, H heads, N slots of the past, M memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.nn.feed_forward import Gated
from transduce.nn.product import Linear
from transduce.nn.state import KeyValues
from transduce.nn.tap import Tap

Product = Callable[[Tensor], Tensor]
"""(R D) -> (R V)."""


class Norm(NamedTuple):
    """Weight and bias of a layer's norm."""

    weight: Tensor
    bias: Tensor

    @classmethod
    def of(cls, norm: Any) -> Norm:
        return cls(norm.weight, norm.bias)

    def __call__(self, value: Tensor) -> Tensor:
        return F.layer_norm(value, value.shape[-1:], self.weight, self.bias)


class Layer(NamedTuple):
    """The weights of one decoder block."""

    query_key_value: Product
    merge: Product
    norm: Norm
    cross_query: Product
    cross_merge: Product
    cross_norm: Norm
    widen: Product
    bend: Callable[[Tensor], Tensor]
    narrow: Product
    last_norm: Norm

    @classmethod
    def of(cls, block: Any) -> Layer:
        own, cross, inner = block.attention, block.cross_attention, block.feed_forward
        linear = (own.query_key_value, own.heads.merge, cross.query, cross.heads.merge, inner.widen, inner.narrow)
        both, merge, query, cross_merge, widen, narrow = map(_product, linear)
        bend = _gated if isinstance(inner, Gated) else inner.bend
        norms = (block.attention_residual, block.cross_attention_residual, block.feed_forward_residual)
        first, second, third = (Norm.of(residual.norm) for residual in norms)
        return cls(both, merge, first, query, cross_merge, second, widen, bend, narrow, third)


class DecoderStep:
    """The weights of a decoder, and how to take a step with them."""

    def __init__(self, blocks: nn.ModuleList, final_norm: nn.Module, heads: int, dims: tuple[int, int]) -> None:
        self.layers = [Layer.of(block) for block in blocks]
        self.final_norm = Norm.of(final_norm) if isinstance(final_norm, nn.LayerNorm) else None
        """There where norms stand before sub-layers."""
        self.heads = heads
        self.key_width, self.value_width = heads * dims[0], heads * dims[1]
        self.scale = 1.0 / math.sqrt(dims[0])
        self._listeners = [module._forward_hooks for module in blocks.modules() if isinstance(module, Tap)]

    @property
    def is_heard(self) -> bool:
        """Whether somebody listens to the decoder, and a step must go through its blocks."""
        return any(self._listeners)

    def __call__(
        self,
        hidden: Tensor,
        past: KeyValues,
        memory_keys: list[Tensor],
        memory_values: list[Tensor],
        memory_allowed: Tensor | None,
    ) -> Tensor:
        """Read one more token of each row, which the past will remember.  (R D) -> (R D)."""
        own_bias = _bias(past.allowed(1), hidden.dtype)
        memory_bias = _bias(memory_allowed, hidden.dtype)
        before = self.final_norm is not None
        for number, layer in enumerate(self.layers):
            added = self._look_back(layer.norm(hidden) if before else hidden, number, layer, past, own_bias)
            hidden = added.add_(hidden) if before else layer.norm(added.add_(hidden))
            query = layer.cross_query(layer.cross_norm(hidden) if before else hidden)
            mixed = self._mix(query, memory_keys[number], memory_values[number], memory_bias)
            added = layer.cross_merge(mixed)
            hidden = added.add_(hidden) if before else layer.cross_norm(added.add_(hidden))
            added = layer.narrow(layer.bend(layer.widen(layer.last_norm(hidden) if before else hidden)))
            hidden = added.add_(hidden) if before else layer.last_norm(added.add_(hidden))
        return hidden if self.final_norm is None else self.final_norm(hidden)

    def _look_back(self, value: Tensor, number: int, layer: Layer, past: KeyValues, bias: Tensor | None) -> Tensor:
        projected = layer.query_key_value(value)
        query, key, new_value = torch.split(projected, [self.key_width, self.key_width, self.value_width], dim=-1)
        sentences = len(past.lengths)
        seen = past.write(number, self._split(key, sentences), self._split(new_value, sentences))
        return layer.merge(self._mix(query, *seen, bias))

    def _mix(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
        """Attention of rows to what their sentence remembers.  (R H·K), (S H M K), (S H M V) -> (R H·V)."""
        score_SHWM = torch.matmul(self._split(query, len(key)), key.transpose(2, 3)).mul_(self.scale)
        if bias is not None:
            score_SHWM += bias
        mixed_SHWV = torch.matmul(score_SHWM.softmax(dim=-1), value)
        return mixed_SHWV.transpose(1, 2).reshape(len(query), self.value_width)

    def _split(self, projected: Tensor, sentences: int) -> Tensor:
        """(R H·K) -> (S H W K)."""
        return projected.view(sentences, -1, self.heads, projected.shape[1] // self.heads).transpose(1, 2)


def _product(layer: Linear) -> Product:
    """A layer's product without the layer."""
    return layer.packed or partial(F.linear, weight=layer.weight, bias=layer.bias)


def _bias(allowed: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """What is added to scores: nothing, or minus infinity where looking is not allowed."""
    if allowed is None:
        return None
    return torch.zeros(allowed.shape, dtype=dtype, device=allowed.device).masked_fill_(~allowed, -torch.inf)


def _gated(widened: Tensor) -> Tensor:
    gate, passed = widened.chunk(2, dim=-1)
    return F.silu(gate) * passed
