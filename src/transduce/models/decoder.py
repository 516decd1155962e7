"""Incremental decoding with a stack of blocks: the same arithmetic as the blocks, without the overhead of modules.

A step of a small model is a hundred products of a few microseconds each, and calling modules, hook points and disabled
dropout costs more than they do. So the weights of all layers are collected once per batch of sentences, and a step uses
them directly. This fast path has no hooks and cannot train; otherwise the decoder's blocks are used, and a test of
invariants checks that both agree.

Letters: S sentences, W rows of each, R = S·W rows, H heads, G heads of keys, N slots of the past, M memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, Self, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.models.block import BlockConfig, Past, empty_past, past_relation
from transduce.models.interface import State
from transduce.nn.attention.kernel import minus_infinity
from transduce.nn.attention.multi_head import HeadShape
from transduce.nn.embedding import Embedding
from transduce.nn.hook import HookPoint
from transduce.nn.linear import Linear
from transduce.nn.position import Positions, RelativeEmbeddings, RelativePositions, Turn
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

    def put(self, sentences: Tensor, other: Self) -> Self:
        if not isinstance(self.past, KeyValues) or not isinstance(other.past, KeyValues):
            return super().put(sentences, other)
        self.past.put(sentences, other.past)
        if self.memory is None or other.memory is None:
            return self
        return replace(self, memory=self.memory.put(sentences, other.memory))

    def release(self, sentences: Tensor) -> None:
        if isinstance(self.past, KeyValues):
            self.past.release(sentences)


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

    @cached_property
    def fast(self) -> DecoderStep | None:
        """The fast path for single tokens; None with attention kernels.

        Made at the first step: sentences that join others are stepped by the stack of those.
        """
        if self.config.attention != "full":
            return None
        return DecoderStep(self.blocks, self.norm, self.config.head_shape, pre_norm=self.config.norm == "pre")

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

    def step(self, tokens: Tensor, states: Sequence[StackState]) -> Tensor:
        """Process one more token of each row of several groups.  (R) -> (R D), the rows of all groups."""
        fast = self.fast
        if fast is None or self.blocks.training or not fast.is_possible([state.past for state in states]):
            parts = torch.split(tokens, [state.num_rows for state in states])
            hidden = torch.cat(
                [self._apply_blocks(own[:, None], state)[:, 0] for own, state in zip(parts, states, strict=True)]
            )
        else:
            for state in states:
                state.past.reserve(1)
            embedded = self.embedding(tokens) + torch.cat([self._next_position(state) for state in states])
            hidden = fast(embedded, [self._context(state, embedded) for state in states])
        for state in states:
            state.past.advance(1)
        return hidden

    def _next_position(self, state: StackState) -> Tensor:
        """The position encoding of each row's next token.  -> (R D)."""
        past = state.past
        if past.uniform:
            return self.positions.first(past.longest + 1)[-1:].expand(state.num_rows, -1)
        return self.positions.at(past.query_positions(1), past.longest + 1).flatten(0, 1)

    def _context(self, state: StackState, like: Tensor) -> StepContext:
        past = cast("KeyValues", state.past)
        relation = past_relation(self.relations, past, 1)
        bias, allowed = relation.bias, past.allowed(1)
        if allowed is not None:
            masked = minus_infinity(allowed, like)
            bias = masked if bias is None else masked + bias
        memory = state.memory
        memory_allowed = None if memory is None else memory.allowed
        memory_bias = None if memory_allowed is None else minus_infinity(memory_allowed, like)
        return StepContext(state.num_rows, past, relation.turn, bias, memory, memory_bias)

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


def step_stacks(
    tokens: Sequence[Tensor], states: Sequence[StackState], scaled: Callable[[Tensor], Tensor] | None = None
) -> list[tuple[Tensor, StackState]]:
    """Step several groups of one model's decoder; `scaled` is applied to the hidden vectors.  G × (R) -> G × (R D)."""
    hidden = states[0].stack.step(_joined(tokens), states)
    parts = torch.split(hidden if scaled is None else scaled(hidden), [state.num_rows for state in states])
    return list(zip(parts, states, strict=True))


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


class StepContext(NamedTuple):
    """What one group attends to in a step."""

    rows: int
    past: KeyValues
    turn: Turn | None
    """Rotates queries and keys to their positions."""
    bias: Tensor | None
    """Added to the scores of self-attention; minus infinity where it is not allowed.  (S 1|H W M)"""
    memory: KeptMemory | None
    memory_bias: Tensor | None


class DecoderStep:
    """The weights of a decoder, and one step with them for all groups: products over the rows of all, attention by
    group (selective batching; Yu et al., OSDI 2022)."""

    def __init__(self, blocks: nn.ModuleList, final_norm: nn.Module, shape: HeadShape, pre_norm: bool) -> None:
        self.layers = [StepLayer.of(block) for block in blocks]
        self.final_norm = None if isinstance(final_norm, nn.Identity) else _norm(final_norm)
        self.pre_norm = pre_norm
        self.shape = shape
        self.scale = shape.scale
        self._nothing = next(blocks.parameters()).detach().new_zeros(1, 1, 1)
        """What `baddbmm` adds to scores, 0 times."""
        self._has_relative_embeddings = any(isinstance(module, RelativeEmbeddings) for module in blocks.modules())
        self._hooks = [module._forward_hooks for module in blocks.modules() if isinstance(module, HookPoint)]

    def is_possible(self, pasts: Iterable[Past]) -> bool:
        """Whether a step need not use the blocks: no hooks, no relative embeddings, no attention kernels."""
        plain = all(isinstance(past, KeyValues) for past in pasts)
        return plain and not self._has_relative_embeddings and not any(self._hooks)

    def __call__(self, hidden: Tensor, groups: Sequence[StepContext]) -> Tensor:
        """Process one more token of each row and append it to its group's past.  (R D), rows of all groups -> (R D)."""
        pre_norm = self.pre_norm
        for number, layer in enumerate(self.layers):
            qkv = layer.qkv_proj(layer.norm(hidden) if pre_norm else hidden)
            mixed = [self._self_attention(part, number, group) for part, group in _by_group(qkv, groups)]
            added = layer.out_proj(_joined(mixed))
            hidden = added.add_(hidden) if pre_norm else layer.norm(added.add_(hidden))
            if layer.cross is not None:
                query = layer.cross.q_proj(layer.cross.norm(hidden) if pre_norm else hidden)
                mixed = [self._cross_attention(part, number, group) for part, group in _by_group(query, groups)]
                added = layer.cross.out_proj(_joined(mixed))
                hidden = added.add_(hidden) if pre_norm else layer.cross.norm(added.add_(hidden))
            added = layer.down(layer.activation(layer.up(layer.last_norm(hidden) if pre_norm else hidden)))
            hidden = added.add_(hidden) if pre_norm else layer.last_norm(added.add_(hidden))
        return hidden if self.final_norm is None else self.final_norm(hidden)

    def _self_attention(self, qkv: Tensor, number: int, group: StepContext) -> Tensor:
        """(R H·K + G·K + G·V) -> (R H·V)."""
        sentences, shape = group.past.lengths.shape[0], self.shape
        query, key, value = qkv.split_with_sizes(shape.widths, dim=-1)
        query_SHWK, key_SGWK = (self._split(part, sentences, shape.key_dim) for part in (query, key))
        if group.turn is not None:
            query_SHWK, key_SGWK = (group.turn(part).type_as(part) for part in (query_SHWK, key_SGWK))
        cached = group.past.write(number, key_SGWK, self._split(value, sentences, shape.value_dim))
        return self._mix(query_SHWK, *cached, group.bias)

    def _cross_attention(self, query: Tensor, number: int, group: StepContext) -> Tensor:
        """(R H·K) -> (R H·V)."""
        assert group.memory is not None, "cross-attention needs a memory"
        keys, values = group.memory.keys[number], group.memory.values[number]
        return self._mix(self._split(query, keys.shape[0], self.shape.key_dim), keys, values, group.memory_bias)

    def _mix(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
        """Attention of rows to their sentence's keys and values.  (S H W K), (S G M K), (S G M V) -> (R H·V)."""
        sentences, heads, width, _ = query.shape
        shared = key.shape[1] != heads  # heads that share keys are further rows of these
        query_NQK = query.reshape(sentences * key.shape[1], -1, query.shape[3]) if shared else query.flatten(0, 1)
        key_NKM = key.flatten(0, 1).transpose(1, 2)
        score_NQM = torch.baddbmm(self._nothing, query_NQK, key_NKM, beta=0, alpha=self.scale)
        if bias is not None:
            score_SHWM = score_NQM.view(sentences, heads, width, -1)
            score_SHWM += bias
        mixed_NQV = torch.bmm(score_NQM.softmax(dim=-1), value.flatten(0, 1))
        if width == 1:
            return mixed_NQV.view(sentences, -1)
        return mixed_NQV.view(sentences, heads, width, -1).transpose(1, 2).reshape(sentences * width, -1)

    def _split(self, projected: Tensor, sentences: int, width: int) -> Tensor:
        """(R H·K) -> (S H W K)."""
        return projected.view(sentences, -1, projected.shape[1] // width, width).transpose(1, 2)


def _by_group(rows: Tensor, groups: Sequence[StepContext]) -> Iterator[tuple[Tensor, StepContext]]:
    """Divide the rows of a product among the groups."""
    return zip([rows] if len(groups) == 1 else torch.split(rows, [group.rows for group in groups]), groups, strict=True)


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def _product(layer: Linear) -> Product:
    """A layer's product without its module."""
    return layer.packed or partial(F.linear, weight=layer.weight, bias=layer.bias)


def _norm(norm: Any) -> Norm:
    """A norm without its module."""
    if isinstance(norm, nn.RMSNorm):
        return partial(F.rms_norm, normalized_shape=norm.normalized_shape, weight=norm.weight, eps=norm.eps)
    shape, weight, bias, eps = norm.normalized_shape, norm.weight, norm.bias, norm.eps
    return lambda hidden: torch.layer_norm(hidden, shape, weight, bias, eps)  # without the checks of F.layer_norm


def _gated(activation: Callable[[Tensor], Tensor], gate_up: Tensor) -> Tensor:
    gate, up = gate_up.chunk(2, dim=-1)
    return activation(gate) * up
