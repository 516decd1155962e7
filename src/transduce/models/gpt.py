"""GPT (Radford et al. 2018, 2019): a decoder that reads no source and goes on with what it is given.

A stack of the Transformer's encoder blocks with the future hidden. With the defaults it is GPT-2; with rotary
positions, RMSNorm, a gated feed-forward network and shared heads of keys it is a decoder as they are built today
(Llama, Touvron et al. 2023).
"""

from __future__ import annotations

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
    closing_norm,
    relative_positions,
    through,
)
from transduce.models.decoder import DecoderStack, StackState
from transduce.models.interface import LanguageModel, Memory, VocabularySizes
from transduce.nn.dropout import Dropout, WordDropout
from transduce.nn.embedding import Embedding, Output


class GptConfig(BlockConfig):
    """Sizes and choices of one language model; the defaults are the small GPT-2's."""

    model_dim: Width = 768
    """Width of every position's vector."""
    num_heads: Width = 12
    """Heads of every attention."""
    ffn_dim: Width = 3072
    """Inner width of the feed-forward network."""
    num_layers: Layers = 12
    """Blocks of the stack."""
    norm: Literal["post", "pre"] = "pre"
    """Norm after the sum (GPT 1) or before the sub-layer (GPT-2 and all since)."""
    activation: ActivationName = "gelu_tanh"
    """Activation of the feed-forward network; swiglu and geglu are gated."""
    positions: Literal["sinusoidal", "learned", "rotary", "alibi", "shaw", "buckets", "none"] = "learned"
    """Where a token stands: signals or a trained table that are added, or what self-attention hears."""
    attention_bias: bool = True
    """Biases in the attention's projections."""
    tied_embeddings: Annotated[bool, Field(strict=True)] = True
    """Whether the layer before the softmax is the embedding's matrix."""
    output_bias: bool = False
    """A bias in the layer before the softmax."""
    word_dropout: Rate = 0.0
    """On whole embeddings, before positions are added."""

    @model_validator(mode="after")
    def _future_is_hidden(self) -> GptConfig:
        if self.attention == "low_rank":
            raise ValueError("low_rank attention cannot hide the future, which a language model must; choose another")
        return self


def gpt2() -> GptConfig:
    """GPT-2, small: 124 million parameters with its vocabulary of 50,257."""
    return GptConfig()


def gpt2_medium() -> GptConfig:
    """GPT-2, medium: 355 million parameters."""
    return gpt2().but(model_dim=1024, num_heads=16, ffn_dim=4096, num_layers=24)


def gpt_mini() -> GptConfig:
    """For a megabyte of text on a laptop: 4 layers of 128, without biases, 64 tokens at a time."""
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
    """A modern decoder of laptop size: rotary, RMSNorm, SwiGLU, two heads of queries to one of keys, no biases."""
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
    """Text so far → how likely every next token is."""

    supports_gradient_checkpointing = True

    def __init__(self, config: GptConfig, sizes: VocabularySizes) -> None:
        super().__init__()
        dim = config.model_dim
        self.config = config
        self.sizes = sizes
        self.embedding = Embedding(sizes.target, dim, scaled=False)
        self.positions = added_positions(config)
        self.relative_positions = relative_positions(config, both_ways=False)
        self.word_dropout = WordDropout(config.word_dropout)
        self.dropout = Dropout(config.dropout)
        self.decoder = nn.ModuleList(EncoderBlock(config.of_layer(layer)) for layer in range(config.num_layers))
        self.decoder_norm = closing_norm(config)
        tied = self.embedding if config.tied_embeddings else None
        self.output = Output(sizes.target, dim, bias=config.output_bias, tied=tied)
        self.max_target = self.positions.limit

    def forward(self, target: Tensor, memory: Memory) -> Tensor:
        embedded = self.word_dropout(self.embedding(target))
        hidden = self.dropout(embedded + self.positions.first(target.shape[1]))
        place_1T = torch.arange(target.shape[1], device=target.device)[None]
        relation = self.relative_positions(place_1T, place_1T)
        for block in self.decoder:
            hidden = through(block, self.gradient_checkpointing and self.training, hidden, None, relation, True)
        normalised: Tensor = self.decoder_norm(hidden)
        return normalised

    def start(self, memory: Memory, width: int = 1) -> StackState:
        parts = self.embedding, self.positions, self.relative_positions, self.decoder, self.decoder_norm
        return DecoderStack(self.config, *parts).start(len(memory.states), width, self.embedding.weight)

    def extend(self, tokens: Tensor, lengths: Tensor, state: StackState) -> tuple[Tensor, StackState]:
        return state.stack.extend(tokens, lengths, state), state

    def step(self, tokens: Tensor, state: StackState) -> tuple[Tensor, StackState]:
        return state.stack.step(tokens, state), state
