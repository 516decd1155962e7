"""The Transformer (Vaswani et al. 2017, arXiv 1706.03762).

Encoder and decoder are stacks of blocks; a block is attention and a feed-forward network, each wrapped in a
residual. Section numbers in this file are the paper's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, TypeVar, cast

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from transduce.config import Config
from transduce.models.interface import Memory, State, Transducer, VocabularySizes
from transduce.models.transformer_step import DecoderStep
from transduce.nn.attention.multi_head import CrossAttention, SelfAttention
from transduce.nn.dropout import Dropout, WordDropout
from transduce.nn.embedding import Embedding, Output
from transduce.nn.feed_forward import FEED_FORWARD
from transduce.nn.position import LearnedPositions, Positions, SinusoidalPositions
from transduce.nn.recompute import recomputed
from transduce.nn.residual import RESIDUAL
from transduce.nn.state import KeyValues
from transduce.nn.tap import Tap

Width = Annotated[int, Field(ge=1, le=65_536)]
Layers = Annotated[int, Field(ge=1, le=1_000)]
Rate = Annotated[float, Field(ge=0.0, lt=1.0)]
Kind = TypeVar("Kind", SelfAttention, CrossAttention)


class TransformerConfig(Config):
    """Sizes and choices of one encoder-decoder Transformer (section 3); the defaults are the paper's base model."""

    model_dim: Width = 512
    """Width of every position's vector; the paper's d_model."""
    num_heads: Width = 8
    """Heads of every attention; the paper's h."""
    key_dim: Width | None = None
    """Width of one head's queries and keys, d_k; model_dim / num_heads unless given."""
    value_dim: Width | None = None
    """Width of one head's values, d_v; model_dim / num_heads unless given."""
    ffn_dim: Width = 2048
    """Inner width of the feed-forward network, d_ff."""
    num_layers: Layers = 6
    """Blocks of the encoder, and of the decoder unless decoder_layers is given; the paper's N."""
    decoder_layers: Layers | None = None
    """Blocks of the decoder where they are not as many as the encoder's."""
    norm: Literal["post", "pre"] = "post"
    """LayerNorm after the sum (the paper) or before the sub-layer (steadier; ends each stack with one more)."""
    feed_forward: Literal["relu", "gelu", "gated"] = "relu"
    """What bends the feed-forward network."""
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    """Where a token stands: fixed signals, or a trained table (Table 3, row E)."""
    max_positions: Annotated[int, Field(ge=1, le=1_000_000)] = 1024
    """Size of each learned position table; sinusoids have no limit."""
    tied: Literal["all", "target", "none"] = "all"
    """One matrix for source, target and output (section 3.4; needs a joint vocabulary), for the last two, or none."""
    attention_bias: bool = False
    """Biases in the attention's projections; the paper's code has none."""
    output_bias: bool = False
    """A bias in the layer before the softmax."""
    dropout: Rate = 0.1
    """On each sub-layer's output and on the sums of embeddings and positions (section 5.4)."""
    attention_dropout: Rate = 0.0
    """On the attention weights; the paper does not mention it."""
    activation_dropout: Rate = 0.0
    """Inside the feed-forward network; the paper does not mention it."""
    word_dropout: Rate = 0.0
    """On whole embeddings, before positions are added: words of both sides that the model must do without."""

    @model_validator(mode="after")
    def _heads_divide_the_width(self) -> TransformerConfig:
        if self.model_dim % self.num_heads and (self.key_dim is None or self.value_dim is None):
            raise ValueError(
                f"model_dim {self.model_dim} does not divide into {self.num_heads} heads; "
                "change one of them, or give key_dim and value_dim"
            )
        return self

    @property
    def head_dims(self) -> tuple[int, int]:
        """(d_k, d_v) of one head."""
        equal = self.model_dim // self.num_heads
        return self.key_dim or equal, self.value_dim or equal


def paper_base() -> TransformerConfig:
    """Table 3, base: 65 million parameters."""
    return TransformerConfig()


def paper_big() -> TransformerConfig:
    """Table 3, big: 213 million parameters, for English-German (English-French used dropout 0.1)."""
    return paper_base().but(model_dim=1024, ffn_dim=4096, num_heads=16, dropout=0.3)


def small() -> TransformerConfig:
    """For some ten thousand to a few hundred thousand pairs: 4 + 4 layers of 256, pre-norm, more dropout."""
    return TransformerConfig(model_dim=256, ffn_dim=1024, num_heads=4, num_layers=4, norm="pre", dropout=0.3)


def tiny() -> TransformerConfig:
    """For the smallest corpora (Wu et al. 2021 on Multi30k): 4 + 4 layers of 128, post-norm, biases throughout."""
    return TransformerConfig(model_dim=128, ffn_dim=256, num_heads=4, num_layers=4, attention_bias=True, dropout=0.3)


class EncoderBlock(nn.Module):
    """Self-attention, then feed-forward (section 3.1)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        residual = RESIDUAL[config.norm]
        self.attention = _attention(SelfAttention, config)
        self.feed_forward = _feed_forward(config)
        self.attention_residual = residual(config.model_dim, config.dropout)
        self.feed_forward_residual = residual(config.model_dim, config.dropout)
        self.residual = Tap()

    def forward(self, hidden: Tensor, allowed: Tensor | None) -> Tensor:
        """(B S D), (B 1 1 S) -> (B S D)."""
        hidden = self.attention_residual(hidden, lambda value: self.attention(value, allowed))
        passed: Tensor = self.residual(self.feed_forward_residual(hidden, self.feed_forward))
        return passed


class DecoderBlock(nn.Module):
    """Masked self-attention, attention to the encoder, then feed-forward (section 3.1)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        residual = RESIDUAL[config.norm]
        self.attention = _attention(SelfAttention, config)
        self.cross_attention = _attention(CrossAttention, config)
        self.feed_forward = _feed_forward(config)
        self.attention_residual = residual(config.model_dim, config.dropout)
        self.cross_attention_residual = residual(config.model_dim, config.dropout)
        self.feed_forward_residual = residual(config.model_dim, config.dropout)
        self.residual = Tap()

    def forward(self, hidden: Tensor, memory: Memory) -> Tensor:
        """(B T D) -> (B T D)."""
        key, value = self.cross_attention.read(memory.states)
        hidden = self.attention_residual(hidden, lambda states: self.attention(states, causal=True))
        return self._read_memory(hidden, key, value, _broadcast(memory.allowed))

    def extend(self, hidden: Tensor, layer: int, state: TransformerState, allowed: Tensor | None) -> Tensor:
        """Continue each row of a state, token by token the rows of a sentence.  (S T·W D) -> (S T·W D)."""
        hidden = self.attention_residual(
            hidden, lambda states: self.attention.extend(states, state.past, layer, allowed)
        )
        key, value = state.memory_keys[layer], state.memory_values[layer]
        return self._read_memory(hidden, key, value, state.memory_allowed)

    def _read_memory(self, hidden: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None) -> Tensor:
        hidden = self.cross_attention_residual(hidden, lambda states: self.cross_attention(states, key, value, allowed))
        passed: Tensor = self.residual(self.feed_forward_residual(hidden, self.feed_forward))
        return passed


@dataclass
class TransformerState(State):
    """What each row has read so far, and each sentence's keys and values, shared by its rows."""

    walk: DecoderStep
    past: KeyValues
    memory_keys: list[Tensor]
    """Per layer (B H M K)."""
    memory_values: list[Tensor]
    """Per layer (B H M V)."""
    memory_allowed: Tensor | None
    """(B 1 1 M), or None where no source is padded."""
    width: int

    @property
    def num_rows(self) -> int:
        return len(self.past.lengths) * self.width

    def select(self, rows: Tensor) -> TransformerState:
        past = self.past.select(rows)
        sentences = rows[:: self.width] // self.width
        if torch.equal(sentences, torch.arange(len(self.memory_keys[0]), device=rows.device)):  # all stay in place
            return replace(self, past=past)
        return replace(
            self,
            past=past,
            memory_keys=[key.index_select(0, sentences) for key in self.memory_keys],
            memory_values=[value.index_select(0, sentences) for value in self.memory_values],
            memory_allowed=None if self.memory_allowed is None else self.memory_allowed.index_select(0, sentences),
        )

    def join(self, other: TransformerState) -> TransformerState:
        assert self.width == other.width, "states of different widths cannot stand in one batch"
        length = max(self.memory_keys[0].shape[2], other.memory_keys[0].shape[2])
        return replace(
            self,
            past=self.past.join(other.past),
            memory_keys=_stack(self.memory_keys, other.memory_keys, length),
            memory_values=_stack(self.memory_values, other.memory_values, length),
            memory_allowed=torch.cat([self._allowed_up_to(length), other._allowed_up_to(length)]),
        )

    def _allowed_up_to(self, length: int) -> Tensor:
        key_BHMK = self.memory_keys[0]
        allowed = self.memory_allowed
        if allowed is None:
            allowed = torch.ones(len(key_BHMK), 1, 1, key_BHMK.shape[2], dtype=torch.bool, device=key_BHMK.device)
        return nn.functional.pad(allowed, (0, length - allowed.shape[-1]))


class Transformer(Transducer[Memory, TransformerState]):
    """Source → target by attention alone."""

    can_recompute = True

    def __init__(self, config: TransformerConfig, sizes: VocabularySizes) -> None:
        super().__init__()
        dim = config.model_dim
        self.config = config
        self.sizes = sizes
        self.source_embedding = Embedding(sizes.source, dim)
        self.target_embedding = self.source_embedding if config.tied == "all" else Embedding(sizes.target, dim)
        self.source_positions = _positions(config)
        self.target_positions = _positions(config)
        self.word_dropout = WordDropout(config.word_dropout)
        self.dropout = Dropout(config.dropout)
        self.encoder = nn.ModuleList(EncoderBlock(config) for _ in range(config.num_layers))
        self.encoder_norm = RESIDUAL[config.norm].final(dim)
        self.decoder = nn.ModuleList(DecoderBlock(config) for _ in range(config.decoder_layers or config.num_layers))
        self.decoder_norm = RESIDUAL[config.norm].final(dim)
        tied = None if config.tied == "none" else self.target_embedding
        self.output = Output(sizes.target, dim, bias=config.output_bias, tied=tied)

    @property
    def max_source(self) -> int | None:
        return self.source_positions.limit

    @property
    def max_target(self) -> int | None:
        return self.target_positions.limit

    def encode(self, source: Tensor, allowed: Tensor) -> Memory:
        embedded = self.word_dropout(self.source_embedding(source))
        hidden = self.dropout(embedded + self.source_positions.first(source.shape[1]))
        allowed_B11S = _broadcast(allowed)
        for block in self.encoder:
            hidden = self._through(block, hidden, allowed_B11S)
        return Memory(self.encoder_norm(hidden), allowed)

    def forward(self, target: Tensor, memory: Memory) -> Tensor:
        embedded = self.word_dropout(self.target_embedding(target))
        hidden = self.dropout(embedded + self.target_positions.first(target.shape[1]))
        for block in self.decoder:
            hidden = self._through(block, hidden, memory)
        normalised: Tensor = self.decoder_norm(hidden)
        return normalised

    def start(self, memory: Memory, width: int = 1) -> TransformerState:
        heads, dims = self.config.num_heads, self.config.head_dims
        prepared = [block.cross_attention.read(memory.states) for block in self._decoder_blocks]
        return TransformerState(
            walk=self._walk,
            past=KeyValues.empty(len(self.decoder), len(memory.states), width, heads, dims, memory.states),
            memory_keys=[key.contiguous() for key, _ in prepared],  # every step reads them again
            memory_values=[value.contiguous() for _, value in prepared],
            memory_allowed=_broadcast(memory.allowed),
            width=width,
        )

    def extend(self, tokens: Tensor, lengths: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState]:
        hidden = self._extend(tokens, state)
        state.past.advance(lengths[:: state.width])
        return hidden, state

    def step(self, tokens: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState]:
        past = state.past
        if self.training or not past.uniform or state.walk.is_heard:
            hidden = self._extend(tokens[:, None], state)[:, 0]
        else:
            past.reserve(1)
            embedded = self.target_embedding(tokens) + self.target_positions.first(past.longest + 1)[-1]
            hidden = state.walk(embedded, past, state.memory_keys, state.memory_values, state.memory_allowed)
        past.advance(1)
        return hidden, state

    @property
    def _walk(self) -> DecoderStep:
        """The decoder for single steps, with the weights as they are now."""
        return DecoderStep(self.decoder, self.decoder_norm, self.config.num_heads, self.config.head_dims)

    def _through(self, block: nn.Module, *inputs: Any) -> Tensor:
        passed: Tensor = recomputed(block, *inputs) if self.recompute and self.training else block(*inputs)
        return passed

    @property
    def _decoder_blocks(self) -> Iterable[DecoderBlock]:
        """The decoder as what it holds: a ModuleList forgets the type of its modules."""
        return cast("Iterable[DecoderBlock]", self.decoder)

    def _extend(self, tokens: Tensor, state: TransformerState) -> Tensor:
        """Read several tokens of each row through the decoder's blocks.  (R T) -> (R T D)."""
        past, width, length = state.past, state.width, tokens.shape[1]
        past.reserve(length)
        end = past.longest + length
        token_SN = tokens.view(-1, width, length).transpose(1, 2).flatten(1)
        ahead_N = torch.arange(length, device=tokens.device).repeat_interleave(width)
        position_SN = past.lengths[:, None] + ahead_N
        hidden = self.target_embedding(token_SN) + self.target_positions.at(position_SN, end)
        allowed = past.allowed(length)
        for layer, block in enumerate(self._decoder_blocks):
            hidden = block.extend(hidden, layer, state, allowed)
        normalised: Tensor = self.decoder_norm(hidden)
        return torch.unflatten(normalised, 1, (length, width)).transpose(1, 2).flatten(0, 1)


def _attention(kind: type[Kind], config: TransformerConfig) -> Kind:
    key_dim, value_dim = config.head_dims
    return kind(config.model_dim, config.num_heads, key_dim, value_dim, config.attention_bias, config.attention_dropout)


def _feed_forward(config: TransformerConfig) -> nn.Module:
    return FEED_FORWARD[config.feed_forward](config.model_dim, config.ffn_dim, config.activation_dropout)


def _positions(config: TransformerConfig) -> Positions:
    if config.positions == "learned":
        return LearnedPositions(config.model_dim, config.max_positions)
    return SinusoidalPositions(config.model_dim)


def _broadcast(allowed: Tensor) -> Tensor | None:
    """(B M) -> (B 1 1 M), or None where every position is real and no kernel need read a mask."""
    return None if bool(allowed.all()) else allowed[:, None, None, :]


def _stack(first: list[Tensor], second: list[Tensor], length: int) -> list[Tensor]:
    def reach(kept_BHMK: Tensor) -> Tensor:
        return nn.functional.pad(kept_BHMK, (0, 0, 0, length - kept_BHMK.shape[2]))

    return [torch.cat([reach(a), reach(b)]) for a, b in zip(first, second, strict=True)]
