"""The Neural Turing Machine (Graves et al. 2014, arXiv 1410.5401): a controller with an addressable memory.

At each step the controller gets an input and the previous read vectors, and outputs the addresses of its heads, what
they erase and add, and a prediction. It is a Transducer here: it processes the whole source, then generates the target.

Its inputs and outputs are bits. A token is encoded as the binary digits of its id, and its score is the sum of the
scores of the digits that are 1. A softmax over all 2^n such sums is exactly n independent logistic bits, so that loss,
search and scoring are the same as for other models, and the model still learns bits.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from transduce.config import Config
from transduce.models.block import Width
from transduce.models.interface import Memory, State, Transducer, VocabularySizes
from transduce.nn.device import is_full
from transduce.nn.embedding import Output, binary_code
from transduce.nn.hook import HookPoint, is_hooked
from transduce.nn.linear import Linear

Heads = Annotated[int, Field(ge=0, le=64)]

FIRST = 1e-6
"""Initial value of the memory (Collier and Beel 2018, arXiv 1807.08518)."""
LARGEST = 20.0
"""Controller outputs are clamped to this, as by the same authors."""


class TuringMachineConfig(Config):
    """Settings of a Neural Turing Machine; the defaults are those of the paper's copy task."""

    controller: Literal["lstm", "feed_forward"] = "lstm"
    """Controller network: LSTM or feed-forward."""
    hidden_dim: Width = 100
    """Width of the controller."""
    num_layers: Annotated[int, Field(ge=1, le=100)] = 1
    """Layers of the controller."""
    slots: Width = 128
    """Memory slots."""
    slot_dim: Width = 20
    """Width of a slot."""
    read_heads: Heads = 1
    """Read heads; without heads of both kinds there is no memory."""
    write_heads: Heads = 1
    """Write heads."""
    max_shift: Annotated[int, Field(ge=0, le=1000)] = 1
    """Maximum shift of a head in one step, in either direction."""
    reads_target: bool = False
    """Feed the previous target tokens to the decoder, as other models do. The paper's machine gets no input then."""

    @model_validator(mode="after")
    def _parts_fit(self) -> TuringMachineConfig:
        if bool(self.read_heads) != bool(self.write_heads):
            raise ValueError("a memory needs read_heads and write_heads; set both above 0, or both to 0")
        if 2 * self.max_shift + 1 > self.slots:
            raise ValueError(
                f"max_shift = {self.max_shift} wraps around a memory of {self.slots} slots; lower max_shift"
            )
        return self

    @property
    def num_heads(self) -> int:
        """Read heads and write heads."""
        return self.read_heads + self.write_heads

    @property
    def parts(self) -> list[int]:
        """Widths of the head parameters: addresses of read heads, then of write heads; erase vectors; add vectors."""
        address = sum(Address.parts(self.slot_dim, self.max_shift))
        return [self.num_heads * address, self.write_heads * self.slot_dim, self.write_heads * self.slot_dim]


def ntm_lstm() -> TuringMachineConfig:
    """The paper's machine with an LSTM as controller, for the copy task."""
    return TuringMachineConfig()


def ntm_feed_forward() -> TuringMachineConfig:
    """The paper's machine with a feed-forward controller, for the copy task."""
    return TuringMachineConfig(controller="feed_forward")


def lstm_alone() -> TuringMachineConfig:
    """The paper's baseline: three layers of LSTM and no memory."""
    return TuringMachineConfig(hidden_dim=256, num_layers=3, read_heads=0, write_heads=0)


class Moment(NamedTuple):
    """The state of the machine between two steps; every part has its rows first."""

    hidden: Tensor
    """(B L C): hidden states of the controller's layers."""
    cell: Tensor
    """(B L C): its cell states; unused by a feed-forward controller."""
    slots: Tensor
    """(B N K): the memory."""
    weights: Tensor
    """(B H N): weights of the heads, read heads first."""
    found: Tensor
    """(B R·K): read vectors."""


@dataclass(frozen=True)
class TuringMemory(Memory):
    """The state of the machine after the source: `states` are its memory slots, none of them padding."""

    moment: Moment


@dataclass
class TuringState(State):
    """A machine per row, each with its own memory."""

    moment: Moment
    width: int

    @property
    def num_rows(self) -> int:
        return len(self.moment.hidden)

    def select(self, rows: Tensor) -> TuringState:
        return TuringState(Moment(*(part[rows] for part in self.moment)), self.width)

    def join(self, other: TuringState) -> TuringState:
        both = zip(self.moment, other.moment, strict=True)
        return TuringState(Moment(*(torch.cat(pair) for pair in both)), self.width)


class ControllerLayer(Linear):
    """One layer of a controller: an LSTM, whose four gates are packed into one matrix, or a tanh layer."""

    def __init__(self, in_dim: int, hidden_dim: int, is_lstm: bool) -> None:
        super().__init__(in_dim + (hidden_dim if is_lstm else 0), hidden_dim * (4 if is_lstm else 1))
        self.is_lstm, self.parts = is_lstm, [hidden_dim] * (4 if is_lstm else 1)

    def read(self, values: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """Apply the layer to one step.  (B D), (B C), (B C) -> hidden (B C), cell (B C)."""
        if not self.is_lstm:
            return self(values).tanh(), cell
        new, gates = self(torch.cat([values, hidden], dim=-1)).tensor_split([self.parts[0]], dim=-1)
        keep, take, show = gates.sigmoid().chunk(3, dim=-1)
        cell = torch.addcmul(keep * cell, take, new.tanh())
        return show * cell.tanh(), cell


class Tape(nn.Module):
    """Hook points for a whole sequence: read and write weights (B H T N), memory slots (B T N K)."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.write, self.slots = (HookPoint(replaceable=False) for _ in range(3))

    def run_hooks(self, moments: list[Moment], read_heads: int) -> None:
        """Run the hooks on the states of all steps."""
        weights_BHTN = torch.stack([moment.weights for moment in moments], dim=2)
        self.read(weights_BHTN[:, :read_heads])
        self.write(weights_BHTN[:, read_heads:])
        self.slots(torch.stack([moment.slots for moment in moments], dim=1))


class TuringMachine(Transducer[TuringMemory, TuringState]):
    """Controller, heads and memory."""

    source_code: Tensor
    """(V I): binary code of each source token."""
    target_code: Tensor
    """(V O): binary code of each target token."""

    def __init__(self, config: TuringMachineConfig, sizes: VocabularySizes) -> None:
        super().__init__()
        self.config, self.sizes = config, sizes
        source_VI, target_VO = binary_code(sizes.source), binary_code(sizes.target)
        self.register_buffer("source_code", source_VI, persistent=False)
        self.register_buffer("target_code", target_VO, persistent=False)
        found_dim, hidden_dim = config.read_heads * config.slot_dim, config.hidden_dim
        in_dim = source_VI.shape[1] + (target_VO.shape[1] if config.reads_target else 0)
        self.controller = nn.ModuleList(
            ControllerLayer(in_dim + found_dim if depth == 0 else hidden_dim, hidden_dim, config.controller == "lstm")
            for depth in range(config.num_layers)
        )
        self.heads = Linear(hidden_dim, sum(config.parts)) if config.num_heads else None
        self.readout = Linear(hidden_dim + found_dim, target_VO.shape[1])
        self.output = Output(sizes.target, target_VO.shape[1], fixed=target_VO)
        self.initial_hidden = nn.Parameter(torch.empty(config.num_layers * hidden_dim))
        self.initial_cell = nn.Parameter(torch.empty(config.num_layers * hidden_dim))
        self.initial_weights = nn.Parameter(torch.empty(config.num_heads, config.slots)) if config.num_heads else None
        self.initial_read = nn.Parameter(torch.empty(found_dim)) if config.num_heads else None
        self.source_tape, self.target_tape = Tape(), Tape()

    def encode(self, source: Tensor, allowed: Tensor) -> TuringMemory:
        bits_BSI = self._inputs(source, self.source_code, before=True)
        moving_BS = None if is_full(allowed) else allowed
        _, moment = self._run(bits_BSI, moving_BS, self._first(len(source)), self.source_tape)
        return TuringMemory(moment.slots, allowed.new_ones(moment.slots.shape[:2]), moment)

    def forward(self, target: Tensor, memory: TuringMemory) -> Tensor:
        return self._run(self._blanks(target), None, memory.moment, self.target_tape)[0]

    def start(self, memory: TuringMemory, width: int = 1) -> TuringState:
        return TuringState(Moment(*(part.repeat_interleave(width, dim=0) for part in memory.moment)), width)

    def extend(self, tokens: Tensor, lengths: Tensor, state: TuringState) -> tuple[Tensor, TuringState]:
        allowed_RT = torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]
        hidden_RTD, moment = self._run(self._blanks(tokens), allowed_RT, state.moment, self.target_tape)
        return hidden_RTD, TuringState(moment, state.width)

    def step(self, tokens: Tensor, state: TuringState) -> tuple[Tensor, TuringState]:
        hidden_RD, moment = self._next(self._blanks(tokens[:, None])[:, 0], state.moment)
        return hidden_RD, TuringState(moment, state.width)

    def _first(self, rows: int) -> Moment:
        """Return the initial state."""
        config, like = self.config, self.initial_hidden
        hidden = like.view(1, config.num_layers, -1).expand(rows, -1, -1)
        cell = self.initial_cell.view(1, config.num_layers, -1).expand(rows, -1, -1)
        slots = like.new_full((rows, config.slots if config.num_heads else 0, config.slot_dim), FIRST)
        if self.initial_weights is None or self.initial_read is None:
            return Moment(hidden, cell, slots, like.new_zeros(rows, 0, 0), like.new_zeros(rows, 0))
        weights = self.initial_weights.softmax(dim=-1).expand(rows, -1, -1)
        return Moment(hidden, cell, slots, weights, self.initial_read.tanh().expand(rows, -1))

    def _blanks(self, target: Tensor) -> Tensor:
        """Return the inputs while decoding: zeros, or the target so far.  (B T) -> (B T I)."""
        if self.config.reads_target:
            return self._inputs(target, self.target_code, before=False)
        return self.initial_hidden.new_zeros(*target.shape, self.source_code.shape[1])

    def _inputs(self, tokens: Tensor, code: Tensor, before: bool) -> Tensor:
        """Return the binary codes of tokens; with `reads_target` each side has its own channels.  (B T) -> (B T I)."""
        digits = nn.functional.embedding(tokens, code)
        if not self.config.reads_target:
            return digits
        other = digits.new_zeros(*tokens.shape, (self.target_code if before else self.source_code).shape[1])
        return torch.cat([digits, other] if before else [other, digits], dim=-1)

    def _run(self, inputs: Tensor, allowed: Tensor | None, moment: Moment, tape: Tape) -> tuple[Tensor, Moment]:
        """Process a whole sequence; a row keeps its state where not allowed.  (B T I) -> outputs (B T O)."""
        outputs, moments, hooked = [], [], is_hooked(tape)
        for place, bits_BI in enumerate(inputs.unbind(dim=1)):
            output_BO, after = self._next(bits_BI, moment)
            moment = after if allowed is None else _where(allowed[:, place], after, moment)
            outputs.append(output_BO)
            if hooked:
                moments.append(moment)
        if moments and self.heads is not None:
            tape.run_hooks(moments, self.config.read_heads)
        if not outputs:
            return inputs.new_zeros(len(inputs), 0, self.output.weight.shape[1]), moment
        return torch.stack(outputs, dim=1), moment

    def _next(self, bits: Tensor, moment: Moment) -> tuple[Tensor, Moment]:
        """One step of the machine.  (B I) -> (B O)."""
        values, hidden, cell = torch.cat([bits, moment.found], dim=-1), [], []
        for depth, layer in enumerate(self.controller):
            assert isinstance(layer, ControllerLayer)
            values, carried = layer.read(values, moment.hidden[:, depth], moment.cell[:, depth])
            hidden.append(values)
            cell.append(carried)
        slots, weights, found = moment.slots, moment.weights, moment.found
        if self.heads is not None:
            slots, weights, found = self._use_heads(self.heads(values), moment)
        output_BO = self.readout(torch.cat([values, found], dim=-1)).clamp(-LARGEST, LARGEST)
        return output_BO, Moment(torch.stack(hidden, dim=1), torch.stack(cell, dim=1), slots, weights, found)

    def _use_heads(self, parameters: Tensor, moment: Moment) -> tuple[Tensor, Tensor, Tensor]:
        """Address the memory, read, then write.  (B P) -> memory (B N K), weights (B H N), read vectors (B R·K)."""
        config, rows = self.config, len(parameters)
        addresses, erase, add = torch.split(parameters.clamp(-LARGEST, LARGEST), config.parts, dim=-1)
        address = Address.of(addresses.view(rows, config.num_heads, -1), config.slot_dim, config.max_shift)
        weights_BHN = weights_at(address, moment.weights, moment.slots)
        found_BRK = weights_BHN[:, : config.read_heads] @ moment.slots
        shape = (rows, config.write_heads, config.slot_dim)
        writing_BHN = weights_BHN[:, config.read_heads :]
        slots_BNK = written(moment.slots, writing_BHN, erase.view(shape).sigmoid(), add.view(shape).tanh())
        return slots_BNK, weights_BHN, found_BRK.flatten(1)


def _where(moves: Tensor, after: Moment, before: Moment) -> Moment:
    """Return the new state for the rows that advance, the old one for the others.  (B)."""
    return Moment(
        *(torch.where(moves.view(-1, *[1] * (new.dim() - 1)), new, old) for new, old in zip(after, before, strict=True))
    )


# Addressing, reading and writing of the memory (Graves et al. 2014, section 3).
#
# A head's weights are computed in four steps: content addressing, interpolation with the previous weights,
# convolutional shift, and sharpening. Letters: B rows, H heads, N slots, K width of a slot, P parameters of a head.

TINY = 1e-16
"""Keeps logarithms of weights and quotients of norms finite."""


class Address(NamedTuple):
    """Addressing parameters of heads."""

    key: Tensor
    """(B H K), k: the vector that slots are compared with."""
    strength: Tensor
    """(B H 1), β above 0: inverse temperature of content addressing."""
    gate: Tensor
    """(B H 1), g from 0 to 1: interpolation between previous weights (0) and content (1)."""
    shift: Tensor
    """(B H S), s: distribution over shifts, from -max_shift to max_shift; sums to 1."""
    sharpness: Tensor
    """(B H 1), γ of at least 1: exponent of the sharpening."""

    @staticmethod
    def parts(slot_dim: int, max_shift: int) -> list[int]:
        """Widths of the parameters, in order."""
        return [slot_dim, 1, 1, 2 * max_shift + 1, 1]

    @classmethod
    def of(cls, raw: Tensor, slot_dim: int, max_shift: int) -> Address:
        """Map the controller's raw outputs to their ranges.  (B H P) -> an address."""
        key, strength, gate, shift, sharpness = torch.split(raw, cls.parts(slot_dim, max_shift), dim=-1)
        return cls(key.tanh(), F.softplus(strength), gate.sigmoid(), shift.softmax(dim=-1), F.softplus(sharpness) + 1)


def weights_at(address: Address, before: Tensor, memory: Tensor) -> Tensor:
    """Return the weights of each head.  previous weights (B H N), memory (B N K) -> (B H N); rows sum to 1."""
    content_BHN = (address.strength * likeness(address.key, memory)).softmax(dim=-1)
    gated_BHN = address.gate * content_BHN + (1 - address.gate) * before
    return sharpened(moved(gated_BHN, address.shift), address.sharpness)


def likeness(key: Tensor, memory: Tensor) -> Tensor:
    """Cosine similarity of a key and every slot.  (B H K), (B N K) -> (B H N)."""
    lengths_BHN = key.norm(dim=-1)[:, :, None] * memory.norm(dim=-1)[:, None, :]
    cosine_BHN: Tensor = key @ memory.transpose(1, 2) / (lengths_BHN + TINY)
    return cosine_BHN


def moved(weights: Tensor, shift: Tensor) -> Tensor:
    """Circular convolution of the weights with the shift distribution.  (B H N), (B H S) -> (B H N)."""
    far = shift.shape[-1] // 2
    shifts = zip(range(-far, far + 1), shift.unbind(dim=-1), strict=True)
    parts = [weights.roll(offset, dims=-1) * share_BH[..., None] for offset, share_BH in shifts]
    return functools.reduce(torch.add, parts)


def sharpened(weights: Tensor, sharpness: Tensor) -> Tensor:
    """w^γ / Σ w^γ, computed from logarithms, since a high power of small weights underflows.  (B H N)."""
    return (sharpness * (weights + TINY).log()).softmax(dim=-1)


def written(memory: Tensor, weights: Tensor, erase: Tensor, add: Tensor) -> Tensor:
    """Erase, then add, with all write heads at once.  (B N K), (B H N), (B H K) twice -> (B N K)."""
    erased_BHNK = weights[:, :, :, None] * erase[:, :, None, :]
    if erased_BHNK.shape[1] == 1:  # the default; the gradient of `prod` is slow
        kept_BNK = 1 - erased_BHNK[:, 0]
    else:
        kept_BNK = (1 - erased_BHNK).prod(dim=1)
    return torch.addcmul(weights.transpose(1, 2) @ add, memory, kept_BNK)
