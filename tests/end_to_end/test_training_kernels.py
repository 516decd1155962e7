"""Training with kernels and with thinking: what is drawn once stays, and a stopped run ends with the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit.training.example import recipe, resumed, run, same, snapshot, stopped_at, trainer
from transduce.data.prepared import Prepared
from transduce.model_folder import load_model
from transduce.run import train

KERNELS: dict[str, dict[str, Any]] = {
    "performer": {"attention": "performer", "features": 5},
    "hashed": {"attention": "hashed", "hash_buckets": 2, "hash_reach": 2, "attention_dropout": 0.2},
    "window": {"attention": "window", "window": 2, "global_tokens": 1, "attention_dropout": 0.2},
}


@pytest.mark.parametrize("name", KERNELS)
def test_a_run_with_a_kernel_that_was_stopped_is_the_same_run(name: str, prepared: Prepared, tmp_path: Path) -> None:
    whole = trainer(prepared, tmp_path / "whole", model=KERNELS[name])
    fixed = {key: value.clone() for key, value in whole.model.named_parameters() if not value.requires_grad}
    assert bool(fixed) == (name != "window")
    run(whole)
    for key, value in fixed.items():
        assert torch.equal(dict(whole.model.named_parameters())[key], value)
    stopped_at(7, prepared, tmp_path / "stopped", model=KERNELS[name])
    again, _ = resumed(prepared, tmp_path / "stopped", model=KERNELS[name])
    assert same(snapshot(again), snapshot(whole))


def test_a_universal_transformers_run_does_not_depend_on_how_its_batches_are_cut(tmp_path: Path) -> None:
    """Random offsets and the cost of thinking are those of each row, in whatever slice it is."""
    model = {"name": "universal", "model_dim": 14, "num_heads": 2, "ffn_dim": 19, "num_layers": 3, "max_offset": 9}
    weights = []
    for micro_batch_tokens in (20, 101):
        changes = {"model": model, "training": {"updates": 3, "micro_batch_tokens": micro_batch_tokens}}
        folder = train(recipe(**changes), tmp_path / str(micro_batch_tokens))
        weights.append(_weights(folder))
    for name, value in weights[0].items():
        torch.testing.assert_close(weights[1][name], value, rtol=1e-3, atol=1e-4)


def _weights(folder: Path) -> dict[str, torch.Tensor]:
    return {name: value.detach() for name, value in load_model(folder / "model").model.named_parameters()}
