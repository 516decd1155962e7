"""GPT (Radford et al. 2018, 2019): a decoder-only language model.

A stack of the Transformer's encoder blocks with a causal mask. With the defaults it is GPT-2; with rotary positions,
RMSNorm, SwiGLU and grouped-query attention it is a modern decoder (Llama, Touvron et al. 2023).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from transduce.models.block import (
    ActivationName,
    BlockConfig,
    EncoderBlock,
    Layers,
    Rate,
    Width,
    added_positions,
    apply_block,
    final_norm,
    relative_positions,
)
from transduce.models.decoder import DecoderStack, StackState, step_stacks
from transduce.models.interface import LanguageModel, Memory, VocabularySizes
from transduce.nn.dropout import Dropout, WordDropout
from transduce.nn.embedding import Embedding, Output


class GptConfig(BlockConfig):
    """Settings of a language model; the defaults are the small GPT-2's."""

    model_dim: Width = 768
    """Width of the residual stream."""
    num_heads: Width = 12
    """Attention heads."""
    ffn_dim: Width = 3072
    """Inner width of the feed-forward network."""
    num_layers: Layers = 12
    """Layers."""
    norm: Literal["post", "pre"] = "pre"
    """Post-norm (GPT 1) or pre-norm (GPT-2 and all since)."""
    activation: ActivationName = "gelu_tanh"
    """Activation of the feed-forward network; swiglu and geglu are gated."""
    positions: Literal["sinusoidal", "learned", "rotary", "alibi", "shaw", "buckets", "none"] = "learned"
    """Position encoding: added to embeddings (sinusoidal, learned) or in self-attention (the others)."""
    attention_bias: bool = True
    """Biases in the attention projections."""
    tied_embeddings: Annotated[bool, Field(strict=True)] = True
    """Share the matrix of embedding and output layer."""
    output_bias: bool = False
    """Bias of the output layer."""
    word_dropout: Rate = 0.0
    """Dropout of whole token embeddings, before positions are added."""

    @model_validator(mode="after")
    def _attention_is_causal(self) -> GptConfig:
        if self.attention == "low_rank":
            raise ValueError("attention = 'low_rank' cannot be causal, as a language model must be; choose another")
        return self


def gpt2() -> GptConfig:
    """GPT-2, small: 124 million parameters with its vocabulary of 50,257."""
    return GptConfig()


def gpt2_medium() -> GptConfig:
    """GPT-2, medium: 355 million parameters."""
    return gpt2().but(model_dim=1024, num_heads=16, ffn_dim=4096, num_layers=24)


def gpt_mini() -> GptConfig:
    """For a megabyte of text on a laptop: 4 layers of 128, without biases, 64 tokens of context."""
    return GptConfig(
        model_dim=128,
        num_heads=4,
        ffn_dim=512,
        num_layers=4,
        activation="gelu",
        ffn_bias=False,
        attention_bias=False,
        max_positions=64,
        dropout=0.0,
    )


def llama_mini() -> GptConfig:
    """A modern decoder of laptop size: rotary, RMSNorm, SwiGLU, two query heads per key head, no biases."""
    return GptConfig(
        model_dim=256,
        num_heads=8,
        key_value_heads=4,
        ffn_dim=704,
        num_layers=6,
        norm_kind="rms",
        norm_eps=1e-5,
        activation="swiglu",
        positions="rotary",
        attention_bias=False,
        dropout=0.0,
    )


class Gpt(LanguageModel[StackState]):
    """Text so far → scores of the next token."""

    supports_gradient_checkpointing = True

    def __init__(self, config: GptConfig, sizes: VocabularySizes) -> None:
        super().__init__()
        dim = config.model_dim
        self.config = config
        self.sizes = sizes
        self.embedding = Embedding(sizes.target, dim, scaled=False)
        self.positions = added_positions(config)
        self.relative_positions = relative_positions(config, bidirectional=False)
        self.word_dropout = WordDropout(config.word_dropout)
        self.dropout = Dropout(config.dropout)
        self.decoder = nn.ModuleList(EncoderBlock(config.of_layer(layer)) for layer in range(config.num_layers))
        self.decoder_norm = final_norm(config)
        tied = self.embedding if config.tied_embeddings else None
        self.output = Output(sizes.target, dim, bias=config.output_bias, tied=tied)
        self.max_target = self.positions.limit

    def forward(self, target: Tensor, memory: Memory) -> Tensor:
        embedded = self.word_dropout(self.embedding(target))
        hidden = self.dropout(embedded + self.positions.first(target.shape[1]))
        place_1T = torch.arange(target.shape[1], device=target.device)[None]
        relation = self.relative_positions(place_1T, place_1T)
        for block in self.decoder:
            hidden = apply_block(block, self.recomputes, hidden, None, relation, True)
        return self.final_hidden(hidden)

    def final_hidden(self, residual: Tensor) -> Tensor:
        """Turn the residual of the last layer, or of another, into hidden vectors.  (… D) -> (… D)."""
        normalised: Tensor = self.decoder_norm(residual)
        return normalised

    def start(self, memory: Memory, width: int = 1) -> StackState:
        parts = self.embedding, self.positions, self.relative_positions, self.decoder, self.decoder_norm
        return DecoderStack(self.config, *parts).start(len(memory.states), width, self.embedding.weight)

    def extend(self, tokens: Tensor, lengths: Tensor, state: StackState) -> tuple[Tensor, StackState]:
        return state.stack.extend(tokens, lengths, state), state

    def step(self, tokens: Tensor, state: StackState) -> tuple[Tensor, StackState]:
        return state.stack.step(tokens, [state]), state

    def step_groups(self, tokens: Sequence[Tensor], states: Sequence[StackState]) -> list[tuple[Tensor, StackState]]:
        return step_stacks(tokens, states)
