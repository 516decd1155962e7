"""BERT (Devlin et al. 2019, arXiv 1810.04805): a bidirectional encoder with prediction heads.

A stack of the Transformer's encoder blocks over the sum of token, position and segment embeddings. It is pre-trained on
plain text by masked language modelling and next-sentence prediction, then fine-tuned with a new head.
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
    apply_block,
    broadcast,
)
from transduce.models.head import LanguageHead, prediction_head
from transduce.models.interface import EncoderModel, Encoding, Head, VocabularySizes
from transduce.nn.dropout import Dropout
from transduce.nn.embedding import Embedding
from transduce.nn.linear import Linear

POOLED = frozenset(("none", "language", "labels"))
"""Heads that need a pooled vector."""


class BertConfig(BlockConfig):
    """Settings of BERT; the defaults are the base model's."""

    model_dim: Width = 768
    """Width of the residual stream."""
    num_heads: Width = 12
    """Attention heads."""
    ffn_dim: Width = 3072
    """Inner width of the feed-forward network."""
    num_layers: Layers = 12
    """Layers."""
    norm_eps: Annotated[float, Field(gt=0.0, lt=1.0)] = 1e-12
    """Epsilon of the norms."""
    norm: Literal["post"] = "post"
    """Post-norm, as in the paper."""
    final_norm: Literal[False] | None = None
    """Final norm: none, because the last block ends with its own."""
    activation: ActivationName = "gelu"
    """Activation of the feed-forward network."""
    positions: Literal["learned"] = "learned"
    """Position encoding: learned embeddings."""
    max_positions: Annotated[int, Field(ge=3, le=1_000_000)] = 512
    """Maximum tokens of a text or pair, special tokens included."""
    segments: Annotated[int, Field(ge=1, le=16)] = 2
    """Number of segment embeddings."""
    attention_bias: bool = True
    """Biases in the attention projections."""
    attention_dropout: Rate = 0.1
    """Dropout on the attention weights."""
    head: Literal["none", "language", "labels", "tags", "span"] = "none"
    """Prediction head: none, masked language modelling, classification, tagging, or extractive question answering."""
    next_sentence: bool = True
    """With head = "language": also predict whether the second text follows the first."""
    num_labels: Annotated[int, Field(ge=1, le=1_000_000)] = 2
    """With head = "labels" or "tags": number of labels; filled in from the data."""
    head_dropout: Rate = 0.1
    """Dropout on the head's input."""

    @property
    def is_pooled(self) -> bool:
        """Whether the model has a pooler."""
        return self.head in POOLED and (self.head != "language" or self.next_sentence)


def bert_base() -> BertConfig:
    """The base model: 109 million parameters with its vocabulary of 30,522."""
    return BertConfig()


def bert_large() -> BertConfig:
    """The large model: 335 million parameters."""
    return bert_base().but(model_dim=1024, num_heads=16, ffn_dim=4096, num_layers=24)


def bert_mini() -> BertConfig:
    """For a laptop: 4 layers of 256, 128 tokens (the size that Turc et al. 2019 named mini)."""
    return BertConfig(model_dim=256, num_heads=4, ffn_dim=1024, num_layers=4, max_positions=128)


class BertEmbedding(nn.Module):
    """Token + position + segment, normalised (the paper's figure 2)."""

    def __init__(self, config: BertConfig, size: int) -> None:
        super().__init__()
        self.tokens = Embedding(size, config.model_dim, scaled=False)
        self.positions = added_positions(config)
        self.segments = Embedding(config.segments, config.model_dim, scaled=False)
        self.norm = config.make_norm(config.model_dim)
        self.dropout = Dropout(config.dropout)

    def forward(self, tokens: Tensor, segments: Tensor | None) -> Tensor:
        """(B N), (B N) -> (B N D). Positions count from the first column, padding included."""
        segments = torch.zeros_like(tokens) if segments is None else segments.clamp(max=len(self.segments.weight) - 1)
        summed = self.tokens(tokens) + self.positions.first(tokens.shape[1]) + self.segments(segments)
        dropped: Tensor = self.dropout(self.norm(summed))
        return dropped


class Bert(EncoderModel):
    """A text or a pair of texts → a vector per token, a pooled one, and the head's predictions."""

    supports_gradient_checkpointing = True

    def __init__(self, config: BertConfig, sizes: VocabularySizes) -> None:
        super().__init__()
        self.config, self.max_source = config, config.max_positions
        self.sizes = sizes
        self.embedding = BertEmbedding(config, sizes.source)
        self.encoder = nn.ModuleList(EncoderBlock(config.of_layer(layer)) for layer in range(config.num_layers))
        self.pooler = Linear(config.model_dim, config.model_dim) if config.is_pooled else None
        self.head = self._make_head()

    def forward(
        self, tokens: Tensor, allowed: Tensor, segments: Tensor | None = None, layers: bool = False
    ) -> Encoding:
        hidden, allowed_B11N = self.embedding(tokens, segments), broadcast(allowed)
        passed = [hidden]
        for block in self.encoder:
            hidden = apply_block(block, self.recomputes, hidden, allowed_B11N)
            if layers:
                passed.append(hidden)
        pooled_BD = None if self.pooler is None else torch.tanh(self.pooler(hidden[:, 0]))
        return Encoding(hidden, allowed, pooled_BD, tuple(passed) if layers else ())

    def _make_head(self) -> Head | None:
        config = self.config
        if config.head == "language":
            return LanguageHead(self.embedding.tokens, config.make_norm(config.model_dim), config.next_sentence)
        return prediction_head(config.head, config.model_dim, config.num_labels, config.head_dropout)
