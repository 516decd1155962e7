"""Checkpoints of a run: saved whole, found by looking, thinned out."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import torch

from tests.unit.training.example import run, small_model, trainer
from transduce.data.order import Position
from transduce.data.prepared import Prepared
from transduce.errors import ModelFolderError, StorageError
from transduce.model_folder import load_weights, save_weights, weights_of
from transduce.storage.atomic import read_json, write_json
from transduce.storage.manifest import save_manifest, write_manifest
from transduce.training.checkpoint import Checkpoints, Divergence, Progress
from transduce.training.config import TrainingConfig
from transduce.training.optimizer import build_optimizer, optimizer_tensors


@pytest.fixture
def finished(prepared: Prepared, tmp_path: Path) -> Path:
    """A run of 12 updates with checkpoints at 4, 8 and 12."""
    run(trainer(prepared, tmp_path, updates=12, validate_every=4))
    return tmp_path


def flip(path: Path, place: int = -7) -> None:
    """Damage one bit."""
    content = bytearray(path.read_bytes())
    content[place] ^= 4
    path.write_bytes(content)


def test_progress_comes_back_as_it_was(tmp_path: Path) -> None:
    watch = Divergence(seen=31, fast=1.0 / 7.0, slow=0.3, last=0.2, variance=0.01, alarmed=True)
    progress = Progress(31, Position(2, 0, 5), 997, 29, 1.0 / 3.0, 2, 3, 1, 12.7, 211, 512, 1, watch, 8191)
    write_json(tmp_path / "progress.json", progress.to_table())
    assert Progress.from_table(read_json(tmp_path / "progress.json"), tmp_path) == progress
    fresh = Progress()
    assert Progress.from_table(fresh.to_table(), tmp_path) == fresh


@pytest.mark.parametrize("change", [{"speed": 3}, {"position": [1, 2, 3, 4]}, {"position": None}], ids=str)
def test_progress_of_another_version_is_rejected(tmp_path: Path, change: dict[str, object]) -> None:
    with pytest.raises(ModelFolderError, match="not written by this version"):
        Progress.from_table(Progress().to_table() | change, tmp_path)


def test_what_is_restored_is_what_was_saved(prepared: Prepared, tmp_path: Path) -> None:
    training = trainer(prepared, tmp_path, updates=4, validate_every=4)
    run(training)
    model = small_model(prepared)
    optimizer = build_optimizer(model, TrainingConfig())
    progress = training.checkpoints.restore(4, model, optimizer)
    assert progress == training.progress
    for name, weight in weights_of(training.model).items():
        assert torch.equal(weights_of(model)[name], weight), name
    saved, put = optimizer_tensors(training.model, training.train_step.optimizer), optimizer_tensors(model, optimizer)
    assert saved.keys() == put.keys()
    assert all(torch.equal(saved[name], put[name]) for name in saved)


def test_a_checkpoint_of_a_run_that_has_not_moved_yet_can_be_saved_and_restored(
    prepared: Prepared, tmp_path: Path
) -> None:
    """All updates so far may have been skipped: there are no moments then."""
    model = small_model(prepared)
    optimizer = build_optimizer(model, TrainingConfig())
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(model, optimizer, Progress(update=3, skipped=3), {})
    assert checkpoints.restore(3, model, optimizer) == Progress(update=3, skipped=3)
    assert optimizer_tensors(model, optimizer) == {}


def test_a_checkpoint_that_says_the_same_is_not_written_again(prepared: Prepared, tmp_path: Path) -> None:
    """An interruption right after a validation saves the same update twice; the second time there is nothing to do."""
    model, checkpoints = small_model(prepared), Checkpoints(tmp_path)
    optimizer = build_optimizer(model, TrainingConfig())
    first = checkpoints.path(3)
    checkpoints.save(model, optimizer, Progress(update=3), {"seed": 1})
    made = first.stat().st_ino
    checkpoints.save(model, optimizer, Progress(update=3), {"seed": 1})
    assert first.stat().st_ino == made
    for progress, facts in ((Progress(update=3, tokens=5), {"seed": 1}), (Progress(update=3, tokens=5), {"seed": 2})):
        checkpoints.save(model, optimizer, progress, facts)
        assert first.stat().st_ino != made
        made = first.stat().st_ino
    flip(first / "model.safetensors")
    checkpoints.save(model, optimizer, Progress(update=3, tokens=5), {"seed": 2})
    assert checkpoints.latest() == (3, [])


def test_a_checkpoint_that_cannot_be_read_back_is_an_error_at_once(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older ones go after this, so it must not wait until the run is resumed."""

    def write_and_damage(folder: Path, *arguments: object, **notes: object) -> None:
        write_manifest(folder, *arguments, **notes)  # type: ignore[arg-type]
        flip(folder / "model.safetensors")

    monkeypatch.setattr("transduce.training.checkpoint.write_manifest", write_and_damage)
    model = small_model(prepared)
    with pytest.raises(StorageError, match=r"model\.safetensors: is damaged .* check the disk"):
        Checkpoints(tmp_path).save(model, build_optimizer(model, TrainingConfig()), Progress(update=3), {})


def test_a_manifest_that_does_not_list_what_is_read_is_rejected(finished: Path) -> None:
    checkpoints = Checkpoints(finished)
    manifest = read_json(checkpoints.path(12) / "manifest.json")
    del manifest["files"]["optimizer.safetensors"]
    save_manifest(checkpoints.path(12), manifest)
    found = checkpoints.latest()
    assert found is not None and found[0] == 8
    assert "does not list optimizer.safetensors" in found[1][0]


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors"])
@pytest.mark.parametrize("change", ["name", "shape", "precision"])
def test_tensors_of_another_model_are_rejected(prepared: Prepared, finished: Path, name: str, change: str) -> None:
    path = Checkpoints(finished).path(12) / name
    tensors = load_weights(path)
    key = max(tensors, key=lambda key: tensors[key].numel())
    tensor = tensors.pop(key)
    tensors |= {
        "name": {f"{key}.other": tensor},
        "shape": {key: tensor[1:].clone()},
        "precision": {key: tensor.bfloat16()},
    }[change]
    save_weights(path, tensors)
    model = small_model(prepared)
    with pytest.raises(ModelFolderError, match=re.escape(f"{path}: ")):
        Checkpoints(finished).restore(12, model, build_optimizer(model, TrainingConfig()))


def test_checkpoints_are_found_by_looking(finished: Path) -> None:
    checkpoints = Checkpoints(finished)
    assert checkpoints.updates() == [4, 8, 12]
    for foreign in ("update-", "update-x", "update-16", "update-\u00b2", "notes", ".update-00000016.writing"):
        (checkpoints.folder / foreign).mkdir()
    (checkpoints.folder / "update-00000020").write_text("a file")
    assert checkpoints.updates() == [4, 8, 12]
    assert checkpoints.latest() == (12, [])
    assert Checkpoints(finished / "nowhere").latest() is None


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "progress.json", "manifest.json"])
def test_a_damaged_newest_checkpoint_is_passed_over_with_a_complaint(finished: Path, name: str) -> None:
    checkpoints = Checkpoints(finished)
    flip(checkpoints.path(12) / name)
    found = checkpoints.latest()
    assert found is not None
    assert found[0] == 8
    assert len(found[1]) == 1
    assert "update-00000012" in found[1][0]


def test_a_checkpoint_that_lacks_a_file_is_passed_over(finished: Path) -> None:
    checkpoints = Checkpoints(finished)
    (checkpoints.path(12) / "progress.json").unlink()
    (checkpoints.path(8) / "manifest.json").unlink()
    found = checkpoints.latest()
    assert found is not None
    assert (found[0], len(found[1])) == (4, 2)


def test_when_no_checkpoint_is_intact_that_is_an_error(finished: Path) -> None:
    checkpoints = Checkpoints(finished)
    for update in (4, 8, 12):
        flip(checkpoints.path(update) / "model.safetensors")
    with pytest.raises(ModelFolderError, match="no checkpoint is intact"):
        checkpoints.latest()


def test_facts_are_what_the_run_gave_and_a_later_format_is_rejected(finished: Path) -> None:
    checkpoints = Checkpoints(finished)
    assert checkpoints.fingerprint(12) == {"recipe": "of a test"}
    manifest = read_json(checkpoints.path(12) / "manifest.json")
    save_manifest(checkpoints.path(12), manifest | {"format": 99})
    with pytest.raises(ModelFolderError, match="has format 99"):
        checkpoints.fingerprint(12)


@pytest.mark.parametrize(
    ("keep_last", "best", "left"),
    [(1, 50, [50]), (2, 10, [10, 40, 50]), (3, 40, [30, 40, 50]), (2, 0, [40, 50]), (7, 10, [10, 20, 30, 40, 50])],
)
def test_the_newest_and_the_best_are_kept(tmp_path: Path, keep_last: int, best: int, left: list[int]) -> None:
    checkpoints = Checkpoints(tmp_path)
    for update in (10, 20, 30, 40, 50):
        checkpoints.path(update).mkdir(parents=True)
    checkpoints.prune(keep_last, best)
    assert checkpoints.updates() == left


def test_one_of_an_interruption_takes_no_regular_one_s_place(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, every=100)
    for update in (200, 300, 350):
        checkpoints.path(update).mkdir(parents=True)
    checkpoints.prune(keep_last=1, best=200)
    assert checkpoints.updates() == [200, 300, 350]
    checkpoints.path(400).mkdir()
    checkpoints.prune(keep_last=1, best=200)
    assert checkpoints.updates() == [200, 400]


def test_a_checkpoint_needs_room_for_weights_and_two_moments(prepared: Prepared, tmp_path: Path) -> None:
    model = small_model(prepared)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    needed, free = Checkpoints(tmp_path / "run").room(model, build_optimizer(model, TrainingConfig()))
    assert needed == 3 * 4 * parameters
    assert abs(free - shutil.disk_usage(tmp_path).free) < 2**30
