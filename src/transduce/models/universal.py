"""The Universal Transformer (Dehghani et al. 2019, arXiv 1807.03819): one block for each side, applied again and again.

Depth becomes time: every position is revised step by step by the same weights, told at each step where it stands and
which step it is, and halts when it has thought enough (adaptive computation time). A position that has halted stays
what it was, and others go on looking at it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from transduce.models.block import DecoderBlock, EncoderBlock, broadcast, closing_norm
from transduce.models.decoder_stack import DecoderState
from transduce.models.interface import Memory, Transducer, VocabularySizes
from transduce.models.pondering import PonderingConfig, Think, ponder, signals_from
from transduce.models.transformer import SHARED
from transduce.nn.coordinate import Coordinates, RandomOffsets
from transduce.nn.dropout import Dropout
from transduce.nn.embedding import Embedding, Output
from transduce.nn.extra_loss import ExtraLoss
from transduce.nn.halting import AdaptiveHalting
from transduce.nn.kept_memory import KeptMemory
from transduce.nn.relative import UNRELATED
from transduce.nn.state import KeyValues, by_row, by_sentence
from transduce.nn.tap import is_heard


class UniversalConfig(PonderingConfig):
    """Sizes and choices of one Universal Transformer; the defaults are the paper's base model."""

    tied: Literal["all", "target", "none"] = "all"
    """One matrix for source, target and output (needs a joint vocabulary), for the last two, or none."""
    output_bias: bool = False
    """A bias in the layer before the softmax."""


def universal_base() -> UniversalConfig:
    """The width of the Transformer's base model, six steps at most."""
    return UniversalConfig()


def universal_mini() -> UniversalConfig:
    """For tasks with a known answer, on a laptop: a width of 128, pre-norm."""
    return UniversalConfig(model_dim=128, ffn_dim=512, num_heads=4, norm="pre", dropout=0.0)


@dataclass(frozen=True)
class UniversalMemory(Memory):
    """What the decoder reads, and where its positions begin."""

    offset: Tensor
    """(B), the same for both sides."""


class Universal(Transducer[UniversalMemory, DecoderState]):
    """Source → target by one block for each side."""

    def __init__(self, config: UniversalConfig, sizes: VocabularySizes) -> None:
        super().__init__()
        dim = config.model_dim
        self.config, self.sizes = config, sizes
        self.source_embedding = Embedding(sizes.source, dim, config.scaled_embedding)
        one = config.tied in SHARED
        self.target_embedding = self.source_embedding if one else Embedding(sizes.target, dim, config.scaled_embedding)
        self.coordinates, self.offsets = Coordinates(dim), RandomOffsets(config.max_offset)
        self.dropout = Dropout(config.dropout)
        self.encoder, self.decoder = EncoderBlock(config), DecoderBlock(config)
        self.encoder_norm, self.decoder_norm = closing_norm(config), closing_norm(config)
        self.encoder_halting, self.decoder_halting = config.make_halting(), config.make_halting()
        self.source_ponder = ExtraLoss("source", config.ponder_cost)
        self.target_ponder = ExtraLoss("target", config.ponder_cost)
        tied = None if config.tied == "none" else self.target_embedding
        self.output = Output(sizes.target, dim, bias=config.output_bias, tied=tied)

    @property
    def extra_losses(self) -> tuple[ExtraLoss, ...]:
        return self.source_ponder, self.target_ponder

    def encode(self, source: Tensor, allowed: Tensor) -> UniversalMemory:
        hidden, offset = self.dropout(self.source_embedding(source)), self.offsets(source)
        place_BSD = self._places(offset, source.shape[1])
        allowed_B11S = broadcast(allowed)

        def think(state: Tensor, step: int) -> Tensor:
            thought: Tensor = self.encoder(state, allowed_B11S)
            return thought

        stops = not is_heard(self.encoder)
        thought, cost_BS = self._ponder(think, hidden, place_BSD, self.encoder_halting, allowed, stops)
        self.source_ponder(cost_BS)
        return UniversalMemory(self.encoder_norm(thought), allowed, offset)

    def forward(self, target: Tensor, memory: UniversalMemory) -> Tensor:
        hidden = self.dropout(self.target_embedding(target))
        place_BTD = self._places(memory.offset, target.shape[1])
        allowed_B11M = broadcast(memory.allowed)

        def think(state: Tensor, step: int) -> Tensor:
            thought: Tensor = self.decoder(state, memory.states, allowed_B11M, UNRELATED)
            return thought

        stops = not is_heard(self.decoder)
        thought, cost_BT = self._ponder(think, hidden, place_BTD, self.decoder_halting, stops_early=stops)
        self.target_ponder(cost_BT)
        normalised: Tensor = self.decoder_norm(thought)
        return normalised

    def start(self, memory: UniversalMemory, width: int = 1) -> DecoderState:
        shape = self.config.head_shape
        dims, sentences = (shape.key_dim, shape.value_dim), len(memory.states)
        read = self.decoder.cross_attention.read(memory.states)
        return DecoderState(
            past=KeyValues.empty(self.config.num_layers, sentences, width, shape.key_value_heads, dims, memory.states),
            width=width,
            memory=KeptMemory.of([read], broadcast(memory.allowed)),  # one block reads it at every step of depth
        )

    def extend(self, tokens: Tensor, lengths: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        hidden = self._extend(tokens, state)
        state.past.advance(lengths[:: state.width])
        return hidden, state

    def step(self, tokens: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        hidden = self._extend(tokens[:, None], state)[:, 0]
        state.past.advance(1)
        return hidden, state

    def _extend(self, tokens: Tensor, state: DecoderState) -> Tensor:
        """Read several tokens of each row; each step of depth has keys and values of its own.  (R T) -> (R T D)."""
        past, width, length = state.past, state.width, tokens.shape[1]
        past.reserve(length)
        token_SN = by_sentence(tokens, width)
        place_SND = self.coordinates.at(past.asking(length), past.longest + length)
        assert state.memory is not None
        memory, allowed = state.memory.layer(0), past.allowed(length)

        def think(entering: Tensor, step: int) -> Tensor:
            return self.decoder.extend(entering, past, step, allowed, UNRELATED, memory)

        hidden = self.target_embedding(token_SN)
        thought, _ = self._ponder(think, hidden, place_SND, self.decoder_halting, stops_early=False)
        normalised = self.decoder_norm(thought)
        return by_row(normalised, width)

    def _ponder(
        self,
        think: Think,
        hidden: Tensor,
        places: Tensor,
        halting: AdaptiveHalting | None,
        real: Tensor | None = None,
        stops_early: bool = True,
    ) -> tuple[Tensor, Tensor]:
        steps = self.config.num_layers
        return ponder(think, hidden, places, self.coordinates, halting, steps, real, stops_early)

    def _places(self, offset: Tensor, length: int) -> Tensor:
        """The signals of a side's positions.  (B) -> (B N D)."""
        return signals_from(offset, length, self.coordinates, self.config.max_offset * self.training)
