"""What a run may meet when it goes on: a stale lock, another trainer, other settings, another corpus, a newer format.

Each is refused before the first update, with both sides named, and leaves the run as it was.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.torture.example import Run, Tally, differences
from tests.torture.fork_server import ForkServer
from transduce.model_folder import load_weights, save_weights
from transduce.storage.atomic import read_json
from transduce.storage.layout import MANIFEST
from transduce.storage.manifest import save_manifest, write_manifest

STOPPED = 8
"""Where the run was stopped; there is a regular checkpoint at 6."""
NOBODY = 65534


@pytest.fixture(scope="module")
def half(fork_server: ForkServer, whole: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped; nobody may change it."""
    place = tmp_path_factory.mktemp("half")
    shutil.copy(whole.place / "recipe.toml", place)
    run = Run(fork_server, place)
    run.go(signals=[{"moment": "reported", "call": STOPPED, "number": 15}], note=str(place / "note"))
    assert run.saved() == STOPPED
    return run.folder


@pytest.fixture
def run(half: Path, fork_server: ForkServer, place: Path) -> Run:
    """The same, of one's own."""
    run = Run(fork_server, place)
    shutil.copytree(half, run.folder)
    return run


def setting(old: str, new: str) -> Callable[[Run], None]:
    """Change a line of the run's recipe."""

    def change(run: Run) -> None:
        path = run.folder / "recipe.toml"
        text = path.read_text()
        assert text.count(old) == 1, text
        path.write_text(text.replace(old, new))

    return change


def manifest(**changes: Any) -> Callable[[Run], None]:
    """Change what the newest checkpoint says of itself, under a new manifest."""

    def change(run: Run) -> None:
        folder = run.checkpoints.path(STOPPED)
        found = read_json(folder / MANIFEST)
        fingerprint = {**found["fingerprint"], **changes.pop("fingerprint", {})}
        save_manifest(folder, {**found, "fingerprint": fingerprint, **changes})

    return change


def tensors(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Run], None]:
    """Change the tensors of the newest checkpoint, under a new manifest."""

    def changed(run: Run) -> None:
        folder = run.checkpoints.path(STOPPED)
        found = read_json(folder / MANIFEST)
        weights = {key: change(value) for key, value in load_weights(folder / name).items()}
        save_weights(folder / name, weights)
        (folder / MANIFEST).unlink()
        write_manifest(folder, found["kind"], fingerprint=found["fingerprint"])

    return changed


def prepared_again(*changes: str) -> Callable[[Run], None]:
    """Prepare another corpus in the place of the run's."""

    def change(run: Run) -> None:
        words = [word for setting in changes for word in ("--set", setting)]
        command = ("prepare", "--recipe", run.place / "recipe.toml", *words, "--output", run.folder / "data")
        assert run.fork_server.run(*command).code == 0

    return change


def shortened(run: Run) -> None:
    path = run.folder / "data/train/target.tokens.bin"
    path.write_bytes(path.read_bytes()[:-2])


def of_a_model(run: Run) -> None:
    for update in run.checkpoints.updates():
        folder = run.checkpoints.path(update)
        save_manifest(folder, {**read_json(folder / MANIFEST), "kind": "transduce model"})


CHANGES: dict[str, tuple[Callable[[Run], None], tuple[str, ...]]] = {
    "the model's width": (setting("ffn_dim = 32", "ffn_dim = 48"), ("saved with model.ffn_dim 32", "now it is 48")),
    "the model's depth": (
        setting("num_layers = 1", "num_layers = 2"),
        ("saved with model.num_layers 1", "now it is 2"),
    ),
    "the learning rate": (
        setting("learning_rate = 0.01", "learning_rate = 0.02"),
        ("saved with training.learning_rate 0.01", "now it is 0.02"),
    ),
    "the tokenizer": (
        setting('kind = "word"', 'kind = "character"'),
        ("saved with tokenizer.kind word", "now it is character"),
    ),
    "the seed": (manifest(fingerprint={"seed": 5}), ("saved with seed 5", "now it is 1")),
    "the threads": (manifest(fingerprint={"threads": 2}), ("saved with threads 2", "now it is 1")),
    "torch": (manifest(fingerprint={"torch": "1.0"}), ("saved with torch 1.0", f"now it is {torch.__version__}")),
    "the format": (manifest(format=99), ("has format 99", "upgrade transduce")),
    "the kind": (of_a_model, ("belongs to a transduce model", "not to a transduce checkpoint")),
    "the precision": (
        tensors("model.safetensors", lambda weight: weight.half()),
        ("model.safetensors", "torch.float16", "torch.float32"),
    ),
    "the moments' shape": (
        tensors("optimizer.safetensors", lambda moment: moment[..., :1].clone() if moment.dim() else moment),
        ("optimizer.safetensors", "has shape", "this model's is"),
    ),
    "a corpus that shrank": (prepared_again("data.train.size=200"), ("saved with data", "now it is")),
    "a vocabulary that shrank": (
        prepared_again("data.train.symbols=5", "data.validation.symbols=5"),
        ("saved with data", "now it is"),
    ),
    "a corpus file that shrank": (shortened, ("target.tokens.bin: has", "bytes instead of")),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_changed_since_the_checkpoint_is_rejected_before_the_first_update(
    name: str, run: Run, tally: Tally
) -> None:
    change, sides = CHANGES[name]
    change(run)
    before = run.result()
    outcome = run.go()
    assert outcome.code == 65, outcome
    for side in sides:
        assert side in outcome.error
    assert "parameters" not in outcome.err, "it had begun"
    assert differences(run.result(), before) == []
    tally("changes since the checkpoint refused before the first update, both sides named", 1)


def test_a_corpus_that_another_run_shares_may_not_shrink(fork_server: ForkServer, place: Path) -> None:
    for name, size in (("corpus", 300), ("corpus", 200)):
        command = ("prepare", "--recipe", place / "recipe.toml", "--set", f"data.train.size={size}")
        assert fork_server.run(*command, "--output", place / name).code == 0
        if size == 300:
            recipe = ("--recipe", place / "recipe.toml", "--prepared", place / name, "--output", place / "run")
            signals = [{"moment": "reported", "call": STOPPED, "number": 15}]
            assert fork_server.run("train", *recipe, signals=signals, note=str(place / "note")).code == 143
    outcome = fork_server.run("train", "--resume", place / "run")
    assert outcome.code == 65
    assert "was saved with data" in outcome.error and "now it is" in outcome.error


def test_a_stale_lock_of_one_who_was_killed_is_none(
    fork_server: ForkServer, whole: Run, place: Path, tally: Tally
) -> None:
    run = Run(fork_server, place)
    while not (run.folder / ".lock").exists():
        fork_server.kill_after(whole.seconds / 2, *run.command)
    assert run.go().code == 0
    assert differences(run.result(), whole.result()) == []
    tally("stale locks passed over", 1)


def test_a_second_trainer_is_rejected_and_the_first_does_not_notice(run: Run, whole: Run, tally: Tally) -> None:
    first = run.fork_server.start(*run.command)
    timing = run.folder / "timing.jsonl"
    size = timing.stat().st_size
    while timing.stat().st_size == size:
        time.sleep(0.001)
    os.kill(first.pid, signal.SIGSTOP)
    fresh = ["train", "--recipe", str(run.place / "recipe.toml"), "--output", str(run.folder)]
    for command in (run.command, fresh):
        outcome = run.fork_server.run(*command)
        assert outcome.code == 75
        assert "another process is training there" in outcome.error
        assert outcome.seconds < 1.0
    os.kill(first.pid, signal.SIGCONT)
    assert run.fork_server.wait(first).code == 0
    assert differences(run.result(), whole.result()) == []
    tally("second trainers refused", 2)


@pytest.fixture
def closed(half: Path) -> Iterator[Path]:
    """A folder that everybody may read and nobody may write to, with a run in it."""
    with tempfile.TemporaryDirectory() as name:
        shutil.copytree(half, Path(name) / "run")
        shutil.copy(half.parent / "recipe.toml", name)
        folders = [Path(name), *(path for path in Path(name).rglob("*") if path.is_dir())]
        for folder in folders:
            folder.chmod(0o555)
        yield Path(name)
        for folder in folders:
            folder.chmod(0o755)


@pytest.mark.parametrize("what", ["a new run", "going on", "going on without the lock"])
def test_a_folder_without_write_permission_is_rejected_before_the_first_update(
    what: str, closed: Path, fork_server: ForkServer, tally: Tally
) -> None:
    plan = {"user": NOBODY} if os.geteuid() == 0 else {}  # root may write anywhere
    run = Run(fork_server, closed, "new" if what == "a new run" else "run")
    if what == "going on without the lock":
        (closed / "run").chmod(0o755)
        (closed / "run/.lock").unlink()
        (closed / "run").chmod(0o555)
    outcome = run.go(**plan)
    assert outcome.code == 73, outcome
    assert f"{run.folder}" in outcome.error and "Permission denied" in outcome.error
    assert "parameters" not in outcome.err, "it had begun"
    tally("folders without write permission refused", 1)
