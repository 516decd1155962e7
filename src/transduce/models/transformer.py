"""The Transformer (Vaswani et al. 2017, arXiv 1706.03762).

Encoder and decoder are stacks of blocks (`models.block`). Section numbers in this file are the paper's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, cast

import torch
from pydantic import model_validator
from torch import Tensor, nn

from transduce.models.block import (
    AttentionName,
    BlockConfig,
    DecoderBlock,
    EncoderBlock,
    Layers,
    Rate,
    added_positions,
    apply_block,
    broadcast,
    final_norm,
    relative_positions,
)
from transduce.models.decoder import DecoderStack, StackState, step_stacks
from transduce.models.interface import Memory, Transducer, VocabularySizes
from transduce.nn.dropout import Dropout, WordDropout
from transduce.nn.embedding import Embedding, Output
from transduce.nn.state import KeptMemory

SHARED = ("all", "sides")
"""Values of tied_embeddings that need one vocabulary for both sides."""


class TransformerConfig(BlockConfig):
    """Settings of an encoder-decoder Transformer (section 3); the defaults are the paper's base model."""

    decoder_layers: Layers | None = None
    """Decoder layers; num_layers by default."""
    decoder_attention: AttentionName | None = None
    """Self-attention of the decoder; the same as the encoder's by default."""
    tied_embeddings: Literal["all", "target", "sides", "none"] = "all"
    """Share one matrix between source, target and output (all, section 3.4), target and output, or both sides; all and
    sides need a joint vocabulary."""
    scale_embeddings: bool = True
    """Multiply embeddings by sqrt(model_dim) (section 3.4)."""
    embedding_init: Literal["normal", "glorot"] = "normal"
    """Initialisation of embeddings, learned positions and the output layer: N(0, 1/D), or Glorot like all other
    matrices, as in the Annotated Transformer, which is smaller the larger the vocabulary."""
    output_bias: bool = False
    """Bias of the output layer."""
    scale_output: bool = False
    """Divide the output layer's input by sqrt(model_dim), as T5 does with tied embeddings."""
    word_dropout: Rate = 0.0
    """Dropout of whole token embeddings of both sides, before positions are added."""

    @model_validator(mode="after")
    def _attention_is_causal(self) -> TransformerConfig:
        if (self.decoder_attention or self.attention) == "low_rank":
            raise ValueError(
                "attention = 'low_rank' cannot be causal, as a decoder must be; set decoder_attention, for example to "
                '"full"'
            )
        if self.decoder_attention is not None:
            self.of_decoder()
        return self

    def of_decoder(self) -> TransformerConfig:
        """The settings of the decoder's blocks."""
        if self.decoder_attention is None:
            return self
        return self.but(attention=self.decoder_attention, decoder_attention=None)


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


def student_6_2() -> TransformerConfig:
    """A small fast model that learns from a larger one: deep encoder, shallow decoder (Kasai et al. 2021)."""
    return small().but(num_layers=6, decoder_layers=2, dropout=0.1)


def student_12_1() -> TransformerConfig:
    """The same with a single decoder layer, for long sentences and large corpora."""
    return student_6_2().but(num_layers=12, decoder_layers=1)


class Transformer(Transducer[Memory, StackState]):
    """Source → target by attention alone."""

    supports_gradient_checkpointing = True

    def __init__(self, config: TransformerConfig, sizes: VocabularySizes) -> None:
        super().__init__()
        dim = config.model_dim
        self.config = config
        self.sizes = sizes
        self.source_embedding = Embedding(sizes.source, dim, config.scale_embeddings)
        one = config.tied_embeddings in SHARED
        self.target_embedding = self.source_embedding if one else Embedding(sizes.target, dim, config.scale_embeddings)
        self.source_positions = added_positions(config)
        self.target_positions = added_positions(config)
        self.source_relative_positions = relative_positions(config, bidirectional=True)
        self.target_relative_positions = relative_positions(config, bidirectional=False)
        self.word_dropout = WordDropout(config.word_dropout)
        self.dropout = Dropout(config.dropout)
        self.encoder = nn.ModuleList(EncoderBlock(config.of_layer(layer)) for layer in range(config.num_layers))
        self.encoder_norm = final_norm(config)
        self.decoder_config = config.of_decoder()
        self.decoder = nn.ModuleList(
            DecoderBlock(self.decoder_config.of_layer(layer))
            for layer in range(config.decoder_layers or config.num_layers)
        )
        self.decoder_norm = final_norm(config)
        tied = self.target_embedding if config.tied_embeddings in ("all", "target") else None
        self.output = Output(sizes.target, dim, bias=config.output_bias, tied=tied)
        low_rank = config.attention == "low_rank"
        self.max_source = config.max_positions if low_rank else self.source_positions.limit
        self.max_target = self.target_positions.limit

    def encode(self, source: Tensor, allowed: Tensor) -> Memory:
        embedded = self.word_dropout(self.source_embedding(source))
        hidden = self.dropout(embedded + self.source_positions.first(source.shape[1]))
        place_1S = torch.arange(source.shape[1], device=source.device)[None]
        relation, allowed_B11S = self.source_relative_positions(place_1S, place_1S), broadcast(allowed)
        for block in self.encoder:
            hidden = apply_block(block, self.recomputes, hidden, allowed_B11S, relation)
        return Memory(self.encoder_norm(hidden), allowed)

    def forward(self, target: Tensor, memory: Memory) -> Tensor:
        embedded = self.word_dropout(self.target_embedding(target))
        hidden = self.dropout(embedded + self.target_positions.first(target.shape[1]))
        place_1T = torch.arange(target.shape[1], device=target.device)[None]
        relation, allowed_B11M = self.target_relative_positions(place_1T, place_1T), broadcast(memory.allowed)
        for block in self.decoder:
            hidden = apply_block(block, self.recomputes, hidden, memory.states, allowed_B11M, relation)
        return self.final_hidden(hidden)

    def start(self, memory: Memory, width: int = 1) -> StackState:
        blocks = cast("Iterable[DecoderBlock]", self.decoder)
        projected = [block.cross_attention.project_memory(memory.states) for block in blocks]
        parts = (
            self.target_embedding,
            self.target_positions,
            self.target_relative_positions,
            self.decoder,
            self.decoder_norm,
        )
        kept = KeptMemory.of(projected, broadcast(memory.allowed))
        return DecoderStack(self.decoder_config, *parts).start(len(memory.states), width, memory.states, kept)

    def extend(self, tokens: Tensor, lengths: Tensor, state: StackState) -> tuple[Tensor, StackState]:
        return self._scaled(state.stack.extend(tokens, lengths, state)), state

    def step(self, tokens: Tensor, state: StackState) -> tuple[Tensor, StackState]:
        return self._scaled(state.stack.step(tokens, [state])), state

    def step_groups(self, tokens: Sequence[Tensor], states: Sequence[StackState]) -> list[tuple[Tensor, StackState]]:
        return step_stacks(tokens, states, self._scaled)

    def final_hidden(self, residual: Tensor) -> Tensor:
        """Turn the residual of the last decoder layer, or of another, into hidden vectors.  (… D) -> (… D)."""
        return self._scaled(self.decoder_norm(residual))

    def _scaled(self, hidden: Tensor) -> Tensor:
        return hidden * self.config.model_dim**-0.5 if self.config.scale_output else hidden
