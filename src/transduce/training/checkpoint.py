"""Checkpoints with their tensors: a run's progress, weights and optimizer state, saved atomically and restored.

The files on disk, and how checkpoints are found and pruned, are in `storage.checkpoints`.
"""

from __future__ import annotations

import math
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import Tensor
from torch.optim import Optimizer

from transduce.config import Table
from transduce.data.order import START, Position
from transduce.errors import ModelFolderError, StorageError
from transduce.model_folder import load_weights, put_weights, save_weights, weights_of
from transduce.models.interface import Model
from transduce.storage.atomic import atomic_folder, read_json, write_json
from transduce.storage.checkpoints import SavedCheckpoints
from transduce.storage.filesystem import sync
from transduce.storage.layout import AVERAGE, CHECKPOINT_KIND, OPTIMIZER, PROGRESS, WEIGHTS
from transduce.storage.manifest import verify, write_manifest
from transduce.training.averaging import Ema
from transduce.training.distributed.sharding import gathered, spread_like
from transduce.training.optimizer import MOMENTS, optimizer_tensors, put_optimizer_tensors

# Detecting divergence.

FAST, SLOW = 0.1, 0.01
"""Weight of the newest loss in each moving average."""
SIGMAS = 6.0
"""Standard deviations of the loss by which the fast average must exceed the slow one."""
OUTLIER = 4.0
"""Standard deviations at which a single loss is clipped: one odd batch is not a trend."""
SETTLED = 100
"""Updates before the first alarm: at first the loss falls fast and means little."""


@dataclass
class Divergence:
    """Detects a loss that diverges: its fast moving average is far above the slow one, as in Marian.

    It observes the loss per token of each update, and is saved with the run, so that a resumed run continues it.
    """

    seen: int = 0
    fast: float = 0.0
    slow: float = 0.0
    last: float = 0.0
    variance: float = 0.0
    """Variance of the loss around its trend, from differences of neighbours: a falling loss is not a noisy one."""
    alarmed: bool = False
    """Whether an alarm was raised and the loss has not come down since: one alarm per spike."""

    def observe(self, loss: float) -> bool:
        """Add one loss; return whether the run starts to diverge at this update."""
        self.seen += 1
        if self.seen == 1:
            self.fast = self.slow = self.last = loss
            return False
        # Early on the averages are plain means, so that the first losses do not linger.
        fast, slow = max(FAST, 1 / self.seen), max(SLOW, 1 / self.seen)
        sigma = math.sqrt(self.variance)
        counted = min(loss, self.slow + OUTLIER * sigma) if self.seen > SETTLED else loss
        self.fast += fast * (counted - self.fast)
        bound = SIGMAS * sigma * math.sqrt(FAST / (2 - FAST)) + 1e-3
        if not self.alarmed:  # a spike must not raise the bound that it is compared with
            self.variance += slow * ((loss - self.last) ** 2 / 2 - self.variance)
        above = self.fast - self.slow
        alarm = self.seen > SETTLED and above > (bound / 2 if self.alarmed else bound)
        self.slow += slow * (loss - self.slow)
        self.last = loss
        new, self.alarmed = alarm and not self.alarmed, alarm
        return new


SETTINGS = "settings"
"""The entry of a fingerprint that holds the recipe itself; the others are numbers, names and hashes."""


@dataclass
class Progress:
    """Progress of a run: with the weights and the optimizer's moments, all that it needs to resume."""

    update: int = 0
    position: Position = START
    """Position in the data; dropout and order are functions of it and the seed, so no generator is saved."""
    tokens: int = 0
    """Target tokens trained on, without padding."""
    best_update: int = 0
    best_score: float | None = None
    validations_since_best: int = 0
    skipped: int = 0
    """Updates skipped because a loss or gradient was not finite."""
    skipped_in_a_row: int = 0
    window_loss: float = 0.0
    """Sum of the loss since the last line of the journal."""
    window_tokens: int = 0
    """Tokens that `window_loss` sums over."""
    micro_batch_tokens: int = 0
    """Current size of a micro-batch; halved whenever memory runs out."""
    rollbacks: int = 0
    """How often the run returned to a checkpoint because it diverged."""
    divergence: Divergence = field(default_factory=Divergence)
    """State of the divergence detection."""
    before: dict[str, float] = field(default_factory=dict)
    """Validation scores before the first update of a fine-tuning run, by metric."""
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
            raise ModelFolderError(f"{where}: was not written by this version of transduce; start a new run") from None


class Checkpoints(SavedCheckpoints):
    """The checkpoints of one run, with their tensors."""

    def save(
        self, model: Model, optimizer: Optimizer, progress: Progress, fingerprint: Table, ema: Ema | None = None
    ) -> None:
        """Write a checkpoint atomically, and read it back before older ones are pruned.

        An identical one that exists is kept: an interruption right after a validation has nothing to add.
        """
        place, tensors = self.path(progress.update), checkpoint_tensors(model, optimizer, ema)
        if self._is_saved(place, progress, fingerprint):
            return
        with atomic_folder(place) as temporary:
            for name, found in tensors.items():
                save_weights(temporary / name, found)
            write_json(temporary / PROGRESS, progress.to_table())
            write_manifest(temporary, CHECKPOINT_KIND, fingerprint=fingerprint)
        remedy = "what was written cannot be read back: check the disk"
        verify(place, CHECKPOINT_KIND, error_type=StorageError, remedy=remedy)

    def _is_saved(self, place: Path, progress: Progress, fingerprint: Table) -> bool:
        """Whether an intact checkpoint of the same run at the same point exists."""
        try:
            same_run = verify(place, CHECKPOINT_KIND).get("fingerprint") == fingerprint
            return same_run and read_json(place / PROGRESS) == progress.to_table()
        except ModelFolderError:
            return False

    def restore(self, update: int, model: Model, optimizer: Optimizer, ema: Ema | None = None) -> Progress:
        """Load weights and optimizer state into the model and optimizer, and return the progress."""
        folder = self.path(update)
        mine = weights_of(model)
        weights, moments = load_weights(folder / WEIGHTS), load_weights(folder / OPTIMIZER)
        _check_tensors(weights, mine, folder / WEIGHTS)
        _check_tensors(
            moments, {f"{moment}/{name}": mine[name] for name in mine for moment in MOMENTS}, folder / OPTIMIZER
        )
        parts = {name: spread_like(weight, mine[name]) for name, weight in weights.items()}
        put_weights(model, parts, folder / WEIGHTS)
        put_optimizer_tensors(model, optimizer, moments)
        if ema is not None:
            average = load_weights(folder / AVERAGE)
            _check_tensors(average, mine, folder / AVERAGE)
            ema.put(average)
        return Progress.from_table(read_json(folder / PROGRESS), folder / PROGRESS)

    def room(self, model: Model, ema: Ema | None = None) -> tuple[int, int]:
        """Return (bytes that a checkpoint needs: weights, two moments, a moving average; bytes free on its disk)."""
        weights = sum(parameter.numel() for parameter in model.parameters()) * torch.float32.itemsize
        self.folder.mkdir(parents=True, exist_ok=True)
        sync(self.folder.parent)
        return (3 if ema is None else 4) * weights, shutil.disk_usage(self.folder).free


def checkpoint_tensors(
    model: Model, optimizer: Optimizer, ema: Ema | None = None, keep: bool = True
) -> dict[str, dict[str, Tensor]]:
    """Return the tensors of each file of a checkpoint. All ranks of a sharded model must call it."""
    files = {WEIGHTS: weights_of(model), OPTIMIZER: optimizer_tensors(model, optimizer)}
    if ema is not None:
        files[AVERAGE] = ema.weights
    return {name: gathered(tensors, keep) for name, tensors in files.items()}


def _check_tensors(found: dict[str, Tensor], mine: dict[str, Tensor], where: Path) -> None:
    """Reject tensors of another model or another precision; a step is a single number."""
    for name, tensor in found.items():
        if name not in mine:
            raise ModelFolderError(f"{where}: holds '{name}', which is not part of this model; start a new run")
        shape = torch.Size() if name.startswith("step/") else mine[name].shape
        if (tensor.shape, tensor.dtype) != (shape, mine[name].dtype):
            raise ModelFolderError(
                f"{where}: '{name}' has shape {tuple(tensor.shape)} of {tensor.dtype}, "
                f"this model's is {tuple(shape)} of {mine[name].dtype}; start a new run"
            )
