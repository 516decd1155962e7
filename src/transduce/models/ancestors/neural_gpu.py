"""The Neural GPU (Kaiser & Sutskever 2016, arXiv 1511.08228): an algorithm learnt as steps over a mental image.

The tokens stand in the first row of an image, which convolutional gated recurrence works on for as many steps as there
are tokens; then every column's first row says what is written there. All of the answer is written at once, in the place
of the question, and no part of it is read again: that makes it a *EncoderModel* with a label for each token. (A transducer
writes one token after the other and reads what it has written; that is the Extended Neural GPU,
`models.extended_neural_gpu`.) Section numbers are the paper's.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from transduce.config import Config
from transduce.models.block import Layers, Rate, Width
from transduce.models.head import TagHead
from transduce.models.interface import EncoderModel, Encoding, Head, VocabularySizes
from transduce.nn.active_memory import GruStack, RelaxedSets, image_of, worked
from transduce.nn.dropout import Dropout
from transduce.nn.embedding import Embedding


class ImageConfig(Config):
    """Sizes of a mental image and of what works on it; the defaults are those of the Neural GPU (section 4)."""

    model_dim: Width = 24
    """Channels of the image; the paper's m."""
    height: Annotated[int, Field(ge=1, le=1_000)] = 4
    """Rows of the image; the paper's w."""
    num_layers: Layers = 2
    """Gated convolutions in one step; the paper's l."""
    kernel: Annotated[int, Field(ge=1, le=99)] = 3
    """Rows and columns that a convolution mixes; odd."""
    num_sets: Annotated[int, Field(ge=1, le=100)] = 6
    """Sets of weights that the steps take in turns; 1 for plain recurrence. training.relaxation_updates makes them one."""
    dropout: Rate = 0.1
    """On what each gated convolution writes anew."""

    @model_validator(mode="after")
    def _has_a_middle(self) -> Self:
        if self.kernel % 2 == 0:
            raise ValueError(f"kernel must be odd, so that it has a middle, not {self.kernel}")
        return self

    def make_sets(self) -> RelaxedSets:
        """What works on the image of a source."""
        return RelaxedSets(
            lambda: GruStack(self.num_layers, self.model_dim, self.kernel, dropout=self.dropout), self.num_sets
        )


class NeuralGpuConfig(ImageConfig):
    """Sizes and choices of one Neural GPU."""

    segments: Annotated[int, Field(ge=1, le=16)] = 2
    """How many texts can stand side by side and be told apart."""
    head: Literal["none", "tags"] = "none"
    """What is said: nothing, or a label for each token."""
    num_labels: Annotated[int, Field(ge=1, le=1_000_000)] = 2
    """With head = "tags": how many there are; filled in by the data."""
    head_dropout: Rate = 0.0
    """On what the head reads."""


def neural_gpu() -> NeuralGpuConfig:
    """The paper's: an image of 4 rows with 24 channels, two gated convolutions, six sets of weights."""
    return NeuralGpuConfig()


class NeuralGpu(EncoderModel):
    """A text → a vector per token, after as many steps as it has tokens."""

    def __init__(self, config: NeuralGpuConfig, sizes: VocabularySizes) -> None:
        super().__init__()
        dim = config.model_dim
        self.config, self.sizes = config, sizes
        self.embedding = Embedding(sizes.source, dim, scaled=False)
        self.segment_embedding = Embedding(config.segments, dim, scaled=False)
        self.dropout = Dropout(config.dropout)
        self.encoder = config.make_sets()
        self.head: Head | None = None
        if config.head == "tags":
            self.head = TagHead(dim, config.num_labels, config.head_dropout)

    @property
    def width(self) -> int:
        return self.config.model_dim

    def forward(self, tokens: Tensor, allowed: Tensor, segments: Tensor | None = None, layers: bool = False) -> Encoding:
        most = self.config.segments - 1
        segments = torch.zeros_like(tokens) if segments is None else segments.clamp(max=most)
        embedded_BND = self.dropout(self.embedding(tokens) + self.segment_embedding(segments)) * allowed[:, :, None]
        image = image_of(embedded_BND, self.config.height)
        there_B11N = allowed[:, None, None].to(image.dtype)
        image = worked(image, allowed.sum(dim=1), there_B11N, self.encoder)
        states_BND = image[:, :, 0].transpose(1, 2)
        return Encoding(states_BND, allowed, None, (embedded_BND, states_BND) if layers else ())
