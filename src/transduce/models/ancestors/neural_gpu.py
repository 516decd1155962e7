"""The Neural GPU (Kaiser & Sutskever 2016, arXiv 1511.08228): algorithms learned as steps of a convolutional GRU.

The tokens are the first row of an image, to which a convolutional GRU is applied for as many steps as there are tokens;
then every column's first row predicts one output token. All outputs are predicted at once, in place of the inputs, so
it is an *EncoderModel* with a tag per token. (Its autoregressive form is the Extended Neural GPU,
`models.ancestors.extended_neural_gpu`.) Section numbers are the paper's.
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
    """Sizes of the image and its convolutional GRU; the defaults are the Neural GPU's (section 4)."""

    model_dim: Width = 24
    """Channels of the image; the paper's m."""
    height: Annotated[int, Field(ge=1, le=1_000)] = 4
    """Rows of the image; the paper's w."""
    num_layers: Layers = 2
    """Convolutional GRU layers in one step; the paper's l."""
    kernel: Annotated[int, Field(ge=1, le=99)] = 3
    """Kernel size of the convolutions; odd."""
    num_sets: Annotated[int, Field(ge=1, le=100)] = 6
    """Weight sets that the steps use in turn; 1 for plain recurrence. training.relaxation_updates unites them."""
    dropout: Rate = 0.1
    """Dropout on the candidate of each convolutional GRU."""

    @model_validator(mode="after")
    def _kernel_is_odd(self) -> Self:
        if self.kernel % 2 == 0:
            raise ValueError(f"kernel must be odd, not {self.kernel}")
        return self

    def make_sets(self) -> RelaxedSets:
        """The encoder's weight sets."""
        return RelaxedSets(
            lambda: GruStack(self.num_layers, self.model_dim, self.kernel, dropout=self.dropout), self.num_sets
        )


class NeuralGpuConfig(ImageConfig):
    """Settings of a Neural GPU."""

    segments: Annotated[int, Field(ge=1, le=16)] = 2
    """Number of segment embeddings."""
    head: Literal["none", "tags"] = "none"
    """Prediction head: none or tagging."""
    num_labels: Annotated[int, Field(ge=1, le=1_000_000)] = 2
    """With head = "tags": number of tags; filled in from the data."""
    head_dropout: Rate = 0.0
    """Dropout on the head's input."""


def neural_gpu() -> NeuralGpuConfig:
    """The paper's: an image of 4 rows with 24 channels, two layers, six weight sets."""
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

    def forward(
        self, tokens: Tensor, allowed: Tensor, segments: Tensor | None = None, layers: bool = False
    ) -> Encoding:
        most = self.config.segments - 1
        segments = torch.zeros_like(tokens) if segments is None else segments.clamp(max=most)
        embedded_BND = self.dropout(self.embedding(tokens) + self.segment_embedding(segments)) * allowed[:, :, None]
        image = image_of(embedded_BND, self.config.height)
        there_B11N = allowed[:, None, None].to(image.dtype)
        image = worked(image, allowed.sum(dim=1), there_B11N, self.encoder)
        states_BND = image[:, :, 0].transpose(1, 2)
        return Encoding(states_BND, allowed, None, (embedded_BND, states_BND) if layers else ())
