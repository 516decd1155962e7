"""One save of a checkpoint after others, small enough to be cut short at each of its file operations."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch.optim import Adam

from tests.unit.cli.example import snapshot
from transduce.models.catalog import build
from transduce.models.interface import AnyTransducer, VocabularySizes
from transduce.models.transformer import TransformerConfig
from transduce.training.checkpoint import Checkpoints, Progress
from transduce.training.config import TrainingConfig
from transduce.training.optimizer import build_optimizer

FINGERPRINT = {"recipe": "of a trial", "seed": 1}
EVERY = 10


@dataclass(frozen=True)
class Save:
    """What stands there, and what is saved over or beside it. A checkpoint is (update, seed of what is in it)."""

    before: tuple[tuple[int, int], ...]
    new: tuple[int, int]
    keep_last: int = 1
    leftovers: bool = False
    """Whether one who was killed had begun to write the same checkpoint."""

    @property
    def best(self) -> int:
        return self.new[0]


SAVES = {
    "the first": Save((), (10, 1)),
    "keeping one": Save(((10, 1),), (20, 2)),
    "keeping two": Save(((10, 1), (20, 2)), (30, 3), keep_last=2),
    "after an interruption": Save(((10, 1), (13, 2)), (20, 3)),
    "over leftovers": Save(((10, 1),), (20, 2), leftovers=True),
    "over another": Save(((10, 1),), (10, 2)),
    "the same again": Save(((10, 1),), (10, 1)),
}


def state(update: int, seed: int) -> tuple[AnyTransducer, Adam, Progress]:
    """A model that has made one update, as its seed says."""
    sizes = TransformerConfig(model_dim=6, num_heads=2, ffn_dim=7, num_layers=1, tied_embeddings="target")
    model = build(sizes, VocabularySizes(5, 11), seed)
    optimizer = build_optimizer(model, TrainingConfig())
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    optimizer.step()
    return model, optimizer, Progress(update=update, tokens=seed, journal_size=update)


def make(run: Path, name: str) -> None:
    """Lay out what stands there before the save."""
    for update, seed in SAVES[name].before:
        Checkpoints(run, EVERY).save(*state(update, seed), FINGERPRINT)
    if SAVES[name].leftovers:
        left = Checkpoints(run).path(SAVES[name].new[0])
        left = left.with_name(f".{left.name}.writing")
        left.mkdir()
        (left / "model.safetensors").write_bytes(b"half a model")


def save_after_save(run: Path, name: str) -> None:
    """Carry out the save, as a run does after a validation."""
    trial, checkpoints = SAVES[name], Checkpoints(run, EVERY)
    checkpoints.save(*state(*trial.new), FINGERPRINT)
    checkpoints.prune(trial.keep_last, trial.best)


def possible(folder: Path, name: str) -> dict[int, list[dict[str, str]]]:
    """For each update, what its checkpoint may be, to the last bit, before and after the save."""
    found: dict[int, list[dict[str, str]]] = {}
    for update, seed in {*SAVES[name].before, SAVES[name].new}:
        run = folder / f"{update}-{seed}"
        Checkpoints(run).save(*state(update, seed), FINGERPRINT)
        found.setdefault(update, []).append(snapshot(Checkpoints(run).path(update)))
    return found
