"""Recurrent language models against torch's own stacked RNN, GRU and LSTM, and published parameter counts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.config import Config
from transduce.models.catalog import build
from transduce.models.interface import VocabularySizes
from transduce.models.recurrent_lm import RecurrentLm, RecurrentLmConfig, zaremba_large, zaremba_medium

SIZE, DIM, LAYERS, ROWS, LENGTH = 29, 11, 3, 5, 17
LIBRARY: dict[str, type[nn.RNNBase]] = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}


class LibraryModel(nn.Module):
    """Embedding, stacked recurrent layers in one torch module, and a linear layer."""

    def __init__(self, cell: str, tied: bool) -> None:
        super().__init__()
        stacked: Any = LIBRARY[cell]
        self.embedding = nn.Embedding(SIZE, DIM)
        self.layers = stacked(DIM, DIM, LAYERS, batch_first=True)
        self.output = nn.Linear(DIM, SIZE)
        if tied:
            self.output.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        scores: Tensor = self.output(self.layers(self.embedding(tokens))[0])
        return scores


def renamed(name: str) -> str:
    """Our name of one of the library's weights: weight_hh_l2 -> decoder.layers.2.weight_hh_l0."""
    if not name.startswith("layers."):
        return name
    kind, _, layer = name.removeprefix("layers.").rpartition("_l")
    return f"decoder.layers.{layer}.{kind}_l0"


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("cell", LIBRARY)
def test_scores_and_gradients_equal_those_of_torch(cell: Any, tied: bool) -> None:
    torch.manual_seed(3)
    theirs = LibraryModel(cell, tied).double()
    config = RecurrentLmConfig(cell=cell, model_dim=DIM, num_layers=LAYERS, dropout=0.0, tied_embeddings=tied)
    ours = build(config, VocabularySizes(SIZE, SIZE)).double()
    assert isinstance(ours, RecurrentLm)
    ours.load_state_dict({renamed(name): weight for name, weight in theirs.state_dict().items()})
    tokens = torch.randint(SIZE, (ROWS, LENGTH + 1))

    expected = theirs(tokens[:, :-1])
    F.cross_entropy(expected.flatten(0, 1), tokens[:, 1:].flatten()).backward()
    found = ours.logits(ours(tokens[:, :-1], ours.encode(tokens[:, :0], tokens[:, :0].bool())))
    F.cross_entropy(found.flatten(0, 1), tokens[:, 1:].flatten()).backward()

    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    gradients = {name: parameter.grad for name, parameter in ours.named_parameters()}
    for name, parameter in theirs.named_parameters():
        torch.testing.assert_close(gradients[renamed(name)], parameter.grad, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("config", "published"), [(zaremba_medium(), 20), (zaremba_large(), 66)])
def test_presets_have_the_millions_of_parameters_that_are_quoted_for_the_penn_treebank(
    config: Config, published: int
) -> None:
    with torch.device("meta"):
        model = build(config, VocabularySizes(10_000, 10_000))
    assert round(sum(parameter.numel() for parameter in model.parameters()) / 1e6) == published
