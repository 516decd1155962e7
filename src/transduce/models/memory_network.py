"""The End-To-End Memory Network (Sukhbaatar et al. 2015, arXiv 1503.08895): facts, a question, and several looks.

Every fact of a story is a vector in a memory. A question looks at the facts, adds what it finds to itself, and looks
again: with each hop it can find a fact that only matters because of another. What it has become names the answer.

It is a Reader of several texts: the last one is the question, those before it are the facts, the newest next to it.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from transduce.config import Config
from transduce.models.interface import Head, Reader, Reading, VocabularySizes
from transduce.models.reading_head import LabelHead
from transduce.nn.dropout import Dropout
from transduce.nn.embedding import Embedding
from transduce.nn.product import Linear
from transduce.nn.tap import Tap

Width = Annotated[int, Field(ge=1, le=65_536)]

FIRST_STD = 0.1
"""Of the first embeddings (section 4.2); larger ones make a linear start run away."""


class MemoryNetworkConfig(Config):
    """Sizes and choices of one network; the defaults are the paper's for bAbI, all tasks together."""

    model_dim: Width = 50
    """Width of a word's, a fact's and a question's vector."""
    hops: Annotated[int, Field(ge=1, le=100)] = 3
    """How often the question looks at the facts."""
    tying: Literal["adjacent", "layerwise"] = "adjacent"
    """Which matrices are one: what a hop answers with is what the next one looks by; or all hops share both, and a
    trained matrix carries the question from one to the next."""
    position_encoding: bool = True
    """Let a word's place in its fact matter (section 4.1); without it a fact is the bag of its words."""
    max_facts: Annotated[int, Field(ge=1, le=10_000)] = 50
    """Facts that are looked at, the newest ones; each place in time has a trained vector."""
    random_noise: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.1
    """While training: how likely an empty place in time stands behind a fact, so that times are not learnt by heart."""
    linear_updates: Annotated[int, Field(ge=0, le=2**40)] = 0
    """Updates that are trained without the softmax over facts (the paper's linear start)."""
    head: Literal["none", "labels"] = "none"
    """What is said of a story: nothing, or the answer to its question."""
    num_labels: Annotated[int, Field(ge=1, le=1_000_000)] = 2
    """With head = "labels": how many answers there are; filled in by the data."""


def memn2n() -> MemoryNetworkConfig:
    """Three hops, adjacent matrices, position and time, random noise; a linear start is for the recipe to add."""
    return MemoryNetworkConfig()


def memn2n_layerwise() -> MemoryNetworkConfig:
    """The same as a recurrent network over hops."""
    return MemoryNetworkConfig(tying="layerwise")


class Layout:
    """Which token is of which fact, counted from the newest, and how far into it.

    F places in time and, behind them, one for the question: older facts have no place.
    """

    def __init__(self, allowed: Tensor, segments: Tensor, max_facts: int, dim: int) -> None:
        segments = segments.masked_fill(~allowed, 0)
        asked_B1 = segments.amax(dim=1, keepdim=True)
        slot_BN = torch.where(segments == asked_B1, max_facts, asked_B1 - 1 - segments)
        slot_BN = torch.where((segments < asked_B1) & (slot_BN >= max_facts), max_facts + 1, slot_BN)
        slots_F = torch.arange(max_facts + 1, device=allowed.device)
        self.is_of_BFN = (slot_BN[:, None] == slots_F[:, None]) & allowed[:, None]
        """Facts, then the question."""
        self.allowed_BF = slots_F[:-1] < asked_B1
        """Places that have a fact."""
        length_BF = self.is_of_BFN.sum(dim=2).clamp(min=1)
        length_BN = length_BF.gather(1, slot_BN.clamp(max=max_facts))
        place_N = torch.arange(segments.shape[1], device=allowed.device)
        begins_BN = torch.ones_like(allowed)
        begins_BN[:, 1:] = segments[:, 1:] != segments[:, :-1]
        place_BN = place_N + 1 - torch.where(begins_BN, place_N, 0).cummax(dim=1).values
        share_BN1 = (place_BN / length_BN)[:, :, None]
        channel_D = torch.arange(1, dim + 1, device=allowed.device) / dim
        self.position_BND = (1 - share_BN1) - channel_D * (1 - 2 * share_BN1)
        """Section 4.1: l_kj = (1 - j/J) - (k/d)(1 - 2j/J)."""


class Hop(nn.Module):
    """One look at the facts: softmax(u · m) weighs what is answered with."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = Tap()

    def forward(self, asked: Tensor, key: Tensor, value: Tensor, allowed: Tensor, linear: bool) -> Tensor:
        """(B D), (B F D) twice, (B F) -> (B D). Where there is no fact, nothing is found."""
        score_BF = (key @ asked[:, :, None])[:, :, 0]
        if not linear:
            score_BF = score_BF.masked_fill(~allowed, torch.finfo(score_BF.dtype).min).softmax(dim=1)
        weight_B11F: Tensor = self.weight((score_BF * allowed)[:, None, None])
        return (weight_B11F[:, 0] @ value)[:, 0]


class MemoryNetwork(Reader):
    """A story and a question → one vector that names the answer."""

    max_texts = None
    looks_at_facts = True

    def __init__(self, config: MemoryNetworkConfig, sizes: VocabularySizes) -> None:
        super().__init__()
        self.config, self.sizes = config, sizes
        dim, adjacent = config.model_dim, config.tying == "adjacent"
        tables = config.hops + 1 if adjacent else 2
        self.words = nn.ModuleList(Embedding(sizes.source, dim, scaled=False, std=FIRST_STD) for _ in range(tables))
        """Adjacent: hop k looks by table k and answers with table k + 1. Layer-wise: every hop has both."""
        self.times = nn.ModuleList(Embedding(config.max_facts, dim, scaled=False, std=FIRST_STD) for _ in range(tables))
        self.asked = None if adjacent else Embedding(sizes.source, dim, scaled=False, std=FIRST_STD)
        """The question's own words; adjacent ones are those of the first table."""
        self.carry = None if adjacent else Linear(dim, dim, bias=False)
        self.hops = nn.ModuleList(Hop() for _ in range(config.hops))
        self.noise = Dropout(config.random_noise)
        self.head: Head | None = LabelHead(dim, config.num_labels, 0.0) if config.head == "labels" else None

    @property
    def width(self) -> int:
        return self.config.model_dim

    @property
    def max_source(self) -> int | None:
        return None

    def forward(self, tokens: Tensor, allowed: Tensor, segments: Tensor | None = None, layers: bool = False) -> Reading:
        """Read stories; the vector of a token is its own and what the question has become."""
        if segments is None:
            segments = torch.zeros_like(tokens)
        layout = Layout(allowed, segments, self.config.max_facts, self.width)
        table = self.words[0] if self.asked is None else self.asked
        asked_BD = self._summed(table, tokens, layout)[:, -1]
        facts = [self._summed(table, tokens, layout)[:, :-1] for table in self.words]
        slot_BF = self._slots(layout.allowed_BF, facts[0].dtype)
        facts = [fact_BFD + time(slot_BF) for fact_BFD, time in zip(facts, self.times, strict=True)]
        word_BND: Tensor = table(tokens)
        passed = [word_BND + asked_BD[:, None]]
        for number, hop in enumerate(self.hops):
            first = number if self.carry is None else 0
            found_BD = hop(asked_BD, facts[first], facts[first + 1], layout.allowed_BF, self.is_linear)
            asked_BD = found_BD + (asked_BD if self.carry is None else self.carry(asked_BD))
            passed.append(word_BND + asked_BD[:, None])
        return Reading(passed[-1], allowed, asked_BD, tuple(passed) if layers else ())

    @property
    def is_linear(self) -> bool:
        """Whether the softmax is still left out: which update this is, the dropout's key knows."""
        key = self.noise.key
        return self.training and key is not None and key.update <= self.config.linear_updates

    def _summed(self, table: nn.Module, tokens: Tensor, layout: Layout) -> Tensor:
        """Add up the words of each fact and of the question.  (B N) -> (B F+1 D)."""
        word_BND: Tensor = table(tokens)
        if self.config.position_encoding:
            word_BND = word_BND * layout.position_BND.to(word_BND.dtype)
        return torch.bmm(layout.is_of_BFN.to(word_BND.dtype), word_BND)

    def _slots(self, allowed: Tensor, dtype: torch.dtype) -> Tensor:
        """Where in time each fact stands; while training empty places may push older facts back.  (B F) -> (B F)."""
        empty_BF = (self.noise(allowed.new_ones(allowed.shape, dtype=dtype)) == 0).long()
        pushed_BF = empty_BF.cumsum(dim=1) - empty_BF
        place_F = torch.arange(allowed.shape[1], device=allowed.device)
        slot_BF: Tensor = (place_F + pushed_BF).clamp(max=allowed.shape[1] - 1)
        return slot_BF
