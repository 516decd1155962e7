"""The small corpus and the small runs that the tests of this folder look at; sizes are different primes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from transduce.config import Table, merge
from transduce.data.prepared import Prepared
from transduce.models.catalog import build
from transduce.models.interface import AnyTransducer, VocabularySizes
from transduce.models.transformer import TransformerConfig
from transduce.recipe import Recipe
from transduce.tasks.catalog import task_for
from transduce.training.config import TrainingConfig
from transduce.training.interruption import Interrupted, Interruption
from transduce.training.optimizer import optimizer_tensors
from transduce.training.reporter import Plan, Silent, Step, Validation
from transduce.training.trainer import Trainer

TABLES: Table = {
    "data": {
        "train": {"task": "reverse", "size": 211, "max_length": 7, "symbols": 11},
        "validation": {"task": "reverse", "size": 13, "max_length": 7, "symbols": 11, "seed": 2},
    },
    "tokenizer": {"kind": "word", "min_frequency": 1, "joint": True},
    "model": {"name": "transformer", "model_dim": 14, "num_heads": 2, "ffn_dim": 19, "num_layers": 1, "dropout": 0.3},
    "training": {
        "threads": 1,
        "batch_tokens": 101,
        "updates": 17,
        "schedule": "inverse_sqrt",
        "learning_rate": 0.01,
        "warmup": 5,
        "log_every": 3,
        "validate_every": 5,
        "decode_examples": 5,
    },
    "search": {"beam_size": 2},
}
"""A run of 17 updates on 211 pairs: some 13 batches are an epoch, so that it ends in its second."""


def recipe(**changes: Table) -> Recipe:
    """The small recipe with some tables changed."""
    return Recipe.from_tables(merge(TABLES, changes), "a test")


def small_model(prepared: Prepared, **changes: Any) -> AnyTransducer:
    """The model of the small recipe."""
    settings = {key: value for key, value in TABLES["model"].items() if key != "name"}
    sizes = VocabularySizes(prepared.source_tokenizer.size, prepared.target_tokenizer.size)
    return build(TransformerConfig(**settings).but(**changes), sizes, seed=1)


def trainer(prepared: Prepared, folder: Path, model: dict[str, Any] | None = None, **changes: Any) -> Trainer:
    """A run that has not begun; close its journal when it is over."""
    config = TrainingConfig(**TABLES["training"]).but(**changes)
    task = task_for(prepared.data)
    return Trainer(small_model(prepared, **(model or {})), task, prepared, config, folder, {"recipe": "of a test"})


def run(training: Trainer, listener: Silent | None = None, interruption: Interruption | None = None) -> Listener:
    """Train to the end, listening."""
    recorded = listener if isinstance(listener, Listener) else Listener()
    try:
        training.run(listener or recorded, interruption or Interruption())
    finally:
        training.close()
    return recorded


@dataclass
class Listener(Silent):
    """Keeps all that a run tells."""

    plans: list[Plan] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    validations: list[Validation] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)

    def begin(self, plan: Plan) -> None:
        self.plans.append(plan)

    def step(self, step: Step) -> None:
        self.steps.append(step)

    def validation(self, validation: Validation) -> None:
        self.validations.append(validation)

    def warn(self, message: str) -> None:
        self.warnings.append(message)

    def end(self, message: str) -> None:
        self.ends.append(message)


@dataclass
class StopAt(Listener):
    """Asks for a stop when an update is over, as Ctrl-C would."""

    update: int = 0
    interruption: Interruption = field(default_factory=Interruption)

    def step(self, step: Step) -> None:
        super().step(step)
        if step.update == self.update:
            self.interruption.wanted = 2


Snapshot = dict[str, Tensor]


def snapshot(training: Trainer) -> Snapshot:
    """Every weight and every moment."""
    tensors = {**training.model.state_dict(), **optimizer_tensors(training.model, training.train_step.optimizer)}
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def same(first: Snapshot, second: Snapshot) -> bool:
    """Bit by bit."""
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def stopped_at(update: int, prepared: Prepared, folder: Path, **changes: object) -> None:
    """Begin a run and stop it after an update."""
    stop = StopAt(update=update)
    with pytest.raises(Interrupted):
        run(trainer(prepared, folder, **changes), stop, stop.interruption)
    assert len(stop.steps) <= update


def resumed(prepared: Prepared, folder: Path, **changes: object) -> tuple[Trainer, Listener]:
    """Go on with a run."""
    training, listener = trainer(prepared, folder, **changes), Listener()
    training.resume(listener)
    run(training, listener)
    return training, listener
