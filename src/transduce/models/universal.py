"""The Universal Transformer (Dehghani et al. 2019, arXiv 1807.03819): one block per side, applied repeatedly.

Depth becomes time: the same weights revise every position step by step, with signals for position and step, until the
position halts (adaptive computation time). A halted position keeps its state, and others still attend to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from transduce.models.block import BlockConfig, DecoderBlock, EncoderBlock, Layers, Rate, broadcast, final_norm
from transduce.models.decoder import DecoderState
from transduce.models.head import prediction_head
from transduce.models.interface import AuxiliaryLoss, EncoderModel, Encoding, Memory, Transducer, VocabularySizes
from transduce.models.transformer import SHARED
from transduce.nn.device import is_at_hand
from transduce.nn.dropout import Dropout
from transduce.nn.embedding import Embedding, Output
from transduce.nn.hook import is_hooked
from transduce.nn.linear import Linear
from transduce.nn.position import UNRELATED, RandomOffsets, SinusoidalPositions
from transduce.nn.state import KeptMemory, KeyValues, by_row, by_sentence

# What the transducer and the encoder share (Dehghani et al. 2019, section 2): a block is applied repeatedly, with
# position and step signals added before each step, until every position halts or the maximum is reached.

StepFunction = Callable[[Tensor, int], Tensor]
"""One step: (state with signals (B N D), number of the step) -> (B N D)."""


class PonderingConfig(BlockConfig):
    """Settings of a block that is applied repeatedly; the defaults are the paper's base model."""

    num_layers: Layers = 6
    """Maximum steps of each side; the paper's T."""
    positions: Literal["sinusoidal"] = "sinusoidal"
    """Position encoding: sinusoids of position and step, added before every step."""
    attention: Literal["full"] = "full"
    """Self-attention; kernels would need a state per step."""
    halting: bool = True
    """Adaptive computation time; otherwise every position takes num_layers steps."""
    halting_threshold: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.99
    """Cumulative halting probability at which a position halts."""
    ponder_cost: Annotated[float, Field(ge=0.0, le=100.0)] = 0.01
    """Cost of one step of a position, in nats."""
    max_offset: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Maximum random offset of the first position in training, the same for both sides: for texts longer than those
    of training."""
    scale_embeddings: bool = True
    """Multiply embeddings by sqrt(model_dim)."""

    def make_halting(self) -> AdaptiveHalting | None:
        """The halting unit, or None."""
        return AdaptiveHalting(self.model_dim, self.halting_threshold) if self.halting else None


def ponder(
    apply_step: StepFunction,
    hidden: Tensor,
    places: Tensor,
    coordinates: SinusoidalPositions,
    halting: AdaptiveHalting | None,
    steps: int,
    real: Tensor | None = None,
    stops_early: bool = True,
) -> tuple[Tensor, Tensor]:
    """Apply the step until all positions have halted, or `steps` times; `real` (B N) excludes padding.

    Later tokens attend to every step of earlier ones, so decoding never stops early; neither does a hooked model, whose
    last step would depend on the neighbours in the batch. -> (B N D), costs (B N).
    """
    if halting is None:
        for step in range(steps):
            hidden = apply_step(hidden + places + _step_signal(coordinates, step), step)
        return hidden, torch.zeros_like(hidden[..., 0])
    pondering = halting.begin(hidden, real)
    for step in range(steps):
        entering = pondering.state + places + _step_signal(coordinates, step)
        pondering = halting(pondering, entering, apply_step(entering, step), last=step == steps - 1)
        if stops_early and is_at_hand(hidden) and not bool(pondering.running.any()):
            break
    return pondering.mixed, pondering.cost


def _step_signal(coordinates: SinusoidalPositions, step: int) -> Tensor:
    """The signal of a step, counted from 0: the sinusoid of step + 1.  -> (D)."""
    return coordinates.first(step + 2)[step + 1]


def signals_from(offset: Tensor, length: int, coordinates: SinusoidalPositions, max_offset: int) -> Tensor:
    """The signals of positions that begin at an offset, at most `max_offset`.  (B) -> (B N D)."""
    place_BN = offset[:, None] + torch.arange(length, device=offset.device)
    return coordinates.at(place_BN, max_offset + length)


class UniversalConfig(PonderingConfig):
    """Settings of a Universal Transformer; the defaults are the paper's base model."""

    tied_embeddings: Literal["all", "target", "none"] = "all"
    """Share one matrix between source, target and output (all, needs a joint vocabulary), or target and output."""
    output_bias: bool = False
    """Bias of the output layer."""


def universal_base() -> UniversalConfig:
    """The width of the Transformer's base model, at most six steps."""
    return UniversalConfig()


def universal_mini() -> UniversalConfig:
    """For algorithmic tasks on a laptop: a width of 128, pre-norm."""
    return UniversalConfig(model_dim=128, ffn_dim=512, num_heads=4, norm="pre", dropout=0.0)


@dataclass(frozen=True)
class UniversalMemory(Memory):
    """Encoder output, and the offset of its positions."""

    offset: Tensor
    """(B), the same for both sides."""


class Universal(Transducer[UniversalMemory, DecoderState]):
    """Source → target by one block per side."""

    def __init__(self, config: UniversalConfig, sizes: VocabularySizes) -> None:
        super().__init__()
        dim = config.model_dim
        self.config, self.sizes = config, sizes
        self.source_embedding = Embedding(sizes.source, dim, config.scale_embeddings)
        one = config.tied_embeddings in SHARED
        self.target_embedding = self.source_embedding if one else Embedding(sizes.target, dim, config.scale_embeddings)
        self.coordinates, self.offsets = SinusoidalPositions(dim), RandomOffsets(config.max_offset)
        self.dropout = Dropout(config.dropout)
        self.encoder, self.decoder = EncoderBlock(config), DecoderBlock(config)
        self.encoder_norm, self.decoder_norm = final_norm(config), final_norm(config)
        self.encoder_halting, self.decoder_halting = config.make_halting(), config.make_halting()
        self.source_ponder = AuxiliaryLoss("source", config.ponder_cost)
        self.target_ponder = AuxiliaryLoss("target", config.ponder_cost)
        tied = None if config.tied_embeddings == "none" else self.target_embedding
        self.output = Output(sizes.target, dim, bias=config.output_bias, tied=tied)

    @property
    def auxiliary_losses(self) -> tuple[AuxiliaryLoss, ...]:
        return self.source_ponder, self.target_ponder

    def encode(self, source: Tensor, allowed: Tensor) -> UniversalMemory:
        hidden, offset = self.dropout(self.source_embedding(source)), self.offsets(source)
        place_BSD = self._places(offset, source.shape[1])
        allowed_B11S = broadcast(allowed)

        def apply_step(state: Tensor, step: int) -> Tensor:
            refined: Tensor = self.encoder(state, allowed_B11S)
            return refined

        stops = not is_hooked(self.encoder)
        refined, cost_BS = self._ponder(apply_step, hidden, place_BSD, self.encoder_halting, allowed, stops)
        self.source_ponder(cost_BS)
        return UniversalMemory(self.encoder_norm(refined), allowed, offset)

    def forward(self, target: Tensor, memory: UniversalMemory) -> Tensor:
        hidden = self.dropout(self.target_embedding(target))
        place_BTD = self._places(memory.offset, target.shape[1])
        allowed_B11M = broadcast(memory.allowed)

        def apply_step(state: Tensor, step: int) -> Tensor:
            refined: Tensor = self.decoder(state, memory.states, allowed_B11M, UNRELATED)
            return refined

        stops = not is_hooked(self.decoder)
        refined, cost_BT = self._ponder(apply_step, hidden, place_BTD, self.decoder_halting, stops_early=stops)
        self.target_ponder(cost_BT)
        normalised: Tensor = self.decoder_norm(refined)
        return normalised

    def start(self, memory: UniversalMemory, width: int = 1) -> DecoderState:
        shape = self.config.head_shape
        dims, sentences = (shape.key_dim, shape.value_dim), len(memory.states)
        projected = self.decoder.cross_attention.project_memory(memory.states)
        return DecoderState(
            past=KeyValues.empty(self.config.num_layers, sentences, width, shape.key_value_heads, dims, memory.states),
            width=width,
            memory=KeptMemory.of([projected], broadcast(memory.allowed)),  # projected once for all steps
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
        """Process several tokens of each row; each step has its own keys and values.  (R T) -> (R T D)."""
        past, width, length = state.past, state.width, tokens.shape[1]
        past.reserve(length)
        token_SN = by_sentence(tokens, width)
        place_SND = self.coordinates.at(past.query_positions(length), past.longest + length)
        assert state.memory is not None
        memory, allowed = state.memory.layer(0), past.allowed(length)

        def apply_step(entering: Tensor, step: int) -> Tensor:
            return self.decoder.extend(entering, past, step, allowed, UNRELATED, memory)

        hidden = self.target_embedding(token_SN)
        refined, _ = self._ponder(apply_step, hidden, place_SND, self.decoder_halting, stops_early=False)
        normalised = self.decoder_norm(refined)
        return by_row(normalised, width)

    def _ponder(
        self,
        apply_step: StepFunction,
        hidden: Tensor,
        places: Tensor,
        halting: AdaptiveHalting | None,
        real: Tensor | None = None,
        stops_early: bool = True,
    ) -> tuple[Tensor, Tensor]:
        steps = self.config.num_layers
        return ponder(apply_step, hidden, places, self.coordinates, halting, steps, real, stops_early)

    def _places(self, offset: Tensor, length: int) -> Tensor:
        """The signals of a side's positions.  (B) -> (B N D)."""
        return signals_from(offset, length, self.coordinates, self.config.max_offset * self.training)


# The Universal Transformer as an encoder model: its encoder with a prediction head.
#
# The input is a text, a pair of texts, or context facts with a question; the state of the start token is the pooled
# vector. In the paper's bAbI experiments (section 3.1) every fact is one position, the sum of its words; here every
# word is one, so that one form serves all texts.


class UniversalEncoderConfig(PonderingConfig):
    """Settings of a Universal Transformer encoder; the defaults are the paper's base model."""

    head: Literal["none", "labels", "tags", "span"] = "none"
    """Prediction head: none, classification, tagging, or extractive question answering."""
    num_labels: Annotated[int, Field(ge=1, le=1_000_000)] = 2
    """With head = "labels" or "tags": number of labels; filled in from the data."""
    head_dropout: Rate = 0.0
    """Dropout on the head's input."""


def universal_encoder() -> UniversalEncoderConfig:
    """For a laptop: a width of 128, pre-norm, at most six steps, as `universal_mini`."""
    return UniversalEncoderConfig(model_dim=128, ffn_dim=512, num_heads=4, norm="pre", dropout=0.0)


class UniversalEncoder(EncoderModel):
    """Texts → a vector per token, and the head's predictions."""

    max_texts = None

    def __init__(self, config: UniversalEncoderConfig, sizes: VocabularySizes) -> None:
        super().__init__()
        dim = config.model_dim
        self.config, self.sizes = config, sizes
        self.embedding = Embedding(sizes.source, dim, config.scale_embeddings)
        self.question_embedding = Embedding(2, dim, config.scale_embeddings)
        """Whether a token is of the last of several texts: the second of a pair, or the question."""
        self.coordinates, self.offsets = SinusoidalPositions(dim), RandomOffsets(config.max_offset)
        self.dropout = Dropout(config.dropout)
        self.encoder = EncoderBlock(config)
        self.encoder_norm = final_norm(config)
        self.halting = config.make_halting()
        self.ponder = AuxiliaryLoss("source", config.ponder_cost)
        self.head = prediction_head(config.head, dim, config.num_labels, config.head_dropout)

    @property
    def auxiliary_losses(self) -> tuple[AuxiliaryLoss, ...]:
        return (self.ponder,)

    def forward(
        self, tokens: Tensor, allowed: Tensor, segments: Tensor | None = None, layers: bool = False
    ) -> Encoding:
        segments = torch.zeros_like(tokens) if segments is None else segments * allowed
        last_B1 = segments.amax(dim=1, keepdim=True)
        question_BN = ((segments == last_B1) & (last_B1 > 0)).long()
        hidden_BND: Tensor = self.dropout(self.embedding(tokens) + self.question_embedding(question_BN))
        most, allowed_B11N = self.config.max_offset * self.training, broadcast(allowed)
        place_BND = signals_from(self.offsets(tokens), tokens.shape[1], self.coordinates, most)

        def apply_step(state: Tensor, step: int) -> Tensor:
            refined: Tensor = self.encoder(state, allowed_B11N)
            return refined

        steps = self.config.num_layers
        stops = not is_hooked(self.encoder)
        refined, cost_BN = ponder(
            apply_step, hidden_BND, place_BND, self.coordinates, self.halting, steps, allowed, stops
        )
        self.ponder(cost_BN)
        states_BND: Tensor = self.encoder_norm(refined)
        return Encoding(states_BND, allowed, states_BND[:, 0], (hidden_BND, states_BND) if layers else ())


# Adaptive computation time (Graves 2016, arXiv 1603.08983): every position decides when to halt.
#
# At each step a position spends a part of its halting probability; when the sum passes the threshold it halts, with
# the remainder as its last part. The output is the mean of the states of all steps, weighted by these parts. The
# ponder cost is the number of steps plus the remainder.


@dataclass(frozen=True)
class Pondering:
    """The progress of each position."""

    state: Tensor
    """(B N D), the current state of each position; of a halted one, its last state."""
    mixed: Tensor
    """(B N D), the mean so far."""
    given: Tensor
    """(B N), cumulative halting probability."""
    cost: Tensor
    """(B N), steps so far; of a halted position, plus the remainder. Only the remainder has a gradient."""
    running: Tensor
    """(B N), positions that have not halted."""


class AdaptiveHalting(nn.Module):
    """Decides when positions halt."""

    def __init__(self, dim: int, threshold: float) -> None:
        super().__init__()
        self.probability = Linear(dim, 1)
        self.threshold = threshold

    def begin(self, state: Tensor, running: Tensor | None = None) -> Pondering:
        """The initial progress; padding does not run.  (B N D), (B N) -> pondering."""
        nothing_BN = torch.zeros_like(state[..., 0])
        running_BN = torch.ones_like(nothing_BN, dtype=torch.bool) if running is None else running
        return Pondering(state, torch.zeros_like(state), nothing_BN, nothing_BN, running_BN)

    def forward(self, pondering: Pondering, before: Tensor, after: Tensor, last: bool) -> Pondering:
        """Advance by one step, given its input and output; at the last, all positions halt.  (B N D), (B N D)."""
        running, given = pondering.running, pondering.given
        probability_BN = torch.sigmoid(self.probability(before)[..., 0])
        halts = running & ((given + probability_BN > self.threshold) | last)
        part_BN = torch.where(halts, 1.0 - given, probability_BN) * running
        rest_BN = torch.where(halts, 1.0 - given, 0.0)
        return Pondering(
            state=torch.where(running[..., None], after, pondering.state),
            mixed=pondering.mixed + part_BN[..., None] * after,
            given=given + part_BN,
            cost=pondering.cost + running.to(given.dtype) + rest_BN,
            running=running & ~halts,
        )
