"""Recurrent encoder-decoders, the Transformer's ancestors, which differ in how the decoder uses the source.

- Sutskever et al. 2014 (arXiv 1409.3215): only the encoder's final state, with the source reversed;
- Cho et al. 2014 (arXiv 1406.1078): one context vector, given to the decoder and to the output at every step;
- Bahdanau et al. 2015 (arXiv 1409.0473): additive attention, queried with the state before the token;
- Luong et al. 2015 (arXiv 1508.04025): multiplicative attention, queried with the state after it.

Each has its own decoder; embeddings, encoder and state are shared.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import model_validator
from torch import Tensor, nn

from transduce.config import Config
from transduce.models.block import Layers, Rate, Width
from transduce.models.interface import Memory, State, Transducer, VocabularySizes
from transduce.nn.attention.additive import (
    AdditiveAttention,
    MultiplicativeAttention,
    ProjectedMemory,
    SingleHeadAttention,
)
from transduce.nn.device import is_full
from transduce.nn.dropout import Dropout, WordDropout
from transduce.nn.embedding import Embedding, Output
from transduce.nn.recurrence import Bridge, Carried, Cell, Recurrence, reversed_within


class RnnConfig(Config):
    """Settings of a recurrent encoder-decoder; the defaults are Bahdanau's model with 512 units."""

    cell: Cell = "gru"
    """Recurrent cell: plain RNN, GRU or LSTM."""
    embedding_dim: Width = 256
    """Width of the token embeddings."""
    hidden_dim: Width = 512
    """Width of the recurrent state, per direction."""
    num_layers: Layers = 1
    """Recurrent layers of the encoder, and of the decoder."""
    bidirectional: bool = True
    """Bidirectional encoder; a learned bridge then initialises the decoder."""
    attention: Literal["none", "context", "additive", "dot", "general"] = "additive"
    """How the decoder uses the source: initial state only, one context at every step, or an attention."""
    input_feeding: bool = False
    """Feed the attentional vector of a step to the next (Luong et al., section 3.3); with dot and general."""
    reverse_source: bool = False
    """Reverse the source, so that its first words are nearest (Sutskever et al., section 3.3)."""
    tied_embeddings: Literal["all", "target", "none"] = "none"
    """Share one matrix between source, target and output (all, needs a joint vocabulary), or target and output."""
    output_bias: bool = True
    """Bias of the output layer."""
    dropout: Rate = 0.5
    """Dropout on the embeddings and between recurrent layers."""
    word_dropout: Rate = 0.0
    """Dropout of whole token embeddings of both sides."""

    @model_validator(mode="after")
    def _parts_fit(self) -> RnnConfig:
        if self.attention == "dot" and self.bidirectional:
            raise ValueError(
                "attention = 'dot' needs encoder and decoder states of one width, but a bidirectional encoder's are "
                "twice as wide; set attention = 'general' or bidirectional = false"
            )
        if self.input_feeding and self.attention not in ("dot", "general"):
            raise ValueError(
                f"input_feeding needs attention 'dot' or 'general', not '{self.attention}'; set it to false"
            )
        if self.tied_embeddings != "none" and self.readout_dim != self.embedding_dim:
            raise ValueError(
                f"tied_embeddings = '{self.tied_embeddings}' needs an output layer of width embedding_dim = "
                f"{self.embedding_dim}, not {self.readout_dim}; set tied_embeddings = 'none' or make them equal"
            )
        return self

    @property
    def memory_dim(self) -> int:
        """Width of one source position's vector."""
        return self.hidden_dim * (2 if self.bidirectional else 1)

    @property
    def readout_dim(self) -> int:
        """Width of the output layer's input."""
        if self.attention in ("context", "additive"):
            return self.embedding_dim + self.hidden_dim + self.memory_dim
        return self.hidden_dim


def sutskever() -> RnnConfig:
    """No attention, reversed source. Differs from the paper: two layers of 512, not four of 1000."""
    return RnnConfig(cell="lstm", num_layers=2, bidirectional=False, attention="none", reverse_source=True)


def cho() -> RnnConfig:
    """One context vector at every step. Differs from the paper: 512 units; no extra layer on state and output."""
    return RnnConfig(cell="gru", bidirectional=False, attention="context")


def bahdanau() -> RnnConfig:
    """Additive attention. Differs from the paper: 512 units; the decoder starts from both directions; no maxout."""
    return RnnConfig(cell="gru", bidirectional=True, attention="additive")


def luong() -> RnnConfig:
    """Global "general" attention with input feeding. Differs from the paper: two layers of 512, not four of 1000."""
    return RnnConfig(
        cell="lstm",
        num_layers=2,
        bidirectional=False,
        attention="general",
        input_feeding=True,
        reverse_source=True,
        dropout=0.2,
    )


@dataclass(frozen=True)
class RnnMemory(Memory):
    """Every source position's vector, and the encoder's final states."""

    final: Carried
    """(L B N) each, N one direction or both concatenated."""


@dataclass
class RnnState(State):
    """Recurrent state of each row, and the projected memory that a sentence's rows share."""

    carried: Carried
    """(L R H) each: hidden, an LSTM's cell, and (1 R H) for input feeding."""
    source: ProjectedMemory
    width: int

    @property
    def num_rows(self) -> int:
        return self.carried[0].shape[1]

    def select(self, rows: Tensor) -> RnnState:
        carried = tuple(part.index_select(1, rows) for part in self.carried)
        return RnnState(carried, self.source.select(rows[:: self.width] // self.width), self.width)

    def join(self, other: RnnState) -> RnnState:
        assert self.width == other.width, "states of different widths cannot be joined"
        carried = tuple(torch.cat(pair, dim=1) for pair in zip(self.carried, other.carried, strict=True))
        return RnnState(carried, self.source.join(other.source), self.width)


def decode_ragged(
    decoder: Callable[[Tensor, ProjectedMemory, Carried], tuple[Tensor, Carried]],
    embedded: Tensor,
    lengths: Tensor,
    state: RnnState,
) -> tuple[Tensor, RnnState]:
    """Process each row's first `lengths[r]` tokens, for `extend`.  (R T E), (R) -> (R T D)."""
    if bool((lengths == embedded.shape[1]).all()):
        readout, carried = decoder(embedded, state.source, state.carried)
        return readout, RnnState(carried, state.source, state.width)
    carried, readouts = state.carried, []
    for position, token_R1E in enumerate(torch.split(embedded, 1, dim=1)):
        readout_R1D, later = decoder(token_R1E, state.source, carried)
        reads_R1 = (position < lengths)[:, None]
        carried = tuple(torch.where(reads_R1, new, old) for new, old in zip(later, carried, strict=True))
        readouts.append(readout_R1D)
    return torch.cat(readouts, dim=1), RnnState(carried, state.source, state.width)


class Decoder(nn.Module, ABC):
    """Target embeddings → the output layer's input. Subclasses differ in how they use the source."""

    @abstractmethod
    def project_memory(self, memory: RnnMemory) -> ProjectedMemory:
        """Project the memory, once per sentence."""

    @abstractmethod
    def forward(self, embedded: Tensor, source: ProjectedMemory, carried: Carried) -> tuple[Tensor, Carried]:
        """Process the next tokens of each row.  (R T E) -> readout (R T D)."""


class FinalStateDecoder(Decoder):
    """Uses the source as its initial state only (Sutskever et al., section 2)."""

    def __init__(self, config: RnnConfig) -> None:
        super().__init__()
        self.recurrence = _decoder_recurrence(config, config.embedding_dim)

    def project_memory(self, memory: RnnMemory) -> ProjectedMemory:
        empty_B00 = memory.states[:, :0, :0]
        return ProjectedMemory(empty_B00, empty_B00, memory.allowed[:, :0])

    def forward(self, embedded: Tensor, source: ProjectedMemory, carried: Carried) -> tuple[Tensor, Carried]:
        readout, carried = self.recurrence(embedded, carried)
        return readout, carried


class ContextDecoder(Decoder):
    """Gets the encoder's final vector at every step, and so does the output layer (Cho et al., section 2.2)."""

    def __init__(self, config: RnnConfig) -> None:
        super().__init__()
        self.recurrence = _decoder_recurrence(config, config.embedding_dim + config.memory_dim)

    def project_memory(self, memory: RnnMemory) -> ProjectedMemory:
        context_B1N = memory.final[0][-1][:, None]
        return ProjectedMemory(context_B1N[..., :0], context_B1N, memory.allowed[:, :1])

    def forward(self, embedded: Tensor, source: ProjectedMemory, carried: Carried) -> tuple[Tensor, Carried]:
        rows, length, _ = embedded.shape
        context_RTN = source.value.repeat_interleave(rows // len(source.value), dim=0).expand(-1, length, -1)
        hidden_RTH, carried = self.recurrence(torch.cat([embedded, context_RTN], dim=-1), carried)
        return torch.cat([embedded, hidden_RTH, context_RTN], dim=-1), carried


class AttentionDecoder(Decoder):
    """A decoder with attention to every source position."""

    cross_attention: SingleHeadAttention

    def project_memory(self, memory: RnnMemory) -> ProjectedMemory:
        return self.cross_attention.project_memory(memory.states, memory.allowed)


class AdditiveDecoder(AttentionDecoder):
    """Attends with the state before the token, whose input is token and context (Bahdanau et al., section 3.1)."""

    def __init__(self, config: RnnConfig) -> None:
        super().__init__()
        self.cross_attention = AdditiveAttention(config.hidden_dim, config.memory_dim, config.hidden_dim)
        self.recurrence = _decoder_recurrence(config, config.embedding_dim + config.memory_dim)

    def forward(self, embedded: Tensor, source: ProjectedMemory, carried: Carried) -> tuple[Tensor, Carried]:
        hidden: list[Tensor] = []
        contexts: list[Tensor] = []
        scores: list[Tensor] = []
        for token_R1E in torch.split(embedded, 1, dim=1):
            query_R1H = carried[0][-1][:, None]
            context_R1N, score_R1M = self.cross_attention(query_R1H, source)
            hidden_R1H, carried = self.recurrence(torch.cat([token_R1E, context_R1N], dim=-1), carried)
            hidden.append(hidden_R1H)
            contexts.append(context_R1N)
            scores.append(score_R1M)
        self.cross_attention.run_hooks(scores, source)
        return torch.cat([torch.cat(hidden, dim=1), torch.cat(contexts, dim=1), embedded], dim=-1), carried


class LuongDecoder(AttentionDecoder):
    """Attends with the state after the token: tanh(W [context; state]) (Luong et al., section 3.1)."""

    def __init__(self, config: RnnConfig, in_dim: int) -> None:
        super().__init__()
        projected = config.attention == "general"
        self.cross_attention = MultiplicativeAttention(config.hidden_dim, config.memory_dim, projected)
        self.recurrence = _decoder_recurrence(config, in_dim)
        self.out_proj = nn.Linear(config.memory_dim + config.hidden_dim, config.hidden_dim, bias=False)

    def attend(self, hidden: Tensor, source: ProjectedMemory) -> tuple[Tensor, Tensor]:
        """Return the attentional vectors and the scores.  (R T H) -> (R T H), (R T M)."""
        context_RTN, score_RTM = self.cross_attention(hidden, source)
        return torch.tanh(self.out_proj(torch.cat([context_RTN, hidden], dim=-1))), score_RTM


class MultiplicativeDecoder(LuongDecoder):
    """All tokens at once."""

    def __init__(self, config: RnnConfig) -> None:
        super().__init__(config, config.embedding_dim)

    def forward(self, embedded: Tensor, source: ProjectedMemory, carried: Carried) -> tuple[Tensor, Carried]:
        hidden_RTH, carried = self.recurrence(embedded, carried)
        readout_RTH, score_RTM = self.attend(hidden_RTH, source)
        self.cross_attention.run_hooks([score_RTM], source)
        return readout_RTH, carried


class InputFeedingDecoder(LuongDecoder):
    """The attentional vector is also the next step's input (Luong et al., section 3.3)."""

    def __init__(self, config: RnnConfig) -> None:
        super().__init__(config, config.embedding_dim + config.hidden_dim)

    def forward(self, embedded: Tensor, source: ProjectedMemory, carried: Carried) -> tuple[Tensor, Carried]:
        *recurrent, fed_1RH = carried
        fed_R1H, inner = fed_1RH.transpose(0, 1), tuple(recurrent)
        readouts: list[Tensor] = []
        scores: list[Tensor] = []
        for token_R1E in torch.split(embedded, 1, dim=1):
            hidden_R1H, inner = self.recurrence(torch.cat([token_R1E, fed_R1H], dim=-1), inner)
            fed_R1H, score_R1M = self.attend(hidden_R1H, source)
            readouts.append(fed_R1H)
            scores.append(score_R1M)
        self.cross_attention.run_hooks(scores, source)
        return torch.cat(readouts, dim=1), (*inner, fed_R1H.transpose(0, 1))


DECODERS: dict[str, type[Decoder]] = {
    "none": FinalStateDecoder,
    "context": ContextDecoder,
    "additive": AdditiveDecoder,
    "dot": MultiplicativeDecoder,
    "general": MultiplicativeDecoder,
}


class Rnn(Transducer[RnnMemory, RnnState]):
    """Source → target by recurrence, with or without attention."""

    def __init__(self, config: RnnConfig, sizes: VocabularySizes) -> None:
        super().__init__()
        dim = config.embedding_dim
        self.config = config
        self.sizes = sizes
        self.source_embedding = Embedding(sizes.source, dim, scaled=False)
        self.target_embedding = (
            self.source_embedding if config.tied_embeddings == "all" else Embedding(sizes.target, dim, scaled=False)
        )
        self.word_dropout = WordDropout(config.word_dropout)
        self.dropout = Dropout(config.dropout)
        self.encoder = Recurrence(
            config.cell, dim, config.hidden_dim, config.num_layers, config.bidirectional, config.dropout
        )
        self.bridge = _bridge(config, self.encoder.num_carried)
        self.decoder = (InputFeedingDecoder if config.input_feeding else DECODERS[config.attention])(config)
        tied = None if config.tied_embeddings == "none" else self.target_embedding
        self.output = Output(sizes.target, config.readout_dim, bias=config.output_bias, tied=tied)

    def encode(self, source: Tensor, allowed: Tensor) -> RnnMemory:
        """Encode the source, padded on the right.  (B S), (B S) -> memory in the source's own order."""
        lengths = allowed.sum(dim=1)
        if self.config.reverse_source:
            source = reversed_within(source, lengths)
        embedded_BSE = self.dropout(self.word_dropout(self.source_embedding(source)))
        states, final = self.encoder(embedded_BSE, lengths=None if is_full(allowed) else lengths.cpu())
        if self.config.reverse_source:
            states = reversed_within(states, lengths)
        return RnnMemory(states, allowed, final)

    def forward(self, target: Tensor, memory: RnnMemory) -> Tensor:
        embedded_BTE = self.dropout(self.word_dropout(self.target_embedding(target)))
        readout: Tensor = self.decoder(embedded_BTE, self.decoder.project_memory(memory), self._first(memory))[0]
        return readout

    def start(self, memory: RnnMemory, width: int = 1) -> RnnState:
        carried = tuple(part.repeat_interleave(width, dim=1) for part in self._first(memory))
        return RnnState(carried, self.decoder.project_memory(memory), width)

    def extend(self, tokens: Tensor, lengths: Tensor, state: RnnState) -> tuple[Tensor, RnnState]:
        return decode_ragged(self.decoder, self.dropout(self.target_embedding(tokens)), lengths, state)

    def step(self, tokens: Tensor, state: RnnState) -> tuple[Tensor, RnnState]:
        embedded_R1E = self.dropout(self.target_embedding(tokens[:, None]))
        readout_R1D, carried = self.decoder(embedded_R1E, state.source, state.carried)
        return readout_R1D[:, 0], RnnState(carried, state.source, state.width)

    def _first(self, memory: RnnMemory) -> Carried:
        """Return the decoder's initial state.  -> (L B H) each."""
        carried: Carried = self.bridge(memory.final)
        return (*carried, torch.zeros_like(carried[0][:1])) if self.config.input_feeding else carried


def _bridge(config: RnnConfig, num_carried: int) -> nn.Module:
    if config.bidirectional:
        return Bridge(num_carried, config.num_layers, config.memory_dim, config.hidden_dim)
    return nn.Identity()  # the encoder's final states


def _decoder_recurrence(config: RnnConfig, in_dim: int) -> Recurrence:
    return Recurrence(config.cell, in_dim, config.hidden_dim, config.num_layers, dropout=config.dropout)
