"""BERT (Devlin et al. 2019, arXiv 1810.04805): an encoder that reads both ways, and heads that say what it read.

A stack of the Transformer's encoder blocks over the sum of three embeddings: which piece, which place, which of two
texts. It learns from plain text by guessing pieces that were hidden from it and whether one text follows another; then
the same weights are trained further, under a new head, for what one wants to know of a text.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from transduce.models.block import (
    ActivationName,
    BlockConfig,
    EncoderBlock,
    Layers,
    Rate,
    Width,
    added_positions,
    broadcast,
    through,
)
from transduce.models.head import LabelHead, LanguageHead, SpanHead, TagHead
from transduce.models.interface import EncoderModel, Encoding, Head, VocabularySizes
from transduce.nn.dropout import Dropout
from transduce.nn.embedding import Embedding
from transduce.nn.linear import Linear

POOLED = frozenset(("none", "language", "labels"))
"""The heads below which there is one vector for the whole text."""


class BertConfig(BlockConfig):
    """Sizes and choices of one reader; the defaults are the base model's."""

    model_dim: Width = 768
    """Width of every position's vector."""
    num_heads: Width = 12
    """Heads of every attention."""
    ffn_dim: Width = 3072
    """Inner width of the feed-forward network."""
    num_layers: Layers = 12
    """Blocks of the stack."""
    norm_eps: Annotated[float, Field(gt=0.0, lt=1.0)] = 1e-12
    """What a norm adds to the variance."""
    norm: Literal["post"] = "post"
    """Norm after the sum, as in the paper."""
    final_norm: Literal[False] | None = None
    """One more norm at the end of the stack: there is none, for the last block ends with its own."""
    activation: ActivationName = "gelu"
    """Activation of the feed-forward network."""
    positions: Literal["learned"] = "learned"
    """Where a token stands: a trained table."""
    max_positions: Annotated[int, Field(ge=3, le=1_000_000)] = 512
    """Most tokens of a text or pair, those that frame it included."""
    segments: Annotated[int, Field(ge=1, le=16)] = 2
    """How many texts can stand side by side and be told apart."""
    attention_bias: bool = True
    """Biases in the attention's projections."""
    attention_dropout: Rate = 0.1
    """On the attention weights."""
    head: Literal["none", "language", "labels", "tags", "span"] = "none"
    """What is said of a text: nothing, its hidden pieces, its label, a label for each token, where an answer stands."""
    next_sentence: bool = True
    """With head = "language": say also whether the second text follows the first."""
    num_labels: Annotated[int, Field(ge=1, le=1_000_000)] = 2
    """With head = "labels" or "tags": how many there are; filled in by the data."""
    head_dropout: Rate = 0.1
    """On what a head for labels or tags reads."""

    @property
    def is_pooled(self) -> bool:
        """Whether there is one vector for the whole text."""
        return self.head in POOLED and (self.head != "language" or self.next_sentence)


def bert_base() -> BertConfig:
    """The base model: 109 million parameters with its vocabulary of 30,522."""
    return BertConfig()


def bert_large() -> BertConfig:
    """The large model: 335 million parameters."""
    return bert_base().but(model_dim=1024, num_heads=16, ffn_dim=4096, num_layers=24)


def bert_mini() -> BertConfig:
    """For a laptop: 4 layers of 256, 128 tokens at a time (Turc et al. 2019 gave this size its name)."""
    return BertConfig(model_dim=256, num_heads=4, ffn_dim=1024, num_layers=4, max_positions=128)


class BertEmbedding(nn.Module):
    """Piece + position + text, normalised (the paper's figure 2)."""

    def __init__(self, config: BertConfig, size: int) -> None:
        super().__init__()
        self.tokens = Embedding(size, config.model_dim, scaled=False)
        self.positions = added_positions(config)
        self.segments = Embedding(config.segments, config.model_dim, scaled=False)
        self.norm = config.make_norm(config.model_dim)
        self.dropout = Dropout(config.dropout)

    def forward(self, tokens: Tensor, segments: Tensor | None) -> Tensor:
        """(B N), (B N) -> (B N D). Positions count from the first column, be it padding or not."""
        segments = torch.zeros_like(tokens) if segments is None else segments.clamp(max=len(self.segments.weight) - 1)
        summed = self.tokens(tokens) + self.positions.first(tokens.shape[1]) + self.segments(segments)
        dropped: Tensor = self.dropout(self.norm(summed))
        return dropped


class Bert(EncoderModel):
    """A text or a pair of texts → a vector per token, one for all, and what the head says."""

    supports_gradient_checkpointing = True

    def __init__(self, config: BertConfig, sizes: VocabularySizes) -> None:
        super().__init__()
        self.config, self.max_source = config, config.max_positions
        self.sizes = sizes
        self.embedding = BertEmbedding(config, sizes.source)
        self.encoder = nn.ModuleList(EncoderBlock(config.of_layer(layer)) for layer in range(config.num_layers))
        self.pooler = Linear(config.model_dim, config.model_dim) if config.is_pooled else None
        self.head = self._make_head()

    @property
    def width(self) -> int:
        return self.config.model_dim

    def forward(self, tokens: Tensor, allowed: Tensor, segments: Tensor | None = None, layers: bool = False) -> Encoding:
        hidden, allowed_B11N = self.embedding(tokens, segments), broadcast(allowed)
        passed = [hidden]
        for block in self.encoder:
            hidden = through(block, self.gradient_checkpointing and self.training, hidden, allowed_B11N)
            if layers:
                passed.append(hidden)
        pooled_BD = None if self.pooler is None else torch.tanh(self.pooler(hidden[:, 0]))
        return Encoding(hidden, allowed, pooled_BD, tuple(passed) if layers else ())

    def _make_head(self) -> Head | None:
        config = self.config
        dim, rate = config.model_dim, config.head_dropout
        if config.head == "language":
            return LanguageHead(self.embedding.tokens, config.make_norm(dim), config.next_sentence)
        if config.head == "labels":
            return LabelHead(dim, config.num_labels, rate)
        if config.head == "tags":
            return TagHead(dim, config.num_labels, rate)
        return SpanHead(dim) if config.head == "span" else None
