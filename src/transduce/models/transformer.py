"""The Transformer (Vaswani et al. 2017, arXiv 1706.03762).

Encoder and decoder are stacks of blocks (`models.block`). Section numbers in this file are the paper's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, cast

import torch
from pydantic import model_validator
from torch import Tensor, nn

from transduce.models.attention_kernel import AttentionName
from transduce.models.block import (
    BlockConfig,
    DecoderBlock,
    EncoderBlock,
    Layers,
    Rate,
    added_positions,
    broadcast,
    closing_norm,
    relative_positions,
    through,
)
from transduce.models.decoder import DecoderStack, StackState
from transduce.models.interface import Memory, Transducer, VocabularySizes
from transduce.nn.dropout import Dropout, WordDropout
from transduce.nn.embedding import Embedding, Output
from transduce.nn.state import KeptMemory

SHARED = ("all", "sides")
"""Ways of tying that need one vocabulary for both sides."""


class TransformerConfig(BlockConfig):
    """Sizes and choices of one encoder-decoder Transformer (section 3); the defaults are the paper's base model."""

    decoder_layers: Layers | None = None
    """Blocks of the decoder where they are not as many as the encoder's, which num_layers says."""
    decoder_attention: AttentionName | None = None
    """What the decoder's self-attention looks at where it is not what the encoder's does, which attention says."""
    tied_embeddings: Literal["all", "target", "sides", "none"] = "all"
    """One matrix for source, target and output (section 3.4; needs a joint vocabulary), for the last two, for the first
    two (needs it too), or none."""
    scale_embeddings: bool = True
    """Multiply embeddings by the root of their width (section 3.4)."""
    embedding_init: Literal["normal", "glorot"] = "normal"
    """How embeddings, learned positions and the output layer start: from N(0, 1/D), or by Glorot's rule as all other
    matrices do, which makes them smaller the more tokens there are; the Annotated Transformer has it so."""
    output_bias: bool = False
    """A bias in the layer before the softmax."""
    scale_output: bool = False
    """Divide what goes into the last layer by the root of its width, as T5 does where that layer is an embedding."""
    word_dropout: Rate = 0.0
    """On whole embeddings, before positions are added: words of both sides that the model must do without."""

    @model_validator(mode="after")
    def _future_is_hidden(self) -> TransformerConfig:
        if (self.decoder_attention or self.attention) == "low_rank":
            raise ValueError(
                "low_rank attention cannot hide the future, which a decoder must; give decoder_attention, for example "
                '"full"'
            )
        if self.decoder_attention is not None:
            self.of_decoder()
        return self

    def of_decoder(self) -> TransformerConfig:
        """The settings as the decoder's blocks read them."""
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
        self.source_relative_positions = relative_positions(config, both_ways=True)
        self.target_relative_positions = relative_positions(config, both_ways=False)
        self.word_dropout = WordDropout(config.word_dropout)
        self.dropout = Dropout(config.dropout)
        self.encoder = nn.ModuleList(EncoderBlock(config.of_layer(layer)) for layer in range(config.num_layers))
        self.encoder_norm = closing_norm(config)
        self.decoder_config = config.of_decoder()
        self.decoder = nn.ModuleList(
            DecoderBlock(self.decoder_config.of_layer(layer))
            for layer in range(config.decoder_layers or config.num_layers)
        )
        self.decoder_norm = closing_norm(config)
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
            hidden = through(block, self._recomputes, hidden, allowed_B11S, relation)
        return Memory(self.encoder_norm(hidden), allowed)

    def forward(self, target: Tensor, memory: Memory) -> Tensor:
        embedded = self.word_dropout(self.target_embedding(target))
        hidden = self.dropout(embedded + self.target_positions.first(target.shape[1]))
        place_1T = torch.arange(target.shape[1], device=target.device)[None]
        relation, allowed_B11M = self.target_relative_positions(place_1T, place_1T), broadcast(memory.allowed)
        for block in self.decoder:
            hidden = through(block, self._recomputes, hidden, memory.states, allowed_B11M, relation)
        return self._scaled(self.decoder_norm(hidden))

    def start(self, memory: Memory, width: int = 1) -> StackState:
        blocks = cast("Iterable[DecoderBlock]", self.decoder)
        read = [block.cross_attention.project_memory(memory.states) for block in blocks]
        parts = (
            self.target_embedding,
            self.target_positions,
            self.target_relative_positions,
            self.decoder,
            self.decoder_norm,
        )
        kept = KeptMemory.of(read, broadcast(memory.allowed))
        return DecoderStack(self.decoder_config, *parts).start(len(memory.states), width, memory.states, kept)

    def extend(self, tokens: Tensor, lengths: Tensor, state: StackState) -> tuple[Tensor, StackState]:
        return self._scaled(state.stack.extend(tokens, lengths, state)), state

    def step(self, tokens: Tensor, state: StackState) -> tuple[Tensor, StackState]:
        return self._scaled(state.stack.step(tokens, state)), state

    @property
    def _recomputes(self) -> bool:
        return self.gradient_checkpointing and self.training

    def _scaled(self, hidden: Tensor) -> Tensor:
        return hidden * self.config.model_dim**-0.5 if self.config.scale_output else hidden
