"""The end of a run: which weights become the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from transduce.errors import ModelFolderError
from transduce.model_folder import load_weights, put_weights
from transduce.training.averaging import average_weights
from transduce.training.reporter import Reporter, Validation
from transduce.training.trainer import Trainer


def put_final_weights(trainer: Trainer, reporter: Reporter) -> tuple[list[int], Validation | None]:
    """Load the final weights into the trainer's model; return the updates they come from and their validation.

    They are the best checkpoint's, or an average if `training.average_checkpoints` is set and it is no worse: averaging
    helps once a run has converged and does harm before. A damaged checkpoint is left out, with a warning.
    """
    trainer.checkpoints.prune(trainer.config.keep_last, trainer.progress.best_update)  # one stopped before it could
    judged, now, size = [], trainer.progress.update, trainer.progress.micro_batch_tokens
    for updates in _candidates(trainer, _whole(trainer, reporter)):
        _put(trainer, updates)
        judged.append((updates, trainer.validator.validate(now, size) if trainer.validator else None))
    (updates, found), *others = judged
    for other, validation in others:
        if found is None or validation is None or not trainer.validator:
            updates = other  # no validation split to compare on: the average, as requested
        elif trainer.validator.better(validation, trainer.validator.better(found, None)[1])[0]:
            updates, found = other, validation
    _put(trainer, updates)
    if found is not None and trainer.extra_validator is not None:
        found = replace(found, extra=trainer.extra_validator.validate(now, size))
    return updates, found


def _whole(trainer: Trainer, reporter: Reporter) -> list[int]:
    """The checkpoints that are intact."""
    kept = []
    for update in trainer.checkpoints.updates():
        try:
            trainer.checkpoints.fingerprint(update)
        except ModelFolderError as error:
            reporter.warn(f"{error}; the final model is made without update {update:,}")
        else:
            kept.append(update)
    if not kept:
        raise ModelFolderError(f"{trainer.checkpoints.folder}: no checkpoint is intact; restore the run from a backup")
    return kept


def _candidates(trainer: Trainer, kept: list[int]) -> list[list[int]]:
    """The best checkpoint, then the averages to try: of the last ones, or of every consecutive window, oldest first.

    If the best one is lost, all others are candidates, newest first.
    """
    count, best = trainer.config.average_checkpoints, trainer.progress.best_update
    single = [[best]] if best in kept else [[update] for update in reversed(kept)]
    if trainer.validator is None:  # no validation split to compare on
        single = [[kept[-1]]]
    if count < 2:
        return single
    windows = [kept[start : start + count] for start in range(max(1, len(kept) - count + 1))]
    return single + (windows[-1:] if trainer.config.average_window == "last" else windows)


def _put(trainer: Trainer, updates: Sequence[int]) -> None:
    files = [trainer.checkpoints.final_weights(update) for update in updates]
    weights = average_weights(files) if len(files) > 1 else load_weights(files[0])
    put_weights(trainer.model, weights, files[0])
