"""The loop: what one update does, when it ends, and what is noted down."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.unit.training.example import Listener, resumed, run, same, snapshot, trainer
from transduce.data.prepared import Prepared
from transduce.errors import TransduceError
from transduce.storage.journal import read_journal
from transduce.training.optimizer import gradient_norm
from transduce.training.reporter import Step, Validation
from transduce.training.trainer import Trainer


def test_bfloat16_learns_about_the_same(prepared: Prepared, tmp_path: Path) -> None:
    """On a CPU, with rounded factors; on a GPU autocast is the default."""
    results = []
    for precision in ("float32", "bfloat16"):
        training = trainer(prepared, tmp_path / precision, precision=precision)
        results.append([step.loss for step in run(training).steps])
        assert all(parameter.dtype == torch.float32 for parameter in training.model.parameters())
    assert results[0] != results[1]
    assert results[0] == pytest.approx(results[1], rel=0.05)


@pytest.mark.parametrize("clip", [0.0, 0.25, 1e6])
def test_a_gradient_longer_than_the_clip_is_shortened_to_it(prepared: Prepared, tmp_path: Path, clip: float) -> None:
    training, used = trainer(prepared, tmp_path, updates=3, max_grad_norm=clip), []

    class Look(Listener):
        def step(self, step: Step) -> None:
            super().step(step)
            used.append(float(gradient_norm(training.model)))

    listener = Look()
    run(training, listener)
    whole = [step.gradient_norm for step in listener.steps]
    assert all(norm > 0.3 for norm in whole), "the length before clipping is what is reported"
    assert used == pytest.approx([0.25] * 3 if clip == 0.25 else whole, rel=1e-5)


def poison(training: Trainer, is_bad: Callable[[int], bool]) -> None:
    """Make the gradient not a number in some updates."""
    parameter = next(training.model.parameters())
    parameter.register_hook(lambda gradient: gradient * math.nan if is_bad(training.progress.update + 1) else gradient)


def test_an_update_that_is_not_finite_is_left_out_and_noted_down(prepared: Prepared, tmp_path: Path) -> None:
    training, after = trainer(prepared, tmp_path, updates=9), []
    poison(training, lambda update: update in (1, 4, 5))

    class Look(Listener):
        def step(self, step: Step) -> None:
            super().step(step)
            after.append(snapshot(training))

    start = snapshot(training)
    listener = Look()
    run(training, listener)
    assert same(after[0], start)
    assert same(after[4], after[2])
    assert same(after[3], after[2])
    assert not same(after[5], after[4])
    assert all(bool(tensor.isfinite().all()) for tensor in after[-1].values())
    progress = training.progress
    assert (progress.update, progress.skipped, progress.skipped_in_a_row) == (9, 3, 0)
    assert progress.tokens == sum(step.tokens for step in listener.steps if step.update not in (1, 4, 5))
    skipped = [line for line in read_journal(tmp_path / "journal.jsonl") if line["event"] == "skipped"]
    assert [line["update"] for line in skipped] == [1, 4, 5]
    assert {line["norm"] for line in skipped} == {"nan"}
    expected_message = "skipped update 5: loss or gradient not finite (3 skipped so far)"
    assert listener.warnings[-1] == expected_message and len(listener.warnings) == 3


def test_ten_in_a_row_end_the_run_with_advice(prepared: Prepared, tmp_path: Path) -> None:
    training = trainer(prepared, tmp_path, updates=100, validate_every=100)
    poison(training, lambda update: update > 3)
    with pytest.raises(
        TransduceError, match=r"not finite 10 updates in a row, up to 13; lower training\.learning_rate"
    ):
        run(training)
    assert training.progress.update == 13


def test_nine_in_a_row_do_not(prepared: Prepared, tmp_path: Path) -> None:
    training = trainer(prepared, tmp_path)
    poison(training, lambda update: 3 < update < 13)
    run(training)
    assert (training.progress.skipped, training.progress.update) == (9, 17)


def test_a_weight_that_is_not_a_number_ends_the_run(prepared: Prepared, tmp_path: Path) -> None:
    training = trainer(prepared, tmp_path, updates=100, validate_every=100)
    with torch.no_grad():
        next(training.model.parameters())[5] = torch.nan
    with pytest.raises(TransduceError, match="10 updates in a row"):
        run(training)


def scripted(training: Trainer, losses: list[float], monkeypatch: pytest.MonkeyPatch, **scores: float) -> None:
    """Let the validations say what the test wants."""
    expected_message = iter(losses)

    def validate(update: int, _: int | None = None) -> Validation:
        return Validation(
            update=update, loss=next(expected_message), perplexity=1.0, accuracy=0.0, scores=scores, samples=()
        )

    assert training.validator is not None
    monkeypatch.setattr(training.validator, "validate", validate)


@pytest.mark.parametrize(
    ("patience", "losses", "updates", "best"),
    [
        (2, [3.0, 2.0, 2.5, 2.2, 1.0], 8, 4),
        (2, [3.0, 3.1, 2.0, 2.5, 2.2, 1.0], 10, 6),
        (1, [3.0, 3.0, 1.0], 4, 2),
        (0, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 12, 2),
        (5, [6.0, 5.0, 4.0, 3.0, 2.0, 1.0], 12, 12),
    ],
    ids=str,
)
def test_a_run_stops_early_after_as_many_validations_without_a_new_best(
    prepared: Prepared,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    patience: int,
    losses: list[float],
    updates: int,
    best: int,
) -> None:
    training = trainer(prepared, tmp_path, updates=12, validate_every=2, patience=patience, keep_last=2)
    scripted(training, losses, monkeypatch)
    listener = run(training)
    assert (training.progress.update, training.progress.best_update) == (updates, best)
    assert training.checkpoints.updates() == sorted({best, updates - 2, updates})
    bests = [validation.update for validation in listener.validations if validation.best]
    assert bests[-1] == best
    lines = [line for line in read_journal(tmp_path / "journal.jsonl") if line["event"] == "validation"]
    assert [line["update"] for line in lines if line["best"]] == bests


def test_a_run_without_an_exact_match_stops_by_its_loss(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not before: the best of equals would be the first checkpoint."""
    training = trainer(prepared, tmp_path, updates=12, validate_every=2, patience=2, metric="exact_match")
    scripted(training, [4.0, 3.0, 3.5, 2.0, 2.1, 2.2], monkeypatch, exact_match=0.0)
    run(training)
    assert (training.progress.update, training.progress.best_update) == (12, 8)


def test_a_run_that_stopped_early_stays_stopped(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"updates": 12, "validate_every": 2, "patience": 1}
    training = trainer(prepared, tmp_path, **settings)
    scripted(training, [1.0, 2.0], monkeypatch)
    run(training)
    again, listener = resumed(prepared, tmp_path, **settings)
    assert listener.steps == []
    assert again.progress == training.progress


def test_without_validation_pairs_the_last_update_is_the_best(prepared: Prepared, tmp_path: Path) -> None:
    training = trainer(Prepared(**{**vars(prepared), "validation": None}), tmp_path, updates=7, validate_every=3)
    listener = run(training)
    assert listener.validations == []
    assert (training.progress.best_update, training.checkpoints.updates()) == (7, [3, 6, 7])


def test_the_journal_holds_means_over_all_tokens_since_its_last_line(prepared: Prepared, tmp_path: Path) -> None:
    training = trainer(prepared, tmp_path, log_every=4)
    listener = run(training)
    journal = read_journal(tmp_path / "journal.jsonl")
    lines = [line for line in journal if line["event"] == "update"]
    assert journal[0] == {"event": "began", "recipe": "of a test"}
    assert [line["update"] for line in lines] == [4, 8, 12, 16]
    for number, line in enumerate(lines):
        window = listener.steps[4 * number : 4 * number + 4]
        tokens = sum(step.tokens for step in window)
        assert line["loss"] == pytest.approx(sum(step.loss * step.tokens for step in window) / tokens)
        assert line["tokens"] == sum(step.tokens for step in listener.steps[: 4 * number + 4])
        assert line["learning_rate"] == window[-1].learning_rate
        assert line["epoch"] == window[-1].epoch
    timing = [json.loads(line) for line in (tmp_path / "timing.jsonl").read_text().splitlines()]
    assert {line["event"] for line in timing} == {"update", "ended"}
    assert not any("seconds" in line or "at" in line for line in journal)


def test_an_epoch_is_every_pair_once(prepared: Prepared, tmp_path: Path) -> None:
    """Counted by tokens: what the first epoch's updates learnt from is all real target tokens, ends included."""
    training = trainer(prepared, tmp_path, updates=25, validate_every=25)
    listener = run(training)
    all_tokens = int((prepared.train.target_lengths[:] + 1).sum())
    assert sum(step.tokens for step in listener.steps if step.epoch == 0) == all_tokens
    assert {step.epoch for step in listener.steps} >= {0, 1}
    assert listener.plans[0].updates_per_epoch == sum(step.epoch == 0 for step in listener.steps)


def test_the_plan_says_what_is_about_to_happen(prepared: Prepared, tmp_path: Path) -> None:
    training = trainer(prepared, tmp_path, updates=1)
    (plan,) = run(training).plans
    assert plan.parameters == sum(parameter.numel() for parameter in training.model.parameters())
    assert (plan.train_pairs, plan.validation_pairs) == (len(prepared.train), len(training.validator.split))
    assert (plan.updates, plan.first_update, plan.threads, plan.device) == (1, 1, 1, "cpu")


def test_a_loss_that_runs_away_takes_the_run_back_and_past_the_batches(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alarm at the 12th and every later update that is observed: back to 10, twice, then only a warning."""
    observed = []

    def observe(_: object, loss: float) -> bool:
        observed.append(loss)
        return len(observed) >= 12

    monkeypatch.setattr("transduce.training.checkpoint.Divergence.observe", observe)
    training, at_ten = trainer(prepared, tmp_path, max_rollbacks=2), {}

    class Look(Listener):
        def step(self, step: Step) -> None:
            super().step(step)
            if step.update == 11 and at_ten:
                return
            if step.update == 10:
                at_ten.update(snapshot(training))

        def warn(self, message: str) -> None:
            super().warn(message)
            if "rolled back to update 10" in message:
                assert same(snapshot(training), at_ten)

    recorded = Look()
    run(training, recorded)
    assert [step.update for step in recorded.steps] == [*range(1, 13), 11, *range(11, 18)]
    assert training.progress.rollbacks == 2
    assert [message for message in recorded.warnings if "rolled back" not in message]
    journal = read_journal(tmp_path / "journal.jsonl")
    events = [line for line in journal if line["event"] == "rolled_back"]
    assert [(line["update"], line["to"]) for line in events] == [(12, 10), (11, 10)]
    validated = [line["update"] for line in journal if line["event"] == "validation"]
    assert validated == [5, 10, 15, 17], "what was gone back to has its score already, and costs no patience"
    seen = trainer(prepared, tmp_path / "other")
    run(seen)
    assert training.progress.position != seen.progress.position, "three batches were left out"


def test_without_a_checkpoint_there_is_nowhere_to_go_back_to(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transduce.training.checkpoint.Divergence.observe", lambda _, loss: True)
    recorded = run(trainer(prepared, tmp_path, max_rollbacks=2, updates=3))
    assert len(recorded.warnings) == 3
    assert all("if it does not recover" in warning for warning in recorded.warnings)
