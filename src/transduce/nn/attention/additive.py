"""Single-head attention without scaling: additive (Bahdanau et al. 2015) and multiplicative (Luong et al. 2015).

A recurrent decoder has one query per token, which may depend on the previous context. So hooks run separately from
attention: they get the scores of a whole pass at its end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from transduce.nn.hook import HookPoint
from transduce.nn.state import cat_padded


class ProjectedMemory(NamedTuple):
    """Keys and values of a sentence, projected once and shared by its rows."""

    key: Tensor
    """(B M K)"""
    value: Tensor
    """(B M E)"""
    allowed: Tensor
    """(B M), True where there is a real position."""

    def select(self, sentences: Tensor) -> ProjectedMemory:
        """Return these sentences, in this order."""
        if torch.equal(sentences, torch.arange(len(self.key), device=sentences.device)):
            return self
        return ProjectedMemory(*(part[sentences] for part in self))

    def join(self, other: ProjectedMemory) -> ProjectedMemory:
        """Return the sentences of both; the shorter memory is padded."""
        return ProjectedMemory(*(cat_padded(pair, padded=1) for pair in zip(self, other, strict=True)))


class SingleHeadAttention(nn.Module, ABC):
    """softmax(score(query, key)) over the memory's own vectors; subclasses define the score."""

    k_proj: nn.Module
    """Projects the memory to keys."""

    def __init__(self) -> None:
        super().__init__()
        self.score, self.weight = HookPoint(replaceable=False), HookPoint(replaceable=False)

    @abstractmethod
    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        """Score each query against each key.  (B N D), (B M K) -> (B N M)."""

    def project_memory(self, memory: Tensor, allowed: Tensor) -> ProjectedMemory:
        """Project the memory, once per sentence.  (B M E), (B M) -> keys (B M K), values (B M E)."""
        return ProjectedMemory(self.k_proj(memory), memory, allowed)

    def forward(self, query: Tensor, source: ProjectedMemory) -> tuple[Tensor, Tensor]:
        """Attend to a projected memory.  (R Q D) -> context (R Q E), score (R Q M).

        R may be a multiple of B: the rows of one sentence (its beams) then share its keys and values.
        """
        rows, length, _ = query.shape
        sentences, positions, _ = source.key.shape
        query_BND = query.reshape(sentences, rows // sentences * length, -1)
        score_BNM = self.compare(query_BND, source.key).masked_fill(~source.allowed[:, None], -torch.inf)
        context_BNE = score_BNM.softmax(dim=-1) @ source.value
        return context_BNE.view(rows, length, -1), score_BNM.view(rows, length, positions)

    @property
    def is_hooked(self) -> bool:
        """Whether a hook is attached to the scores or the weights."""
        return self.score.is_hooked or self.weight.is_hooked

    def run_hooks(self, scores: Sequence[Tensor], source: ProjectedMemory) -> None:
        """Run the hooks on the scores and weights of one whole pass.  each (R Q M) -> (B 1 N M)."""
        if self.is_hooked:
            score_RTM = torch.cat(list(scores), dim=1)
            score_B1NM = score_RTM.view(len(source.key), 1, -1, score_RTM.shape[-1])
            self.weight(self.score(score_B1NM).softmax(dim=-1))


class AdditiveAttention(SingleHeadAttention):
    """score = v · tanh(W query + U memory + b) (Bahdanau et al. 2015, appendix A.1.2)."""

    def __init__(self, query_dim: int, memory_dim: int, attention_dim: int) -> None:
        super().__init__()
        self.q_proj = nn.Linear(query_dim, attention_dim, bias=False)
        self.k_proj = nn.Linear(memory_dim, attention_dim)
        self.score_proj = nn.Linear(attention_dim, 1, bias=False)

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        hidden_BNMK = torch.tanh(self.q_proj(query)[:, :, None] + key[:, None])
        score_BNM: Tensor = self.score_proj(hidden_BNMK).squeeze(-1)
        return score_BNM


class MultiplicativeAttention(SingleHeadAttention):
    """score = query · W memory, "general", or query · memory, "dot" (Luong et al. 2015, section 3.1)."""

    def __init__(self, query_dim: int, memory_dim: int, projected: bool = True) -> None:
        super().__init__()
        assert projected or query_dim == memory_dim, "a dot product needs vectors of one width"
        self.k_proj = nn.Linear(memory_dim, query_dim, bias=False) if projected else nn.Identity()

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        return query @ key.transpose(1, 2)
