"""Memory: what is expected of it, what is chosen by it, and what happens when there is none left."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit.training.example import Listener, StopAt, run, small_model, trainer
from tests.unit.training.test_trainer import resumed, snapshot
from transduce.data.batching import Batch
from transduce.data.prepared import Prepared
from transduce.errors import TransduceError
from transduce.tasks.catalog import task_for
from transduce.training import memory
from transduce.training.interruption import Interrupted
from transduce.training.memory import (
    available_bytes,
    batch_for,
    expected_peak,
    fitting_micro_batch,
    keep_freed_memory,
    ran_out_of_memory,
)
from transduce.training.reporter import Validation
from transduce.training.trainer import Trainer
from transduce.training.validation import Validator


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("out of memory"), False),
    ],
    ids=str,
)
def test_what_a_system_says_when_memory_runs_out(error: BaseException, expected: bool) -> None:
    assert ran_out_of_memory(error) is expected


@pytest.mark.parametrize(("tokens", "expected"), [(1, 1024), (204_799, 1024), (204_800, 2048), (10**12, 32_768)])
def test_a_batch_is_a_small_part_of_the_corpus(tokens: int, expected: int) -> None:
    assert batch_for(tokens) == expected


def largest(prepared: Prepared) -> Callable[[int], Batch]:
    return partial(task_for(prepared.data).largest_batch, prepared)


def run_out_above(training: Trainer, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the system refuse memory for slices with more tokens than this."""
    backward = training.train_step._backward

    def refuse(model: object, part: object, update: int, tokens: int) -> float:
        if part.rows.source.numel() > most:  # type: ignore[attr-defined]
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes")
        return backward(model, part, update, tokens)  # type: ignore[arg-type]

    monkeypatch.setattr(training.train_step, "_backward", refuse)


@pytest.mark.parametrize("threads", [1, 3])
def test_running_out_halves_the_slices_and_gives_the_same_weights(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    settings = {"updates": 5, "epsilon": 1e-4, "micro_batch_tokens": 97, "threads": threads}
    whole = trainer(prepared, tmp_path / "whole", **settings)
    undisturbed = run(whole)
    short = trainer(prepared, tmp_path / "short", **settings)
    run_out_above(short, 30, monkeypatch)
    recorded = run(short)
    assert short.progress.micro_batch_tokens == 24
    assert [step.tokens for step in recorded.steps] == [step.tokens for step in undisturbed.steps]
    assert any("micro-batches of 24 tokens" in warning for warning in recorded.warnings)
    journal = [json.loads(line) for line in (tmp_path / "short/journal.jsonl").read_text().splitlines()]
    halved = [line["micro_batch_tokens"] for line in journal if line["event"] == "out_of_memory"]
    assert halved == [48, 24]
    for name, tensor in snapshot(whole).items():
        torch.testing.assert_close(snapshot(short)[name], tensor, rtol=1e-5, atol=1e-6, msg=name)


def test_a_resumed_run_keeps_its_smaller_slices(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = StopAt(update=3)
    short = trainer(prepared, tmp_path, micro_batch_tokens=97)
    run_out_above(short, 30, monkeypatch)
    with pytest.raises(Interrupted):
        run(short, stop, stop.interruption)
    last, recorded = resumed(prepared, tmp_path, micro_batch_tokens=97)
    assert recorded.steps[0].update == 4
    assert last.progress.micro_batch_tokens == 24


def test_a_micro_batch_that_never_fits_is_an_error(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = trainer(prepared, tmp_path, micro_batch_tokens=97)
    run_out_above(training, 0, monkeypatch)
    monkeypatch.setattr("transduce.training.trainer.expected_peak", lambda *_: 0)
    with pytest.raises(TransduceError, match="memory at update 1, even with micro-batches of 12"):
        run(training)


def test_one_of_several_ranks_cannot_go_on_in_smaller_slices_alone(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = trainer(prepared, tmp_path, micro_batch_tokens=96)
    monkeypatch.setattr(training, "ranks", replace(training.ranks, world=2, rank=1))

    def runs_out(size: int) -> None:
        raise MemoryError(size)

    with pytest.raises(
        TransduceError,
        match=r"rank 1 ran out of memory at update 1; start a new run with training\.micro_batch_tokens=48",
    ):
        training._in_memory(runs_out, Listener())
    training.close()


def test_where_validation_runs_out_it_goes_on_in_smaller_slices(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = trainer(prepared, tmp_path, updates=5, micro_batch_tokens=97)
    validate, asked = Validator.validate, []

    def refuse(validator: Validator, update: int, micro_batch_tokens: int) -> Validation:
        asked.append((update, micro_batch_tokens))
        if micro_batch_tokens > 50:
            raise MemoryError
        return validate(validator, update, micro_batch_tokens)

    monkeypatch.setattr(Validator, "validate", refuse)
    recorded = run(training)
    assert asked == [(5, 97), (5, 48)]
    assert [found.update for found in recorded.validations] == [5]
    assert training.progress.micro_batch_tokens == 48


def test_where_memory_ends_between_the_two_moments_of_a_weight_the_update_is_made_again(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, short = (trainer(prepared, tmp_path / name, updates=3, micro_batch_tokens=97) for name in ("whole", "short"))
    run(whole)
    zeros, made = torch.zeros_like, []

    def refuse(tensor: torch.Tensor, **options: object) -> torch.Tensor:
        if options:  # as Adam asks for its moments, two for every weight
            made.append(tensor)
            if len(made) == 4:
                raise MemoryError
        return zeros(tensor, **options)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(torch, "zeros_like", refuse)
    recorded = run(short)
    assert len(made) > 4
    assert any("micro-batches of 48 tokens" in warning for warning in recorded.warnings)
    for name, tensor in snapshot(whole).items():
        torch.testing.assert_close(snapshot(short)[name], tensor, rtol=1e-5, atol=1e-6, msg=name)


def test_any_other_error_stays_what_it_is(prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = trainer(prepared, tmp_path)
    monkeypatch.setattr("transduce.training.trainer.expected_peak", lambda *_: 0)

    def fail(*_: object) -> float:
        raise RuntimeError("shapes differ")

    monkeypatch.setattr(training.train_step, "_backward", fail)
    with pytest.raises(RuntimeError, match="shapes differ"):
        run(training)


def test_the_plan_says_how_much_memory_it_will_take(prepared: Prepared, tmp_path: Path) -> None:
    training, recorded = trainer(prepared, tmp_path, updates=1), Listener()
    run(training, recorded)
    assert 2**26 < recorded.plans[0].memory < 2**34
    assert all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in training.model.parameters())


def test_a_trial_leaves_no_trace(prepared: Prepared, tmp_path: Path) -> None:
    training = trainer(prepared, tmp_path)
    before = snapshot(training)
    expected_peak(training.train_step, largest(prepared), 101)
    training.close()
    assert all(torch.equal(tensor, before[name]) for name, tensor in snapshot(training).items())
    assert all(parameter.grad is None for parameter in training.model.parameters())


def test_what_is_held_already_or_never_is_not_expected_again(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Moments that were restored, weights that are held still, and those that make room for an average."""
    monkeypatch.setattr(memory, "resident_bytes", lambda: 1000)
    weights = 4 * sum(weight.numel() for weight in small_model(prepared).parameters())

    def expected(began: bool = False, still: bool = False, **changes: Any) -> int:
        training = trainer(prepared, tmp_path / str(len(list(tmp_path.iterdir()))), **changes)
        training.close()
        for parameter in training.model.parameters() if still else ():
            parameter.requires_grad_(parameter.dim() < 2)
        if began:
            training.train_step.optimizer.state[next(training.model.parameters())] = {}
        return expected_peak(training.train_step, largest(prepared), 101) - 1000

    small = 4 * sum(weight.numel() for weight in small_model(prepared).parameters() if weight.dim() < 2)
    assert (expected(), expected(began=True), expected(still=True)) == (3 * weights, weights, 3 * small)
    assert expected(ema_decay=0.9) == 4 * weights


def test_ranks_of_one_machine_share_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = available_bytes(torch.device("cpu"))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert available_bytes(torch.device("cpu")) < whole / 2


def test_a_small_trial_after_a_large_one_takes_what_it_would_have_taken_before(
    prepared: Prepared, tmp_path: Path
) -> None:
    assert keep_freed_memory()
    training = trainer(
        prepared, tmp_path, {"model_dim": 126, "ffn_dim": 509, "num_layers": 3}, micro_batch_tokens=20_000
    )
    small, large, again = (
        expected_peak(training.train_step, largest(prepared), tokens) for tokens in (2500, 20_000, 2500)
    )
    training.close()
    assert large - small > 100 * 2**20
    assert abs(again - small) < (large - small) / 4


def test_a_slice_is_halved_until_it_fits(prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = trainer(prepared, tmp_path)
    training.close()
    monkeypatch.setattr(memory, "resident_bytes", lambda: 0)
    monkeypatch.setattr(memory, "available_bytes", lambda device: 1000)
    monkeypatch.setattr(memory, "expected_peak", lambda updater, corpus, tokens: 10 * tokens)
    assert fitting_micro_batch(training.train_step, largest(prepared), 64) == 64
    assert fitting_micro_batch(training.train_step, largest(prepared), 1024) == 64
    monkeypatch.setattr(memory, "available_bytes", lambda device: 1)
    assert fitting_micro_batch(training.train_step, largest(prepared), 1024) == memory.SMALLEST_MICRO_BATCH

    def run_out(updater: object, corpus: object, tokens: int) -> int:
        if tokens > 128:
            raise MemoryError
        return 0

    monkeypatch.setattr(memory, "expected_peak", run_out)
    assert fitting_micro_batch(training.train_step, largest(prepared), 1024) == 128


def test_a_container_s_limit_counts_and_what_it_could_give_back_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("memory.max", "memory.current", "inactive_file")
    monkeypatch.setattr(memory, "CONTAINERS", ((tmp_path / "none", *names), (tmp_path, *names)))
    cpu = torch.device("cpu")
    whole = memory.available_bytes(cpu)
    assert whole > 2**20
    for limit, left in (("5000", 1700), ("1000", 0)):
        (tmp_path / "memory.max").write_text(f"{limit}\n")
        (tmp_path / "memory.current").write_text("4000\n")
        (tmp_path / "memory.stat").write_text("anon 3000\ninactive_file 700\n")
        assert memory.available_bytes(cpu) == left
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.available_bytes(cpu) > 2**20


def test_the_tightest_of_the_groups_around_a_job_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    membership, cpu = tmp_path / "cgroup", torch.device("cpu")
    monkeypatch.setattr(memory, "CONTAINERS", ((tmp_path, "memory.max", "memory.current", "inactive_file"),))
    monkeypatch.setattr(memory, "MEMBERSHIP", membership)
    for name, limit in (("jobs", "9000"), ("jobs/seven", "7000"), ("jobs/seven/step", "max"), ("jobs/other", "1000")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "memory.max").write_text(f"{limit}\n")
        (tmp_path / name / "memory.current").write_text("600\n")
        (tmp_path / name / "memory.stat").write_text("inactive_file 100\n")
    for inside, left in (("0::/jobs/seven/step", 6500), ("3:cpu:/\n2:memory:/jobs", 8500)):
        membership.write_text(f"{inside}\n")
        assert memory.available_bytes(cpu) == left
    membership.write_text("0::/\n")
    assert memory.available_bytes(cpu) > 2**20
