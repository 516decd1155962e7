"""The Transformer (Vaswani et al. 2017, arXiv 1706.03762).

Encoder and decoder are stacks of blocks (`models.block`). Section numbers in this file are the paper's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, cast

import torch
from pydantic import model_validator
from torch import Tensor, nn

from transduce.models.attention_choice import AttentionName
from transduce.models.block import (
    BlockConfig,
    DecoderBlock,
    EncoderBlock,
    Layers,
    Past,
    Rate,
    added_positions,
    broadcast,
    closing_norm,
    looking_back,
    nothing_read,
    relative_positions,
    through,
)
from transduce.models.decoder_step import DecoderStep
from transduce.models.interface import Memory, State, Transducer, VocabularySizes
from transduce.nn.dropout import Dropout, WordDropout
from transduce.nn.embedding import Embedding, Output
from transduce.nn.state import by_row, by_sentence

SHARED = ("all", "sides")
"""Ways of tying that need one vocabulary for both sides."""


class TransformerConfig(BlockConfig):
    """Sizes and choices of one encoder-decoder Transformer (section 3); the defaults are the paper's base model."""

    decoder_layers: Layers | None = None
    """Blocks of the decoder where they are not as many as the encoder's, which num_layers says."""
    decoder_attention: AttentionName | None = None
    """What the decoder's self-attention looks at where it is not what the encoder's does, which attention says."""
    tied: Literal["all", "target", "sides", "none"] = "all"
    """One matrix for source, target and output (section 3.4; needs a joint vocabulary), for the last two, for the first
    two (needs it too), or none."""
    scaled_embedding: bool = True
    """Multiply embeddings by the root of their width (section 3.4)."""
    first_embedding: Literal["normal", "glorot"] = "normal"
    """How embeddings, learned positions and the output layer start: from N(0, 1/D), or by Glorot's rule as all other
    matrices do, which makes them smaller the more tokens there are; the Annotated Transformer has it so."""
    output_bias: bool = False
    """A bias in the layer before the softmax."""
    scaled_output: bool = False
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


@dataclass
class TransformerState(State):
    """What each row has read so far, and each sentence's keys and values, shared by its rows."""

    walk: DecoderStep | None
    """None where attention is not plain: a step then goes through the blocks."""
    past: Past
    memory_keys: list[Tensor]
    """Per layer (B G M K)."""
    memory_values: list[Tensor]
    """Per layer (B G M V)."""
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
            past=self.past.join(other.past),  # type: ignore[arg-type]  # pasts of one model
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
        self.source_embedding = Embedding(sizes.source, dim, config.scaled_embedding)
        one = config.tied in SHARED
        self.target_embedding = self.source_embedding if one else Embedding(sizes.target, dim, config.scaled_embedding)
        self.source_positions = added_positions(config)
        self.target_positions = added_positions(config)
        self.source_relations = relative_positions(config, both_ways=True)
        self.target_relations = relative_positions(config, both_ways=False)
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
        tied = self.target_embedding if config.tied in ("all", "target") else None
        self.output = Output(sizes.target, dim, bias=config.output_bias, tied=tied)

    @property
    def max_source(self) -> int | None:
        limit = self.source_positions.limit
        return self.config.max_positions if self.config.attention == "low_rank" else limit

    @property
    def max_target(self) -> int | None:
        return self.target_positions.limit

    def encode(self, source: Tensor, allowed: Tensor) -> Memory:
        embedded = self.word_dropout(self.source_embedding(source))
        hidden = self.dropout(embedded + self.source_positions.first(source.shape[1]))
        place_1S = torch.arange(source.shape[1], device=source.device)[None]
        relation, allowed_B11S = self.source_relations(place_1S, place_1S), broadcast(allowed)
        for block in self.encoder:
            hidden = through(block, self._recomputes, hidden, allowed_B11S, relation)
        return Memory(self.encoder_norm(hidden), allowed)

    def forward(self, target: Tensor, memory: Memory) -> Tensor:
        embedded = self.word_dropout(self.target_embedding(target))
        hidden = self.dropout(embedded + self.target_positions.first(target.shape[1]))
        place_1T = torch.arange(target.shape[1], device=target.device)[None]
        relation, allowed_B11M = self.target_relations(place_1T, place_1T), broadcast(memory.allowed)
        for block in self.decoder:
            hidden = through(block, self._recomputes, hidden, memory.states, allowed_B11M, relation)
        return self._scaled(self.decoder_norm(hidden))

    def start(self, memory: Memory, width: int = 1) -> TransformerState:
        prepared = [block.cross_attention.read(memory.states) for block in self._decoder_blocks]
        return TransformerState(
            walk=self._walk,
            past=nothing_read(self.decoder_config, self.decoder, len(memory.states), width, memory.states),
            memory_keys=[key.contiguous() for key, _ in prepared],  # every step reads them again
            memory_values=[value.contiguous() for _, value in prepared],
            memory_allowed=broadcast(memory.allowed),
            width=width,
        )

    def extend(self, tokens: Tensor, lengths: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState]:
        read = lengths[:: state.width]
        hidden = self._extend(tokens, state, read)
        state.past.advance(read)
        return hidden, state

    def step(self, tokens: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState]:
        past, walk = state.past, state.walk
        if walk is not None and not self.training and walk.can_go(past):
            past.reserve(1)
            embedded = self.target_embedding(tokens) + self.target_positions.first(past.longest + 1)[-1]
            relation = looking_back(self.target_relations, past, 1)
            memory = state.memory_keys, state.memory_values, state.memory_allowed
            hidden = self._scaled(walk(embedded, past, relation, memory))
        else:
            hidden = self._extend(tokens[:, None], state)[:, 0]
        past.advance(1)
        return hidden, state

    @property
    def _walk(self) -> DecoderStep | None:
        """The decoder for single steps, with the weights as they are now."""
        if self.decoder_config.attention != "full":
            return None
        return DecoderStep(self.decoder, self.decoder_norm, self.config.head_shape, before=self.config.norm == "pre")

    @property
    def _recomputes(self) -> bool:
        return self.recompute and self.training

    @property
    def _decoder_blocks(self) -> Iterable[DecoderBlock]:
        """The decoder as what it holds: a ModuleList forgets the type of its modules."""
        return cast("Iterable[DecoderBlock]", self.decoder)

    def _extend(self, tokens: Tensor, state: TransformerState, lengths: Tensor | None = None) -> Tensor:
        """Read several tokens of each row through the decoder's blocks.  (R T) -> (R T D)."""
        past, width, length = state.past, state.width, tokens.shape[1]
        past.reserve(length, lengths)
        token_SN = by_sentence(tokens, width)
        position_SN = past.asking(length)
        hidden = self.target_embedding(token_SN) + self.target_positions.at(position_SN, past.longest + length)
        relation, allowed = looking_back(self.target_relations, past, length), past.allowed(length)
        for layer, block in enumerate(self._decoder_blocks):
            memory = state.memory_keys[layer], state.memory_values[layer], state.memory_allowed
            hidden = block.extend(hidden, past, layer, allowed, relation, memory)
        normalised = self._scaled(self.decoder_norm(hidden))
        return by_row(normalised, width)

    def _scaled(self, hidden: Tensor) -> Tensor:
        return hidden * self.config.model_dim**-0.5 if self.config.scaled_output else hidden


def _stack(first: list[Tensor], second: list[Tensor], length: int) -> list[Tensor]:
    def reach(kept_BHMK: Tensor) -> Tensor:
        return nn.functional.pad(kept_BHMK, (0, 0, 0, length - kept_BHMK.shape[2]))

    return [torch.cat([reach(a), reach(b)]) for a, b in zip(first, second, strict=True)]
