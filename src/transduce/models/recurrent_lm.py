"""Recurrent language models: plain RNN, LSTM or GRU, whose state is all that is left of the text so far.

- Mikolov et al. 2010, "Recurrent neural network based language model" (Interspeech): a plain RNN, section 2;
- Zaremba et al. 2014 (arXiv 1409.2329): stacked LSTMs, with dropout on all but the recurrent connections, section 3.1;
- Cho et al. 2014 (arXiv 1406.1078): the GRU, section 2.3.

A state has one vector per layer (two for an LSTM), however long the text is; a Transformer's keys and values grow with
every token. Embeddings and states have one width, so that the output layer can share the embedding's matrix.

Differs from the papers: Mikolov's hidden layer is a sigmoid over a word's own column, here it is tanh over a projected
embedding; Zaremba's text is read in order with the state carried from batch to batch, here every block begins with a
state of zeros. Weights are initialised as everywhere here, and Cho's reset gate is applied after the recurrent product,
as in torch and cuDNN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from transduce.config import Config
from transduce.models.block import Layers, Rate, Width
from transduce.models.interface import LanguageModel, Memory, State, VocabularySizes
from transduce.nn.dropout import Dropout, WordDropout
from transduce.nn.embedding import Embedding, Output
from transduce.nn.recurrence import Carried, Cell, Recurrence


class RecurrentLmConfig(Config):
    """Settings of a recurrent language model; the defaults have the sizes of Zaremba et al.'s medium LSTM."""

    cell: Cell = "lstm"
    """Recurrent cell: plain RNN, GRU or LSTM."""
    model_dim: Width = 650
    """Width of token embeddings and of every layer's state."""
    num_layers: Layers = 2
    """Recurrent layers."""
    dropout: Rate = 0.5
    """Dropout on the embeddings, between layers and before the output layer; never on recurrent connections."""
    word_dropout: Rate = 0.0
    """Dropout of whole token embeddings."""
    forget_bias: Annotated[float, Field(ge=-20.0, le=20.0)] = 1.0
    """Initial bias of an LSTM's forget gate, or a GRU's update gate (Jozefowicz et al. 2015); an RNN has no gate."""
    embedding_init: Literal["normal", "torch"] = "normal"
    """Initialisation: embeddings N(0, 1/D), or torch's defaults: embeddings N(0, 1), and an output layer uniform
    between -1/√D and 1/√D. Needs embeddings that are not tied."""
    tied_embeddings: Annotated[bool, Field(strict=True)] = False
    """Share the matrix of embedding and output layer (Press & Wolf 2017)."""
    output_bias: bool = True
    """Bias of the output layer."""

    @model_validator(mode="after")
    def _initialisation_fits(self) -> RecurrentLmConfig:
        if self.tied_embeddings and self.embedding_init == "torch":
            raise ValueError(
                "embedding_init = 'torch' would make the scores of a tied output layer far too large; set "
                "tied_embeddings = false or embedding_init = 'normal'"
            )
        return self


def mikolov() -> RecurrentLmConfig:
    """A plain RNN of 200 units, a size between Mikolov et al.'s 90 and 500."""
    return RecurrentLmConfig(cell="rnn", model_dim=200, num_layers=1, dropout=0.0)


def zaremba_medium() -> RecurrentLmConfig:
    """Zaremba et al.'s medium LSTM: 20 million parameters with the 10,000 words of the Penn Treebank."""
    return RecurrentLmConfig(model_dim=650, num_layers=2, dropout=0.5, forget_bias=0.0)


def zaremba_large() -> RecurrentLmConfig:
    """Zaremba et al.'s large LSTM: 66 million parameters with the 10,000 words of the Penn Treebank."""
    return RecurrentLmConfig(model_dim=1500, num_layers=2, dropout=0.65, forget_bias=0.0)


def lstm_mini() -> RecurrentLmConfig:
    """For a megabyte of text on a laptop: two LSTM layers of 224, about as many parameters as `gpt_mini`."""
    return RecurrentLmConfig(cell="lstm", model_dim=224, num_layers=2, dropout=0.0, tied_embeddings=True)


def gru_mini() -> RecurrentLmConfig:
    """For a megabyte of text on a laptop: two GRU layers of 256, about as many parameters as `gpt_mini`."""
    return RecurrentLmConfig(cell="gru", model_dim=256, num_layers=2, dropout=0.0, tied_embeddings=True)


@dataclass
class RecurrentState(State):
    """Recurrent state of each row; its size does not depend on the text so far."""

    carried: Carried
    """(L R D) each: hidden, and an LSTM's cell."""
    width: int

    @property
    def num_rows(self) -> int:
        return self.carried[0].shape[1]

    def select(self, rows: Tensor) -> RecurrentState:
        return RecurrentState(tuple(part.index_select(1, rows) for part in self.carried), self.width)

    def join(self, other: RecurrentState) -> RecurrentState:
        assert self.width == other.width, "states of different widths cannot be joined"
        pairs = zip(self.carried, other.carried, strict=True)
        return RecurrentState(tuple(torch.cat(pair, dim=1) for pair in pairs), self.width)


class RecurrentLm(LanguageModel[RecurrentState]):
    """Text so far → scores of the next token, by recurrence alone."""

    def __init__(self, config: RecurrentLmConfig, sizes: VocabularySizes) -> None:
        super().__init__()
        dim = config.model_dim
        self.config = config
        self.sizes = sizes
        self.embedding = Embedding(sizes.target, dim, scaled=False)
        self.word_dropout = WordDropout(config.word_dropout)
        self.dropout = Dropout(config.dropout)
        self.decoder = Recurrence(
            config.cell, dim, dim, config.num_layers, dropout=config.dropout, forget_bias=config.forget_bias
        )
        self.output_dropout = Dropout(config.dropout)
        tied = self.embedding if config.tied_embeddings else None
        self.output = Output(sizes.target, dim, bias=config.output_bias, tied=tied)

    def forward(self, target: Tensor, memory: Memory) -> Tensor:
        hidden_BTD, _ = self.decoder(self.dropout(self.word_dropout(self.embedding(target))))
        dropped: Tensor = self.output_dropout(hidden_BTD)
        return dropped

    def start(self, memory: Memory, width: int = 1) -> RecurrentState:
        rows = len(memory.states) * width
        zero_LRD = self.output.weight.new_zeros(self.config.num_layers, rows, self.config.model_dim)
        return RecurrentState((zero_LRD,) * self.decoder.num_carried, width)

    def extend(self, tokens: Tensor, lengths: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        embedded_RTD = self.embedding(tokens)
        if bool((lengths == tokens.shape[1]).all()):
            hidden_RTD, carried = self.decoder(embedded_RTD, state.carried)
            return hidden_RTD, RecurrentState(carried, state.width)
        (row_N,) = (lengths > 0).nonzero(as_tuple=True)  # a packed sequence has at least one token
        hidden_RTD = torch.zeros_like(embedded_RTD)
        if not len(row_N):
            return hidden_RTD, state
        before = tuple(part[:, row_N] for part in state.carried)
        hidden_RTD[row_N], after = self.decoder(embedded_RTD[row_N], before, lengths[row_N].cpu())
        carried = tuple(part.index_copy(1, row_N, later) for part, later in zip(state.carried, after, strict=True))
        return hidden_RTD, RecurrentState(carried, state.width)

    def step(self, tokens: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        hidden_R1D, carried = self.decoder(self.embedding(tokens[:, None]), state.carried)
        return hidden_R1D[:, 0], RecurrentState(carried, state.width)
