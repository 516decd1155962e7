"""The checkpoint manager: saves a run's checkpoints and journal, resumes from them and rolls back to them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from transduce.config import Table
from transduce.errors import SettingsError, StorageError
from transduce.storage.journal import Journal, NoJournal
from transduce.training.averaging import Ema
from transduce.training.checkpoint import SETTINGS, Checkpoints, Progress, checkpoint_tensors
from transduce.training.config import TrainingConfig
from transduce.training.distributed.sharding import whole
from transduce.training.optimizer import ENDING
from transduce.training.reporter import Reporter
from transduce.training.step import TrainStep


class CheckpointManager:
    """Saves one run and restores it. With several ranks the leader writes, and all read."""

    def __init__(self, folder: Path, config: TrainingConfig, train_step: TrainStep, fingerprint: Table) -> None:
        self.config, self.train_step, self.fingerprint, self.ranks = config, train_step, fingerprint, train_step.ranks
        self.ema = Ema(train_step.model, config.ema_decay) if config.ema_decay else None
        self.checkpoints = Checkpoints(folder, config.validate_every, config.updates)
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
                "validations without improvement, so more updates do not help; fine-tune its model with --init-from"
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
            needed, free = self.checkpoints.room(self.train_step.model, self.ema)
            raise StorageError(f"{error} (a checkpoint needs {needed:,} bytes, {free:,} are free)") from None

    def prune(self, best: int) -> None:
        """Remove checkpoints that are neither new nor the best."""
        if self.ranks.leads:
            self.checkpoints.prune(self.config.keep_last, best)

    def check_disk_space(self) -> None:
        """Reject a disk too small for the checkpoints before the first update, not at the first save."""
        if not self.ranks.leads:
            return
        one, free = self.checkpoints.room(self.train_step.model, self.ema)
        more = self.config.keep_last + 2 - len(self.checkpoints.updates())  # the best one, and one being written
        if one * more > free:
            raise StorageError(
                f"{self.checkpoints.folder}: the checkpoints need {one * more:,} bytes and {free:,} are free; "
                "free some space, or lower training.keep_last"
            )

    def _restore(self, update: int) -> Progress:
        progress = self.checkpoints.restore(update, self.train_step.model, self.train_step.optimizer, self.ema)
        self.ranks.wait()  # all ranks have read it before anything is removed
        if self.ranks.leads:
            self.checkpoints.remove_newer(update)
        return progress
