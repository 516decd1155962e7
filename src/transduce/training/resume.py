"""Checkpoints of a run: saved in one motion, found by looking, never by a pointer, and thinned out.

checkpoints/update-00001000/   model.safetensors, optimizer.safetensors, progress.json, manifest.json
"""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.optim import Adam

from transduce.checkpoint import WEIGHTS, load_weights, put_weights, save_weights, weights_of
from transduce.config import Table
from transduce.data.batches import START, Position
from transduce.errors import ModelFolderError
from transduce.models.interface import AnyTransducer
from transduce.storage import folder_aside, read_json, seal, verify, write_json
from transduce.training.divergence import Divergence
from transduce.training.optimizer import optimizer_tensors, put_optimizer_tensors

KIND = "transduce checkpoint"
FORMAT = 1
MOMENTS, PROGRESS = "optimizer.safetensors", "progress.json"


@dataclass
class Progress:
    """Where a run stands: with the weights and the optimizer's moments, all that it needs to go on."""

    update: int = 0
    position: Position = START
    """In the data; dropout and order are functions of it and the seed, so no generator is saved."""
    tokens: int = 0
    """Real target tokens learnt from."""
    best_update: int = 0
    best_score: float | None = None
    validations_since_best: int = 0
    skipped: int = 0
    """Updates left out because a loss or gradient was not finite."""
    skipped_in_a_row: int = 0
    window_loss: float = 0.0
    """Sum of the loss since the last line of the journal, …"""
    window_tokens: int = 0
    """… and how many tokens it is of."""
    divergence: Divergence = field(default_factory=Divergence)
    """What the watch over the loss remembers."""
    journal_size: int = 0
    """Bytes of the journal when this was saved."""

    def to_table(self) -> Table:
        """Return plain values."""
        return asdict(self) | {"position": list(self.position)}

    @classmethod
    def from_table(cls, table: Table, where: Path) -> Progress:
        """Read plain values back."""
        try:
            watch = Divergence(**table["divergence"])
            return cls(**{**table, "position": Position(*table["position"]), "divergence": watch})
        except (TypeError, KeyError):
            raise ModelFolderError(f"{where}: is not what this version of transduce writes") from None


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, run: Path, every: int = 1) -> None:
        self.folder = run / "checkpoints"
        self.every = every
        """Updates between two regular checkpoints; any other was saved by an interruption, and goes when it is past,
        so that what is kept and averaged does not depend on where a run was stopped."""

    def path(self, update: int) -> Path:
        """Where the checkpoint of an update stands."""
        return self.folder / f"update-{update:08d}"

    def updates(self) -> list[int]:
        """The updates of which there is a checkpoint, oldest first."""
        names = [path.name for path in self.folder.glob("update-*")] if self.folder.is_dir() else []
        return sorted(int(name.removeprefix("update-")) for name in names if name.removeprefix("update-").isdigit())

    def save(self, model: AnyTransducer, optimizer: Adam, progress: Progress, facts: dict[str, Any]) -> None:
        """Write a checkpoint: aside, forced to disk, sealed, moved into place."""
        with folder_aside(self.path(progress.update)) as aside:
            save_weights(aside / WEIGHTS, weights_of(model))
            save_weights(aside / MOMENTS, optimizer_tensors(model, optimizer))
            write_json(aside / PROGRESS, progress.to_table())
            seal(aside, KIND, format=FORMAT, facts=facts)

    def latest(self) -> tuple[int, list[str]] | None:
        """Find the newest checkpoint that is whole; what was wrong with newer ones is said beside it."""
        complaints: list[str] = []
        for update in reversed(self.updates()):
            try:
                verify(self.path(update), KIND)
            except ModelFolderError as error:
                complaints.append(str(error))
            else:
                return update, complaints
        if complaints:
            raise ModelFolderError(f"no checkpoint is whole: {complaints[0]}")
        return None

    def facts(self, update: int) -> Table:
        """What the run was when it saved this checkpoint: recipe, data, threads."""
        manifest = verify(self.path(update), KIND)
        if manifest.get("format") != FORMAT:
            raise ModelFolderError(
                f"{self.path(update)}: has format {manifest.get('format')}, this version reads {FORMAT}; "
                "upgrade transduce"
            )
        facts = manifest.get("facts")
        return facts if isinstance(facts, dict) else {}

    def restore(self, update: int, model: AnyTransducer, optimizer: Adam) -> Progress:
        """Put weights and moments back, and return where the run stood; newer checkpoints, all damaged, are removed."""
        for newer in self.updates():
            if newer > update:
                shutil.rmtree(self.path(newer))
        folder = self.path(update)
        put_weights(model, load_weights(folder / WEIGHTS), folder / WEIGHTS)
        put_optimizer_tensors(model, optimizer, load_weights(folder / MOMENTS))
        return Progress.from_table(read_json(folder / PROGRESS), folder / PROGRESS)

    def thin_out(self, keep_last: int, best: int) -> None:
        """Remove all but the newest few and the best, now that a regular one was saved."""
        updates = self.updates()
        regular = [update for update in updates if update % self.every == 0 or update == updates[-1]]
        for update in updates:
            if update not in regular[-keep_last:] and update != best:
                shutil.rmtree(self.path(update))

    def room(self, model: AnyTransducer) -> tuple[int, int]:
        """Return (bytes that one checkpoint needs: weights and two moments, bytes that are free)."""
        weights = sum(parameter.numel() for parameter in model.parameters()) * torch.float32.itemsize
        self.folder.mkdir(parents=True, exist_ok=True)
        return 3 * weights, shutil.disk_usage(self.folder).free
