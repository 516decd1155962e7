"""The checkpoints of a run on disk: found by their names, verified, pruned; without torch.

checkpoints/update-00001000/   model.safetensors, optimizer.safetensors, progress.json, manifest.json,
                               average.safetensors if the run keeps a moving average of the weights
"""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path

from transduce.config import Table, counted
from transduce.errors import ModelFolderError
from transduce.storage.layout import (
    AVERAGE,
    CHECKPOINT_KIND,
    CHECKPOINTS,
    FORMAT,
    MANIFEST,
    OPTIMIZER,
    PROGRESS,
    WEIGHTS,
    checkpoint_name,
)
from transduce.storage.manifest import check_format, verify


class SavedCheckpoints:
    """The checkpoint folder of one run. There is no pointer to the newest checkpoint: names are in order."""

    def __init__(self, run: Path, every: int = 1, end: int | None = None) -> None:
        self.folder = run / CHECKPOINTS
        self.every, self.end = every, end
        """Updates between two regular checkpoints. Any other was saved by an interruption, and is pruned once a later
        one exists, so that what is kept and averaged does not depend on where a run was stopped. The checkpoint of the
        run's `end` counts as regular."""

    def path(self, update: int) -> Path:
        """Folder of the checkpoint of an update."""
        return self.folder / checkpoint_name(update)

    def updates(self) -> list[int]:
        """The updates that have a checkpoint, oldest first."""
        names = [path.name for path in self.folder.glob("update-*") if path.is_dir()] if self.folder.is_dir() else []
        numbers = [counted(name.removeprefix("update-")) for name in names]
        updates = sorted(number for number in numbers if number is not None)
        return [update for update in updates if self.path(update).name in names]

    def latest(self, regular: bool = False) -> tuple[int, list[str]] | None:
        """Return the newest checkpoint that is intact, and the faults of newer ones.

        `regular` skips those that were saved by an interruption.
        """
        faults: list[str] = []
        for update in reversed(self.updates()):
            if regular and update % self.every:
                continue
            try:
                self._check(self.path(update))
            except ModelFolderError as error:
                faults.append(str(error))
            else:
                return update, faults
        if faults:
            raise ModelFolderError(f"no checkpoint is intact: {faults[0]}")
        return None

    def fingerprint(self, update: int) -> Table:
        """Return what the run depended on when it saved this checkpoint: recipe, data, ranks. Rejects other formats."""
        manifest = self._check(self.path(update))
        check_format(self.path(update), manifest)
        fingerprint = manifest.get("fingerprint")
        return fingerprint if isinstance(fingerprint, dict) else {}

    def _check(self, place: Path) -> Table:
        """Return the manifest of an intact checkpoint; files that it does not list are never read."""
        manifest = verify(place, CHECKPOINT_KIND, any_format=True)  # another version's is intact, not damaged
        for name in (WEIGHTS, OPTIMIZER, PROGRESS):
            if name not in manifest["files"] and manifest.get("format") == FORMAT:
                raise ModelFolderError(f"{place / MANIFEST}: does not list {name}; the checkpoint is incomplete")
        return manifest

    def final_weights(self, update: int) -> Path:
        """The weights that a model made from this checkpoint gets: their moving average if the run keeps one."""
        average = self.path(update) / AVERAGE
        return average if average.is_file() else self.path(update) / WEIGHTS

    def remove_newer(self, update: int) -> None:
        """Remove the checkpoints after an update: damaged ones, or those that were rolled back."""
        for newer in self.updates():
            if newer > update:
                shutil.rmtree(self.path(newer))

    def keep(self, chosen: Collection[int]) -> None:
        """Remove all but the chosen checkpoints, of a run that has ended."""
        for update in self.updates():
            if update not in chosen:
                shutil.rmtree(self.path(update))

    def prune(self, keep_last: int, best: int) -> None:
        """Remove all but the newest few, the best, and the newest of all, which may be from an interruption."""
        updates = self.updates()
        regular = [update for update in updates if update % self.every == 0 or update == self.end]
        for update in updates:
            if update not in (*regular[-keep_last:], updates[-1], best):
                shutil.rmtree(self.path(update))
