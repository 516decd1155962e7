"""Which weights a run ends with: the best checkpoint's, or the average of the last ones where that is no worse."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.unit.training.example import Listener, run, trainer
from transduce.data.prepared import Prepared
from transduce.errors import ModelFolderError
from transduce.model_folder import load_weights, put_weights, weights_of
from transduce.training.finish import average_weights, put_final_weights
from transduce.training.reporter import Validation
from transduce.training.trainer import Trainer


def finished(prepared: Prepared, folder: Path, **changes: object) -> Trainer:
    """A run with checkpoints at 3, 6, 9 and 11."""
    training = trainer(prepared, folder, updates=11, validate_every=3, keep_last=4, **changes)
    run(training)
    return training


def checkpoint(training: Trainer, update: int) -> dict[str, torch.Tensor]:
    return load_weights(training.checkpoints.path(update) / "model.safetensors")


def judge(training: Trainer, losses: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the validations of the best and of the average say what the test wants."""
    message = iter(losses)
    assert training.validator is not None
    monkeypatch.setattr(
        training.validator,
        "validate",
        lambda update, _: Validation(
            update=update, loss=next(message), perplexity=1.0, accuracy=0.0, scores={}, samples=()
        ),
    )


@pytest.mark.parametrize(("losses", "average_wins"), [([2.0, 1.9], True), ([2.0, 2.1], False)], ids=["better", "worse"])
def test_the_average_is_taken_where_it_is_better_than_the_best(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, losses: list[float], average_wins: bool
) -> None:
    training = finished(prepared, tmp_path, average_checkpoints=3)
    best = training.progress.best_update
    judge(training, losses, monkeypatch)
    updates, final = put_final_weights(training, Listener())
    assert updates == ([6, 9, 11] if average_wins else [best])
    assert final is not None
    assert final.loss == min(losses)
    parts = [checkpoint(training, update) for update in updates]
    for name, weight in weights_of(training.model).items():
        mean = sum(part[name].double() for part in parts) / len(parts)
        torch.testing.assert_close(weight, mean.float(), rtol=1e-6, atol=1e-8, msg=name)


@pytest.mark.parametrize("average", [0, 1])
def test_without_averaging_it_is_the_best_checkpoint_to_the_last_bit(
    prepared: Prepared, tmp_path: Path, average: int
) -> None:
    training = finished(prepared, tmp_path, average_checkpoints=average)
    updates, final = put_final_weights(training, Listener())
    assert updates == [training.progress.best_update]
    assert final is not None
    assert final.loss == pytest.approx(training.progress.best_score, rel=1e-6)
    expected = checkpoint(training, updates[0])
    assert all(torch.equal(weight, expected[name]) for name, weight in weights_of(training.model).items())


def test_without_validation_pairs_the_average_is_taken_as_requested(prepared: Prepared, tmp_path: Path) -> None:
    training = finished(Prepared(**{**vars(prepared), "validation": None}), tmp_path, average_checkpoints=2)
    assert put_final_weights(training, Listener()) == ([9, 11], None)


def test_the_best_window_is_the_neighbours_whose_average_validates_best(prepared: Prepared, tmp_path: Path) -> None:
    settings = {"updates": 10, "validate_every": 2, "keep_last": 5, "average_checkpoints": 2, "average_window": "best"}
    training = trainer(prepared, tmp_path, **settings)
    run(training)
    updates, found = put_final_weights(training, Listener())
    assert training.validator is not None
    assert found is not None
    candidates = [[training.progress.best_update], *([first, first + 2] for first in (2, 4, 6, 8))]
    losses = {}
    for candidate in candidates:
        files = [training.checkpoints.final_weights(update) for update in candidate]
        put_weights(training.model, average_weights(files), files[0])
        losses[tuple(candidate)] = training.validator.validate(10).loss
    assert losses[tuple(updates)] == min(losses.values()) == found.loss


@pytest.mark.parametrize("average", [0, 2])
def test_a_damaged_checkpoint_is_left_out_and_reported(prepared: Prepared, tmp_path: Path, average: int) -> None:
    """The best one: of the others, the one that validates best takes its place."""
    training = finished(prepared, tmp_path, average_checkpoints=average)
    best = training.progress.best_update
    weights = training.checkpoints.path(best) / "model.safetensors"
    damaged = bytearray(weights.read_bytes())
    damaged[-5] ^= 1
    weights.write_bytes(damaged)
    listener = Listener()
    updates, final = put_final_weights(training, listener)
    assert final is not None
    assert updates and best not in updates
    assert [f"without update {best}" in warning for warning in listener.warnings] == [True]


def test_without_validation_the_newest_takes_the_place_of_a_damaged_best(prepared: Prepared, tmp_path: Path) -> None:
    training = finished(Prepared(**{**vars(prepared), "validation": None}), tmp_path)
    assert training.progress.best_update == 11
    (training.checkpoints.path(11) / "model.safetensors").write_bytes(b"")
    assert put_final_weights(training, Listener()) == ([9], None)


def test_a_run_without_a_whole_checkpoint_gives_no_model(prepared: Prepared, tmp_path: Path) -> None:
    training = finished(prepared, tmp_path)
    for update in training.checkpoints.updates():
        (training.checkpoints.path(update) / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelFolderError, match="no checkpoint is intact"):
        put_final_weights(training, Listener())
