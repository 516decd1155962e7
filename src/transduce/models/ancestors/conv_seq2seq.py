"""ConvS2S (Gehring et al. 2017, arXiv 1705.03122): convolutions instead of recurrence, and attention in every layer.

Encoder and decoder are stacks of gated convolutions with residuals. Every decoder layer has its own attention, which
depends on the attention of the layers below ("multi-step attention"): the query is the layer's state plus the last
target embedding, keys are the encoder's outputs, values outputs plus source embeddings. Section numbers are the
paper's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal, cast

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from transduce.config import Config
from transduce.models.block import Layers, Rate, Width
from transduce.models.interface import Memory, State, Transducer, VocabularySizes
from transduce.nn.attention.additive import MultiplicativeAttention, ProjectedMemory
from transduce.nn.convolution import CausalConvolution, Convolution, Windows
from transduce.nn.device import is_full
from transduce.nn.dropout import Dropout
from transduce.nn.embedding import Embedding, Output
from transduce.nn.linear import Linear
from transduce.nn.position import LearnedPositions
from transduce.nn.state import largest

HALF = math.sqrt(0.5)
"""Scale of the sum of two terms, to preserve their variance (section 3.5)."""


class ConvSeq2SeqConfig(Config):
    """Settings of a ConvS2S; the defaults are the paper's model for English-Romanian."""

    embedding_dim: Width = 512
    """Width of a token's vector, and of the queries and values of attention."""
    hidden_dim: Width = 512
    """Width of every layer."""
    num_layers: Layers = 20
    """Encoder layers, and decoder layers unless decoder_layers is set."""
    decoder_layers: Layers | None = None
    """Decoder layers; num_layers by default."""
    kernel: Annotated[int, Field(ge=1, le=1_000)] = 3
    """Kernel width of the convolutions."""
    max_positions: Annotated[int, Field(ge=1, le=1_000_000)] = 1024
    """Maximum length of a side; positions are learned."""
    shared_attention: bool = False
    """Share the attention projections between all layers; in the paper each has its own."""
    length_scaled: bool = True
    """Multiply the attention output by the square root of the source length, to keep its variance (section 3.5)."""
    encoder_gradient_scaled: bool = True
    """Divide the encoder's gradient by the number of attention layers (section 3.5)."""
    tied_embeddings: Literal["all", "target", "none"] = "none"
    """Share one matrix between source, target and output (all, needs a joint vocabulary), or target and output."""
    output_bias: bool = True
    """Bias of the output layer."""
    embedding_init: Literal["normal", "torch"] = "normal"
    """Initialisation: embeddings N(0, 1/D) and matrices Glorot, or torch's defaults: embeddings N(0, 1), and uniform
    between -1/√n and 1/√n for a layer of n inputs."""
    dropout: Rate = 0.2
    """Dropout on the embeddings, on the input of every convolution, and before the output layer."""


def conv_paper() -> ConvSeq2SeqConfig:
    """The model for English-Romanian (section 4.2): 20 + 20 layers of 512."""
    return ConvSeq2SeqConfig()


def conv_ladder() -> ConvSeq2SeqConfig:
    """A public tutorial's model for Multi30k: 10 + 10 layers of 512, embeddings of 256, shared attention."""
    return ConvSeq2SeqConfig(
        embedding_dim=256,
        num_layers=10,
        max_positions=100,
        shared_attention=True,
        length_scaled=False,
        encoder_gradient_scaled=False,
        dropout=0.25,
    )


def conv_small() -> ConvSeq2SeqConfig:
    """For some ten thousand to a few hundred thousand pairs: 4 + 3 layers of 256, as fairseq has for IWSLT."""
    return ConvSeq2SeqConfig(embedding_dim=256, hidden_dim=256, num_layers=4, decoder_layers=3)


@dataclass(frozen=True)
class ConvMemory(Memory):
    """Encoder output: `states` are the keys of attention; the values have the source embeddings added."""

    values: Tensor
    """(B M E), the values of attention."""


@dataclass
class ConvState(State):
    """Windows and position of each row, and the projected memory that a sentence's rows share."""

    windows: Windows
    lengths: Tensor
    """(R), tokens so far of each row."""
    longest: int
    """Maximum of `lengths`."""
    source: ProjectedMemory
    width: int

    @property
    def num_rows(self) -> int:
        return len(self.lengths)

    def select(self, rows: Tensor) -> ConvState:
        lengths, source = self.lengths[rows], self.source.select(rows[:: self.width] // self.width)
        return ConvState(self.windows.select(rows), lengths, largest(lengths), source, self.width)

    def join(self, other: ConvState) -> ConvState:
        assert self.width == other.width, "states of different widths cannot be joined"
        lengths, longest = torch.cat([self.lengths, other.lengths]), max(self.longest, other.longest)
        return ConvState(self.windows.join(other.windows), lengths, longest, self.source.join(other.source), self.width)


class ConvEncoderBlock(nn.Module):
    """(x + GLU(convolution(x))) · √½, with the gated linear unit of Dauphin et al. 2017."""

    def __init__(self, config: ConvSeq2SeqConfig) -> None:
        super().__init__()
        dim = config.hidden_dim
        self.dropout = Dropout(config.dropout)
        self.convolution = Convolution(dim, [dim, dim], config.kernel)

    def forward(self, hidden: Tensor, padding: Tensor | None) -> Tensor:
        """(B S H), (B S 1) -> (B S H). Padding is zeroed, so that it does not leak into its neighbours."""
        inner = self.dropout(hidden)
        if padding is not None:
            inner = inner.masked_fill(padding, 0.0)
        return (hidden + F.glu(self.convolution(inner))) * HALF


class StepAttention(nn.Module):
    """One layer's attention to the source (section 3.3), queried with its state and the last token's embedding."""

    def __init__(self, q_proj: Linear, out_proj: Linear) -> None:
        """`q_proj` projects from the layer's width to the embeddings', `out_proj` back; layers may share them."""
        super().__init__()
        self.q_proj, self.out_proj = q_proj, out_proj
        self.attention = MultiplicativeAttention(out_proj.in_features, out_proj.in_features, projected=False)

    def forward(self, hidden: Tensor, embedded: Tensor, source: ProjectedMemory) -> Tensor:
        """(R T H), (R T E) -> (R T H)."""
        query_RTE = (self.q_proj(hidden) + embedded) * HALF
        context_RTE, score_RTM = self.attention(query_RTE, source)
        self.attention.run_hooks([score_RTM], source)
        projected: Tensor = self.out_proj(context_RTE)
        return projected


class ConvDecoderBlock(nn.Module):
    """A gated causal convolution, then attention, each in a scaled residual connection."""

    def __init__(self, config: ConvSeq2SeqConfig, q_proj: Linear, out_proj: Linear) -> None:
        super().__init__()
        dim = config.hidden_dim
        self.dropout = Dropout(config.dropout)
        self.convolution = CausalConvolution(dim, [dim, dim], config.kernel)
        self.cross_attention = StepAttention(q_proj, out_proj)

    def forward(
        self, hidden: Tensor, embedded: Tensor, source: ProjectedMemory, window: Tensor, lengths: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """(R T H), (R T E) -> (R T H), the next window."""
        mixed, window = self.convolution(self.dropout(hidden), window, lengths)
        convolved_RTH = F.glu(mixed)
        attended_RTH = (convolved_RTH + self.cross_attention(convolved_RTH, embedded, source)) * HALF
        return (attended_RTH + hidden) * HALF, window


class ConvSeq2Seq(Transducer[ConvMemory, ConvState]):
    """Source → target by convolutions and multi-step attention."""

    def __init__(self, config: ConvSeq2SeqConfig, sizes: VocabularySizes) -> None:
        super().__init__()
        width, dim = config.embedding_dim, config.hidden_dim
        self.config, self.sizes = config, sizes
        self.source_embedding = Embedding(sizes.source, width, scaled=False)
        one = config.tied_embeddings == "all"
        self.target_embedding = self.source_embedding if one else Embedding(sizes.target, width, scaled=False)
        self.source_positions = LearnedPositions(width, config.max_positions)
        self.target_positions = LearnedPositions(width, config.max_positions)
        self.dropout = Dropout(config.dropout)
        self.encoder_in, self.encoder_out = Linear(width, dim), Linear(dim, width)
        self.encoder = nn.ModuleList(ConvEncoderBlock(config) for _ in range(config.num_layers))
        self.decoder_in, self.decoder_out = Linear(width, dim), Linear(dim, width)
        layers = config.decoder_layers or config.num_layers
        pairs = [(Linear(dim, width), Linear(width, dim)) for _ in range(1 if config.shared_attention else layers)]
        self.decoder = nn.ModuleList(ConvDecoderBlock(config, *pairs[layer % len(pairs)]) for layer in range(layers))
        tied = None if config.tied_embeddings == "none" else self.target_embedding
        self.output = Output(sizes.target, width, bias=config.output_bias, tied=tied)
        self.max_source = self.max_target = config.max_positions

    def encode(self, source: Tensor, allowed: Tensor) -> ConvMemory:
        padding_BS1 = None if is_full(allowed) else ~allowed[:, :, None]
        embedded_BSE = self.dropout(self.source_embedding(source) + self.source_positions.first(source.shape[1]))
        hidden = self.encoder_in(embedded_BSE)
        for block in self.encoder:
            hidden = block(hidden, padding_BS1)
        states_BSE = self.encoder_out(hidden)
        if self.config.encoder_gradient_scaled and states_BSE.requires_grad:
            uses = len(self.decoder)
            states_BSE.register_hook(lambda gradient: gradient / uses)
        value_BSE = (states_BSE + embedded_BSE) * HALF
        if self.config.length_scaled:
            value_BSE = value_BSE * allowed.sum(dim=1).to(value_BSE.dtype).sqrt()[:, None, None]
        return ConvMemory(states_BSE, allowed, value_BSE)

    def forward(self, target: Tensor, memory: ConvMemory) -> Tensor:
        place_TE = self.target_positions.first(target.shape[1])
        windows = Windows.empty(self._convolutions, len(target), memory.states)
        return self._decode(target, place_TE, _projected(memory), windows, None)[0]

    def start(self, memory: ConvMemory, width: int = 1) -> ConvState:
        rows = len(memory.states) * width
        windows = Windows.empty(self._convolutions, rows, memory.states)
        lengths_R = torch.zeros(rows, dtype=torch.long, device=memory.states.device)
        return ConvState(windows, lengths_R, 0, _projected(memory), width)

    def extend(self, tokens: Tensor, lengths: Tensor, state: ConvState) -> tuple[Tensor, ConvState]:
        after_R = state.lengths + lengths
        longest = largest(after_R)
        place_RT = state.lengths[:, None] + torch.arange(tokens.shape[1], device=tokens.device)
        place_RTE = self.target_positions.at(place_RT.clamp(max=max(longest - 1, 0)), longest)
        hidden, windows = self._decode(tokens, place_RTE, state.source, state.windows, lengths)
        return hidden, ConvState(windows, after_R, longest, state.source, state.width)

    def step(self, tokens: Tensor, state: ConvState) -> tuple[Tensor, ConvState]:
        place_R1E = self.target_positions.at(state.lengths[:, None], state.longest + 1)
        hidden, windows = self._decode(tokens[:, None], place_R1E, state.source, state.windows, None)
        return hidden[:, 0], ConvState(windows, state.lengths + 1, state.longest + 1, state.source, state.width)

    def _decode(
        self, tokens: Tensor, place: Tensor, source: ProjectedMemory, windows: Windows, lengths: Tensor | None
    ) -> tuple[Tensor, Windows]:
        """Process new tokens of each row, given position embeddings and windows.  (R T), (R T E) -> (R T E)."""
        embedded_RTE = self.dropout(self.target_embedding(tokens) + place)
        hidden, after = self.decoder_in(embedded_RTE), []
        for block, window in zip(self.decoder, windows.layers, strict=True):
            hidden, window = block(hidden, embedded_RTE, source, window, lengths)
            after.append(window)
        return self.dropout(self.decoder_out(hidden)), Windows(tuple(after))

    @property
    def _convolutions(self) -> Iterable[CausalConvolution]:
        return [block.convolution for block in cast("Iterable[ConvDecoderBlock]", self.decoder)]


def _projected(memory: ConvMemory) -> ProjectedMemory:
    return ProjectedMemory(memory.states, memory.values, memory.allowed)
