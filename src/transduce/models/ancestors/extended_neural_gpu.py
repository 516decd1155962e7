"""The Extended Neural GPU (Kaiser & Bengio 2016, arXiv 1610.08613): active memory in the place of attention.

The encoder is a Neural GPU. The decoder continues with its image, one step per token: tokens so far are on an *output
tape*, a second image that is an input of every step, and the next token is predicted from the first row of the image at
the position of the last one. So the output is autoregressive. Section numbers are the paper's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from transduce.models.ancestors.neural_gpu import GruStack, ImageConfig, image_of, worked
from transduce.models.block import Width
from transduce.models.interface import Memory, State, Transducer, VocabularySizes
from transduce.nn.dropout import Dropout
from transduce.nn.embedding import Embedding, Output
from transduce.nn.state import cat_padded, largest


class ExtendedNeuralGpuConfig(ImageConfig):
    """Settings of an Extended Neural GPU; the defaults are the size of the paper's translation model."""

    model_dim: Width = 512
    """Channels of image and tape."""
    num_sets: Annotated[int, Field(ge=1, le=100)] = 1
    """Weight sets that the encoder's steps use in turn; 1 for plain recurrence."""
    output_bias: bool = True
    """Bias of the output layer."""


def extended_neural_gpu() -> ExtendedNeuralGpuConfig:
    """512 channels, as for English-French (section 4)."""
    return ExtendedNeuralGpuConfig()


def extended_neural_gpu_small() -> ExtendedNeuralGpuConfig:
    """For short sequences, on a laptop: 64 channels."""
    return ExtendedNeuralGpuConfig(model_dim=64, dropout=0.0)


@dataclass(frozen=True)
class ImageMemory(Memory):
    """`states` are the first row of the image, `image` is all of it: (B C H M)."""

    image: Tensor


@dataclass
class ImageState(State):
    """Each row's image and tape; rows share nothing, since a step changes the whole image."""

    image: Tensor
    """(R C H N), zeros past a row's columns."""
    tape: Tensor
    """(R N C): embeddings of the tokens so far."""
    lengths: Tensor
    """(R), tokens so far of each row."""
    longest: int
    """The largest of `lengths`."""
    source_lengths: Tensor
    """(R), columns of each row's source."""
    width: int

    @property
    def num_rows(self) -> int:
        return len(self.lengths)

    def select(self, rows: Tensor) -> ImageState:
        lengths = self.lengths[rows]
        source_lengths = self.source_lengths[rows]
        return ImageState(self.image[rows], self.tape[rows], lengths, largest(lengths), source_lengths, self.width)

    def join(self, other: ImageState) -> ImageState:
        assert self.width == other.width, "states of different widths cannot be joined"
        return ImageState(
            cat_padded([self.image, other.image], padded=3),
            cat_padded([self.tape, other.tape], padded=1),
            torch.cat([self.lengths, other.lengths]),
            max(self.longest, other.longest),
            torch.cat([self.source_lengths, other.source_lengths]),
            self.width,
        )

    def reach(self, columns: int) -> ImageState:
        """Return the state with room for `columns` columns."""
        more = max(0, columns - self.image.shape[3])
        if not more:
            return self
        return replace(self, image=F.pad(self.image, (0, more)), tape=F.pad(self.tape, (0, 0, 0, more)))

    def where(self, advanced: Tensor, before: ImageState) -> ImageState:
        """Return this state for the rows that advanced, `before` for the others.  (R)."""
        before = before.reach(self.image.shape[3])
        return replace(
            self,
            image=torch.where(advanced[:, None, None, None], self.image, before.image),
            tape=torch.where(advanced[:, None, None], self.tape, before.tape),
            lengths=torch.where(advanced, self.lengths, before.lengths),
        )


class ExtendedNeuralGpu(Transducer[ImageMemory, ImageState]):
    """Source → target by an active memory, with the target so far on a tape."""

    def __init__(self, config: ExtendedNeuralGpuConfig, sizes: VocabularySizes) -> None:
        super().__init__()
        dim = config.model_dim
        self.config, self.sizes = config, sizes
        self.source_embedding = Embedding(sizes.source, dim, scaled=False)
        self.target_embedding = Embedding(sizes.target, dim, scaled=False)
        self.dropout = Dropout(config.dropout)
        self.encoder = config.make_sets()
        self.decoder = GruStack(config.num_layers, dim, config.kernel, tape=dim, dropout=config.dropout)
        self.output = Output(sizes.target, dim, bias=config.output_bias)

    def encode(self, source: Tensor, allowed: Tensor) -> ImageMemory:
        embedded_BSD = self.dropout(self.source_embedding(source)) * allowed[:, :, None]
        image = image_of(embedded_BSD, self.config.height)
        image = worked(image, allowed.sum(dim=1), allowed[:, None, None].to(image.dtype), self.encoder)
        return ImageMemory(image[:, :, 0].transpose(1, 2), allowed, image)

    def forward(self, target: Tensor, memory: ImageMemory) -> Tensor:
        state, hidden = self.start(memory), []
        for tokens_B in target.unbind(dim=1):
            hidden_BD, state = self.step(tokens_B, state)
            hidden.append(hidden_BD)
        return torch.stack(hidden, dim=1)

    def start(self, memory: ImageMemory, width: int = 1) -> ImageState:
        image = memory.image.repeat_interleave(width, dim=0)
        columns_R = memory.allowed.sum(dim=1).repeat_interleave(width)
        tape = image.new_zeros(len(image), image.shape[3], image.shape[1])
        return ImageState(image, tape, torch.zeros_like(columns_R), 0, columns_R, width)

    def extend(self, tokens: Tensor, lengths: Tensor, state: ImageState) -> tuple[Tensor, ImageState]:
        hidden = []
        for place, tokens_R in enumerate(tokens.unbind(dim=1)):
            hidden_RD, later = self.step(tokens_R, state)
            hidden.append(hidden_RD)
            state = later.where(place < lengths, state)
        return torch.stack(hidden, dim=1), replace(state, longest=largest(state.lengths))

    def step(self, tokens: Tensor, state: ImageState) -> tuple[Tensor, ImageState]:
        """Write a token on each row's tape and apply one step to the image.  (R) -> (R D).

        An image has the columns of its source, and one more for every token past them.
        """
        state = state.reach(state.longest + 1)
        column_N = torch.arange(state.image.shape[3], device=tokens.device)
        here_RN = column_N == state.lengths[:, None]
        there_RN = column_N < torch.maximum(state.source_lengths, state.lengths + 1)[:, None]
        embedded_RD = self.dropout(self.target_embedding(tokens))
        tape_RND = state.tape + here_RN[:, :, None] * embedded_RD[:, None]
        there_R11N = there_RN[:, None, None].to(state.image.dtype)
        image = self.decoder(state.image, there_R11N, image_of(tape_RND, self.config.height))
        hidden_RD = (image[:, :, 0] * here_RN[:, None]).sum(dim=2)
        longer = state.lengths + 1, state.longest + 1
        return hidden_RD, ImageState(image, tape_RND, *longer, state.source_lengths, state.width)
