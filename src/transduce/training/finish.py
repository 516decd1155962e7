"""The end of a run: which weights become the model."""

from __future__ import annotations

from collections.abc import Sequence

from transduce.checkpoint import WEIGHTS, load_weights, put_weights
from transduce.training.averaging import average_weights
from transduce.training.loop import Trainer
from transduce.training.reporter import Validation


def put_final_weights(trainer: Trainer) -> tuple[list[int], Validation | None]:
    """Put the final weights into the trainer's model; return the updates they come from and what they are worth.

    They are the best checkpoint's, or the average of the last ones where the recipe asks for one and it is no worse:
    averaging helps once a run has settled and does harm before.
    """
    average, best = trainer.config.average, trainer.progress.best_update
    trainer.checkpoints.thin_out(trainer.config.keep_last, best)  # a run stopped before it could goes on from here
    candidates = [[best], trainer.checkpoints.updates()[-average:]] if average > 1 else [[best]]
    judged = []
    for updates in candidates:
        _put(trainer, updates)
        judged.append((updates, trainer.validator.validate(trainer.progress.update) if trainer.validator else None))
    (updates, found), *others = judged
    for other, validation in others:
        if found is None or validation is None or not trainer.validator:
            updates = other  # nothing to judge by: what was asked for
        elif trainer.validator.better(validation, trainer.validator.better(found, None)[1])[0]:
            updates, found = other, validation
    _put(trainer, updates)
    return updates, found


def _put(trainer: Trainer, updates: Sequence[int]) -> None:
    for update in updates:
        trainer.checkpoints.facts(update)  # whole, to the last bit
    paths = [trainer.checkpoints.path(update) for update in updates]
    weights = average_weights(paths) if len(paths) > 1 else load_weights(paths[0] / WEIGHTS)
    put_weights(trainer.model, weights, paths[0])
