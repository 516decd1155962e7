"""The Neural GPU (Kaiser & Sutskever 2016, arXiv 1511.08228): algorithms learned as steps of a convolutional GRU.

The tokens are the first row of an image, to which a convolutional GRU is applied for as many steps as there are tokens;
then every column's first row predicts one output token. All outputs are predicted at once, in place of the inputs, so
it is an *EncoderModel* with a tag per token. (Its autoregressive form is the Extended Neural GPU,
`models.ancestors.extended_neural_gpu`.) Section numbers are the paper's.

Letters: B sequences, C channels, E channels of a tape, H rows of the image, N columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Literal, Self, cast

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from transduce.config import Config
from transduce.models.block import Layers, Rate, Width
from transduce.models.head import prediction_head
from transduce.models.interface import EncoderModel, Encoding, VocabularySizes
from transduce.nn.device import is_at_hand
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
        self.head = prediction_head(config.head, dim, config.num_labels, config.head_dropout)

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


# Active memory: a convolutional GRU that updates a whole image at every step.
#
# The *image* of a sequence has a column for each position, some rows and many channels. Every step applies the same
# small convolutions to all of it, so that the same weights work for any length.

OPEN = 1.0
"""Added to the logits of the gates, so that they are open at initialisation: the image is kept and all of it used."""


def cut_off(value: Tensor) -> Tensor:
    """A sigmoid that reaches 0 and 1: stretched by a fifth and clamped, so that a gate can close (section 3, "gate
    cutoff")."""
    return (1.2 * value.sigmoid() - 0.1).clamp(0.0, 1.0)


class ConvolutionalGru(nn.Module):
    """s' = u · s + (1 - u) · tanh(convolution(r · s)), with gates u and r that are convolutions of s too (section 2).

    A *tape* is a second image, which is not changed; all three convolutions get it as additional channels (Kaiser &
    Bengio 2016, section 3).
    """

    def __init__(self, channels: int, kernel: int = 3, tape: int = 0, dropout: float = 0.0) -> None:
        super().__init__()
        assert kernel % 2 == 1, "a kernel needs a middle"
        self.gates = nn.Conv2d(channels + tape, 2 * channels, kernel, padding=kernel // 2)
        self.candidate = nn.Conv2d(channels + tape, channels, kernel, padding=kernel // 2)
        self.dropout = Dropout(dropout)

    def forward(self, image: Tensor, there: Tensor, tape: Tensor | None = None) -> Tensor:
        """Update an image; columns outside `there` stay zero.  (B C H N), (B 1 1 N), (B E H N) -> (B C H N)."""
        keep, reset = torch.chunk(cut_off(self.gates(_with(image, tape)) + OPEN), 2, dim=1)
        new: Tensor = self.dropout(torch.tanh(self.candidate(_with(reset * image, tape))))
        return (keep * image + (1.0 - keep) * new) * there


class GruStack(nn.Module):
    """One step: several convolutional GRU layers in sequence."""

    def __init__(self, layers: int, channels: int, kernel: int, tape: int = 0, dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.ModuleList(ConvolutionalGru(channels, kernel, tape, dropout) for _ in range(layers))

    def forward(self, image: Tensor, there: Tensor, tape: Tensor | None = None) -> Tensor:
        """(B C H N), (B 1 1 N), (B E H N) -> (B C H N)."""
        for layer in self.layers:
            image = layer(image, there, tape)
        return image


class RelaxedSets(nn.Module):
    """Several weight sets that the steps use in turn (section 3, "parameter sharing relaxation").

    A recurrence whose steps have different weights is easier to train; pulling them together makes them one set.
    """

    def __init__(self, make: Callable[[], nn.Module], count: int) -> None:
        super().__init__()
        self.sets = nn.ModuleList(make() for _ in range(count))

    def at(self, step: int) -> nn.Module:
        """Return the weight set of a step."""
        return self.sets[step % len(self.sets)]

    def pull_together(self, share: float) -> None:
        """Interpolate every set towards the mean of all by `share`; with 1 they become equal."""
        for same in zip(*(each.parameters() for each in self.sets), strict=True):
            mean = torch.stack([parameter.detach() for parameter in same]).mean(dim=0)
            for parameter in same:
                parameter.detach().lerp_(mean, share)


def image_of(vectors: Tensor, height: int) -> Tensor:
    """Return an image whose first row is the sequence; the rest is zero.  (B N C) -> (B C H N)."""
    image = vectors.new_zeros(len(vectors), vectors.shape[2], height, vectors.shape[1])
    image[:, :, 0] = vectors.transpose(1, 2)
    return image


def worked(image: Tensor, lengths: Tensor, there: Tensor, sets: RelaxedSets) -> Tensor:
    """Update each image for as many steps as its sequence has tokens.  (B C H N), (B), (B 1 1 N) -> (B C H N)."""
    longest = image.shape[3]
    if is_at_hand(lengths):
        longest = int(lengths.max()) if len(lengths) else 0
    for step in range(longest):
        works_B111 = (step < lengths)[:, None, None, None]
        image = torch.where(works_B111, sets.at(step)(image, there), image)
    return image


def relaxed_sets(model: nn.Module) -> Iterable[RelaxedSets]:
    """The relaxed sets of a model."""
    return cast("Iterable[RelaxedSets]", (module for module in model.modules() if isinstance(module, RelaxedSets)))


def _with(image: Tensor, tape: Tensor | None) -> Tensor:
    return image if tape is None else torch.cat([image, tape], dim=1)
