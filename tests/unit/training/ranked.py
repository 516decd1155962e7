"""What each rank of the tests does: several runs, one after the other, so that `torchrun` need start only once.

    torchrun --nproc_per_node=2 -m tests.unit.training.ranked PLAN.json

The plan lists runs: a name, changes of the small recipe, whether to resume, an update after which the leader gets a
SIGTERM, one after which the last rank gets one and the leader, slow to save, another, and one in which the last rank
runs out of memory. What each rank saw is written beside the plan.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from tests.unit.training.example import recipe
from transduce.data.batching import Batch
from transduce.recipe import resume_recipe
from transduce.run import train
from transduce.training.checkpoint import Checkpoints
from transduce.training.distributed import local
from transduce.training.interruption import Interrupted
from transduce.training.reporter import Silent, Step
from transduce.training.step import TrainStep
from transduce.training.trainer import Trainer


class Terminating(Silent):
    """Sends a SIGTERM to its own process after an update."""

    def __init__(self, update: int | None) -> None:
        self.update = update

    def step(self, step: Step) -> None:
        if step.update == self.update:
            signal.raise_signal(signal.SIGTERM)


class Short:
    """Runs out of memory once, in a slice of one update."""

    def __init__(self, update: int | None) -> None:
        self.update = update if os.environ.get("RANK") == "1" else None

    def refuse(self, update: int) -> None:
        if update == self.update:
            self.update = None
            raise MemoryError


def digest(trainer: Trainer) -> str:
    """Of the weights that this rank holds."""
    found = hashlib.sha256()
    for parameter in trainer.model.parameters():
        found.update(local(parameter.detach()).contiguous().numpy().tobytes())
    return found.hexdigest()


def go(plan: dict[str, Any], place: Path) -> dict[str, Any]:
    """Carry out one run, and return what this rank saw of it."""
    seen: dict[str, Any] = {"message": None, "rows": []}
    run, update, learn, short = Trainer.run, TrainStep.run, TrainStep._backward, Short(plan.get("short"))
    save = Checkpoints.save

    def read(train_step: TrainStep, batches: list[Batch], *arguments: Any) -> Any:
        seen["rows"].append([batch.rows.tolist() for batch in batches])
        if os.environ.get("RANK") == "1" and arguments[0] == plan.get("late"):
            signal.raise_signal(signal.SIGTERM)
        return update(train_step, batches, *arguments)

    def slowly(checkpoints: Checkpoints, *arguments: Any) -> None:
        if plan.get("late"):
            signal.raise_signal(signal.SIGTERM)  # as `torchrun` does when another has left
            time.sleep(1)
        save(checkpoints, *arguments)

    def refused(train_step: TrainStep, model: Any, part: Any, update: int, tokens: int) -> float:
        short.refuse(update)
        return learn(train_step, model, part, update, tokens)

    def watched(trainer: Trainer, *arguments: Any) -> Any:
        try:
            return run(trainer, *arguments)
        finally:
            seen["update"], seen["weights"] = trainer.progress.update, digest(trainer)
            seen["saved"] = trainer.checkpoints.updates()
            seen["held"] = sum(local(parameter).numel() for parameter in trainer.model.parameters())

    Trainer.run, TrainStep.run, TrainStep._backward = watched, read, refused  # type: ignore[method-assign]
    Checkpoints.save = slowly  # type: ignore[method-assign]
    folder = place / plan["name"]
    what = resume_recipe(folder) if plan.get("resume") else recipe(**plan["changes"])
    try:
        train(what, folder, resume=bool(plan.get("resume")), reporter=Terminating(plan.get("stop")))
    except Interrupted as stop:
        seen["message"] = str(stop)
    finally:
        Trainer.run, TrainStep.run, TrainStep._backward = run, update, learn  # type: ignore[method-assign]
        Checkpoints.save = save  # type: ignore[method-assign]
    return seen


if __name__ == "__main__":
    path = Path(sys.argv[1])
    rank = os.environ["RANK"]
    seen = {plan["name"]: go(plan, path.parent) for plan in json.loads(path.read_text())}
    (path.parent / f"seen-{rank}.json").write_text(json.dumps(seen))
