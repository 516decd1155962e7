"""ByteNet (Kalchbrenner et al. 2016, arXiv 1610.10099): dilated convolutions, the decoder stacked on the encoder.

There is no attention. The encoder has one column for each target position: the source is padded to a length that a
target hardly exceeds, and the decoder uses column t for token t ("dynamic unfolding"). Dilations that double from
block to block give a column the whole sentence as receptive field, in time linear in its length. It is made for
characters or bytes. Section numbers are the paper's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, TypeVar, cast

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from transduce.config import Config
from transduce.models.block import Layers, Rate, Width
from transduce.models.interface import Memory, State, Transducer, VocabularySizes
from transduce.nn.convolution import CausalConvolution, Convolution, Windows
from transduce.nn.dropout import Dropout
from transduce.nn.embedding import Embedding, Output
from transduce.nn.linear import Linear
from transduce.nn.state import cat_padded

Count = TypeVar("Count", int, Tensor)
Dilation = Annotated[int, Field(ge=1, le=100_000)]


class ByteNetConfig(Config):
    """Settings of a ByteNet; the defaults are the paper's model for English-German."""

    model_dim: Width = 800
    """Width within a block, the paper's d; embeddings and the residual stream are twice as wide."""
    num_sets: Layers = 6
    """Number of sets of blocks, in the encoder and in the decoder."""
    dilations: Annotated[tuple[Dilation, ...], Field(strict=False, min_length=1, max_length=64)] = (1, 2, 4, 8, 16)
    """Dilations of the blocks of one set."""
    kernel: Annotated[int, Field(ge=1, le=1_000)] = 3
    """Kernel width of the convolutions."""
    unit: Literal["relu", "multiplicative"] = "relu"
    """Activation of a block's convolution: ReLU (translation) or a multiplicative unit (the paper's language model)."""
    stretch: Annotated[float, Field(ge=1.0, le=100.0)] = 1.2
    """Columns per source token; the paper's a. Longer targets use empty columns."""
    extra: Annotated[int, Field(ge=0, le=100_000)] = 0
    """Additional columns; the paper's b."""
    output_bias: bool = True
    """Bias of the output layer."""
    dropout: Rate = 0.1
    """Dropout on the embeddings and on each block's output."""

    @property
    def all_dilations(self) -> tuple[int, ...]:
        """Dilations of all blocks of one side."""
        return self.dilations * self.num_sets


def bytenet_paper() -> ByteNetConfig:
    """The character model for English-German (section 5): 30 + 30 blocks of 800."""
    return ByteNetConfig()


def bytenet_small() -> ByteNetConfig:
    """For words and short sentences in characters, on a laptop: 8 + 8 blocks of 128."""
    return ByteNetConfig(model_dim=128, num_sets=2, dilations=(1, 2, 4, 8))


@dataclass
class ByteNetState(State):
    """Windows and position of each row, and the columns of its sentence, which the sentence's rows share."""

    windows: Windows
    lengths: Tensor
    """(R), tokens so far of each row."""
    columns: Tensor
    """(B M 2D), zeros past a sentence's last column."""
    width: int

    @property
    def num_rows(self) -> int:
        return len(self.lengths)

    def select(self, rows: Tensor) -> ByteNetState:
        sentences = rows[:: self.width] // self.width
        return ByteNetState(self.windows.select(rows), self.lengths[rows], self.columns[sentences], self.width)

    def join(self, other: ByteNetState) -> ByteNetState:
        assert self.width == other.width, "states of different widths cannot be joined"
        columns = cat_padded([self.columns, other.columns], padded=1)
        lengths = torch.cat([self.lengths, other.lengths])
        return ByteNetState(self.windows.join(other.windows), lengths, columns, self.width)


class Unit(nn.Module, ABC):
    """Activation of a block's convolution; `num_parts` is the number of outputs of width D it needs."""

    num_parts: int

    @abstractmethod
    def forward(self, inner: Tensor, mixed: Tensor) -> Tensor:
        """Input and output of the convolution.  (B N D), (B N parts·D) -> (B N D)."""


class ReluUnit(Unit):
    """ReLU(norm(convolution)) (section 3.6, figure 3 on the left)."""

    num_parts = 1

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)

    def forward(self, inner: Tensor, mixed: Tensor) -> Tensor:
        return F.relu(self.norm(mixed))


class MultiplicativeUnit(Unit):
    """g₁ · tanh(g₂ · h + g₃ · u): gates like an LSTM's, over the input h and the update u (figure 3 on the right)."""

    num_parts = 4

    def __init__(self, dim: int) -> None:
        super().__init__()

    def forward(self, inner: Tensor, mixed: Tensor) -> Tensor:
        out, keep, take, update = torch.chunk(mixed, 4, dim=-1)
        return out.sigmoid() * torch.tanh(keep.sigmoid() * inner + take.sigmoid() * torch.tanh(update))


UNITS: dict[str, type[Unit]] = {"relu": ReluUnit, "multiplicative": MultiplicativeUnit}


class Bottleneck(nn.Module):
    """The 1 × 1 layers before and after a block's convolution: 2D -> D, and back."""

    def __init__(self, config: ByteNetConfig) -> None:
        super().__init__()
        dim = config.model_dim
        self.outer_norm, self.inner_norm = nn.LayerNorm(2 * dim), nn.LayerNorm(dim)
        self.reduce, self.expand = Linear(2 * dim, dim), Linear(dim, 2 * dim)
        self.unit = UNITS[config.unit](dim)
        self.dropout = Dropout(config.dropout)

    def enter(self, hidden: Tensor) -> Tensor:
        """Return the convolution's input.  (B N 2D) -> (B N D)."""
        return F.relu(self.inner_norm(self.reduce(F.relu(self.outer_norm(hidden)))))

    def leave(self, hidden: Tensor, inner: Tensor, mixed: Tensor) -> Tensor:
        """Apply the unit and the residual connection.  (B N 2D), (B N D), (B N parts·D) -> (B N 2D)."""
        added: Tensor = self.dropout(self.expand(self.unit(inner, mixed)))
        return hidden + added

    @property
    def parts(self) -> Sequence[int]:
        """Output widths of the convolution."""
        return [self.inner_norm.normalized_shape[0]] * self.unit.num_parts


class ByteNetEncoderBlock(nn.Module):
    """A residual block with a centred convolution."""

    def __init__(self, config: ByteNetConfig, dilation: int) -> None:
        super().__init__()
        self.bottleneck = Bottleneck(config)
        self.convolution = Convolution(config.model_dim, self.bottleneck.parts, config.kernel, dilation)

    def forward(self, hidden: Tensor, beyond: Tensor) -> Tensor:
        """(B M 2D), True past a sentence's columns (B M 1) -> (B M 2D)."""
        inner = self.bottleneck.enter(hidden).masked_fill(beyond, 0.0)
        return self.bottleneck.leave(hidden, inner, self.convolution(inner))


class ByteNetDecoderBlock(nn.Module):
    """A residual block with a causal convolution."""

    def __init__(self, config: ByteNetConfig, dilation: int) -> None:
        super().__init__()
        self.bottleneck = Bottleneck(config)
        self.convolution = CausalConvolution(config.model_dim, self.bottleneck.parts, config.kernel, dilation)

    def forward(self, hidden: Tensor, window: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
        """(R T 2D) -> (R T 2D), the next window."""
        inner = self.bottleneck.enter(hidden)
        mixed, window = self.convolution(inner, window, lengths)
        return self.bottleneck.leave(hidden, inner, mixed), window


class ByteNet(Transducer[Memory, ByteNetState]):
    """Source → target by two stacks of dilated convolutions, the decoder on top of the encoder."""

    def __init__(self, config: ByteNetConfig, sizes: VocabularySizes) -> None:
        super().__init__()
        dim = config.model_dim
        self.config, self.sizes = config, sizes
        self.source_embedding = Embedding(sizes.source, 2 * dim, scaled=False)
        self.target_embedding = Embedding(sizes.target, 2 * dim, scaled=False)
        self.dropout = Dropout(config.dropout)
        self.encoder = nn.ModuleList(ByteNetEncoderBlock(config, each) for each in config.all_dilations)
        self.connect = Linear(2 * dim, 2 * dim)
        self.decoder = nn.ModuleList(ByteNetDecoderBlock(config, each) for each in config.all_dilations)
        self.final_norm = nn.LayerNorm(2 * dim)
        self.final_linear = Linear(2 * dim, 2 * dim)
        self.output = Output(sizes.target, 2 * dim, bias=config.output_bias)

    def encode(self, source: Tensor, allowed: Tensor) -> Memory:
        """Return the columns of each sentence (section 3.2), those past its source included, whose input is empty."""
        columns = self._columns(source.shape[1])
        embedded = self.dropout(self.source_embedding(source)).masked_fill(~allowed[:, :, None], 0.0)
        hidden = F.pad(embedded, (0, 0, 0, columns - source.shape[1]))
        there_BM = torch.arange(columns, device=source.device) < self._columns(allowed.sum(dim=1))[:, None]
        beyond_BM1 = ~there_BM[:, :, None]
        for block in self.encoder:
            hidden = block(hidden, beyond_BM1)
        return Memory(self.connect(hidden).masked_fill(beyond_BM1, 0.0), there_BM)

    def forward(self, target: Tensor, memory: Memory) -> Tensor:
        windows = Windows.empty(self._convolutions, len(target), memory.states)
        place_1T = torch.arange(target.shape[1], device=target.device)[None]
        return self._decode(target, column_at(memory.states, place_1T), windows, None)[0]

    def start(self, memory: Memory, width: int = 1) -> ByteNetState:
        rows = len(memory.states) * width
        windows = Windows.empty(self._convolutions, rows, memory.states)
        lengths_R = torch.zeros(rows, dtype=torch.long, device=memory.states.device)
        return ByteNetState(windows, lengths_R, memory.states, width)

    def extend(self, tokens: Tensor, lengths: Tensor, state: ByteNetState) -> tuple[Tensor, ByteNetState]:
        place_RT = state.lengths[:, None] + torch.arange(tokens.shape[1], device=tokens.device)
        hidden, windows = self._decode(tokens, column_at(state.columns, place_RT, state.width), state.windows, lengths)
        return hidden, ByteNetState(windows, state.lengths + lengths, state.columns, state.width)

    def step(self, tokens: Tensor, state: ByteNetState) -> tuple[Tensor, ByteNetState]:
        column_R1D = column_at(state.columns, state.lengths[:, None], state.width)
        hidden, windows = self._decode(tokens[:, None], column_R1D, state.windows, None)
        return hidden[:, 0], ByteNetState(windows, state.lengths + 1, state.columns, state.width)

    def _decode(
        self, tokens: Tensor, columns: Tensor, windows: Windows, lengths: Tensor | None
    ) -> tuple[Tensor, Windows]:
        """Process new tokens of each row, with the columns of their positions.  (R T), (R T 2D) -> (R T 2D)."""
        hidden, after = self.dropout(self.target_embedding(tokens)) + columns, []
        for block, window in zip(self.decoder, windows.layers, strict=True):
            hidden, window = block(hidden, window, lengths)
            after.append(window)
        return F.relu(self.final_linear(F.relu(self.final_norm(hidden)))), Windows(tuple(after))

    def _columns(self, length: Count) -> Count:
        """Return the number of columns for a source length, in integer arithmetic so that all devices agree."""
        return (length * round(1000 * self.config.stretch) + 999) // 1000 + self.config.extra

    @property
    def _convolutions(self) -> Iterable[CausalConvolution]:
        return [block.convolution for block in cast("Iterable[ByteNetDecoderBlock]", self.decoder)]


def column_at(columns: Tensor, places: Tensor, width: int = 1) -> Tensor:
    """Return the columns at these positions, zeros past the last.  (B M D), (R T) or (1 T) -> (R T D)."""
    last = columns.shape[1] - 1
    sentence_R1 = torch.arange(len(columns) * width, device=places.device)[:, None] // width
    found_RTD = columns[sentence_R1, places.clamp(max=last)]
    return found_RTD.masked_fill((places > last)[:, :, None], 0.0)
