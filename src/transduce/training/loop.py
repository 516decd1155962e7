"""The loop: batches in, updates out, validation and checkpoints at their times.

A run is a function of (recipe, data, seed, threads). The order of the data and the randomness of dropout are
functions of the seed and the position, so that stopping and resuming changes nothing, to the last bit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from transduce.data.batches import Batch, Batches, Position, collate
from transduce.data.store import Prepared
from transduce.errors import StorageError, TransduceError
from transduce.journal import Journal
from transduce.models.interface import AnyTransducer
from transduce.nn.dropout import DropoutKey, set_dropout_key
from transduce.training.allocator import keep_freed_memory
from transduce.training.config import TrainingConfig
from transduce.training.interruption import Interruption
from transduce.training.objective import batch_loss
from transduce.training.optimizer import build_optimizer, gradient_norm, scale_gradients, set_learning_rate
from transduce.training.reporter import Plan, Reporter, Step, Validation
from transduce.training.resident import resident_bytes
from transduce.training.resume import Checkpoints, Progress
from transduce.training.schedule import build_schedule
from transduce.training.validation import Validator

MOST_SKIPPED = 10
"""Updates in a row without a finite loss and gradient until the run gives up."""


class Outcome(NamedTuple):
    """What one update did."""

    loss: float
    """Sum over its tokens."""
    tokens: int
    gradient_norm: float
    finite: bool


class Trainer:
    """One run: a model, its data, and how far it has come."""

    def __init__(
        self, model: AnyTransducer, prepared: Prepared, config: TrainingConfig, folder: Path, facts: dict[str, Any]
    ) -> None:
        self.model, self.prepared, self.config = model, prepared, config
        self.facts = facts
        """What the weights depend on; saved with each checkpoint, and compared on resuming."""
        self.device = model.output.weight.device
        self.optimizer = build_optimizer(model, config)
        self.schedule = build_schedule(config, model.output.weight.shape[1])
        self.batches = Batches.of(prepared.train, config.tokens, config.seed)
        validation = prepared.validation
        self.validator = Validator(model, prepared, validation, config) if validation is not None else None
        self.checkpoints = Checkpoints(folder, config.validate_every)
        self.journal = Journal(folder)
        self.progress = Progress()

    def resume(self, reporter: Reporter) -> None:
        """Go back to the newest whole checkpoint, if there is one."""
        found = self.checkpoints.latest()
        if found is None:
            self.journal.cut(0)
            return
        update, complaints = found
        for complaint in complaints:
            reporter.warn(f"{complaint}; going back to update {update:,}")
        self.progress = self.checkpoints.restore(update, self.model, self.optimizer)
        self.journal.cut(self.progress.journal_size)
        self.journal.time("resumed", update=update)

    def run(self, reporter: Reporter, interruption: Interruption) -> Progress:
        """Train until the recipe's end, an early stop, or an interruption, which saves and raises."""
        keep_freed_memory()
        self._refuse_full_disk()
        reporter.begin(self._plan())
        if self.progress.update == 0:
            self.journal.write("began", **self.facts)
        self.model.train()
        for batches, position in self._updates():
            step = self._timed_update(batches, position)
            reporter.step(step)
            self._watch(step, reporter)
            self._log(step)
            if self._is_time_to_validate():
                self._validate(reporter)
            if self._is_over():
                break
            if interruption.wanted:
                self._save()
                interruption.stop(self.progress.update)
        self.journal.time("ended", update=self.progress.update)
        return self.progress

    def _updates(self) -> Iterator[tuple[list[Batch], Position]]:
        """Yield the batches of each update, and the position behind them."""
        if self._is_over():
            return
        source, target = self.prepared.source_tokenizer.specials, self.prepared.target_tokenizer.specials
        batches: list[Batch] = []
        for position, rows in self.batches.starting(self.progress.position):
            batches.append(collate(self.prepared.train, rows, source, target).to(self.device))
            if len(batches) == self.config.accumulate:
                yield batches, position
                batches = []

    def _timed_update(self, batches: list[Batch], position: Position) -> Step:
        began = time.perf_counter()
        progress = self.progress
        update = progress.update + 1
        rate = self.schedule(update)
        outcome = self._update(batches, update, rate)
        epoch = progress.position.epoch
        progress.update, progress.position = update, position
        if outcome.finite:
            progress.skipped_in_a_row = 0
            progress.tokens += outcome.tokens
            progress.window_loss += outcome.loss
            progress.window_tokens += outcome.tokens
        else:
            self._count_skipped(outcome)
        seconds = time.perf_counter() - began
        return Step(update, epoch, outcome.loss / outcome.tokens, rate, outcome.gradient_norm, outcome.tokens, seconds)

    def _update(self, batches: list[Batch], update: int, rate: float) -> Outcome:
        """Move the weights once: the mean gradient over all real tokens of these batches."""
        tokens = sum(batch.num_target_tokens for batch in batches)
        self.optimizer.zero_grad(set_to_none=True)
        loss = torch.zeros((), device=self.device)
        for index, batch in enumerate(batches):
            set_dropout_key(self.model, DropoutKey(self.config.seed, update, index))
            torch.manual_seed(_mix(self.config.seed, update, index))  # for what draws from torch's stream, on a GPU
            result = batch_loss(self.model, batch, self.prepared.target_tokenizer.pad, self.config.label_smoothing)
            (result.smoothed / tokens).backward()  # type: ignore[no-untyped-call]
            loss += result.smoothed.detach()
        norm = float(gradient_norm(self.model))
        finite = math.isfinite(norm) and math.isfinite(float(loss))
        if finite:
            if 0 < self.config.clip < norm:
                scale_gradients(self.model, self.config.clip / norm)
            set_learning_rate(self.optimizer, rate)
            self.optimizer.step()
        return Outcome(float(loss), tokens, norm, finite)

    def _count_skipped(self, outcome: Outcome) -> None:
        """Leave the weights as they were; too often in a row means that there is no way on."""
        progress = self.progress
        progress.skipped += 1
        progress.skipped_in_a_row += 1
        self.journal.write("skipped", update=progress.update, loss=str(outcome.loss), norm=str(outcome.gradient_norm))
        if progress.skipped_in_a_row >= MOST_SKIPPED:
            raise TransduceError(
                f"the loss or gradient was not finite {MOST_SKIPPED} updates in a row, up to {progress.update:,}; "
                "lower training.learning_rate, raise training.warmup or set training.clip"
            )

    def _watch(self, step: Step, reporter: Reporter) -> None:
        """Say so when the loss runs away."""
        if math.isfinite(step.loss) and self.progress.divergence.observe(step.loss):
            self.journal.write("diverging", update=step.update, loss=step.loss)
            reporter.warn(
                f"the loss ran away at update {step.update:,}, to {step.loss:.3f}; "
                "if it does not come back, lower training.learning_rate or set training.clip"
            )

    def _log(self, step: Step) -> None:
        progress = self.progress
        if step.update % self.config.log_every or not progress.window_tokens:
            return
        self.journal.write(
            "update",
            update=step.update,
            epoch=step.epoch,
            loss=progress.window_loss / progress.window_tokens,
            learning_rate=step.learning_rate,
            gradient_norm=step.gradient_norm,
            tokens=progress.tokens,
        )
        self.journal.time("update", update=step.update, tokens=progress.tokens, memory=resident_bytes())
        progress.window_loss, progress.window_tokens = 0.0, 0

    def _is_time_to_validate(self) -> bool:
        update = self.progress.update
        return update % self.config.validate_every == 0 or update == self.config.updates

    def _validate(self, reporter: Reporter) -> None:
        """Look how good the model is, and save it."""
        progress = self.progress
        if self.validator is not None:
            validation = self.validator.validate(progress.update)
            best, score = self.validator.better(validation, progress.best_score)
            if best:
                progress.best_score, progress.best_update, progress.validations_since_best = score, progress.update, 0
            else:
                progress.validations_since_best += 1
            self._note(replace(validation, best=best), reporter)
        else:
            progress.best_update = progress.update
        self._save()
        self.checkpoints.thin_out(self.config.keep_last, progress.best_update)

    def _note(self, validation: Validation, reporter: Reporter) -> None:
        self.journal.write(
            "validation",
            update=validation.update,
            loss=validation.loss,
            perplexity=validation.perplexity if math.isfinite(validation.perplexity) else None,
            accuracy=validation.accuracy,
            **validation.scores,
            best=validation.best,
            samples=[[sample.source, sample.reference, sample.translation] for sample in validation.samples],
        )
        reporter.validation(validation)

    def _save(self) -> None:
        self.progress.journal_size = self.journal.size
        try:
            self.checkpoints.save(self.model, self.optimizer, self.progress, self.facts)
        except StorageError as error:
            needed, free = self.checkpoints.room(self.model)
            raise StorageError(f"{error} (a checkpoint needs {needed:,} bytes, {free:,} are free)") from None

    def _refuse_full_disk(self) -> None:
        """Say before the first update, not at the first save, that the checkpoints will not fit."""
        one, free = self.checkpoints.room(self.model)
        needed = one * (
            self.config.keep_last + 2 - len(self.checkpoints.updates())
        )  # the best one, and one being written
        if needed > free:
            raise StorageError(
                f"{self.checkpoints.folder}: the checkpoints need {needed:,} bytes and {free:,} are free; "
                "make room, or lower training.keep_last"
            )

    def _is_over(self) -> bool:
        patience = self.config.patience
        tired = patience > 0 and self.progress.validations_since_best >= patience
        return tired or self.progress.update >= self.config.updates

    def _plan(self) -> Plan:
        return Plan(
            parameters=sum(parameter.numel() for parameter in self.model.parameters()),
            train_pairs=len(self.prepared.train),
            validation_pairs=0 if self.prepared.validation is None else len(self.prepared.validation),
            updates=self.config.updates,
            first_update=self.progress.update + 1,
            batches_per_epoch=self.batches.batches_in_epoch(self.progress.position.epoch),
            threads=torch.get_num_threads(),
            device=str(self.device),
        )


def _mix(seed: int, update: int, index: int) -> int:
    """Make one number of three, so that neighbouring updates draw unrelated randomness."""
    mixed = (seed * 0x9E3779B97F4A7C15 + update * 0xBF58476D1CE4E5B9 + index * 0x94D049BB133111EB) % 2**64
    return mixed ^ (mixed >> 31)
