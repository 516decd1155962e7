"""Checkpoints with their tensors: a run's progress, weights and optimizer state, saved atomically and restored.

The files on disk, and how checkpoints are found and pruned, are in `storage.checkpoints`; when a run saves, resumes and
rolls back is decided by its `CheckpointManager`.
"""

from __future__ import annotations

import contextlib
import math
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import Tensor
from torch.optim import Optimizer

from transduce.config import Table
from transduce.data.order import START, Position
from transduce.errors import ModelFolderError, SettingsError, StorageError
from transduce.model_folder import load_weights, put_weights, save_weights, weights_of
from transduce.models.interface import Model
from transduce.storage.atomic import atomic_folder, read_json, write_json
from transduce.storage.checkpoints import SavedCheckpoints
from transduce.storage.filesystem import sync
from transduce.storage.journal import Journal, NoJournal
from transduce.storage.layout import AVERAGE, CHECKPOINT_KIND, OPTIMIZER, PROGRESS, WEIGHTS
from transduce.storage.manifest import verify, write_manifest
from transduce.training.config import TrainingConfig
from transduce.training.distributed import gathered, spread_like, whole
from transduce.training.muon import BUFFER
from transduce.training.optimizer import ENDING, MOMENTS, Ema, optimizer_tensors, put_optimizer_tensors, state_values
from transduce.training.reporter import Reporter
from transduce.training.step import TrainStep

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
    best_loss: float | None = None
    """Loss of the best checkpoint, which decides between equal scores; unknown in older checkpoints."""

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
        known = (*MOMENTS, BUFFER)
        _check_tensors(
            moments, {f"{moment}/{name}": mine[name] for name in mine for moment in known}, folder / OPTIMIZER
        )
        parts = {name: spread_like(weight, mine[name]) for name, weight in weights.items()}
        put_weights(model, parts, folder / WEIGHTS)
        try:
            put_optimizer_tensors(model, optimizer, moments)
        except ValueError as error:
            raise ModelFolderError(f"{folder / OPTIMIZER}: {error}; it was saved by another optimizer") from None
        if ema is not None:
            average = load_weights(folder / AVERAGE)
            _check_tensors(average, mine, folder / AVERAGE)
            ema.put(average)
        return Progress.from_table(read_json(folder / PROGRESS), folder / PROGRESS)

    def room(self, model: Model, optimizer: Optimizer, ema: Ema | None = None) -> tuple[int, int]:
        """Return (bytes that a checkpoint needs: weights, moments, a moving average; bytes free on its disk)."""
        weights = sum(parameter.numel() for parameter in model.parameters())
        values = (1 if ema is None else 2) * weights + state_values(model, optimizer, everywhere=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        sync(self.folder.parent)
        return values * torch.float32.itemsize, shutil.disk_usage(self.folder).free


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


class CheckpointManager:
    """Saves one run and restores it. With several ranks the leader writes, and all read."""

    def __init__(self, folder: Path, config: TrainingConfig, train_step: TrainStep, fingerprint: Table) -> None:
        self.config, self.train_step, self.fingerprint, self.ranks = config, train_step, fingerprint, train_step.ranks
        self.ema = Ema(train_step.model, config.ema_decay) if config.ema_decay else None
        self.checkpoints = Checkpoints(folder, config.validation_interval, config.updates)
        self.journal = Journal(folder) if self.ranks.leads else NoJournal()

    def resume(self, reporter: Reporter) -> Progress:
        """Restore the newest intact checkpoint, if there is one."""
        progress = Progress(micro_batch_tokens=self.config.micro_batch_size)
        found = self._resume_from() if self.ranks.leads else None
        update = int(self.ranks.from_leader(-1 if found is None else found[0]))
        if update < 0:
            self.journal.cut(0)
            return progress
        for fault in found[1] if found is not None else ():
            reporter.warn(f"{fault}; resuming from update {update:,}")
        progress = self._restore(update)
        self._check_patience(update, progress)
        lost = bool(self.ranks.from_leader(not self.journal.cut(progress.journal_size)))
        self._log_changes(update, reporter)
        if lost:
            reporter.warn(f"{self.journal.path}: is missing; the run resumes with a journal from update {update:,}")
            self.save(progress)  # with the size of the new journal
        self.journal.time("resumed", update=update)
        return progress

    def _resume_from(self) -> tuple[int, list[str]] | None:
        """Return the newest checkpoint; of a run that is being extended, the newest that the longer run would have
        saved too."""
        found = self.checkpoints.latest()
        if found is not None and found[0] == self._planned(found[0]) < self.config.updates:
            return self.checkpoints.latest(regular=True) or found
        return found

    def _planned(self, update: int) -> int:
        """training.updates of the run when it saved this checkpoint."""
        settings = self.checkpoints.fingerprint(update).get(SETTINGS, {})
        return int(settings.get("training", {}).get("updates", self.config.updates))

    def _check_patience(self, update: int, progress: Progress) -> None:
        """Reject more updates for a run that training.patience ended."""
        exhausted = 0 < self.config.patience <= progress.validations_since_best
        if exhausted and self.ranks.leads and self._planned(update) < self.config.updates:
            raise SettingsError(
                f"{self.checkpoints.folder.parent}: was ended by training.patience, after {self.config.patience} "
                "validations without improvement, so more updates do not help; fine-tune its model with --from"
            )

    def _log_changes(self, update: int, reporter: Reporter) -> None:
        """Log in the journal from which update on the run differs from its start: in ranks, or in length."""
        fingerprint = self.checkpoints.fingerprint(update) if self.ranks.leads else {}
        before, now = fingerprint.get("ranks"), self.ranks.world
        if before not in (None, now):  # order and dropout stay the same, sums round differently
            self.journal.write("ranks", update=update, before=before, now=now)
        before, now = self._planned(update) if self.ranks.leads else self.config.updates, self.config.updates
        if before != now:
            self.journal.write("longer", update=update, before=before, now=now)
            if self.config.schedule in ENDING:
                reporter.warn(
                    f"the {self.config.schedule} schedule ended at update {before:,} and now ends at {now:,}: the "
                    f"learning rate jumps up here; the result differs from a run started with {now:,} updates"
                )

    @contextlib.contextmanager
    def final_weights(self) -> Iterator[None]:
        """Give the model its final weights inside the context: their moving average if the run keeps one."""
        with self.ema.in_place() if self.ema is not None else contextlib.nullcontext(), whole(self.train_step.model):
            yield

    def roll_back(self, progress: Progress) -> Progress | None:
        """Restore the newest regular checkpoint, keep the position in the data, and save both as a new checkpoint.

        None if there is no regular checkpoint yet. One saved by an interruption does not count: an uninterrupted run
        would not have it.
        """
        found = self.checkpoints.latest(regular=True) if self.ranks.leads else None
        update = int(self.ranks.from_leader(-1 if found is None else found[0]))
        if update < 0:
            return None
        before = self._restore(update)
        self.journal.write("rolled_back", update=progress.update, to=update)
        self.journal.time("rolled_back", update=update)
        before.position, before.rollbacks = progress.position, progress.rollbacks + 1
        self.save(before)
        return before

    def save(self, progress: Progress) -> None:
        """Write a checkpoint."""
        if not self.ranks.leads:
            checkpoint_tensors(
                self.train_step.model, self.train_step.optimizer, self.ema, keep=False
            )  # the leader gathers
            return
        progress.journal_size = self.journal.size
        try:
            self.checkpoints.save(
                self.train_step.model, self.train_step.optimizer, progress, self.fingerprint, self.ema
            )
        except StorageError as error:
            needed, free = self._room()
            raise StorageError(f"{error} (a checkpoint needs {needed:,} bytes, {free:,} are free)") from None

    def prune(self, best: int) -> None:
        """Remove checkpoints that are neither new nor the best."""
        if self.ranks.leads:
            self.checkpoints.prune(self.config.keep_last, best)

    def check_disk_space(self) -> None:
        """Reject a disk too small for the checkpoints before the first update, not at the first save."""
        if not self.ranks.leads:
            return
        one, free = self._room()
        more = self.config.keep_last + 2 - len(self.checkpoints.updates())  # the best one, and one being written
        if one * more > free:
            raise StorageError(
                f"{self.checkpoints.folder}: the checkpoints need {one * more:,} bytes and {free:,} are free; "
                "free some space, or lower training.keep_last"
            )

    def _room(self) -> tuple[int, int]:
        return self.checkpoints.room(self.train_step.model, self.train_step.optimizer, self.ema)

    def _restore(self, update: int) -> Progress:
        progress = self.checkpoints.restore(update, self.train_step.model, self.train_step.optimizer, self.ema)
        self.ranks.wait()  # all ranks have read it before anything is removed
        if self.ranks.leads:
            self.checkpoints.remove_newer(update)
        return progress
