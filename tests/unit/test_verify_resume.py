"""Proving that a killed run resumes as itself: once for real, and once with a run that does not."""

from __future__ import annotations

import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from transduce.errors import TransduceError
from transduce.recipe import Recipe
from transduce.run import train
from transduce.tasks.catalog import prepare
from transduce.tasks.translation.config import TranslationConfig
from transduce.verify_resume import _compare, verify_resume

RECIPE = {
    "data": {"train": {"task": "reverse", "size": 300, "max_length": 5}},
    "tokenizer": {"kind": "word", "min_frequency": 1},
    "model": {"model_dim": 8, "num_heads": 2, "ffn_dim": 13, "num_layers": 1, "dropout": 0.2},
    "training": {"threads": 1, "batch_tokens": 97, "schedule": "linear", "learning_rate": 0.01, "warmup": 3},
}


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return Recipe.from_tables(RECIPE, "the test's recipe")


@pytest.mark.parametrize("is_prepared", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_run_that_was_killed_is_the_same_run_after_resuming(
    recipe: Recipe, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, is_prepared: bool
) -> None:
    prepared = None
    if is_prepared:  # and the files that it came of are gone
        folder = tmp_path_factory.mktemp("corpus")
        pairs = [f"{' '.join(text)}\t{' '.join(reversed(text))}\n" for text in ("abc", "bca", "acb", "ccb") * 9]
        files, prepared = folder / "pairs.tsv", folder / "prepared"
        files.write_text("".join(pairs), encoding="utf-8")
        recipe = replace(
            recipe, data=TranslationConfig.from_table({"train": {"path": str(files)}, "duplicates": "keep"}, "")
        )
        prepare(recipe.data, recipe.tokenizer, prepared)
        files.unlink()
    recipe = replace(recipe, training=recipe.training.but(ema_decay=0.9))
    message = list(verify_resume(recipe, tmp_path / "run", prepared, updates=60))
    assert "killed after update 30" in message[1]
    assert [line.partition(":")[0] for line in message[2:]] == [
        "average.safetensors",
        "model.safetensors",
        "optimizer.safetensors",
        "progress.json",
        "journal.jsonl",
    ]
    assert list(tmp_path.iterdir()) == []


def test_who_ends_the_proof_ends_its_trial_run(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[subprocess.Popen[str]] = []

    class Recorded(subprocess.Popen[str]):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._sigint_wait_secs = 0.0  # as on a machine where a killed process takes its time
            begun.append(self)

    monkeypatch.setattr(subprocess, "Popen", Recorded)
    proof = verify_resume(recipe, tmp_path / "run", updates=100_000)
    assert "training 100000 updates" in next(proof)

    def stop(number: int, _: object) -> None:
        raise KeyboardInterrupt(number)

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 1.0)
    try:
        with pytest.raises(KeyboardInterrupt):
            next(proof)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert [process.returncode for process in begun] == [-signal.SIGKILL]  # ended, and waited for
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_differs_is_an_error(recipe: Recipe, tmp_path: Path) -> None:
    training = recipe.training.but(updates=2, validate_every=2, decode_examples=0)
    train(replace(recipe, training=training), tmp_path / "first")
    train(replace(recipe, training=training.but(seed=2)), tmp_path / "second")
    with pytest.raises(TransduceError, match=r"model\.safetensors differs after resuming"):
        list(_compare(tmp_path / "first", tmp_path / "second", 2))
