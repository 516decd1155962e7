"""Checkpoints of a run: saved in one motion, found by looking, never by a pointer, and thinned out.

checkpoints/update-00001000/   model.safetensors, optimizer.safetensors, progress.json, manifest.json,
                               average.safetensors where a running average of the weights is kept
"""

from __future__ import annotations

import math
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from transduce.config import Table, counted
from transduce.data.batches import START, Position
from transduce.errors import ModelFolderError, StorageError
from transduce.model_folder import load_weights, put_weights, save_weights, weights_of
from transduce.models.interface import Model
from transduce.storage.atomic import atomic_folder
from transduce.storage.filesystem import sync
from transduce.storage.json_file import read_json, write_json
from transduce.storage.layout import (
    AVERAGE,
    CHECKPOINT_KIND,
    CHECKPOINTS,
    MANIFEST,
    OPTIMIZER,
    PROGRESS,
    WEIGHTS,
    checkpoint_name,
)
from transduce.storage.manifest import verify, write_manifest
from transduce.training.averaging import Ema
from transduce.training.distributed.sharding import gathered, spread_like
from transduce.training.optimizer import MOMENTS, optimizer_tensors, put_optimizer_tensors

# A loss that runs away: a fast average far above a slow one (as Marian watches for it).

FAST, SLOW = 0.1, 0.01
"""How much the newest loss counts in each average."""
SIGMAS = 6.0
"""Standard deviations of the loss that the fast average must stand above the slow one."""
OUTLIER = 4.0
"""Standard deviations that one loss counts for at most: one odd batch is not a trend."""
SETTLED = 100
"""Updates before anything is said: at first the loss falls fast and means little."""


@dataclass
class Divergence:
    """Watches the loss per token of one update after the other; saved with the run, so that a resumed one goes on."""

    seen: int = 0
    fast: float = 0.0
    slow: float = 0.0
    last: float = 0.0
    variance: float = 0.0
    """Of the loss around its trend, from the differences of neighbours: a loss that falls is not a loss that shakes."""
    alarmed: bool = False
    """Whether an alarm was given and the loss has not come down since: one alarm for one spike."""

    def observe(self, loss: float) -> bool:
        """Take one loss in; return whether this is the moment that it ran away."""
        self.seen += 1
        if self.seen == 1:
            self.fast = self.slow = self.last = loss
            return False
        # Early on the averages are plain means of what was seen, so that the first losses do not linger.
        fast, slow = max(FAST, 1 / self.seen), max(SLOW, 1 / self.seen)
        sigma = math.sqrt(self.variance)
        counted = min(loss, self.slow + OUTLIER * sigma) if self.seen > SETTLED else loss
        self.fast += fast * (counted - self.fast)
        bound = SIGMAS * sigma * math.sqrt(FAST / (2 - FAST)) + 1e-3
        if not self.alarmed:  # a spike must not widen the band that it is judged by
            self.variance += slow * ((loss - self.last) ** 2 / 2 - self.variance)
        above = self.fast - self.slow
        alarm = self.seen > SETTLED and above > (bound / 2 if self.alarmed else bound)
        self.slow += slow * (loss - self.slow)
        self.last = loss
        new, self.alarmed = alarm and not self.alarmed, alarm
        return new


SETTINGS = "settings"
"""The fact that holds the recipe itself; the others are numbers, names and hashes."""


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
    micro_batch_tokens: int = 0
    """Size of a slice now: halved when memory ran out."""
    roll_backs: int = 0
    """How often the run went back because its loss ran away."""
    divergence: Divergence = field(default_factory=Divergence)
    """What the watch over the loss remembers."""
    before: dict[str, float] = field(default_factory=dict)
    """What the model was worth before its first update, where it started from another, by measure."""
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

    def __init__(self, run: Path, every: int = 1, end: int | None = None) -> None:
        self.folder = run / CHECKPOINTS
        self.every, self.end = every, end
        """Updates between two regular checkpoints; any other was saved by an interruption, and goes when it is past,
        so that what is kept and averaged does not depend on where a run was stopped. The one of the run's `end` is kept
        like a regular one."""

    def path(self, update: int) -> Path:
        """Where the checkpoint of an update stands."""
        return self.folder / checkpoint_name(update)

    def updates(self) -> list[int]:
        """The updates of which there is a checkpoint, oldest first."""
        names = [path.name for path in self.folder.glob("update-*") if path.is_dir()] if self.folder.is_dir() else []
        numbers = [counted(name.removeprefix("update-")) for name in names]
        updates = sorted(number for number in numbers if number is not None)
        return [update for update in updates if self.path(update).name in names]

    def save(
        self, model: Model, optimizer: Optimizer, progress: Progress, facts: dict[str, Any], ema: Ema | None = None
    ) -> None:
        """Write a checkpoint: temporary, forced to disk, sealed, moved into place, and read back before older ones go.

        One that says the same already stays: an interruption right after a validation has nothing to add.
        """
        place, tensors = self.path(progress.update), checkpoint_tensors(model, optimizer, ema)
        if self._says(place, progress, facts):
            return
        with atomic_folder(place) as temporary:
            for name, found in tensors.items():
                save_weights(temporary / name, found)
            write_json(temporary / PROGRESS, progress.to_table())
            write_manifest(temporary, CHECKPOINT_KIND, facts=facts)
        verify(
            place,
            CHECKPOINT_KIND,
            error_type=StorageError,
            remedy="what was written cannot be read back: check the disk",
        )

    def _says(self, place: Path, progress: Progress, facts: dict[str, Any]) -> bool:
        """Whether a whole checkpoint stands there, of the same run at the same point."""
        try:
            return (
                verify(place, CHECKPOINT_KIND).get("facts") == facts
                and read_json(place / PROGRESS) == progress.to_table()
            )
        except ModelFolderError:
            return False

    def latest(self, regular: bool = False) -> tuple[int, list[str]] | None:
        """Find the newest checkpoint that is whole; what was wrong with newer ones is said beside it.

        `regular` passes over those that were saved by an interruption.
        """
        complaints: list[str] = []
        for update in reversed(self.updates()):
            if regular and update % self.every:
                continue
            try:
                self._check(self.path(update))
            except ModelFolderError as error:
                complaints.append(str(error))
            else:
                return update, complaints
        if complaints:
            raise ModelFolderError(f"no checkpoint is whole: {complaints[0]}")
        return None

    def _check(self, place: Path) -> Table:
        """Return the manifest of a checkpoint that is whole; nothing is read that it does not vouch for."""
        manifest = verify(place, CHECKPOINT_KIND)
        for name in (WEIGHTS, OPTIMIZER, PROGRESS):
            if name not in manifest["files"]:
                raise ModelFolderError(f"{place / MANIFEST}: does not list {name}; the checkpoint is incomplete")
        return manifest

    def facts(self, update: int) -> Table:
        """What the run was when it saved this checkpoint: recipe, data, threads."""
        manifest = self._check(self.path(update))
        facts = manifest.get("facts")
        return facts if isinstance(facts, dict) else {}

    def remove_newer(self, update: int) -> None:
        """Remove the checkpoints after an update: damaged ones, or those of a way that led nowhere."""
        for newer in self.updates():
            if newer > update:
                shutil.rmtree(self.path(newer))

    def restore(self, update: int, model: Model, optimizer: Optimizer, ema: Ema | None = None) -> Progress:
        """Put weights and moments back, and return where the run stood."""
        folder = self.path(update)
        mine = weights_of(model)
        weights, moments = load_weights(folder / WEIGHTS), load_weights(folder / OPTIMIZER)
        _refuse_others(weights, mine, folder / WEIGHTS)
        _refuse_others(
            moments, {f"{moment}/{name}": mine[name] for name in mine for moment in MOMENTS}, folder / OPTIMIZER
        )
        parts = {name: spread_like(weight, mine[name]) for name, weight in weights.items()}
        put_weights(model, parts, folder / WEIGHTS)
        put_optimizer_tensors(model, optimizer, moments)
        if ema is not None:
            average = load_weights(folder / AVERAGE)
            _refuse_others(average, mine, folder / AVERAGE)
            ema.put(average)
        return Progress.from_table(read_json(folder / PROGRESS), folder / PROGRESS)

    def kept_weights(self, update: int) -> Path:
        """The file with the weights that an update is worth keeping for: their running average where there is one."""
        average = self.path(update) / AVERAGE
        return average if average.is_file() else self.path(update) / WEIGHTS

    def thin_out(self, keep_last: int, best: int) -> None:
        """Remove all but the newest few, the best, and the newest of all, which may be an interruption's."""
        updates = self.updates()
        regular = [update for update in updates if update % self.every == 0 or update == self.end]
        for update in updates:
            if update not in (*regular[-keep_last:], updates[-1], best):
                shutil.rmtree(self.path(update))

    def room(self, model: Model, ema: Ema | None = None) -> tuple[int, int]:
        """Return (bytes that one checkpoint needs: weights, two moments, an average; bytes that are free)."""
        weights = sum(parameter.numel() for parameter in model.parameters()) * torch.float32.itemsize
        self.folder.mkdir(parents=True, exist_ok=True)
        sync(self.folder.parent)
        return (3 if ema is None else 4) * weights, shutil.disk_usage(self.folder).free


def checkpoint_tensors(
    model: Model, optimizer: Optimizer, ema: Ema | None = None, keep: bool = True
) -> dict[str, dict[str, Tensor]]:
    """Return the tensors of each file of a checkpoint. Of a sharded model all ranks have to ask; the leader keeps."""
    files = {WEIGHTS: weights_of(model), OPTIMIZER: optimizer_tensors(model, optimizer)}
    if ema is not None:
        files[AVERAGE] = ema.weights
    return {name: gathered(tensors, keep) for name, tensors in files.items()}


def _refuse_others(found: dict[str, Tensor], mine: dict[str, Tensor], where: Path) -> None:
    """Refuse tensors that another model or another precision left; a step is a single number."""
    for name, tensor in found.items():
        if name not in mine:
            raise ModelFolderError(f"{where}: holds '{name}', which is not part of this model; start a new run")
        shape = torch.Size() if name.startswith("step/") else mine[name].shape
        if (tensor.shape, tensor.dtype) != (shape, mine[name].dtype):
            raise ModelFolderError(
                f"{where}: '{name}' has shape {tuple(tensor.shape)} of {tensor.dtype}, "
                f"this model's is {tuple(shape)} of {mine[name].dtype}; start a new run"
            )
