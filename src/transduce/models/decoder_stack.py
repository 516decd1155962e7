"""A stack of decoder blocks that reads on: several tokens through its blocks, a single one the short way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Self, cast

from torch import Tensor, nn

from transduce.models.block import BlockConfig, Past, looking_back, nothing_read
from transduce.models.decoder_step import DecoderStep
from transduce.models.interface import State
from transduce.nn.embedding import Embedding
from transduce.nn.kept_memory import KeptMemory
from transduce.nn.position import Positions
from transduce.nn.relative import RelativePositions
from transduce.nn.state import by_row, by_sentence


@dataclass
class DecoderState(State):
    """What each row has read so far, and what its sentence's rows share."""

    past: Past
    width: int
    memory: KeptMemory | None
    """None in a decoder that reads no source."""

    @property
    def num_rows(self) -> int:
        return len(self.past.lengths) * self.width

    def select(self, rows: Tensor) -> Self:
        sentences = rows[:: self.width] // self.width
        memory = None if self.memory is None else self.memory.select(sentences)
        return replace(self, past=self.past.select(rows), memory=memory)

    def join(self, other: Self) -> Self:
        assert self.width == other.width, "states of different widths cannot stand in one batch"
        assert (self.memory is None) == (other.memory is None), "these are not states of one model"
        past = self.past.join(other.past)  # type: ignore[arg-type]  # pasts of one model
        memory = None if self.memory is None or other.memory is None else self.memory.join(other.memory)
        return replace(self, past=past, memory=memory)


@dataclass
class StackState(DecoderState):
    """The same, and the stack that the rows go through."""

    stack: DecoderStack


class DecoderStack:
    """What the targets of a model go through, for as long as its weights stay as they are."""

    def __init__(
        self,
        config: BlockConfig,
        embedding: Embedding,
        positions: Positions,
        relations: RelativePositions,
        blocks: nn.ModuleList,
        norm: nn.Module,
    ) -> None:
        """`norm` is what closes the stack."""
        self.config, self.embedding, self.positions, self.relations = config, embedding, positions, relations
        self.blocks, self.norm = blocks, norm
        self.short = None
        """The blocks for single tokens; where attention is not plain, these go through the blocks too."""
        if config.attention == "full":
            self.short = DecoderStep(blocks, norm, config.head_shape, before=config.norm == "pre")

    def start(self, sentences: int, width: int, like: Tensor, memory: KeptMemory | None = None) -> StackState:
        """Return the state before the first token, to be kept where and as `like` is."""
        past = nothing_read(self.config, self.blocks, sentences, width, like)
        return StackState(past, width, memory, self)

    def extend(self, tokens: Tensor, lengths: Tensor, state: StackState) -> Tensor:
        """Read several tokens of each row, as many as it has.  (R T), (R) -> (R T D)."""
        read = lengths[:: state.width]
        hidden = self._through(tokens, state, read)
        state.past.advance(read)
        return hidden

    def step(self, tokens: Tensor, state: StackState) -> Tensor:
        """Read one more token of each row.  (R) -> (R D)."""
        past, short = state.past, self.short
        if short is not None and not self.blocks.training and short.can_go(past):
            past.reserve(1)
            embedded = self.embedding(tokens) + self.positions.first(past.longest + 1)[-1]
            hidden = short(embedded, past, looking_back(self.relations, past, 1), state.memory)
        else:
            hidden = self._through(tokens[:, None], state)[:, 0]
        past.advance(1)
        return hidden

    def _through(self, tokens: Tensor, state: StackState, lengths: Tensor | None = None) -> Tensor:
        """Go through the blocks with several tokens of each row.  (R T) -> (R T D)."""
        past, memory, length = state.past, state.memory, tokens.shape[1]
        past.reserve(length, lengths)
        token_SN, position_SN = by_sentence(tokens, state.width), past.asking(length)
        hidden: Tensor = self.embedding(token_SN) + self.positions.at(position_SN, past.longest + length)
        relation, allowed = looking_back(self.relations, past, length), past.allowed(length)
        for layer, block in enumerate(cast("Iterable[Any]", self.blocks)):
            kept = () if memory is None else (memory.layer(layer),)
            hidden = block.extend(hidden, past, layer, allowed, relation, *kept)
        return by_row(self.norm(hidden), state.width)
