"""Heads of readers: what is said about a text that was read (Devlin et al. 2019, sections 3.1 and 4)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.models.interface import Encoding, Head
from transduce.nn.dropout import Dropout
from transduce.nn.embedding import Embedding, Output
from transduce.nn.linear import Linear


class LanguageHead(Head):
    """Which piece stands at each place (the embedding's own matrix says), and whether the second text follows.

    Scores over the vocabulary are large: a loss takes `vectors` of the hidden places only, and `output`.
    """

    def __init__(self, embedding: Embedding, norm: nn.Module, next_sentence: bool) -> None:
        super().__init__()
        size, dim = embedding.weight.shape
        self.transform = Linear(dim, dim)
        self.norm = norm
        self.output = Output(size, dim, bias=True, tied=embedding)
        self.next_sentence = Linear(dim, 2) if next_sentence else None
        """Scores of: it follows, it does not."""

    def forward(self, reading: Encoding) -> Tensor:
        """-> (B N V)."""
        scores: Tensor = self.output(self.vectors(reading.states))
        return scores

    def vectors(self, states: Tensor) -> Tensor:
        """What the output layer reads.  (… D) -> (… D)."""
        normalised: Tensor = self.norm(F.gelu(self.transform(states)))
        return normalised

    def next_sentence_scores(self, reading: Encoding) -> Tensor:
        """-> (B 2)."""
        assert self.next_sentence is not None and reading.pooled is not None, "the head does not predict next sentences"
        scores: Tensor = self.next_sentence(reading.pooled)
        return scores


class LabelHead(Head):
    """One label for a text or a pair of texts, from the pooled vector."""

    def __init__(self, dim: int, num_labels: int, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.output = Linear(dim, num_labels)

    def forward(self, reading: Encoding) -> Tensor:
        """-> (B C)."""
        assert reading.pooled is not None, "a text's label is read off its pooled vector"
        scores: Tensor = self.output(self.dropout(reading.pooled))
        return scores


class TagHead(Head):
    """A label for each token; of a word in several pieces, the first one's counts."""

    def __init__(self, dim: int, num_labels: int, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.output = Linear(dim, num_labels)

    def forward(self, reading: Encoding) -> Tensor:
        """-> (B N C)."""
        scores: Tensor = self.output(self.dropout(reading.states))
        return scores


class SpanHead(Head):
    """Where an answer starts and where it ends."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.output = Linear(dim, 2)

    def forward(self, reading: Encoding) -> Tensor:
        """-> (B N 2): scores of each place as the start and as the end."""
        scores: Tensor = self.output(reading.states)
        return scores

    def places(self, reading: Encoding) -> Tensor:
        """-> (B 2 N): the same, with nothing to be had from padding."""
        score_B2N: Tensor = self(reading).transpose(1, 2)
        return score_B2N.masked_fill(~reading.allowed[:, None], -torch.inf)
