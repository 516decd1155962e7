"""Incremental decoding with a stack of blocks: the same arithmetic as the blocks, without the overhead of modules.

A step of a small model is a hundred products of a few microseconds each, and calling modules, hook points and disabled
dropout costs more than they do. So the weights of all layers are collected once per batch of sentences, and a step uses
them directly. This fast path has no hooks, cannot train and needs all sentences at the same position; otherwise the
decoder's blocks are used, and a test of invariants checks that both agree.

Letters: S sentences, W rows of each, R = S·W rows, H heads, G heads of keys, N slots of the past, M memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Self, TypeGuard, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.models.block import BlockConfig, Past, empty_past, past_relation
from transduce.models.interface import State
from transduce.nn.attention.dot_product import per_group
from transduce.nn.attention.kernel import minus_infinity
from transduce.nn.attention.multi_head import HeadShape
from transduce.nn.embedding import Embedding
from transduce.nn.hook import HookPoint
from transduce.nn.linear import Linear
from transduce.nn.position import Positions, Relation, RelativeEmbeddings, RelativePositions
from transduce.nn.state import KeptMemory, KeyValues, by_row, by_sentence
from transduce.nn.sublayer import GatedFeedForward

# A stack of decoder blocks: several tokens go through its blocks, a single one takes the fast path.


@dataclass
class DecoderState(State):
    """The past of each row, and the projected memory that a sentence's rows share."""

    past: Past
    width: int
    memory: KeptMemory | None
    """None in a decoder-only model."""

    @property
    def num_rows(self) -> int:
        return len(self.past.lengths) * self.width

    def select(self, rows: Tensor) -> Self:
        sentences = rows[:: self.width] // self.width
        memory = None if self.memory is None else self.memory.select(sentences)
        return replace(self, past=self.past.select(rows), memory=memory)

    def join(self, other: Self) -> Self:
        assert self.width == other.width, "states of different widths cannot be joined"
        assert (self.memory is None) == (other.memory is None), "states of different models cannot be joined"
        past = self.past.join(other.past)  # type: ignore[arg-type]  # pasts of one model
        memory = None if self.memory is None or other.memory is None else self.memory.join(other.memory)
        return replace(self, past=past, memory=memory)


@dataclass
class StackState(DecoderState):
    """A decoder state with its stack."""

    stack: DecoderStack


class DecoderStack:
    """A model's decoder for incremental decoding, valid while its weights do not change."""

    def __init__(
        self,
        config: BlockConfig,
        embedding: Embedding,
        positions: Positions,
        relations: RelativePositions,
        blocks: nn.ModuleList,
        norm: nn.Module,
    ) -> None:
        """`norm` is the final norm of the stack."""
        self.config, self.embedding, self.positions, self.relations = config, embedding, positions, relations
        self.blocks, self.norm = blocks, norm
        self.fast = None
        """The fast path for single tokens; None with attention kernels."""
        if config.attention == "full":
            self.fast = DecoderStep(blocks, norm, config.head_shape, pre_norm=config.norm == "pre")

    def start(self, sentences: int, width: int, like: Tensor, memory: KeptMemory | None = None) -> StackState:
        """Return the initial state, with the device and dtype of `like`."""
        past = empty_past(self.config, self.blocks, sentences, width, like)
        return StackState(past, width, memory, self)

    def extend(self, tokens: Tensor, lengths: Tensor, state: StackState) -> Tensor:
        """Process several tokens of each row, `lengths[r]` of row r.  (R T), (R) -> (R T D)."""
        counts = lengths[:: state.width]
        hidden = self._apply_blocks(tokens, state, counts)
        state.past.advance(counts)
        return hidden

    def step(self, tokens: Tensor, state: StackState) -> Tensor:
        """Process one more token of each row.  (R) -> (R D)."""
        past, fast = state.past, self.fast
        if fast is not None and not self.blocks.training and fast.is_possible(past):
            past.reserve(1)
            embedded = self.embedding(tokens) + self.positions.first(past.longest + 1)[-1]
            hidden = fast(embedded, past, past_relation(self.relations, past, 1), state.memory)
        else:
            hidden = self._apply_blocks(tokens[:, None], state)[:, 0]
        past.advance(1)
        return hidden

    def _apply_blocks(self, tokens: Tensor, state: StackState, lengths: Tensor | None = None) -> Tensor:
        """Apply the blocks to several tokens of each row.  (R T) -> (R T D)."""
        past, memory, length = state.past, state.memory, tokens.shape[1]
        past.reserve(length, lengths)
        token_SN, position_SN = by_sentence(tokens, state.width), past.query_positions(length)
        hidden: Tensor = self.embedding(token_SN) + self.positions.at(position_SN, past.longest + length)
        relation, allowed = past_relation(self.relations, past, length), past.allowed(length)
        for layer, block in enumerate(cast("Iterable[Any]", self.blocks)):
            kept = () if memory is None else (memory.layer(layer),)
            hidden = block.extend(hidden, past, layer, allowed, relation, *kept)
        return by_row(self.norm(hidden), state.width)


Product = Callable[[Tensor], Tensor]
"""(R D) -> (R V)."""
Norm = Callable[[Tensor], Tensor]
"""(R D) -> (R D)."""


class Cross(NamedTuple):
    """The weights of a block's cross-attention."""

    q_proj: Product
    out_proj: Product
    norm: Norm


class StepLayer(NamedTuple):
    """The weights of one decoder block."""

    qkv_proj: Product
    out_proj: Product
    norm: Norm
    cross: Cross | None
    """None in a decoder-only model."""
    up: Product
    activation: Callable[[Tensor], Tensor]
    down: Product
    last_norm: Norm

    @classmethod
    def of(cls, block: Any) -> StepLayer:
        own, inner, cross = block.self_attention, block.feed_forward, None
        if hasattr(block, "cross_attention"):
            other = block.cross_attention
            norm = _norm(block.cross_attention_residual.norm)
            cross = Cross(_product(other.q_proj), _product(other.out_proj), norm)
        gated = isinstance(inner, GatedFeedForward)
        linear = (own.qkv_proj, own.out_proj, inner.gate_up if gated else inner.up, inner.down)
        qkv_proj, out_proj, up, down = map(_product, linear)
        activation = partial(_gated, inner.activation) if gated else inner.activation
        first, last = _norm(block.self_attention_residual.norm), _norm(block.feed_forward_residual.norm)
        return cls(qkv_proj, out_proj, first, cross, up, activation, down, last)


class DecoderStep:
    """The weights of a decoder, and one step with them."""

    def __init__(self, blocks: nn.ModuleList, final_norm: nn.Module, shape: HeadShape, pre_norm: bool) -> None:
        self.layers = [StepLayer.of(block) for block in blocks]
        self.final_norm = None if isinstance(final_norm, nn.Identity) else _norm(final_norm)
        self.pre_norm = pre_norm
        self.shape = shape
        self.scale = shape.scale
        self._has_relative_embeddings = any(isinstance(module, RelativeEmbeddings) for module in blocks.modules())
        self._hooks = [module._forward_hooks for module in blocks.modules() if isinstance(module, HookPoint)]

    def is_possible(self, past: Past) -> TypeGuard[KeyValues]:
        """Whether a step need not use the blocks: no hooks, no relative embeddings, all rows at one position."""
        return (
            isinstance(past, KeyValues) and past.uniform and not self._has_relative_embeddings and not any(self._hooks)
        )

    def __call__(
        self,
        hidden: Tensor,
        past: KeyValues,
        relation: Relation,
        memory: KeptMemory | None = None,
    ) -> Tensor:
        """Process one more token of each row and append it to the past.  (R D) -> (R D)."""
        own_allowed, memory_allowed = past.allowed(1), None if memory is None else memory.allowed
        own_bias = None if own_allowed is None else minus_infinity(own_allowed, hidden)
        if relation.bias is not None:
            own_bias = relation.bias if own_bias is None else own_bias + relation.bias
        memory_bias = None if memory_allowed is None else minus_infinity(memory_allowed, hidden)
        pre_norm = self.pre_norm
        for number, layer in enumerate(self.layers):
            added = self._self_attention(
                layer.norm(hidden) if pre_norm else hidden, number, layer, past, relation, own_bias
            )
            hidden = added.add_(hidden) if pre_norm else layer.norm(added.add_(hidden))
            if layer.cross is not None:
                assert memory is not None, "cross-attention needs a memory"
                query = layer.cross.q_proj(layer.cross.norm(hidden) if pre_norm else hidden)
                keys, values = memory.keys[number], memory.values[number]
                mixed = self._mix(self._split(query, len(keys), self.shape.key_dim), keys, values, memory_bias)
                added = layer.cross.out_proj(mixed)
                hidden = added.add_(hidden) if pre_norm else layer.cross.norm(added.add_(hidden))
            added = layer.down(layer.activation(layer.up(layer.last_norm(hidden) if pre_norm else hidden)))
            hidden = added.add_(hidden) if pre_norm else layer.last_norm(added.add_(hidden))
        return hidden if self.final_norm is None else self.final_norm(hidden)

    def _self_attention(
        self, value: Tensor, number: int, layer: StepLayer, past: KeyValues, relation: Relation, bias: Tensor | None
    ) -> Tensor:
        sentences = len(past.lengths)
        query, key, new_value = torch.split(layer.qkv_proj(value), self.shape.widths, dim=-1)
        query_SHWK, key_SGWK = (self._split(part, sentences, self.shape.key_dim) for part in (query, key))
        if relation.turn is not None:
            query_SHWK, key_SGWK = (relation.turn(part).type_as(part) for part in (query_SHWK, key_SGWK))
        cached = past.write(number, key_SGWK, self._split(new_value, sentences, self.shape.value_dim))
        return layer.out_proj(self._mix(query_SHWK, *cached, bias))

    def _mix(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
        """Attention of rows to their sentence's keys and values.  (S H W K), (S G M K), (S G M V) -> (R H·V)."""
        score_SHWM = per_group(query, key.transpose(2, 3)).mul_(self.scale)
        if bias is not None:
            score_SHWM += bias
        mixed_SHWV = per_group(score_SHWM.softmax(dim=-1), value)
        return mixed_SHWV.transpose(1, 2).reshape(-1, self.shape.num_heads * self.shape.value_dim)

    def _split(self, projected: Tensor, sentences: int, width: int) -> Tensor:
        """(R H·K) -> (S H W K)."""
        return projected.view(sentences, -1, projected.shape[1] // width, width).transpose(1, 2)


def _product(layer: Linear) -> Product:
    """A layer's product without its module."""
    return layer.packed or partial(F.linear, weight=layer.weight, bias=layer.bias)


def _norm(norm: Any) -> Norm:
    """A norm without its module."""
    if isinstance(norm, nn.RMSNorm):
        return partial(F.rms_norm, normalized_shape=norm.normalized_shape, weight=norm.weight, eps=norm.eps)
    return partial(
        F.layer_norm, normalized_shape=norm.normalized_shape, weight=norm.weight, bias=norm.bias, eps=norm.eps
    )


def _gated(activation: Callable[[Tensor], Tensor], gate_up: Tensor) -> Tensor:
    gate, up = gate_up.chunk(2, dim=-1)
    return activation(gate) * up
