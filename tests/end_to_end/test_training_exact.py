"""Stopping, resuming, cutting up and looking change nothing: the same run bit by bit, or but for rounding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.unit.training.example import Listener, StopAt, resumed, run, same, snapshot, stopped_at, trainer
from transduce.data.prepared import Prepared
from transduce.data.ragged import Ragged
from transduce.data.store import PairStore
from transduce.storage.journal import read_journal
from transduce.training.interruption import Interrupted, Interruption
from transduce.training.reporter import Step

REGULARISED = {
    "ema_decay": 0.9,
    "r_drop": 2.0,
    "r_drop_after": 4,
    "gradient_checkpointing": True,
    "threads": 2,
    "micro_batch_tokens": 29,
}


ACCUMULATED = {"gradient_accumulation": 2, "max_grad_norm": 0.5, "batch_tokens": 53}
CHANGES = {"plain": {}, "accumulate": ACCUMULATED, "regularised": REGULARISED}
STOPS = ([1], [5], [7], [3, 4, 11], [16])
SAMPLE = (("plain", [1]), ("plain", [7]), ("accumulate", [16]), ("regularised", [3, 4, 11]))


@pytest.mark.parametrize(
    ("stops", "changes"),
    [
        pytest.param(stops, changes, id=f"{stops}-{name}", marks=[] if (name, stops) in SAMPLE else pytest.mark.long)
        for name, changes in CHANGES.items()
        for stops in STOPS
    ],
)
def test_a_run_that_is_stopped_and_resumed_is_the_same_run_bit_by_bit(
    prepared: Prepared, tmp_path: Path, stops: list[int], changes: dict[str, object]
) -> None:
    """With dropout, at the first and last update, at a validation, between two, across epochs, and several times."""
    whole = trainer(prepared, tmp_path / "whole", **changes)
    run(whole)
    for place, stop in enumerate(stops):
        if place == 0:
            stopped_at(stop, prepared, tmp_path / "parts", **changes)
        else:
            listener = StopAt(update=stop)
            going = trainer(prepared, tmp_path / "parts", **changes)
            going.resume(listener)
            with pytest.raises(Interrupted):
                run(going, listener, listener.interruption)
    last, listener = resumed(prepared, tmp_path / "parts", **changes)
    assert [step.update for step in listener.steps] == list(range(stops[-1] + 1, 18))
    assert listener.plans[0].first_update == stops[-1] + 1
    assert same(snapshot(last), snapshot(whole))
    assert last.progress == whole.progress
    assert (tmp_path / "parts/journal.jsonl").read_bytes() == (tmp_path / "whole/journal.jsonl").read_bytes()
    assert whole.progress.position.epoch == 1


def test_noise_and_a_curriculum_are_the_same_after_a_stop(prepared: Prepared, tmp_path: Path) -> None:
    """Short pairs make short epochs: the run is in its third, and some have not been seen."""
    changes = {"gradient_noise": 0.1, "curriculum": 5}
    whole, usual = trainer(prepared, tmp_path / "whole", **changes), trainer(prepared, tmp_path / "usual")
    run(whole)
    run(usual)
    stopped_at(7, prepared, tmp_path / "parts", **changes)
    last, _ = resumed(prepared, tmp_path / "parts", **changes)
    assert same(snapshot(last), snapshot(whole))
    assert not same(snapshot(whole), snapshot(usual))
    assert whole.progress.position.epoch > usual.progress.position.epoch


def test_going_back_does_not_depend_on_where_a_run_was_stopped(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint of an interruption at update 12 is none that a run without it could go back to."""
    losses = []

    def observe(_: object, loss: float) -> bool:
        losses.append(loss)
        return len(losses) == 13

    monkeypatch.setattr("transduce.training.checkpoint.Divergence.observe", observe)
    whole = trainer(prepared, tmp_path / "whole", max_rollbacks=1)
    run(whole)
    losses.clear()
    stopped_at(12, prepared, tmp_path / "parts", max_rollbacks=1)
    last, _ = resumed(prepared, tmp_path / "parts", max_rollbacks=1)
    assert same(snapshot(last), snapshot(whole))
    journal = (tmp_path / "parts/journal.jsonl").read_bytes()
    assert journal == (tmp_path / "whole/journal.jsonl").read_bytes()
    assert b'"rolled_back", "update": 13, "to": 10' in journal


def test_recomputing_changes_nothing(prepared: Prepared, tmp_path: Path) -> None:
    results = []
    for recompute in (False, True):
        training = trainer(prepared, tmp_path / str(recompute), gradient_checkpointing=recompute)
        run(training)
        results.append(snapshot(training))
    assert same(*results)


def test_r_drop_without_dropout_is_the_usual_loss(prepared: Prepared, tmp_path: Path) -> None:
    results = []
    for alpha in (0.0, 5.0):
        training = trainer(prepared, tmp_path / str(alpha), {"dropout": 0.0}, r_drop=alpha, updates=3)
        results.append([step.loss for step in run(training).steps])
    assert results[0] == pytest.approx(results[1], rel=1e-5)


def test_r_drop_may_begin_after_some_updates(prepared: Prepared, tmp_path: Path) -> None:
    losses = {}
    for name, settings in {"never": {}, "later": {"r_drop_after": 2}, "always": {}}.items():
        training = trainer(prepared, tmp_path / name, r_drop=0.0 if name == "never" else 5.0, updates=3, **settings)
        losses[name] = [step.loss for step in run(training).steps]
    assert losses["later"][:2] == losses["never"][:2] != losses["always"][:2]
    assert losses["later"][2] != losses["never"][2]


def test_a_run_that_was_killed_goes_on_from_its_last_checkpoint(prepared: Prepared, tmp_path: Path) -> None:
    """Nothing was saved on the way out, and the journal is ahead of the checkpoint, with half a line at its end."""
    whole = trainer(prepared, tmp_path / "whole")
    run(whole)

    class Killed(Listener):
        def step(self, step: Step) -> None:
            super().step(step)
            if step.update == 13:
                raise MemoryError

    with pytest.raises(MemoryError):
        run(trainer(prepared, tmp_path / "killed"), Killed())
    with (tmp_path / "killed/journal.jsonl").open("ab") as journal:
        journal.write(b'{"event": "upd')
    last, listener = resumed(prepared, tmp_path / "killed")
    assert listener.steps[0].update == 11
    assert same(snapshot(last), snapshot(whole))
    assert (tmp_path / "killed/journal.jsonl").read_bytes() == (tmp_path / "whole/journal.jsonl").read_bytes()


def test_a_damaged_newest_checkpoint_is_reported_and_the_run_resumes_from_the_one_before(
    prepared: Prepared, tmp_path: Path
) -> None:
    whole = trainer(prepared, tmp_path / "whole")
    run(whole)
    stopped_at(12, prepared, tmp_path / "damaged")
    weights = tmp_path / "damaged/checkpoints/update-00000012/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    last, listener = resumed(prepared, tmp_path / "damaged")
    assert listener.steps[0].update == 11
    assert len(listener.warnings) == 1
    assert "update-00000012" in listener.warnings[0]
    assert "from update 10" in listener.warnings[0]
    assert same(snapshot(last), snapshot(whole))


def test_a_run_without_any_checkpoint_begins_again(prepared: Prepared, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/journal.jsonl").write_bytes(b'{"event": "began"}\n{"event": "update"}\n')
    _, listener = resumed(prepared, tmp_path / "run", updates=2)
    assert [step.update for step in listener.steps] == [1, 2]
    assert [line["event"] for line in read_journal(tmp_path / "run/journal.jsonl")] == ["began", "validation"]


def test_a_run_that_is_over_stays_as_it_is(prepared: Prepared, tmp_path: Path) -> None:
    first = trainer(prepared, tmp_path)
    run(first)
    journal = (tmp_path / "journal.jsonl").read_bytes()
    again, listener = resumed(prepared, tmp_path)
    assert listener.steps == []
    assert same(snapshot(again), snapshot(first))
    assert (tmp_path / "journal.jsonl").read_bytes() == journal


@pytest.mark.parametrize("changes", [{"validate_every": 2}, {"decode_examples": 0}, {"log_every": 1}], ids=str)
def test_looking_at_a_run_does_not_change_it(prepared: Prepared, tmp_path: Path, changes: dict[str, object]) -> None:
    usual, watched = trainer(prepared, tmp_path / "usual"), trainer(prepared, tmp_path / "watched", **changes)
    run(usual)
    run(watched)
    assert same(snapshot(usual), snapshot(watched))


def test_the_seed_decides_and_the_global_generator_does_not(prepared: Prepared, tmp_path: Path) -> None:
    results = []
    for number, (chance, seed) in enumerate([(1, 1), (2, 1), (3, 2)]):
        torch.manual_seed(chance)
        training = trainer(prepared, tmp_path / str(number), updates=5, seed=seed)
        run(training)
        results.append(snapshot(training))
    assert same(results[0], results[1])
    assert not same(results[1], results[2])


def equal_lengths(prepared: Prepared, count: int = 8) -> Prepared:
    """The same tokenizers over pairs of one length, so that batches can be cut in two without changing anything."""
    generator = np.random.default_rng(5)
    sides = [Ragged.of(generator.integers(4, prepared.source_tokenizer.size, (count, 4)).tolist()) for _ in range(2)]
    store = PairStore(*sides, *(Ragged.of([[65]] * count, np.uint8) for _ in range(2)))
    return Prepared(**{**vars(prepared), "train": store})


def test_two_half_batches_accumulated_are_one_batch(prepared: Prepared, tmp_path: Path) -> None:
    corpus = equal_lengths(prepared)
    settings = {"updates": 5, "epsilon": 1e-4, "validate_every": 5}
    whole = trainer(corpus, tmp_path / "whole", {"dropout": 0.0}, batch_tokens=40, **settings)
    halves = trainer(
        corpus, tmp_path / "halves", {"dropout": 0.0}, batch_tokens=20, gradient_accumulation=2, **settings
    )
    listeners = [run(whole), run(halves)]
    for one, two in zip(*(listener.steps for listener in listeners), strict=True):
        assert (one.update, one.epoch, one.tokens) == (two.update, two.epoch, two.tokens) == (one.update, two.epoch, 40)
        assert two.loss == pytest.approx(one.loss, rel=1e-6)
        assert two.gradient_norm == pytest.approx(one.gradient_norm, rel=1e-5)
    for name, tensor in snapshot(whole).items():
        torch.testing.assert_close(snapshot(halves)[name], tensor, rtol=1e-5, atol=1e-6, msg=name)


def test_a_stop_between_two_validations_saves_before_it_stops(prepared: Prepared, tmp_path: Path) -> None:
    stopped_at(8, prepared, tmp_path)
    training = trainer(prepared, tmp_path)
    training.journal.close()
    assert training.checkpoints.updates() == [5, 8]


def test_a_stop_at_the_last_update_comes_too_late_to_matter(prepared: Prepared, tmp_path: Path) -> None:
    listener = StopAt(update=17)
    training = trainer(prepared, tmp_path)
    run(training, listener, listener.interruption)
    assert training.progress.update == 17
    assert isinstance(listener.interruption, Interruption)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="plain"),
        pytest.param({"gradient_accumulation": 2, "max_grad_norm": 0.5}, id="accumulate", marks=pytest.mark.long),
    ],
)
def test_the_weights_do_not_depend_on_the_number_of_threads(
    prepared: Prepared, tmp_path: Path, changes: dict[str, object]
) -> None:
    results = []
    for threads in (1, 2, 5):
        training = trainer(prepared, tmp_path / str(threads), threads=threads, micro_batch_tokens=31, **changes)
        run(training)
        results.append(snapshot(training))
    assert same(results[0], results[1])
    assert same(results[0], results[2])


def test_the_weights_depend_on_the_slices_by_rounding_only(prepared: Prepared, tmp_path: Path) -> None:
    """With dropout: its masks belong to the rows, however they are cut."""
    results = []
    for micro_batch_tokens in (1, 29, 1000):
        settings = {"micro_batch_tokens": micro_batch_tokens, "epsilon": 1e-4, "updates": 5}
        training = trainer(prepared, tmp_path / str(micro_batch_tokens), **settings)
        run(training)
        results.append(snapshot(training))
    assert not same(results[0], results[2])
    for other in results[:2]:
        for name, tensor in results[2].items():
            torch.testing.assert_close(other[name], tensor, rtol=1e-5, atol=1e-6, msg=name)
