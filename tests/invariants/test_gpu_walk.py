"""On a stand-in for a GPU: no host waits inside a training step or a decoding step, and products are bfloat16.

No GPU computed any of it: tensors have shapes and dtypes there. `make test-gpu` computes, where there is a GPU.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.invariants.gpu_walk import EXCEPTIONS
from transduce.models import catalog

SAMPLE = ("tiny", "gpt_mini", "bert_mini")
"""What the default tests walk through; `make test-gpu` takes all presets."""
AT_LEAST = 0.98
"""Part of the FLOPs of a training step that is bfloat16."""


def walked(*arguments: str) -> dict[str, Any]:
    """In a process of its own: the stand-in stays registered."""
    command = [sys.executable, "-m", "tests.invariants.stand_in_gpu", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def check(found: dict[str, Any]) -> None:
    for name, walk in found.items():
        assert "error" not in walk, f"{name}: {walk['error']}"
        assert walk["waits"] == {}, f"{name} waits for the device"
        assert walk["devices"] == ["standin"], f"{name} leaves a tensor behind"
        if name.endswith("train"):
            assert walk["result"] == "QueuedResult", name
            assert walk["flops"].get("bfloat16", 0) >= AT_LEAST * sum(walk["flops"].values()) > 0, name


@pytest.fixture(scope="module")
def sample() -> dict[str, Any]:
    """One process for all: it takes seconds to start."""
    return walked("--control", *SAMPLE)


def test_a_training_and_a_decoding_step_never_wait_for_the_device(sample: dict[str, Any]) -> None:
    found = {name: walk for name, walk in sample.items() if name.split()[0] in SAMPLE}
    assert len(found) == 2 * len(SAMPLE) - 1  # an encoder does not decode
    check(found)


def test_the_walk_finds_what_it_looks_for(sample: dict[str, Any]) -> None:
    """A loss outside autocast, a value that is read, and a tensor on the CPU."""
    flops = sample["float32 loss"]["flops"]
    assert flops["float32"] > 0.1 * sum(flops.values())
    assert sample["host update"]["waits"]
    assert "two devices" in sample["other device"]["error"]


@pytest.mark.long
def test_no_preset_waits_for_the_device() -> None:
    found = walked()
    names = {preset for name, entry in catalog.MODELS.items() if name not in EXCEPTIONS for preset in entry.presets}
    assert {name.split()[0] for name in found} >= names
    check(found)
