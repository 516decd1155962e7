"""Show, Attend and Tell: image captioning with an LSTM that attends to regions of the image.

Xu et al. 2015 (arXiv 1502.03044), with its soft attention. Convolutions map the picture to a grid of vectors, one per
region; the decoder is initialised with their mean, attends to them before each word, and gates the context. The
source is a line of text, one token per pixel (`text.picture`).

Letters: P pixels of a side, C channels, G regions of a side, M = G · G regions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from transduce.config import Config
from transduce.models.block import Rate, Width
from transduce.models.interface import AuxiliaryLoss, Memory, Transducer, VocabularySizes
from transduce.models.rnn import RnnState, decode_ragged
from transduce.nn.attention.additive import AdditiveAttention, ProjectedMemory
from transduce.nn.dropout import Dropout, WordDropout
from transduce.nn.embedding import Embedding, Output
from transduce.nn.position import LearnedPositions
from transduce.nn.recurrence import Bridge, Carried, Recurrence


class CaptionerConfig(Config):
    """Settings of a captioner; the defaults are for the synthetic pictures of 32 × 32."""

    side: Annotated[int, Field(ge=1, le=1024)] = 32
    """Pixels of each side of a picture."""
    pixel_dim: Width = 8
    """Width of the embedding of a pixel's colour."""
    channels: Annotated[tuple[Width, ...], Field(strict=False, min_length=1, max_length=8)] = (32, 64)
    """Channels of each convolution with stride 2; two of them make regions of 4 × 4 pixels."""
    region_dim: Width = 64
    """Width of a region's vector, the output of the last convolution."""
    embedding_dim: Width = 64
    """Width of the word embeddings, and of the output layer's input."""
    hidden_dim: Width = 96
    """Width of the LSTM."""
    doubly_stochastic: Annotated[float, Field(ge=0.0, le=1000.0)] = 0.0
    """Penalty on regions whose attention over a whole caption does not sum to 1: the paper's λ (equation 14)."""
    dropout: Rate = 0.0
    """Dropout before the output layer."""
    region_dropout: Rate = 0.0
    """Dropout on the region vectors."""
    word_dropout: Rate = 0.0
    """Dropout of whole word embeddings, so that a caption depends more on the picture than on its previous words."""

    @model_validator(mode="after")
    def _regions_are_whole(self) -> CaptionerConfig:
        if self.side % self.region_side:
            raise ValueError(
                f"side {self.side} is not divisible into regions of {self.region_side} × {self.region_side} pixels "
                f"({len(self.channels)} channels); set side to a multiple of {self.region_side}"
            )
        return self

    @property
    def region_side(self) -> int:
        """Pixels of a region's side."""
        return int(2 ** len(self.channels))

    @property
    def grid(self) -> int:
        """Regions of a picture's side."""
        return self.side // self.region_side


def captioner_paper() -> CaptionerConfig:
    """14 × 14 regions of 512 values, as in the paper. Differs from it: trained convolutions instead of VGG."""
    return CaptionerConfig(
        side=224,
        channels=(64, 128, 256, 512),
        region_dim=512,
        embedding_dim=512,
        hidden_dim=512,
        doubly_stochastic=1.0,
        dropout=0.5,
    )


def captioner_small() -> CaptionerConfig:
    """For the synthetic pictures, on a laptop: 8 × 8 regions, an LSTM of 96."""
    return CaptionerConfig()


@dataclass(frozen=True)
class PictureMemory(Memory):
    """A vector per region, and which source tokens are pixels."""

    pixels: Tensor
    """(B S), False for the end token and for padding."""


class Regions(nn.Module):
    """Picture → region vectors: convolutions of stride 2, one of stride 1, and learned position embeddings.

    Convolutions alone encode what a region shows, not where it is; captions describe where things are.
    """

    def __init__(self, config: CaptionerConfig) -> None:
        super().__init__()
        self.side, self.count = config.side, config.grid**2
        widths = (config.pixel_dim, *config.channels)
        self.downsample = nn.ModuleList(
            nn.Conv2d(before, after, kernel_size=3, stride=2, padding=1)
            for before, after in zip(widths, config.channels, strict=False)
        )
        self.context = nn.Conv2d(widths[-1], config.region_dim, kernel_size=3, padding=1)
        self.positions = LearnedPositions(config.region_dim, self.count)

    def forward(self, pixels: Tensor) -> Tensor:
        """(B P·P C) -> (B M D)."""
        picture_BCPP = pixels.view(len(pixels), self.side, self.side, pixels.shape[-1]).permute(0, 3, 1, 2)
        for convolution in self.downsample:
            picture_BCPP = F.relu(convolution(picture_BCPP))
        region_BDGG = F.relu(self.context(picture_BCPP))
        return region_BDGG.flatten(2).transpose(1, 2) + self.positions.first(self.count)


class GatedDecoder(nn.Module):
    """An LSTM with gated attention to the regions (section 3.1.2)."""

    def __init__(self, config: CaptionerConfig) -> None:
        super().__init__()
        hidden, region, word = config.hidden_dim, config.region_dim, config.embedding_dim
        self.cross_attention = AdditiveAttention(hidden, region, hidden)
        self.gate = nn.Linear(hidden, 1)
        self.recurrence = Recurrence("lstm", word + region, hidden)
        self.hidden_proj, self.context_proj = nn.Linear(hidden, word, bias=False), nn.Linear(region, word, bias=False)

    def forward(self, embedded: Tensor, source: ProjectedMemory, carried: Carried) -> tuple[Tensor, Carried]:
        """Process the next words of each row.  (R T E) -> the output layer's input (R T E)."""
        readout, carried, _ = self.attend(embedded, source, carried)
        return readout, carried

    def attend(self, embedded: Tensor, source: ProjectedMemory, carried: Carried) -> tuple[Tensor, Carried, Tensor]:
        """The same, with the attention scores of every word.  -> (R T E), …, (R T M)."""
        hidden: list[Tensor] = []
        contexts: list[Tensor] = []
        scores: list[Tensor] = []
        for word_R1E in torch.split(embedded, 1, dim=1):
            query_R1H = carried[0][-1][:, None]
            context_R1D, score_R1M = self.cross_attention(query_R1H, source)
            context_R1D = torch.sigmoid(self.gate(query_R1H)) * context_R1D
            hidden_R1H, carried = self.recurrence(torch.cat([word_R1E, context_R1D], dim=-1), carried)
            hidden.append(hidden_R1H)
            contexts.append(context_R1D)
            scores.append(score_R1M)
        readout_RTE = (
            embedded + self.hidden_proj(torch.cat(hidden, dim=1)) + self.context_proj(torch.cat(contexts, dim=1))
        )
        return readout_RTE, carried, torch.cat(scores, dim=1)


class Captioner(Transducer[PictureMemory, RnnState]):
    """Picture → caption."""

    def __init__(self, config: CaptionerConfig, sizes: VocabularySizes) -> None:
        super().__init__()
        self.config, self.sizes, self.max_source = config, sizes, config.side**2 + 1
        self.source_embedding = Embedding(sizes.source, config.pixel_dim, scaled=False)
        self.target_embedding = Embedding(sizes.target, config.embedding_dim, scaled=False)
        self.regions = Regions(config)
        self.bridge = Bridge(2, 1, config.region_dim, config.hidden_dim)
        self.decoder = GatedDecoder(config)
        self.unevenness = AuxiliaryLoss("target", config.doubly_stochastic)
        self.dropout, self.region_dropout = Dropout(config.dropout), Dropout(config.region_dropout)
        self.word_dropout = WordDropout(config.word_dropout)
        self.output = Output(sizes.target, config.embedding_dim, bias=True)

    @property
    def auxiliary_losses(self) -> tuple[AuxiliaryLoss, ...]:
        return (self.unevenness,)

    @property
    def image_size(self) -> int | None:
        return self.config.side

    def encode(self, source: Tensor, allowed: Tensor) -> PictureMemory:
        """Encode images; missing pixels are blank, tokens after the last pixel are ignored."""
        count = self.config.side**2
        embedded_BSC = self.source_embedding(source[:, :count]) * allowed[:, :count, None]
        region_BMD = self.region_dropout(self.regions(F.pad(embedded_BSC, (0, 0, 0, count - embedded_BSC.shape[1]))))
        pixels_BS = allowed & (torch.arange(source.shape[1], device=source.device) < count)
        return PictureMemory(region_BMD, allowed.new_ones(region_BMD.shape[:2]), pixels_BS)

    def forward(self, target: Tensor, memory: PictureMemory) -> Tensor:
        attention = self.decoder.cross_attention
        source = attention.project_memory(memory.states, memory.allowed)
        embedded_BTE = self.word_dropout(self.target_embedding(target))
        readout_BTE, _, score_BTM = self.decoder.attend(embedded_BTE, source, self._first(memory))
        if attention.is_hooked:
            attention.run_hooks([self._over_pixels(score_BTM, memory.pixels)], source)
        if self.unevenness.weight > 0:
            self.unevenness(unevenness(score_BTM.softmax(dim=-1)))
        dropped: Tensor = self.dropout(readout_BTE)
        return dropped

    def start(self, memory: PictureMemory, width: int = 1) -> RnnState:
        carried = tuple(part.repeat_interleave(width, dim=1) for part in self._first(memory))
        return RnnState(carried, self.decoder.cross_attention.project_memory(memory.states, memory.allowed), width)

    def extend(self, tokens: Tensor, lengths: Tensor, state: RnnState) -> tuple[Tensor, RnnState]:
        return decode_ragged(self.decoder, self.target_embedding(tokens), lengths, state)

    def step(self, tokens: Tensor, state: RnnState) -> tuple[Tensor, RnnState]:
        readout_R1E, carried = self.decoder(self.target_embedding(tokens[:, None]), state.source, state.carried)
        return readout_R1E[:, 0], RnnState(carried, state.source, state.width)

    def _first(self, memory: PictureMemory) -> Carried:
        """Return the LSTM's initial state and cell, computed from the mean of the regions.  -> (1 B H) each."""
        mean_1BD = memory.states.mean(dim=1)[None]
        carried: Carried = self.bridge((mean_1BD, mean_1BD))
        return carried

    def _over_pixels(self, score: Tensor, pixels: Tensor) -> Tensor:
        """Copy the score of a region to each of its pixels; a softmax then spreads the region's weight evenly.

        So hooks get one weight per source token, as with any other model.  (B T M), (B S) -> (B T S).
        """
        grid, pixel = self.config.grid, self.config.region_side
        score_BTGG = score.view(*score.shape[:2], grid, grid)
        score_BTS = score_BTGG.repeat_interleave(pixel, dim=-1).repeat_interleave(pixel, dim=-2).flatten(2)
        length = pixels.shape[1]
        score_BTS = F.pad(score_BTS[..., :length], (0, max(0, length - score_BTS.shape[-1])))
        return score_BTS.masked_fill(~pixels[:, None], -torch.inf)


def unevenness(weight: Tensor) -> Tensor:
    """Increments of Σ (1 - Σ weight)² by word; the outer sum is over regions, the inner over words.  (B T M) -> (B T).

    The increments of a caption add up to the penalty of equation 14 minus a constant, the number of regions. Computed
    per word, the penalty can be masked at padding.
    """
    so_far_BTM = weight.cumsum(dim=1)
    return ((1 - so_far_BTM) ** 2 - (1 - so_far_BTM + weight) ** 2).sum(dim=-1)
