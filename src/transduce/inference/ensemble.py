"""Ensembles: several models as one, which gives a token the mean of their probabilities.

An ensemble is a model like any other, so search, scoring and everything above them work with it unchanged. Its
hidden vectors are those of its members, concatenated.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from transduce.errors import SettingsError
from transduce.models.interface import AnyTransducer, Memory, Scorer, State, Transducer


@dataclass(frozen=True)
class EnsembleMemory(Memory):
    """The memory of each member; the states are the first member's."""

    parts: list[Memory]


@dataclass
class EnsembleState(State):
    """The states of all members, row by row."""

    parts: list[State]
    width: int

    @property
    def num_rows(self) -> int:
        return self.parts[0].num_rows

    def select(self, rows: Tensor) -> EnsembleState:
        return EnsembleState([part.select(rows) for part in self.parts], self.width)

    def join(self, other: EnsembleState) -> EnsembleState:
        joined = [one.join(another) for one, another in zip(self.parts, other.parts, strict=True)]
        return EnsembleState(joined, self.width)


def _least(limits: Iterable[int | None]) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)


class Ensemble(Transducer[EnsembleMemory, EnsembleState]):
    """Models with the same vocabularies; they may differ in everything else."""

    def __init__(self, models: Sequence[AnyTransducer]) -> None:
        super().__init__()
        if len({model.sizes for model in models}) != 1:
            raise SettingsError("the models of an ensemble must have the same vocabularies, but these differ")
        self.members = nn.ModuleList(models)
        self.sizes, self.output = models[0].sizes, models[0].output
        self.widths = [model.output.weight.shape[1] for model in models]
        self.max_source = _least(model.max_source for model in models)
        self.max_target = _least(model.max_target for model in models)

    @property
    def models(self) -> list[AnyTransducer]:
        """The members with their type, which a ModuleList forgets."""
        return cast("list[AnyTransducer]", list(self.members))

    @property
    def image_size(self) -> int | None:
        return self.models[0].image_size

    def encode(self, source: Tensor, allowed: Tensor) -> EnsembleMemory:
        parts = [model.encode(source, allowed) for model in self.models]
        return EnsembleMemory(parts[0].states, allowed, parts)

    def forward(self, target: Tensor, memory: EnsembleMemory) -> Tensor:
        pairs = zip(self.models, memory.parts, strict=True)
        return torch.cat([model(target, part) for model, part in pairs], dim=-1)

    def start(self, memory: EnsembleMemory, width: int = 1) -> EnsembleState:
        pairs = zip(self.models, memory.parts, strict=True)
        return EnsembleState([model.start(part, width) for model, part in pairs], width)

    def extend(self, tokens: Tensor, lengths: Tensor, state: EnsembleState) -> tuple[Tensor, EnsembleState]:
        found = [model.extend(tokens, lengths, part) for model, part in zip(self.models, state.parts, strict=True)]
        return _side_by_side(found, state.width)

    def step(self, tokens: Tensor, state: EnsembleState) -> tuple[Tensor, EnsembleState]:
        found = [model.step(tokens, part) for model, part in zip(self.models, state.parts, strict=True)]
        return _side_by_side(found, state.width)

    def logits(self, hidden: Tensor, vocabulary: Tensor | None = None) -> Tensor:
        """Scores whose softmax is the mean probability; those of equal members are their own.  (… ΣD) -> (… V)."""
        parts = zip(self.models, torch.split(hidden, self.widths, dim=-1), strict=True)
        return _mean([model.logits(part, vocabulary).float() for model, part in parts])

    def scorer(self, vocabulary: Tensor) -> Scorer:
        """The same for a shortlist: the mean over the members, of the tokens that each row may have."""
        scorers = [model.scorer(vocabulary) for model in self.models]

        def score(hidden: Tensor, allowed: Tensor) -> Tensor:
            parts = zip(scorers, torch.split(hidden, self.widths, dim=-1), strict=True)
            return _mean([scorer(part, allowed) for scorer, part in parts])

        return score


def _mean(scores: Sequence[Tensor]) -> Tensor:
    """Scores whose softmax is the mean of the softmaxes.  M × (… V) -> (… V)."""
    score_MV = torch.stack(list(scores))
    total_M1 = score_MV.logsumexp(dim=-1, keepdim=True)
    return (score_MV - total_M1).logsumexp(dim=0) - math.log(len(score_MV)) + total_M1.mean(dim=0)


def _side_by_side(found: Sequence[tuple[Tensor, State]], width: int) -> tuple[Tensor, EnsembleState]:
    return torch.cat([hidden for hidden, _ in found], dim=-1), EnsembleState([state for _, state in found], width)
