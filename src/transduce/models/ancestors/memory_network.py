"""The End-To-End Memory Network (Sukhbaatar et al. 2015, arXiv 1503.08895): multi-hop attention over facts.

Every fact of a context is a vector in a memory. The question attends to the facts, adds the result to itself, and
attends again: with each hop it can find a fact that matters only because of another. The result predicts the answer.

It is an EncoderModel of several texts: the last is the question, those before it are the facts, the newest next to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Annotated, Literal, Self

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from transduce.config import Config
from transduce.errors import SettingsError
from transduce.models.block import Width
from transduce.models.head import LabelHead
from transduce.models.interface import EncoderModel, Encoding, Head, VocabularySizes
from transduce.nn.dropout import Dropout
from transduce.nn.embedding import Embedding, Output
from transduce.nn.hook import HookPoint
from transduce.nn.linear import Linear

FIRST_STD = 0.1
"""Standard deviation of the initial embeddings (section 4.2); with larger ones a linear start diverges."""

NO_WORD = -1
"""In place of a label's token: the label is not a word of the vocabulary."""


class MemoryNetworkConfig(Config):
    """Settings of a memory network; the defaults are the paper's for bAbI, all tasks jointly."""

    model_dim: Width = 50
    """Width of the embeddings of words, facts and questions."""
    hops: Annotated[int, Field(ge=1, le=100)] = 3
    """Number of hops: how often the question attends to the facts."""
    tying: Literal["adjacent", "layerwise"] = "adjacent"
    """Weight tying (section 2.2): adjacent, the output embedding of a hop is the next one's input embedding; layerwise,
    all hops share both, with a learned projection of the question between hops."""
    position_encoding: bool = True
    """Position encoding of words in a fact (section 4.1); without it a fact is a bag of words."""
    max_facts: Annotated[int, Field(ge=1, le=10_000)] = 50
    """Number of facts in the memory, the newest ones; each has a learned time embedding."""
    empty_facts: bool = False
    """Include empty slots in the softmax, so that a hop need not attend to any fact."""
    random_noise: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.1
    """Random noise of training (section 4.1): probability of an empty slot after a fact."""
    linear_updates: Annotated[int, Field(ge=0, le=2**40)] = 0
    """Updates of the paper's linear start, without the softmax over facts."""
    head: Literal["none", "labels"] = "none"
    """Prediction head: none, or classification of the answer."""
    num_labels: Annotated[int, Field(ge=1, le=1_000_000)] = 2
    """With head = "labels": number of answers; filled in from the data."""
    label_tokens: Annotated[tuple[Annotated[int, Field(ge=NO_WORD)], ...], Field(strict=False)] = ()
    """With head = "labels" and adjacent tying: the token of each answer, or -1 where it is not a single word; filled in
    from the data. Without them answers have their own matrix."""

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if self.label_tokens and len(self.label_tokens) != self.num_labels:
            raise ValueError(f"label_tokens has {len(self.label_tokens)} entries, but num_labels is {self.num_labels}")
        if self.label_tokens and self.tying != "adjacent":
            raise ValueError(
                "label_tokens needs tying = 'adjacent'; with layerwise tying answers have their own matrix"
            )
        return self


def memn2n() -> MemoryNetworkConfig:
    """Three hops, adjacent tying, position and time encoding, random noise; a recipe may add a linear start."""
    return MemoryNetworkConfig(empty_facts=True)


def memn2n_layerwise() -> MemoryNetworkConfig:
    """The same with layerwise tying, a recurrent network over hops."""
    return MemoryNetworkConfig(empty_facts=True, tying="layerwise")


class Layout:
    """Which text each token belongs to, and its position in it.

    F slots, the newest fact first, then one for the question; older facts have no slot. There are no more slots than
    the longest context needs, and only the T tokens with a slot are looked up, so that contexts of different lengths in
    one batch cost little more than their words.
    """

    def __init__(self, allowed: Tensor, segments: Tensor, max_facts: int, dim: int) -> None:
        segments = segments.masked_fill(~allowed, 0)
        question_B1 = segments.amax(dim=1, keepdim=True)
        self.places = max(1, min(max_facts, int(question_B1.max())))
        self.allowed_BF = torch.arange(self.places, device=allowed.device) < question_B1
        """Slots that hold a fact."""
        age_BN = question_B1 - 1 - segments
        slot_BN = torch.where(age_BN < 0, self.places, age_BN)
        self.row_T, self.column_T = (allowed & (age_BN < self.places)).nonzero(as_tuple=True)
        self.text_T = self.row_T * (self.places + 1) + slot_BN[self.row_T, self.column_T]
        """Index of each token's text among all texts of the batch."""
        begins_BN = torch.ones_like(allowed)
        begins_BN[:, 1:] = segments[:, 1:] != segments[:, :-1]
        column_N = torch.arange(segments.shape[1], device=allowed.device)
        first_BN = torch.where(begins_BN, column_N, 0).cummax(dim=1).values
        place_T = self.column_T + 1 - first_BN[self.row_T, self.column_T]
        length_U = self.text_T.new_zeros(len(allowed) * (self.places + 1))
        length_U.index_add_(0, self.text_T, torch.ones_like(self.text_T))
        share_T1 = (place_T / length_U[self.text_T])[:, None]
        channel_D = torch.arange(1, dim + 1, device=allowed.device) / dim
        self.position_TD = (1 - share_T1) - channel_D * (1 - 2 * share_T1)
        """Section 4.1: l_kj = (1 - j/J) - (k/d)(1 - 2j/J)."""


class Hop(nn.Module):
    """One attention over the facts: softmax(u · m) c."""

    def __init__(self, places: int) -> None:
        """`places` is the number of slots in the softmax, empty ones included; 0 for real facts only."""
        super().__init__()
        self.places = places
        self.weight = HookPoint()

    def forward(self, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor, linear: bool) -> Tensor:
        """(B D), (B F D) twice, (B F) -> (B D). Empty slots add zero."""
        score_BF = (key @ query[:, :, None])[:, :, 0]
        if not linear:
            score_BF = self._shares(score_BF.masked_fill(~allowed, torch.finfo(score_BF.dtype).min), allowed)
        weight_B11F: Tensor = self.weight((score_BF * allowed)[:, None, None])
        return (weight_B11F[:, 0] @ value)[:, 0]

    def _shares(self, score: Tensor, allowed: Tensor) -> Tensor:
        """Softmax; an empty slot is a vector of zeros, whose score is zero.  (B F) -> (B F)."""
        if not self.places:
            return score.softmax(dim=1)
        empty_B1 = (self.places - allowed.sum(dim=1, keepdim=True)).to(score.dtype)
        return torch.cat((score, empty_B1.log()), dim=1).softmax(dim=1)[:, :-1]


class AnswerHead(Head):
    """Classification where answers are words: an answer has its word's vector in the last embedding (section 2.2).

    An answer that is not a single word has its own vector.
    """

    rows_C: Tensor

    def __init__(self, words: Embedding, label_tokens: Sequence[int]) -> None:
        super().__init__()
        size, dim = words.weight.shape
        if max(label_tokens) >= size:
            most = max(label_tokens)
            raise SettingsError(
                f"model.label_tokens: token {most} is outside the vocabulary of {size:,}; leave the setting out"
            )
        self.output = Output(size, dim, tied=words)
        own = sum(token == NO_WORD for token in label_tokens)
        self.label_embedding = Embedding(own, dim, scaled=False, std=FIRST_STD) if own else None
        behind = count(size)
        rows = [next(behind) if token == NO_WORD else token for token in label_tokens]
        self.register_buffer("rows_C", torch.tensor(rows), persistent=False)

    def forward(self, encoding: Encoding) -> Tensor:
        """-> (B C)."""
        assert encoding.pooled is not None, "classification needs a pooled vector"
        weight_VD = (
            self.output.weight
            if self.label_embedding is None
            else torch.cat((self.output.weight, self.label_embedding.weight))
        )
        return F.linear(encoding.pooled, weight_VD[self.rows_C])


class MemoryNetwork(EncoderModel):
    """Context facts and a question → a vector that predicts the answer."""

    max_texts = None
    attends_to_facts = True

    def __init__(self, config: MemoryNetworkConfig, sizes: VocabularySizes) -> None:
        super().__init__()
        self.config, self.sizes = config, sizes
        dim, adjacent = config.model_dim, config.tying == "adjacent"
        tables = config.hops + 1 if adjacent else 2
        words = [Embedding(sizes.source, dim, scaled=False, std=FIRST_STD) for _ in range(tables)]
        self.embeddings = nn.ModuleList(words)
        """Adjacent: hop k has embeddings k for keys and k + 1 for values. Layerwise: all hops share two."""
        self.time_embeddings = nn.ModuleList(
            Embedding(config.max_facts, dim, scaled=False, std=FIRST_STD) for _ in range(tables)
        )
        self.question_embedding = None if adjacent else Embedding(sizes.source, dim, scaled=False, std=FIRST_STD)
        """Embedding of the question; with adjacent tying it is the first one."""
        self.hop_proj = None if adjacent else Linear(dim, dim, bias=False)
        self.hops = nn.ModuleList(Hop(config.max_facts if config.empty_facts else 0) for _ in range(config.hops))
        self.noise = Dropout(config.random_noise)
        self.head: Head | None = None
        if config.head == "labels" and config.label_tokens:
            self.head = AnswerHead(words[-1], config.label_tokens)
        elif config.head == "labels":
            self.head = LabelHead(dim, config.num_labels, 0.0)

    def forward(
        self, tokens: Tensor, allowed: Tensor, segments: Tensor | None = None, layers: bool = False
    ) -> Encoding:
        """Encode contexts with questions; a token's vector is its embedding plus the final question vector."""
        if segments is None:
            segments = torch.zeros_like(tokens)
        layout = Layout(allowed, segments, self.config.max_facts, self.width)
        texts = [self._summed(table, tokens, layout) for table in self.embeddings]
        slot_BF = self._slots(layout.allowed_BF, texts[0].dtype)
        facts = [text_BFD[:, :-1] + time(slot_BF) for text_BFD, time in zip(texts, self.time_embeddings, strict=True)]
        question_BD = (
            texts[0] if self.question_embedding is None else self._summed(self.question_embedding, tokens, layout)
        )[:, -1]
        questions = [question_BD]
        for number, hop in enumerate(self.hops):
            first = number if self.hop_proj is None else 0
            found_BD = hop(question_BD, facts[first], facts[first + 1], layout.allowed_BF, self.is_linear)
            question_BD = found_BD + (question_BD if self.hop_proj is None else self.hop_proj(question_BD))
            questions.append(question_BD)
        word_BND: Tensor = (self.embeddings[0] if self.question_embedding is None else self.question_embedding)(tokens)
        passed = [word_BND + question_BD[:, None] for question_BD in (questions if layers else questions[-1:])]
        return Encoding(passed[-1], allowed, question_BD, tuple(passed) if layers else ())

    @property
    def is_linear(self) -> bool:
        """Whether this update is part of the linear start; the dropout key has its number."""
        key = self.noise.key
        return self.training and key is not None and key.update <= self.config.linear_updates

    def _summed(self, table: nn.Module, tokens: Tensor, layout: Layout) -> Tensor:
        """Sum the words of each fact and of the question.  (B N) -> (B F+1 D)."""
        word_TD: Tensor = table(tokens[layout.row_T, layout.column_T])
        if self.config.position_encoding:
            word_TD = word_TD * layout.position_TD.to(word_TD.dtype)
        texts = word_TD.new_zeros(len(tokens) * (layout.places + 1), self.width)
        return texts.index_add(0, layout.text_T, word_TD).view(len(tokens), -1, self.width)

    def _slots(self, allowed: Tensor, dtype: torch.dtype) -> Tensor:
        """Time slot of each fact; random noise in training moves older facts back.  (B F) -> (B F).

        Noise is drawn for all slots, so that it does not depend on the rest of the batch.
        """
        last, (rows, places) = self.config.max_facts - 1, allowed.shape
        empty_BF = (self.noise(allowed.new_ones(rows, last + 1, dtype=dtype)) == 0).long()[:, :places]
        pushed_BF = empty_BF.cumsum(dim=1) - empty_BF
        slot_BF: Tensor = (torch.arange(places, device=allowed.device) + pushed_BF).clamp(max=last)
        return slot_BF
