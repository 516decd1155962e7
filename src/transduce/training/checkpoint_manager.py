"""What a run keeps on disk: its checkpoints and its journal, and the ways back to them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transduce.errors import SettingsError, StorageError
from transduce.storage.journal import Journal, NoJournal
from transduce.training.averaging import Ema
from transduce.training.checkpoint import SETTINGS, Checkpoints, Progress, checkpoint_tensors
from transduce.training.config import TrainingConfig
from transduce.training.distributed.sharding import whole
from transduce.training.reporter import Reporter
from transduce.training.schedule import ENDING
from transduce.training.step import Updater


class CheckpointManager:
    """Saves one run and brings it back. With several ranks the leader writes, and all read."""

    def __init__(self, folder: Path, config: TrainingConfig, updater: Updater, facts: dict[str, Any]) -> None:
        self.config, self.updater, self.facts, self.ranks = config, updater, facts, updater.ranks
        self.ema = Ema(updater.model, config.ema_decay) if config.ema_decay else None
        self.checkpoints = Checkpoints(folder, config.validate_every, config.updates)
        self.journal = Journal(folder) if self.ranks.leads else NoJournal()

    def resume(self, reporter: Reporter) -> Progress:
        """Go back to the newest whole checkpoint, if there is one."""
        progress = Progress(micro_batch_tokens=self.config.micro_batch_size)
        found = self._found() if self.ranks.leads else None
        update = int(self.ranks.from_leader(-1 if found is None else found[0]))
        if update < 0:
            self.journal.cut(0)
            return progress
        for complaint in found[1] if found is not None else ():
            reporter.warn(f"{complaint}; going back to update {update:,}")
        progress = self._restore(update)
        self._refuse_tired(update, progress)
        lost = bool(self.ranks.from_leader(not self.journal.cut(progress.journal_size)))
        self._note_changes(update, reporter)
        if lost:
            reporter.warn(f"{self.journal.path}: is gone; the run goes on, and its record begins at update {update:,}")
            self.save(progress)  # which counts on the new one
        self.journal.time("resumed", update=update)
        return progress

    def _found(self) -> tuple[int, list[str]] | None:
        """The checkpoint to go on from: the newest, or where a run was over there and is to be longer, the newest that
        a run begun for so long would have."""
        found = self.checkpoints.latest()
        if found is not None and found[0] == self._planned(found[0]) < self.config.updates:
            return self.checkpoints.latest(regular=True) or found
        return found

    def _planned(self, update: int) -> int:
        """How many updates the run had before it when it saved this checkpoint."""
        settings = self.checkpoints.facts(update).get(SETTINGS, {})
        return int(settings.get("training", {}).get("updates", self.config.updates))

    def _refuse_tired(self, update: int, progress: Progress) -> None:
        """More updates are no help to a run that ended for another reason."""
        tired = 0 < self.config.patience <= progress.validations_since_best
        if tired and self.ranks.leads and self._planned(update) < self.config.updates:
            raise SettingsError(
                f"{self.checkpoints.folder.parent}: ended by training.patience, after {self.config.patience} "
                "validations without a better one, not for want of updates; start a new run from its model with --from"
            )

    def _note_changes(self, update: int, reporter: Reporter) -> None:
        """Say from where on a run is another than it was begun as: one of more or fewer ranks, or a longer one."""
        facts = self.checkpoints.facts(update) if self.ranks.leads else {}
        before, now = facts.get("ranks"), self.ranks.world
        if before not in (None, now):  # order and dropout stay the same, sums round differently
            self.journal.write("ranks", update=update, before=before, now=now)
        before, now = self._planned(update) if self.ranks.leads else self.config.updates, self.config.updates
        if before != now:
            self.journal.write("longer", update=update, before=before, now=now)
            if self.config.schedule in ENDING:
                reporter.warn(
                    f"the {self.config.schedule} schedule ended at update {before:,} and now ends at {now:,}: the "
                    "learning rate leaps up here; the result is not that of a run begun for so many"
                )

    @contextlib.contextmanager
    def kept_in_place(self) -> Iterator[None]:
        """Let the model be what will be kept of it while inside: its running average if there is one, and whole."""
        with self.ema.in_place() if self.ema is not None else contextlib.nullcontext(), whole(self.updater.model):
            yield

    def go_back(self, progress: Progress) -> Progress | None:
        """Return to the newest regular checkpoint but stay where we are in the data, and save that as a new beginning.

        None where there is none yet. One that was saved by an interruption does not count: the run would not have it
        had it not been stopped.
        """
        found = self.checkpoints.latest(regular=True) if self.ranks.leads else None
        update = int(self.ranks.from_leader(-1 if found is None else found[0]))
        if update < 0:
            return None
        before = self._restore(update)
        self.journal.write("rolled_back", update=progress.update, to=update)
        self.journal.time("rolled_back", update=update)
        before.position, before.roll_backs = progress.position, progress.roll_backs + 1
        self.save(before)
        return before

    def save(self, progress: Progress) -> None:
        """Write a checkpoint."""
        if not self.ranks.leads:
            checkpoint_tensors(self.updater.model, self.updater.optimizer, self.ema, keep=False)  # the leader asks too
            return
        progress.journal_size = self.journal.size
        try:
            self.checkpoints.save(self.updater.model, self.updater.optimizer, progress, self.facts, self.ema)
        except StorageError as error:
            needed, free = self.checkpoints.room(self.updater.model, self.ema)
            raise StorageError(f"{error} (a checkpoint needs {needed:,} bytes, {free:,} are free)") from None

    def thin_out(self, best: int) -> None:
        """Remove checkpoints that are neither new nor the best."""
        if self.ranks.leads:
            self.checkpoints.thin_out(self.config.keep_last, best)

    def refuse_full_disk(self) -> None:
        """Say before the first update, not at the first save, that the checkpoints will not fit."""
        if not self.ranks.leads:
            return
        one, free = self.checkpoints.room(self.updater.model, self.ema)
        more = self.config.keep_last + 2 - len(self.checkpoints.updates())  # the best one, and one being written
        if one * more > free:
            raise StorageError(
                f"{self.checkpoints.folder}: the checkpoints need {one * more:,} bytes and {free:,} are free; "
                "make room, or lower training.keep_last"
            )

    def _restore(self, update: int) -> Progress:
        progress = self.checkpoints.restore(update, self.updater.model, self.updater.optimizer, self.ema)
        self.ranks.wait()  # all have read before anything goes
        if self.ranks.leads:
            self.checkpoints.remove_newer(update)
        return progress
