"""What a Neural Turing Machine did with its memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from transduce.inspection.tape import has_tape, tape_of
from transduce.models.ancestors.turing_machine import TuringMachine, TuringMachineConfig
from transduce.models.catalog import build
from transduce.models.interface import VocabularySizes
from transduce.nn.hook import is_hooked

SOURCE, TARGET = (5, 11, 7, 2), (1, 13, 30, 4, 9, 2)
STEPS = len(SOURCE) + len(TARGET) - 1


def small(**changes: int) -> TuringMachine:
    config = TuringMachineConfig(hidden_dim=5, slots=13, slot_dim=3, read_heads=2).but(**changes)
    model = build(config, VocabularySizes(29, 31), seed=2)
    assert isinstance(model, TuringMachine)
    return model


def test_a_tape_has_every_step_of_every_head(tmp_path: Path) -> None:
    model = small()
    tape = tape_of(model, SOURCE, TARGET, list("abc") + ["</s>"] * (STEPS - 3))
    assert (tape.read.shape, tape.write.shape, tape.slots.shape) == ((2, STEPS, 13), (1, STEPS, 13), (STEPS, 13, 3))
    assert (tape.inputs.shape, tape.outputs.shape) == ((STEPS, 5), (STEPS, 5))
    np.testing.assert_allclose(tape.read.sum(-1), 1, rtol=1e-5)
    assert not tape.inputs[len(SOURCE) :].any() and not tape.outputs[: len(SOURCE)].any()
    assert np.abs(np.diff(tape.slots, axis=0)).max(axis=(1, 2)).min() > 0  # it writes at every step
    tape.save_png(tmp_path / "tape.png")
    assert (tmp_path / "tape.png").read_bytes().startswith(b"\x89PNG")


def test_hooks_are_removed_afterwards_and_a_machine_without_heads_has_no_tape() -> None:
    model = small()
    tape_of(model, SOURCE, TARGET, ["x"] * STEPS)
    assert has_tape(model) and not is_hooked(model.source_tape)
    assert not has_tape(small(read_heads=0, write_heads=0))
