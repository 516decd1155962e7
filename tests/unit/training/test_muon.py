"""Muon: which weights it updates, what an update is, and that nothing depends on threads or stops."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from tests.invariants.cases import CASES, make_model
from tests.unit.training.example import Listener, resumed, run, same, small_model, snapshot, stopped_at, trainer
from transduce.config import Config
from transduce.data.prepared import Prepared
from transduce.errors import ModelFolderError
from transduce.models.catalog import build, preset
from transduce.models.interface import VocabularySizes
from transduce.training.checkpoint import Checkpoints
from transduce.training.config import TrainingConfig
from transduce.training.memory import expected_peak
from transduce.training.muon import Matrix, Muon, hidden_matrices, orthogonalised
from transduce.training.optimizer import build_optimizer, optimizer_step, state_values, step_values

MUON = {"optimizer": "muon", "weight_decay": 0.01, "threads": 2, "micro_batch_tokens": 29}


def made(name: str) -> Config:
    return preset(name)[1]


def names(model: nn.Module) -> set[str]:
    chosen = {id(matrix.weight) for matrix in hidden_matrices(model)}
    return {name for name, weight in model.named_parameters() if id(weight) in chosen}


def test_singular_values_become_about_one_and_directions_stay() -> None:
    matrix = torch.randn(11, 29, generator=torch.Generator().manual_seed(1)) * 1000
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    found = orthogonalised(matrix)
    values = torch.linalg.svdvals(found)
    assert 0.6 < float(values.min()) <= float(values.max()) < 1.3
    in_its_own_basis = left.T @ found @ right.T
    torch.testing.assert_close(in_its_own_basis, torch.diag(in_its_own_basis.diagonal()), rtol=0, atol=1e-3)
    torch.testing.assert_close(orthogonalised(matrix.T.contiguous()), found.T, rtol=0, atol=1e-4)
    assert not orthogonalised(torch.zeros(3, 5)).any()


def test_only_linear_layers_inside_blocks_are_matrices() -> None:
    chosen = names(build(made("tiny").but(num_layers=1), VocabularySizes(7, 7)))
    assert chosen == {
        *(
            f"{side}.0.self_attention.{part}.weight"
            for side in ("encoder", "decoder")
            for part in ("qkv_proj", "out_proj")
        ),
        *(f"{side}.0.feed_forward.{part}.weight" for side in ("encoder", "decoder") for part in ("up", "down")),
        *(f"decoder.0.cross_attention.{part}.weight" for part in ("q_proj", "kv_proj", "out_proj")),
    }


def test_no_model_of_the_catalog_gives_muon_a_table_a_vector_or_a_recurrence() -> None:
    for case in CASES:
        model = make_model(case)
        for name in names(model):
            assert not any(
                word in name for word in ("embedding", "output", "norm", "position", "bias", "_hh", "_ih")
            ), name
        for matrix in hidden_matrices(model):
            assert sum(matrix.parts) == len(matrix.weight)
    assert {len(matrix.parts) for matrix in hidden_matrices(build(made("llama_mini"), VocabularySizes(7, 7)))} == {
        1,
        2,
        3,
    }
    assert names(build(made("conv_small"), VocabularySizes(7, 7)))
    assert names(build(made("universal_mini"), VocabularySizes(7, 7)))
    assert not names(build(made("luong"), VocabularySizes(7, 7)))


def test_packed_matrices_are_orthogonalised_apart() -> None:
    generator = torch.Generator().manual_seed(1)
    query, value = torch.randn(5, 7, generator=generator), 1000 * torch.randn(11, 7, generator=generator)
    weight = nn.Parameter(torch.zeros(16, 7))
    optimizer = Muon([Matrix(weight, [5, 11])], torch.optim.AdamW([nn.Parameter(torch.zeros(1))]), 1.0, 0.0)
    weight.grad = torch.cat([query, value])
    optimizer_step(optimizer, 1.0)
    expected = torch.cat([0.2 * 7**0.5 * orthogonalised(query), 0.2 * 11**0.5 * orthogonalised(value)])
    torch.testing.assert_close(weight.detach(), -expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("stop", [1, 5, 7, 16])
def test_a_run_that_is_stopped_and_resumed_is_the_same_run_bit_by_bit(
    prepared: Prepared, tmp_path: Path, stop: int
) -> None:
    whole = trainer(prepared, tmp_path / "whole", **MUON)
    run(whole)
    stopped_at(stop, prepared, tmp_path / "parts", **MUON)
    last, _ = resumed(prepared, tmp_path / "parts", **MUON)
    found = snapshot(last)
    assert same(found, snapshot(whole))
    assert "momentum_buffer/encoder.0.self_attention.qkv_proj.weight" in found
    assert "exp_avg/source_embedding.weight" in found


def test_the_result_does_not_depend_on_the_number_of_threads(prepared: Prepared, tmp_path: Path) -> None:
    found = []
    before = torch.get_num_threads()
    for threads, inside in ((1, 1), (3, 2)):
        torch.set_num_threads(inside)
        training = trainer(
            prepared,
            tmp_path / str(threads),
            {"model_dim": 194, "ffn_dim": 389},
            updates=3,
            optimizer="muon",
            threads=threads,
        )
        for matrix in hidden_matrices(training.model):
            matrix.weight.grad = torch.randn(matrix.weight.shape, generator=torch.Generator().manual_seed(1))
        optimizer_step(training.train_step.optimizer, 0.01)
        training.close()
        found.append(snapshot(training))
    torch.set_num_threads(before)
    assert same(*found)


def test_frozen_matrices_keep_their_bits_and_have_no_state(prepared: Prepared) -> None:
    model = small_model(prepared)
    for name, weight in model.named_parameters():
        weight.requires_grad_(not name.startswith("encoder"))
    optimizer = build_optimizer(model, TrainingConfig(optimizer="muon"))
    assert isinstance(optimizer, Muon)
    assert all(matrix.weight.requires_grad for matrix in optimizer.matrices)
    assert len(optimizer.matrices) == 7


def test_where_memory_runs_out_in_an_update_nothing_has_changed(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small_model(prepared)
    optimizer = build_optimizer(model, TrainingConfig(optimizer="muon"))
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    monkeypatch.setattr(optimizer.adam, "step", lambda: (_ for _ in ()).throw(MemoryError))  # type: ignore[attr-defined]
    with pytest.raises(MemoryError):
        optimizer_step(optimizer, 0.1)
    assert all(torch.equal(weight, before[name]) for name, weight in model.named_parameters())
    assert all(not value.any() for state in optimizer.state.values() for value in state.values())


def test_momentum_counts_once_in_memory_and_on_disk(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = trainer(prepared, tmp_path / "run", optimizer="muon")
    training.close()
    model, optimizer = training.model, training.train_step.optimizer
    weights = sum(weight.numel() for weight in model.parameters())
    matrices = sum(matrix.weight.numel() for matrix in hidden_matrices(model))
    assert state_values(model, optimizer) == 2 * weights - matrices
    assert step_values(optimizer) == matrices
    assert Checkpoints(tmp_path / "run").room(model, optimizer)[0] == 4 * (3 * weights - matrices)
    monkeypatch.setattr("transduce.training.memory.resident_bytes", lambda: 1000)
    largest = lambda tokens: training.task.largest_batch(prepared, tokens)  # noqa: E731
    assert expected_peak(training.train_step, largest, 101) == 1000 + 4 * (weights + 2 * weights - matrices + matrices)


def test_the_state_of_another_optimizer_is_rejected(prepared: Prepared, tmp_path: Path) -> None:
    stopped_at(5, prepared, tmp_path, optimizer="adamw")
    training = trainer(prepared, tmp_path, optimizer="muon")
    with pytest.raises(ModelFolderError, match=r"qkv_proj.*exp_avg.*another optimizer"):
        training.resume(Listener())
    training.close()
