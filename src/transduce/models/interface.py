"""The protocols of models: all that training, search, scoring and inspection use of them.

A *Transducer* turns a source into a target. It can be used in two ways:

- `forward`, the whole target at once, for training and scoring;
- `start`, `extend` and `step`, one token at a time, for search.

Both return *hidden* vectors; `logits` turns them into scores over the target vocabulary. It is separate so that a loss
can be fused with the output layer and a shortlist can use a part of it.

A *LanguageModel* is a Transducer without a source. An *EncoderModel* turns a text, or several, into one vector per
token and one for all; its head predicts masked tokens, a label, a tag per token or a span. All of them are trained,
saved and loaded alike.

Letters: B sentences, S source, T target, M memory, D width, V vocabulary, R rows of a state (sentences × beam).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, NamedTuple, Self, TypeVar

import torch
from torch import Tensor, nn

from transduce.errors import SettingsError
from transduce.nn.cpu.packed import Freezable, Precision
from transduce.nn.embedding import Output


def choose_device(name: str, where: str) -> str:
    """Return cpu, cuda or mps; `auto` is the CPU (decision 32). A device that torch cannot use here is rejected."""
    if name == "auto":
        return "cpu"
    if name not in (usable := ["cpu", *found_gpus()]):
        raise SettingsError(f"{where} {name}: torch finds no such device on this machine; use {' or '.join(usable)}")
    return name


def found_gpus() -> list[str]:
    """Return the devices besides the CPU that torch can use on this machine."""
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    return [device for device, is_there in available.items() if is_there]


def unused_gpu_note(name: str, option: str) -> str | None:
    """Return how to request the GPU that `auto` leaves alone; None where there is none, or a device was given."""
    found = found_gpus() if name == "auto" else []
    return f"running on the CPU; {option} {found[0]} uses the GPU, which no test has been run on" if found else None


def move(model: nn.Module, name: str, where: str = "--device") -> str:
    """Move a model in place to the device of this name and return the device."""
    device = choose_device(name, where)
    if device != "cpu":  # moving drops the packed weights, even to where they are
        model.to(device)
    return device


class AuxiliaryLoss(nn.Module):
    """Collects a cost per position of one side, which is added to the objective, such as ponder time.

    A model's methods return vectors only. A cost is given to this module, as attention weights are given to a hook
    point; the objective collects it during the forward pass, otherwise it is discarded.
    """

    def __init__(self, side: Literal["source", "target"], weight: float) -> None:
        """`weight` is the coefficient of the cost. Source padding must have zero cost: it is not masked later."""
        super().__init__()
        self.side, self.weight = side, weight
        self.collected: list[Tensor] | None = None

    def forward(self, cost: Tensor) -> None:
        """(B N)."""
        if self.collected is not None and self.weight > 0:
            self.collected.append(self.weight * cost)


@contextmanager
def collect_losses(losses: Sequence[AuxiliaryLoss]) -> Iterator[list[tuple[str, Tensor]]]:
    """Collect the costs of the forward passes inside the context: filled when it ends with (side, costs (B N))."""
    found: list[tuple[str, Tensor]] = []
    for loss in losses:
        loss.collected = []
    try:
        yield found
    finally:
        for loss in losses:
            found += [(loss.side, cost) for cost in loss.collected or []]
            loss.collected = None


class VocabularySizes(NamedTuple):
    """Vocabulary sizes of both sides; equal when they share one tokenizer."""

    source: int
    target: int


@dataclass(frozen=True)
class Memory:
    """Encoder output: one vector per source position, and which positions are not padding."""

    states: Tensor
    """(B M D)"""
    allowed: Tensor
    """(B M), True where there is a real token."""


class State(ABC):
    """What decoding carries from one token to the next: a value, never kept on the module.

    Rows are sentences × width, the rows of one sentence next to each other. Every row has its own position, so rows of
    one state may be at different positions, and states of different ages can be joined. A state is consumed by the call
    that returns the next one: do not use it again.
    """

    width: int
    """Rows per sentence (the beam); they share what was computed from its source."""

    @property
    @abstractmethod
    def num_rows(self) -> int:
        """Sentences × width."""

    @abstractmethod
    def select(self, rows: Tensor) -> Self:
        """Return the state with these rows, in this order: whole sentences, `width` rows each.  (R') -> R' rows.

        The rows of one sentence may repeat or reorder that sentence's own rows, as beam search does; a sentence may be
        left out when it is finished.
        """

    @abstractmethod
    def join(self, other: Self) -> Self:
        """Return one state with the rows of this one, then of the other; widths must agree."""

    def put(self, sentences: Tensor, other: Self) -> Self:
        """Return the state with these sentences replaced by those of another one; widths must agree.  (S').

        A server fills the places of finished sentences this way. A state with large caches overrides it, so that an
        arrival copies nothing but its own.
        """
        joined, count = self.join(other), self.num_rows // self.width
        order_S = torch.arange(count, device=sentences.device)
        order_S[sentences] = count + torch.arange(len(sentences), device=sentences.device)
        return joined.select(rows_of(order_S, self.width))

    def release(self, sentences: Tensor) -> None:  # noqa: B027
        """Forget what finished sentences hold, in place; their rows are stepped on until others take them.  (S')."""


def rows_of(sentences: Tensor, width: int) -> Tensor:
    """Return the rows of some sentences.  (S) -> (S·W)."""
    return (sentences[:, None] * width + torch.arange(width, device=sentences.device)).flatten()


Scorer = Callable[[Tensor, Tensor], Tensor]
"""(hidden (R D), allowed tokens of the shortlist per row (R V')) -> scores (R V'), -inf where not allowed."""

MemoryT = TypeVar("MemoryT", bound=Memory)
StateT = TypeVar("StateT", bound=State)


class Model(nn.Module, ABC):
    """What can be trained, saved and loaded. The concrete classes are listed in `catalog.MODELS`."""

    sizes: VocabularySizes
    has_source: ClassVar[bool] = True
    """Whether the input is a source; a language model has none."""
    has_target: ClassVar[bool] = True
    """Whether the model generates a target; an encoder model does not."""
    supports_gradient_checkpointing: ClassVar[bool] = False
    """Whether the model has blocks whose activations can be recomputed."""
    gradient_checkpointing: bool = False
    """Store only the inputs of each block in training, and recompute the rest in the backward pass."""
    max_source: int | None = None
    """Maximum source length in tokens, special tokens included; None for no limit."""
    max_target: int | None = None
    """Maximum target length in tokens, start token included; None for no limit."""
    alignment_heads: tuple[tuple[int, int], ...] = ()
    """Cross-attention heads that were trained to align words, as (decoder layer, head) from 0; none in most models."""

    @property
    def auxiliary_losses(self) -> tuple[AuxiliaryLoss, ...]:
        """Costs that are minimised with the objective, such as ponder time."""
        return ()

    @property
    @abstractmethod
    def width(self) -> int:
        """Width of the output layer's input; the paper's learning rate schedule depends on it."""

    @property
    def recomputes(self) -> bool:
        """Whether blocks recompute their activations in this pass."""
        return self.gradient_checkpointing and self.training

    @property
    def image_size(self) -> int | None:
        """Pixels per side where sources are images, one token per pixel; None for text."""
        return None

    @property
    def attends(self) -> bool:
        """Whether it has cross-attention, from which words can be aligned."""
        return any("cross_attention" in name for name, _ in self.named_modules())

    def freeze(self, precision: Precision = "float32") -> None:
        """Pack the weights for faster products, in float32 or int8; they must not change any more.

        Training, moving or loading other weights unpacks them.
        """
        for module in self.modules():
            if isinstance(module, Freezable):
                module.freeze(precision)

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return next(self.parameters()).device


class Transducer(Model, Generic[MemoryT, StateT]):
    """Source → target."""

    output: Output
    """The output layer, so that a loss can be fused with it."""

    @property
    def width(self) -> int:
        return self.output.weight.shape[1]

    @abstractmethod
    def encode(self, source: Tensor, allowed: Tensor) -> MemoryT:
        """Encode the source.  tokens (B S), allowed (B S) -> memory."""

    @abstractmethod
    def forward(self, target: Tensor, memory: MemoryT) -> Tensor:
        """Process a target that begins with the start token; vector t depends on tokens 0..t.  (B T) -> (B T D)."""

    @abstractmethod
    def start(self, memory: MemoryT, width: int = 1) -> StateT:
        """Return the initial decoding state, with `width` rows per sentence."""

    @abstractmethod
    def extend(self, tokens: Tensor, lengths: Tensor, state: StateT) -> tuple[Tensor, StateT]:
        """Process several tokens per row: a prompt or prefix.  (R T), (R) -> (R T D).

        Row r takes its first `lengths[r]` tokens (0 is allowed); what is returned past them is undefined.
        """

    @abstractmethod
    def step(self, tokens: Tensor, state: StateT) -> tuple[Tensor, StateT]:
        """Process one more token per row.  (R) -> (R D)."""

    def step_groups(self, tokens: Sequence[Tensor], states: Sequence[StateT]) -> list[tuple[Tensor, StateT]]:
        """Process one more token per row of several batch groups, each with its own state.  G × (R) -> G × (R D).

        The default steps one group after the other. A model may compute its products over the rows of all groups at
        once, and attention by group (selective batching; Yu et al., OSDI 2022).
        """
        return [self.step(own, state) for own, state in zip(tokens, states, strict=True)]

    def logits(self, hidden: Tensor, vocabulary: Tensor | None = None) -> Tensor:
        """Score the target vocabulary, or the tokens of a shortlist.  (… D) -> (… V)."""
        scores: Tensor = self.output(hidden, vocabulary)
        return scores

    def scorer(self, vocabulary: Tensor) -> Scorer:
        """Return `logits` over a shortlist, prepared once for many steps; each row may be allowed a part of it."""
        part = self.output.part(vocabulary)
        return lambda hidden, allowed: torch.where(allowed, part(hidden).float(), -torch.inf)


class LanguageModel(Transducer[Memory, StateT]):
    """A transducer without a source: it continues a prompt, the beginning of a target."""

    has_source = False

    def encode(self, source: Tensor, allowed: Tensor) -> Memory:
        """Return an empty memory for each sentence.  (B S) -> (B 0 D)."""
        return Memory(self.output.weight.new_zeros(len(source), 0, self.output.weight.shape[1]), allowed[:, :0])


@dataclass(frozen=True)
class Encoding:
    """Output of an encoder model."""

    states: Tensor
    """(B N D): a vector per token, from the last layer."""
    allowed: Tensor
    """(B N), True where there is a real token."""
    pooled: Tensor | None
    """(B D): one vector for the whole text; None for models without one."""
    layers: tuple[Tensor, ...] = ()
    """If requested, the input of the first layer and the output of every layer: (B N D) each."""


class Head(nn.Module, ABC):
    """Predicts from an encoding."""

    @abstractmethod
    def forward(self, encoding: Encoding) -> Tensor:
        """Return scores: of a text's labels (B C), of each token's (B N C), or of span ends (B N 2)."""


class EncoderModel(Model):
    """Texts → vectors, and the predictions of its head."""

    has_target = False
    config: Any
    """Its settings, with the width `model_dim`."""
    head: Head | None
    max_texts: ClassVar[int | None] = 2
    """Number of texts that are encoded together; None for any number: context facts, then a question."""
    attends_to_facts: ClassVar[bool] = False
    """Whether its attention weights are over facts instead of tokens."""

    @property
    def width(self) -> int:
        return int(self.config.model_dim)

    @abstractmethod
    def forward(
        self, tokens: Tensor, allowed: Tensor, segments: Tensor | None = None, layers: bool = False
    ) -> Encoding:
        """Encode texts with their special tokens.  tokens, allowed, segments (B N) -> encoding."""


AnyTransducer = Transducer[Any, Any]
