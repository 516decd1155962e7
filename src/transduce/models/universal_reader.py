"""The Universal Transformer as a reader: its encoder alone, and heads that say what it read (Dehghani et al. 2019).

One block thinks about a text, a pair of texts or a story with a question, each token for as long as it needs, and what
the start token has come to stands for all of it. In the paper's experiments with stories (section 3.1) every fact is
one position, the sum of its words; here every word is one, so that one form serves texts of any kind.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from transduce.models.block import EncoderBlock, Rate, broadcast, closing_norm
from transduce.models.interface import Head, Reader, Reading, VocabularySizes
from transduce.models.pondering import PonderingConfig, ponder, signals_from
from transduce.models.reading_head import LabelHead, SpanHead, TagHead
from transduce.nn.coordinate import Coordinates, RandomOffsets
from transduce.nn.dropout import Dropout
from transduce.nn.embedding import Embedding
from transduce.nn.extra_loss import ExtraLoss
from transduce.nn.tap import is_heard


class UniversalReaderConfig(PonderingConfig):
    """Sizes and choices of one reader; the defaults are the paper's base model's."""

    head: Literal["none", "labels", "tags", "span"] = "none"
    """What is said of a text: nothing, its label, a label for each token, where an answer stands."""
    num_labels: Annotated[int, Field(ge=1, le=1_000_000)] = 2
    """With head = "labels" or "tags": how many there are; filled in by the data."""
    head_dropout: Rate = 0.0
    """On what a head for labels or tags reads."""


def universal_reader() -> UniversalReaderConfig:
    """For a laptop: a width of 128, pre-norm, six steps at most, as `universal_mini`."""
    return UniversalReaderConfig(model_dim=128, ffn_dim=512, num_heads=4, norm="pre", dropout=0.0)


class UniversalReader(Reader):
    """Texts → a vector per token, which has thought as long as it needed, and what the head says."""

    max_texts = None

    def __init__(self, config: UniversalReaderConfig, sizes: VocabularySizes) -> None:
        super().__init__()
        dim = config.model_dim
        self.config, self.sizes = config, sizes
        self.embedding = Embedding(sizes.source, dim, config.scaled_embedding)
        self.question = Embedding(2, dim, config.scaled_embedding)
        """Whether a token is of the last of several texts: the second of a pair, the question of a story."""
        self.coordinates, self.offsets = Coordinates(dim), RandomOffsets(config.max_offset)
        self.dropout = Dropout(config.dropout)
        self.encoder = EncoderBlock(config)
        self.encoder_norm = closing_norm(config)
        self.halting = config.make_halting()
        self.ponder = ExtraLoss("source", config.ponder_cost)
        self.head = self._make_head()

    @property
    def extra_losses(self) -> tuple[ExtraLoss, ...]:
        return (self.ponder,)

    @property
    def width(self) -> int:
        return self.config.model_dim

    def forward(self, tokens: Tensor, allowed: Tensor, segments: Tensor | None = None, layers: bool = False) -> Reading:
        segments = torch.zeros_like(tokens) if segments is None else segments * allowed
        last_B1 = segments.amax(dim=1, keepdim=True)
        asked_BN = ((segments == last_B1) & (last_B1 > 0)).long()
        hidden_BND: Tensor = self.dropout(self.embedding(tokens) + self.question(asked_BN))
        most, allowed_B11N = self.config.max_offset * self.training, broadcast(allowed)
        place_BND = signals_from(self.offsets(tokens), tokens.shape[1], self.coordinates, most)

        def think(state: Tensor, step: int) -> Tensor:
            thought: Tensor = self.encoder(state, allowed_B11N)
            return thought

        steps = self.config.num_layers
        stops = not is_heard(self.encoder)
        thought, cost_BN = ponder(think, hidden_BND, place_BND, self.coordinates, self.halting, steps, allowed, stops)
        self.ponder(cost_BN)
        states_BND: Tensor = self.encoder_norm(thought)
        return Reading(states_BND, allowed, states_BND[:, 0], (hidden_BND, states_BND) if layers else ())

    def _make_head(self) -> Head | None:
        config = self.config
        if config.head == "labels":
            return LabelHead(config.model_dim, config.num_labels, config.head_dropout)
        if config.head == "tags":
            return TagHead(config.model_dim, config.num_labels, config.head_dropout)
        return SpanHead(config.model_dim) if config.head == "span" else None
