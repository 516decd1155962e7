"""A model that is a lookup table, so that what a search should find can be worked out without it.

The probability of the next token is drawn from a generator whose seed is (table, source, what was written so far):
every opening of every source has its own row of the table, and nothing else of the batch can have a part in it.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from transduce.inference.search.options import Hypothesis, Request, SearchOptions
from transduce.inference.search.penalty import LENGTH_PENALTIES
from transduce.inference.search.search import Search
from transduce.models.interface import Memory, State, Transducer, VocabularySizes
from transduce.nn.embedding import Output
from transduce.text.tokenizer.special import Specials

Prefix = tuple[int, ...]
Row = Callable[[Prefix, Prefix], Tensor]
"""(source with its end token, tokens so far without start) -> log-probabilities (V)."""

PAD, END, START = 0, 2, 3
SPECIALS = Specials(pad=PAD, start=START, end=END)
WORDS = (1, 4, 5)
"""The tokens that may be written; ids lie around the special ones, so that nobody can have assumed an order."""
VOCABULARY = 6


def random_table(seed: int, vocabulary: int = VOCABULARY) -> Row:
    """A table with a random row for every opening of every source."""

    def row(source: Prefix, prefix: Prefix) -> Tensor:
        key = hashlib.sha256(f"{seed} {source} {prefix}".encode()).digest()[:7]
        generator = torch.Generator().manual_seed(int.from_bytes(key, "big"))
        return (2.0 * torch.randn(vocabulary, generator=generator)).log_softmax(dim=-1)

    return row


def written_table(rows: dict[Prefix, dict[int, float]], vocabulary: int = VOCABULARY) -> Row:
    """A table written by hand: probabilities of the tokens after each opening, whatever the source; the rest is 0."""

    def row(_: Prefix, prefix: Prefix) -> Tensor:
        if prefix not in rows:  # asked for openings that are not alive, whose answers are thrown away
            return torch.full((vocabulary,), -1.0)
        probability_V = torch.zeros(vocabulary)
        for token, probability in rows[prefix].items():
            probability_V[token] = probability
        return probability_V.log()

    return row


@dataclass(frozen=True)
class ToyMemory(Memory):
    sources: list[Prefix]


@dataclass
class ToyState(State):
    """The sources and openings themselves; `select` checks that it is asked for whole sentences."""

    sources: list[Prefix]
    prefixes: list[Prefix]
    width: int

    @property
    def num_rows(self) -> int:
        return len(self.prefixes)

    def select(self, rows: Tensor) -> ToyState:
        chosen = rows.tolist()
        sentences = [row // self.width for row in chosen]
        assert len(chosen) % self.width == 0
        for start in range(0, len(chosen), self.width):
            assert len(set(sentences[start : start + self.width])) == 1, "the rows of a sentence stay together"
        return replace(self, sources=[self.sources[r] for r in chosen], prefixes=[self.prefixes[r] for r in chosen])

    def join(self, other: ToyState) -> ToyState:
        assert self.width == other.width
        return replace(self, sources=self.sources + other.sources, prefixes=self.prefixes + other.prefixes)


class Unchanged(Output):
    """An output layer for hidden vectors that are scores already."""

    def forward(self, hidden: Tensor, vocabulary: Tensor | None = None) -> Tensor:
        return hidden if vocabulary is None else hidden[..., vocabulary]

    def part(self, vocabulary: Tensor) -> Callable[[Tensor], Tensor]:
        return lambda hidden: hidden[..., vocabulary]


class Toy(Transducer[ToyMemory, ToyState]):
    """The table as a model: its hidden vectors are the log-probabilities themselves."""

    def __init__(
        self, row: Row, vocabulary: int = VOCABULARY, limit: int | None = None, start_token: int = START
    ) -> None:
        super().__init__()
        self.row, self.start_token = row, start_token
        self.max_source = self.max_target = limit
        self.sizes = VocabularySizes(vocabulary, vocabulary)
        self.output = Unchanged(vocabulary, 1)
        self.steps: list[int] = []
        """How many rows each step had."""

    def encode(self, source: Tensor, allowed: Tensor) -> ToyMemory:
        rows = [tuple(tokens[real].tolist()) for tokens, real in zip(source, allowed, strict=True)]
        return ToyMemory(torch.zeros(*source.shape, 1), allowed, rows)

    def forward(self, target: Tensor, memory: ToyMemory) -> Tensor:
        rows = [
            torch.stack([self.row(source, tuple(tokens[1 : end + 1])) for end in range(len(tokens))])
            for source, tokens in zip(memory.sources, target.tolist(), strict=True)
        ]
        return torch.stack(rows)

    def start(self, memory: ToyMemory, width: int = 1) -> ToyState:
        sources = [source for source in memory.sources for _ in range(width)]
        return ToyState(sources, [()] * len(sources), width)

    def extend(self, tokens: Tensor, lengths: Tensor, state: ToyState) -> tuple[Tensor, ToyState]:
        rows, prefixes = [], []
        for source, before, new, length in zip(
            state.sources, state.prefixes, tokens.tolist(), lengths.tolist(), strict=True
        ):
            read = [before]
            for token in new:
                started = token == self.start_token and not read[-1]
                read.append(read[-1] if started else (*read[-1], token))
            rows.append(torch.stack([self.row(source, prefix) for prefix in read[1:]]))
            prefixes.append(read[length])
        return torch.stack(rows), replace(state, prefixes=prefixes)

    def step_groups(self, tokens: Sequence[Tensor], states: Sequence[ToyState]) -> list[tuple[Tensor, ToyState]]:
        self.steps.append(sum(state.num_rows for state in states))
        return super().step_groups(tokens, states)

    def step(self, tokens: Tensor, state: ToyState) -> tuple[Tensor, ToyState]:
        prefixes = [
            prefix if token == self.start_token and not prefix else (*prefix, token)
            for prefix, token in zip(state.prefixes, tokens.tolist(), strict=True)
        ]
        rows = [self.row(source, prefix) for source, prefix in zip(state.sources, prefixes, strict=True)]
        return torch.stack(rows), replace(state, prefixes=prefixes)


def search_all(search: Search) -> dict[int, list[Hypothesis]]:
    """Advance until nothing is left."""
    found: dict[int, list[Hypothesis]] = {}
    while search.active:
        found |= {result.id: result.checked() for result in search.advance()}
    return found


def translate(model: Toy, source: Sequence[int], **options: object) -> list[Hypothesis]:
    """Search for one source alone."""
    search = Search(model, SPECIALS, SPECIALS)
    search.admit([Request(7, source, SearchOptions.from_table(options, "a test"))])
    return search_all(search)[7]


def every_hypothesis(row: Row, source: Sequence[int], options: SearchOptions, max_length: int) -> list[Hypothesis]:
    """Write down all that could be said within a length: the truth that a search is held against.

    Best first, and whatever the maximum length cut off behind all that ended.
    """
    read = (*source, END)
    penalty = LENGTH_PENALTIES[options.length_normalization]
    found = []
    for length in range(max_length + 1):
        for tokens in itertools.product(WORDS, repeat=length):
            total = sum(float(row(read, tokens[:place])[token]) for place, token in enumerate(tokens))
            ended = length < max_length
            if ended:
                total += float(row(read, tokens)[END])
            score = total / penalty(length + ended, options.length_penalty)
            found.append(Hypothesis(list(tokens), score, total, ended))
    return sorted(found, key=lambda hypothesis: (not hypothesis.ended, -hypothesis.score))
