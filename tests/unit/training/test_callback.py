"""Callbacks see what happens and may end a run, and change nothing else."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import transduce
from tests.unit.training.example import recipe
from transduce.storage.journal import read_journal
from transduce.storage.manifest import sha256
from transduce.training.reporter import Plan, Step, Validation

WEIGHTS = "model/model.safetensors"


class Listener(transduce.Callback):
    """Remembers all calls; stops at an update."""

    def __init__(self, stop: int = 0) -> None:
        self.stop, self.seen, self.stages = stop, list[object](), list[str]()

    def preparing(self, stage: str, count: int) -> None:
        self.stages.append(stage)

    def begin(self, plan: Plan) -> None:
        self.seen.append(plan)

    def step(self, step: Step) -> None:
        self.seen.append(step)
        if step.update == self.stop:
            raise transduce.StopTraining("that is enough")

    def validation(self, validation: Validation) -> None:
        self.seen.append(validation)

    def warn(self, message: str) -> None:
        self.seen.append(message)

    def end(self, message: str) -> None:
        self.seen.append(f"end {message}")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Listener]:
    listener = Listener()
    return transduce.train(recipe(), tmp_path_factory.mktemp("runs") / "whole", callbacks=[listener]), listener


def test_a_callback_is_told_everything_in_order(whole: tuple[Path, Listener]) -> None:
    run, listener = whole
    assert "tokenising" in " ".join(listener.stages)
    plan, *others = [one for one in listener.seen if not isinstance(one, str)]
    assert isinstance(plan, Plan) and plan.updates == 17
    assert [one.update for one in others if isinstance(one, Step)] == list(range(1, 18))
    validations = [one for one in others if isinstance(one, Validation)]
    logged = [event for event in read_journal(run / "journal.jsonl") if event["event"] == "validation"]
    assert [(one.update, one.loss) for one in validations] == [(event["update"], event["loss"]) for event in logged]
    assert listener.seen[-1] == f"end {run}"
    for value in (plan, others[0], validations[0]):
        with pytest.raises(dataclasses.FrozenInstanceError):
            value.update = 3  # type: ignore[misc, union-attr, assignment]


@pytest.mark.parametrize("stop", [3, 10])
def test_a_run_that_a_callback_stopped_has_a_model_and_continues_to_the_same_bits(
    stop: int, whole: tuple[Path, Listener], tmp_path: Path
) -> None:
    listener = Listener(stop)
    run = transduce.train(recipe(), tmp_path / "run", callbacks=[listener])
    steps = [one for one in listener.seen if isinstance(one, Step)]
    assert steps[-1].update == stop and f"stopped at update {stop}: that is enough" in listener.seen
    assert isinstance(transduce.load(run)("s1 s2"), str)
    transduce.train(output=run, resume=True)
    assert sha256(run / WEIGHTS) == sha256(whole[0] / WEIGHTS)
    assert (run / "journal.jsonl").read_bytes() == (whole[0] / "journal.jsonl").read_bytes()


class Broken(transduce.Callback):
    """Has a bug."""

    def step(self, step: Step) -> None:
        raise ZeroDivisionError


def test_an_error_in_a_callback_is_raised_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        transduce.train(recipe(), tmp_path / "run", callbacks=[Broken()])
