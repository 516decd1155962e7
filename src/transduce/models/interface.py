"""What every model offers, and all that training, search, scoring and inspection may ask of it.

A *Transducer* turns a source into a target. It has two faces:

- `forward`, the whole target at once, for training and scoring;
- `start`, `extend` and `step`, one token at a time, for search.

Both give *hidden* vectors; `logits` turns them into scores over the target vocabulary. It stands apart so
that a loss can be fused with the output layer and a shortlist can use a part of it.

A *EncoderModel* turns a text, or a pair of texts, into a vector per token and one for all, and its head says something about
them: the missing words, a label, a label per token, a place. Both are *models*: what is trained, saved and loaded.

Letters: B sentences, S source, T target, M memory, D width, V vocabulary, R rows of a state (sentences × beam).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

import torch
from torch import Tensor, nn

from transduce.nn.auxiliary_loss import AuxiliaryLoss
from transduce.nn.cpu.packed import Freezable, Precision
from transduce.nn.embedding import Output


class VocabularySizes(NamedTuple):
    """How many tokens each side knows; equal when one tokenizer serves both."""

    source: int
    target: int


@dataclass(frozen=True)
class Memory:
    """What the decoder reads: one vector per source position, and which positions are real."""

    states: Tensor
    """(B M D)"""
    allowed: Tensor
    """(B M), True where there is a real token."""


class State(ABC):
    """What search carries from one token to the next: a value, never kept on the module.

    Rows are sentences × width, the rows of one sentence next to each other. Every row has its own position,
    so rows of one state may stand at different places, and states of different ages can be joined. A state
    is consumed by the call that returns the next one: do not use it again.
    """

    width: int
    """Rows per sentence; rows of one sentence share what was read from its source."""

    @property
    @abstractmethod
    def num_rows(self) -> int:
        """Sentences × width."""

    @abstractmethod
    def select(self, rows: Tensor) -> Self:
        """Return the state with these rows, in this order: whole sentences, `width` rows each.  (R') -> R' rows.

        The rows given for one sentence may repeat or reorder that sentence's own rows (what beam search does);
        a sentence may be left out (what finishing does).
        """

    @abstractmethod
    def join(self, other: Self) -> Self:
        """Return one state with the rows of this one, then of the other; widths must agree."""


Scorer = Callable[[Tensor, Tensor], Tensor]
"""(hidden (R D), which tokens of the shortlist each row may have (R V')) -> scores (R V'), -inf for the others."""

MemoryT = TypeVar("MemoryT", bound=Memory)
StateT = TypeVar("StateT", bound=State)


class Model(nn.Module, ABC):
    """What can be trained, saved and loaded. Leaves are listed in `catalog.MODELS`; nothing else may be subclassed."""

    sizes: VocabularySizes
    supports_gradient_checkpointing: ClassVar[bool] = False
    """Whether `recompute` means something to this model."""
    gradient_checkpointing: bool = False
    """Keep only what enters each block while training, and compute the rest again for the gradient."""
    max_source: int | None = None
    """The longest source the model can read, in tokens with those that frame it; None where there is no limit."""
    max_target: int | None = None
    """The longest target the model can write, in tokens with the start token; None where there is no limit."""

    @property
    def auxiliary_losses(self) -> tuple[AuxiliaryLoss, ...]:
        """Places where a cost passes that is minimised beside what the model is asked for."""
        return ()

    @property
    @abstractmethod
    def width(self) -> int:
        """Width of the vectors that the last layer reads; the paper's schedule depends on it."""

    def freeze(self, precision: Precision = "float32") -> None:
        """Pack the weights for faster products, in float32 or int8; they must not change any more.

        Training, moving or loading other weights unpacks them.
        """
        for module in self.modules():
            if isinstance(module, Freezable):
                module.freeze(precision)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device


class Transducer(Model, Generic[MemoryT, StateT]):
    """Source → target."""

    output: Output
    """The layer before the softmax, so that a loss can be fused with it."""

    @property
    def width(self) -> int:
        return self.output.weight.shape[1]

    @property
    def image_size(self) -> int | None:
        """Where sources are pictures, a token for each pixel: how many pixels a side has; None for text."""
        return None

    @property
    def attends(self) -> bool:
        """Whether it has attention to its source, by which words can be aligned."""
        return any("cross_attention" in name for name, _ in self.named_modules())

    @abstractmethod
    def encode(self, source: Tensor, allowed: Tensor) -> MemoryT:
        """Read the source.  tokens (B S), allowed (B S) -> memory."""

    @abstractmethod
    def forward(self, target: Tensor, memory: MemoryT) -> Tensor:
        """Read a whole target that begins with the start token; vector t knows tokens 0..t.  (B T) -> (B T D)."""

    @abstractmethod
    def start(self, memory: MemoryT, width: int = 1) -> StateT:
        """Return the state before the first token, with `width` rows per sentence."""

    @abstractmethod
    def extend(self, tokens: Tensor, lengths: Tensor, state: StateT) -> tuple[Tensor, StateT]:
        """Read several tokens per row: the prompt, or a prefix.  (R T), (R) -> (R T D).

        Row r reads its first `lengths[r]` tokens (0 is allowed); what is returned past them means nothing.
        """

    @abstractmethod
    def step(self, tokens: Tensor, state: StateT) -> tuple[Tensor, StateT]:
        """Read one more token per row.  (R) -> (R D)."""

    def step_groups(self, tokens: Sequence[Tensor], states: Sequence[StateT]) -> list[tuple[Tensor, StateT]]:
        """Read one more token per row of several batch groups, each with its own state.  G × (R) -> G × (R D).

        The default steps one group after the other. A model may compute its products over the rows of all groups at
        once, and attention by group (selective batching; Orca, OSDI 2022).
        """
        return [self.step(own, state) for own, state in zip(tokens, states, strict=True)]

    def logits(self, hidden: Tensor, vocabulary: Tensor | None = None) -> Tensor:
        """Score the target vocabulary, or only the tokens of a shortlist.  (… D) -> (… V)."""
        scores: Tensor = self.output(hidden, vocabulary)
        return scores

    def scorer(self, vocabulary: Tensor) -> Scorer:
        """Return `logits` for a shortlist of tokens, of which each row may have some; made once for many steps."""
        part = self.output.part(vocabulary)
        return lambda hidden, allowed: torch.where(allowed, part(hidden).float(), -torch.inf)


class LanguageModel(Transducer[Memory, StateT]):
    """A transducer with no source: what it goes on with is its prompt, the beginning of a target."""

    def encode(self, source: Tensor, allowed: Tensor) -> Memory:
        """Read nothing, for as many sentences as there are.  (B S) -> an empty memory."""
        return Memory(self.output.weight.new_zeros(len(source), 0, self.output.weight.shape[1]), allowed[:, :0])


@dataclass(frozen=True)
class Encoding:
    """What a reader made of texts."""

    states: Tensor
    """(B N D): a vector per token, from the last layer."""
    allowed: Tensor
    """(B N), True where there is a real token."""
    pooled: Tensor | None
    """(B D): one vector for all of a text; None where the reader makes none."""
    layers: tuple[Tensor, ...] = ()
    """If asked for, what every layer made, what went into the first one before them: (B N D) each."""


class Head(nn.Module, ABC):
    """What a reader says about what it has read."""

    @abstractmethod
    def forward(self, reading: Encoding) -> Tensor:
        """Score what could be said: labels of a text (B C), of each token (B N C), or places (B N 2)."""


class EncoderModel(Model):
    """Texts → vectors, and what its head says about them."""

    head: Head | None
    max_texts: ClassVar[int | None] = 2
    """How many texts it reads side by side; None for any number: facts, and a question as the last one."""
    attends_to_facts: ClassVar[bool] = False
    """Whether what its taps hear is where it looked among facts, and not among tokens: it reads stories only."""

    @abstractmethod
    def forward(self, tokens: Tensor, allowed: Tensor, segments: Tensor | None = None, layers: bool = False) -> Encoding:
        """Read framed texts.  tokens, allowed, which of the texts each token is of: (B N) -> vectors."""


AnyTransducer = Transducer[Any, Any]
