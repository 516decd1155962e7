"""Few levels from the command to the model: cli → job → Translator → Engine → Search → model.step_groups."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import transduce
from tests.unit.training.example import recipe
from transduce.cli.main import run
from transduce.models.transformer import Transformer

MAX_MODULES = 10


def test_a_translation_passes_at_most_ten_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = transduce.train(recipe(training={"updates": 2}), tmp_path / "run")
    (tmp_path / "in.txt").write_text("a b c\n")
    step, modules = Transformer.step_groups, list[str]()

    def watched(self: Transformer, tokens: Sequence[Tensor], states: Sequence[Any]) -> list[tuple[Tensor, Any]]:
        if not modules:
            frames = [frame.filename.replace("\\", "/") for frame in traceback.extract_stack()]
            ours = [name.rpartition("/src/transduce/")[2] for name in frames if "/src/transduce/" in name]
            modules.extend(dict.fromkeys([*ours, "models/transformer.py"]))
        return step(self, tokens, states)

    monkeypatch.setattr(Transformer, "step_groups", watched)
    monkeypatch.setattr("transduce.inference.jobs.job.is_file", lambda path: False)  # all levels in one thread
    with torch.inference_mode():
        command = ["translate", str(folder), str(tmp_path / "in.txt"), "--engine", "torch", "--threads", "1"]
        assert run(command) == 0
    levels = ["cli/translate.py", "inference/translator.py", "inference/engine.py", "inference/search/search.py"]
    assert [name for name in modules if name in levels] == levels
    assert len(modules) <= MAX_MODULES, modules
