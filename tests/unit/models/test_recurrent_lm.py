"""Recurrent language models: a state of constant size, prompts of different lengths, gates, dropout, exports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit.small_language_model import save_recurrent_writer
from transduce.errors import SettingsError
from transduce.inference.generator import Generator
from transduce.inspection.cost import Workload, estimate, size, tensors
from transduce.interop.export_model import choose_architecture
from transduce.model_folder import load_model
from transduce.models.catalog import build, is_language_model, preset, task_of
from transduce.models.interface import VocabularySizes
from transduce.models.recurrent_lm import RecurrentLm, RecurrentLmConfig, lstm_mini
from transduce.nn.dropout import Dropout

SIZES = VocabularySizes(29, 29)
CELLS = ("rnn", "gru", "lstm")


def model_of(cell: Any = "lstm", **settings: Any) -> RecurrentLm:
    config = RecurrentLmConfig(cell=cell, **{"model_dim": 7, "num_layers": 2, "dropout": 0.0, **settings})
    model = build(config, SIZES, seed=3)
    assert isinstance(model, RecurrentLm)
    return model


def started(model: RecurrentLm, rows: int) -> Any:
    nothing = torch.zeros(rows, 0, dtype=torch.long)
    return model.start(model.encode(nothing, nothing.bool()))


@pytest.mark.parametrize("cell", CELLS)
@torch.no_grad()
def test_the_state_has_one_size_however_long_the_text(cell: str) -> None:
    model, tokens = model_of(cell).eval(), torch.randint(29, (3, 101))
    state = started(model, 3)
    before = size(tensors(state))
    _, state = model.extend(tokens, torch.tensor([101, 5, 0]), state)
    assert size(tensors(state)) == before == 4 * 3 * 7 * 2 * (2 if cell == "lstm" else 1)


@pytest.mark.parametrize("cell", CELLS)
@torch.no_grad()
def test_rows_without_a_token_keep_their_state(cell: str) -> None:
    model, tokens = model_of(cell).double().eval(), torch.randint(29, (4, 6))
    _, state = model.extend(tokens, torch.tensor([6, 6, 6, 6]), started(model, 4))
    expected = [part.clone() for part in state.carried]
    for lengths in ([0, 0, 0, 0], [2, 0, 6, 0]):
        _, later = model.extend(tokens, torch.tensor(lengths), state)
        for part, before in zip(later.carried, expected, strict=True):
            kept = torch.tensor(lengths) == 0
            assert torch.equal(part[:, kept], before[:, kept])
            assert not kept.logical_not().any() or not torch.allclose(part[:, ~kept], before[:, ~kept])


@pytest.mark.parametrize(("cell", "gates"), [("lstm", 4), ("gru", 3), ("rnn", 1)])
def test_the_forget_bias_is_that_of_the_second_gate_alone(cell: str, gates: int) -> None:
    for bias in (0.0, 1.0, 2.5):
        layers = model_of(cell, forget_bias=bias).decoder.layers
        for layer in layers:
            parts = (layer.bias_ih_l0 + layer.bias_hh_l0).view(gates, 7)
            assert [part.unique().tolist() for part in parts] == [[bias if gate == 1 else 0.0] for gate in range(gates)]


def test_dropout_is_on_embeddings_between_layers_and_before_the_output() -> None:
    """Zaremba et al., figure 2: L + 1 dropouts, and none inside torch's recurrent modules."""
    model, calls = model_of(dropout=0.5, num_layers=3).train(), []
    for module in model.modules():
        if isinstance(module, Dropout) and module.rate:
            module.register_forward_hook(lambda *_: calls.append(1))
    tokens = torch.zeros(2, 5, dtype=torch.long)
    model(tokens, model.encode(tokens[:, :0], tokens[:, :0].bool()))
    assert len(calls) == 4 and all(layer.dropout == 0.0 for layer in model.decoder.layers)


@pytest.mark.parametrize("cell", CELLS)
def test_cost_counts_the_products_of_every_cell(cell: str) -> None:
    gates = {"rnn": 1, "gru": 3, "lstm": 4}[cell]
    config = RecurrentLmConfig(cell=cell, model_dim=7, num_layers=2)  # type: ignore[arg-type]
    cost = estimate(config, SIZES, Workload(target_length=13))
    layers, output = 2 * (2 * gates * 7 * 7) * 2, 2 * 7 * 29
    assert cost.flops_per_token == {"train": 3 * (layers + output), "decode": layers + output, "encode": 0}
    assert cost.parts["decoder_recurrence"] == 2 * gates * (2 * 7 * 7 + 2 * 7)


def test_large_initial_embeddings_cannot_be_tied() -> None:
    with pytest.raises(ValueError, match="embedding_init = 'torch'"):
        RecurrentLmConfig(embedding_init="torch", tied_embeddings=True)
    assert model_of(model_dim=97, embedding_init="torch").embedding.weight.std().item() == pytest.approx(1.0, abs=0.1)


def test_it_is_a_language_model_and_cannot_be_exported() -> None:
    config = preset("lstm_mini")[1]
    assert is_language_model(config) and task_of(config) == "language_modeling"
    with pytest.raises(SettingsError, match="recurrent_lm"):
        choose_architecture(lstm_mini())


def test_a_saved_model_continues_prompts_of_different_lengths_alone_as_together(tmp_path: Path) -> None:
    generator = Generator(load_model(save_recurrent_writer(tmp_path / "model")))
    prompts = ["", "the cat", "a bird sang; naïve cats"]
    together = generator.generate(prompts, method="beam", beam_size=3, max_length=60)
    assert together == [generator.generate([each], method="beam", beam_size=3, max_length=60)[0] for each in prompts]
    assert any(together)
