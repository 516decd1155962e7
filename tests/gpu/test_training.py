"""Training on a GPU: without waiting, to the same bits when resumed, in bfloat16, compiled, on two ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.invariants.gpu_walk import VOCABULARY, batch_for
from tests.unit.training.example import TABLES, recipe
from transduce.config import merge
from transduce.models import catalog
from transduce.models.interface import EncoderModel, VocabularySizes
from transduce.run import train
from transduce.storage.journal import read_journal
from transduce.tasks.text_encoding.batches import encoder_loss
from transduce.tasks.transducer import transducer_loss
from transduce.training.config import TrainingConfig
from transduce.training.step import TrainStep
from transduce.training.update import read

PRESETS = ("small", "gpt_mini", "bert_mini", "t5_mini", "conv_small", "bytenet_small", "universal_mini", "lstm_mini")


def step_of(preset: str, **changes: Any) -> tuple[TrainStep, Callable[[int], Any]]:
    name, config = catalog.preset(preset)
    head = {"head": "tags"} if name == "bert" else {}
    model = catalog.build(config.but(**head), VocabularySizes(VOCABULARY, VOCABULARY), seed=1).to("cuda")
    loss = encoder_loss if isinstance(model, EncoderModel) else transducer_loss
    defaults = {"precision": "bfloat16", "optimizer": "adamw", "max_grad_norm": 1.0, "device": "cuda"}
    made = TrainStep(model, loss, TrainingConfig(**{**defaults, **changes}))
    batch = batch_for(model, 16, 12).to("cuda")
    return made, lambda update: made.run([batch], update, 1e-3, 16 * batch.width // 2)


@pytest.mark.parametrize("optimizer", ["adamw", "muon", "sgd"])
@pytest.mark.parametrize("preset", PRESETS)
def test_an_update_does_not_wait_for_the_gpu_and_learns(preset: str, optimizer: str) -> None:
    """CUDA itself raises where the host would wait."""
    if optimizer == "muon" and preset in ("lstm_mini", "conv_small", "bytenet_small"):
        optimizer = "adam"
    _, run = step_of(preset, optimizer=optimizer)
    results = [run(1), run(2)]
    torch.cuda.set_sync_debug_mode("error")
    try:
        results += [run(update) for update in range(3, 30)]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    losses = [result.loss for result in read(results)]
    assert all(result.finite for result in read(results))
    assert losses[-1] < losses[0]


def test_an_update_that_is_not_finite_is_skipped_on_the_gpu() -> None:
    made, run = step_of("small")
    run(1)
    before = [parameter.detach().clone() for parameter in made.model.parameters()]
    hook = next(made.model.parameters()).register_hook(lambda gradient: gradient * float("nan"))
    assert not read([run(2)])[0].finite
    hook.remove()  # type: ignore[no-untyped-call]
    assert all(map(torch.equal, before, made.model.parameters()))
    assert read([run(3)])[0].finite


def test_compiled_blocks_learn_what_plain_ones_do() -> None:
    losses = {}
    for compiled in (False, True):
        _, run = step_of("small", compile=compiled, precision="float32")
        losses[compiled] = [result.loss for result in read([run(update) for update in range(1, 6)])]
    assert losses[True][0] == pytest.approx(losses[False][0], rel=0.05)  # other dropout masks
    assert losses[True][-1] < losses[True][0]


GPU = {"training": {"device": "cuda"}}


def test_a_run_is_repeated_and_resumed_to_the_same_weights(tmp_path: Path) -> None:
    weights = []
    for name, updates in (("whole", (17,)), ("again", (17,)), ("parts", (10, 17))):
        for number, count in enumerate(updates):
            made = recipe(**merge(GPU, {"training": {"updates": count}}))
            if number:
                path = tmp_path / name / "recipe.toml"
                path.write_text(path.read_text().replace(f"updates = {updates[0]}", f"updates = {count}"))
            train(made, tmp_path / name, resume=number > 0)
        weights.append((tmp_path / name / "model/model.safetensors").read_bytes())
    assert weights[0] == weights[1] == weights[2]


def test_a_run_on_the_gpu_is_near_that_on_the_cpu(tmp_path: Path) -> None:
    """Without dropout, in float32."""
    found = []
    for device in ("cpu", "cuda"):
        changes = {"training": {"device": device, "precision": "float32"}, "model": {"dropout": 0.0}}
        train(recipe(**changes), tmp_path / device)
        lines = read_journal(tmp_path / device / "journal.jsonl")
        found.append([line["loss"] for line in lines if line["event"] == "update"])
    assert found[1] == pytest.approx(found[0], rel=1e-3)


@pytest.mark.parametrize("shard", [False, True])
def test_two_ranks_by_nccl_are_one_process(tmp_path: Path, shard: bool) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("two ranks need two GPUs")
    changes = {"training": {"device": "cuda", "precision": "float32", "shard": shard}, "model": {"dropout": 0.0}}
    (tmp_path / "two.toml").write_text(recipe(**changes).to_toml())
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "-m", "transduce", "train"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [sys.executable, *command, "--recipe", str(tmp_path / "two.toml"), "--output", str(tmp_path / "two")],
        check=True,
        env=environment,
        timeout=600,
    )
    train(recipe(**merge(changes, {"training": {"shard": False}})), tmp_path / "one")
    losses = [
        [line["loss"] for line in read_journal(tmp_path / name / "journal.jsonl") if line["event"] == "update"]
        for name in ("one", "two")
    ]
    assert losses[1] == pytest.approx(losses[0], rel=1e-4), json.dumps(TABLES)
