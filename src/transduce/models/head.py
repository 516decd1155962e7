"""Prediction heads of encoder models (Devlin et al. 2019, sections 3.1 and 4)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.models.interface import Encoding, Head
from transduce.nn.dropout import Dropout
from transduce.nn.embedding import Embedding, Output
from transduce.nn.linear import Linear


def prediction_head(kind: str, dim: int, num_labels: int, dropout: float) -> Head | None:
    """Return the head for `labels`, `tags` or `span`; None for `none`."""
    if kind == "labels":
        return LabelHead(dim, num_labels, dropout)
    if kind == "tags":
        return TagHead(dim, num_labels, dropout)
    return SpanHead(dim) if kind == "span" else None


class LanguageHead(Head):
    """Masked language modelling with tied embeddings, and next-sentence prediction.

    Scores over the vocabulary are large: a loss takes `vectors` of the masked positions only, and `output`.
    """

    def __init__(self, embedding: Embedding, norm: nn.Module, next_sentence: bool) -> None:
        super().__init__()
        size, dim = embedding.weight.shape
        self.transform = Linear(dim, dim)
        self.norm = norm
        self.output = Output(size, dim, bias=True, tied=embedding)
        self.next_sentence = Linear(dim, 2) if next_sentence else None
        """Scores of: is the next sentence, is not."""

    def forward(self, encoding: Encoding) -> Tensor:
        """-> (B N V)."""
        scores: Tensor = self.output(self.vectors(encoding.states))
        return scores

    def vectors(self, states: Tensor) -> Tensor:
        """The output layer's input.  (… D) -> (… D)."""
        normalised: Tensor = self.norm(F.gelu(self.transform(states)))
        return normalised

    def next_sentence_scores(self, encoding: Encoding) -> Tensor:
        """-> (B 2)."""
        assert self.next_sentence is not None and encoding.pooled is not None, (
            "the head does not predict next sentences"
        )
        scores: Tensor = self.next_sentence(encoding.pooled)
        return scores


class LabelHead(Head):
    """Classification of a text or a pair of texts, from the pooled vector."""

    def __init__(self, dim: int, num_labels: int, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.output = Linear(dim, num_labels)

    def forward(self, encoding: Encoding) -> Tensor:
        """-> (B C)."""
        assert encoding.pooled is not None, "classification needs a pooled vector"
        scores: Tensor = self.output(self.dropout(encoding.pooled))
        return scores


class TagHead(Head):
    """Token classification; of a word in several pieces, the first counts."""

    def __init__(self, dim: int, num_labels: int, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.output = Linear(dim, num_labels)

    def forward(self, encoding: Encoding) -> Tensor:
        """-> (B N C)."""
        scores: Tensor = self.output(self.dropout(encoding.states))
        return scores


class SpanHead(Head):
    """Extractive question answering: the start and the end of a span."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.output = Linear(dim, 2)

    def forward(self, encoding: Encoding) -> Tensor:
        """-> (B N 2): scores of each position as start and as end."""
        scores: Tensor = self.output(encoding.states)
        return scores

    def span_scores(self, encoding: Encoding) -> Tensor:
        """-> (B 2 N): the same, -inf at padding."""
        score_B2N: Tensor = self(encoding).transpose(1, 2)
        return score_B2N.masked_fill(~encoding.allowed[:, None], -torch.inf)
