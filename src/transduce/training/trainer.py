"""The loop: batches in, updates out, validation and checkpoints at their times.

A run is a function of (recipe, data, seed). The order of the data and the randomness of dropout are
functions of the seed and the position, so that stopping and resuming changes nothing, to the last bit.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from transduce.config import Table
from transduce.data.batches import Position
from transduce.data.config import PlainTextConfig
from transduce.data.prepared import Prepared
from transduce.errors import TransduceError
from transduce.evaluation.metrics import finite
from transduce.models.interface import Model
from transduce.training.checkpoint import SETTINGS, Progress
from transduce.training.checkpoint_manager import CheckpointManager
from transduce.training.config import TrainingConfig
from transduce.training.distributed.ranks import ALONE, Ranks
from transduce.training.interruption import Interruption
from transduce.training.material import build_feed, build_validator, build_watcher
from transduce.training.memory_estimate import SMALLEST_MICRO_BATCH, expected_peak
from transduce.training.objective import AnyBatch
from transduce.training.reading_validation import ReadingValidator
from transduce.training.reporter import Plan, Reporter, Step, Validation
from transduce.training.schedule import build_schedule
from transduce.training.step import Outcome, Updater
from transduce.training.system_memory import SharedShortage, keep_freed_memory, ran_out_of_memory, resident_bytes
from transduce.training.validation import Validator
from transduce.training.workers import Calibration

T = TypeVar("T")

MOST_SKIPPED = 10
"""Updates in a row without a finite loss and gradient until the run gives up."""


class Trainer:
    """One run: a model, its data, and how far it has come."""

    def __init__(
        self,
        model: Model,
        prepared: Prepared,
        config: TrainingConfig,
        folder: Path,
        fingerprint: Table,
        ranks: Ranks = ALONE,
    ) -> None:
        """`fingerprint` is what the weights depend on: saved with each checkpoint, and compared on resuming."""
        self.model, self.prepared, self.config, self.fingerprint, self.ranks = (
            model,
            prepared,
            config,
            fingerprint,
            ranks,
        )
        keep_freed_memory()
        self.updater = Updater(model, config, ranks)
        self.calibration = Calibration(self.updater.workers)
        self.schedule = build_schedule(config, model.width)
        self.feed = build_feed(prepared, config, model)
        self.validator = build_validator(prepared, config, self.updater.workers)
        self.watcher = build_watcher(prepared, config, self.updater.workers)
        self.manager = CheckpointManager(folder, config, self.updater, fingerprint)
        self.checkpoints, self.journal = self.manager.checkpoints, self.manager.journal
        self.progress = Progress(micro_batch_tokens=config.micro_batch_size)

    def resume(self, reporter: Reporter) -> None:
        """Go back to the newest whole checkpoint, if there is one."""
        self.progress = self.manager.resume(reporter)

    def run(self, reporter: Reporter, interruption: Interruption) -> Progress:
        """Train until the recipe's end, an early stop, or an interruption, which saves and raises."""
        self.manager.check_disk_space()
        if self.progress.update == 0:
            self.journal.write("began", **{name: value for name, value in self.fingerprint.items() if name != SETTINGS})
        reporter.begin(self._plan(reporter))
        if self.progress.update == 0 and self.config.initial_checkpoint is not None and self.validator is not None:
            before = self._look(self.validator, reporter)
            self.progress.before = before.measures()
            self._note(before, reporter)
        for batches, position, began in self._updates():
            step = self._timed_update(batches, position, began, reporter)
            reporter.step(step)
            if not self._went_back(step, reporter):  # what was gone back to is logged, validated and saved already
                self._log(step)
                if self._is_time_to_validate():
                    self._validate(reporter)
            if self.is_over():
                break
            if self.ranks.agree(interruption):
                self.manager.save(self.progress)
                self.ranks.wait()  # for the leader to have saved: who leaves before has `torchrun` end it in the middle
                interruption.stop(self.progress.update, reported=not self.ranks.leads)
        self.journal.time("ended", update=self.progress.update)
        return self.progress

    def close(self) -> None:
        """Let go of what the run holds, however it ended."""
        self.updater.workers.close()
        self.journal.close()

    @contextlib.contextmanager
    def closed_on_error(self) -> Iterator[None]:
        """Let go of it if it does not even begin."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    def _updates(self) -> Iterator[tuple[list[AnyBatch], Position, float]]:
        """Yield the batches of each update, the position behind them, and when they were asked for."""
        if self.is_over():
            return
        batches: list[AnyBatch] = []
        began = time.perf_counter()
        for position, batch in self.feed.starting(self.progress.position):
            batches.append(batch)
            if len(batches) == self.config.gradient_accumulation:
                yield batches, position, began
                batches, began = [], time.perf_counter()

    def _timed_update(self, batches: list[AnyBatch], position: Position, began: float, reporter: Reporter) -> Step:
        progress = self.progress
        update = progress.update + 1
        rate, has_batches = self.schedule(update), time.perf_counter()
        outcome = self._update(batches, update, rate, reporter)
        epoch = progress.position.epoch
        progress.update, progress.position = update, position
        if outcome.finite:
            if self.manager.ema is not None:
                self.manager.ema.take_in(update)
            progress.skipped_in_a_row = 0
            progress.tokens += outcome.tokens
            progress.window_loss += outcome.loss
            progress.window_tokens += outcome.tokens
        else:
            self._count_skipped(outcome, reporter)
        now = time.perf_counter()
        if self.calibration.observe(outcome.tokens, now - has_batches):
            threads = self.updater.workers.active
            self.journal.time("calibrated", threads=threads, tokens_per_second=self.calibration.speeds)
        return Step(
            update, epoch, outcome.loss / outcome.tokens, rate, outcome.gradient_norm, outcome.tokens, now - began
        )

    def _update(self, batches: list[AnyBatch], update: int, rate: float, reporter: Reporter) -> Outcome:
        return self._in_memory(lambda size: self.updater.update(batches, update, rate, size), reporter)

    def _in_memory(self, work: Callable[[int], T], reporter: Reporter) -> T:
        """Do what needs memory for slices; where it runs out, in slices half as large, now and from now on."""
        progress = self.progress
        while True:
            try:
                return work(progress.micro_batch_tokens)
            except (MemoryError, RuntimeError) as error:
                if not ran_out_of_memory(error):
                    raise
                if progress.micro_batch_tokens <= SMALLEST_MICRO_BATCH:
                    raise TransduceError(
                        f"there is not enough memory for update {progress.update + 1:,}, even in slices of "
                        f"{progress.micro_batch_tokens} tokens; choose a smaller model, or shorter texts with data.max_length"
                    ) from None
                if self.ranks.world > 1 and not isinstance(error, SharedShortage):  # the others have not heard of it
                    raise TransduceError(
                        f"rank {self.ranks.rank} ran out of memory at update {progress.update + 1:,}; start a new run "
                        f"with training.micro_batch_tokens={progress.micro_batch_tokens // 2}"
                    ) from None
            progress.micro_batch_tokens //= 2
            self.journal.write(
                "out_of_memory", update=progress.update + 1, micro_batch_tokens=progress.micro_batch_tokens
            )
            reporter.warn(
                f"memory ran out at update {progress.update + 1:,}; going on in slices of {progress.micro_batch_tokens:,} "
                "tokens, with the same batches"
            )

    def _count_skipped(self, outcome: Outcome, reporter: Reporter) -> None:
        """Leave the weights as they were; too often in a row means that there is no way on."""
        progress = self.progress
        progress.skipped += 1
        progress.skipped_in_a_row += 1
        self.journal.write("skipped", update=progress.update, loss=str(outcome.loss), norm=str(outcome.gradient_norm))
        what, so_far = "its loss or gradient was not finite", f"{progress.skipped:,} so far"
        reporter.warn(f"update {progress.update:,} was left out: {what} ({so_far})")
        if progress.skipped_in_a_row >= MOST_SKIPPED:
            raise TransduceError(
                f"the loss or gradient was not finite {MOST_SKIPPED} updates in a row, up to {progress.update:,}; "
                "lower training.learning_rate, raise training.warmup or set training.max_grad_norm"
            )

    def _went_back(self, step: Step, reporter: Reporter) -> bool:
        """Say so when the loss runs away, and go back if the recipe wants it."""
        if not math.isfinite(step.loss) or not self.progress.divergence.observe(step.loss):
            return False
        self.journal.write("diverging", update=step.update, loss=step.loss)
        said = f"the loss ran away at update {step.update:,}, to {step.loss:.3f}"
        before = self.manager.roll_back(self.progress) if self.progress.rollbacks < self.config.max_rollbacks else None
        if before is None:
            reporter.warn(
                f"{said}; if it does not come back, lower training.learning_rate or set training.max_grad_norm"
            )
            return False
        self.progress = before
        reporter.warn(f"{said}; going back to update {before.update:,} and leaving out the batches since")
        return True

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
            validation = self._look(self.validator, reporter)
            best, score = self.validator.better(validation, progress.best_score)
            best, score = bool(self.ranks.from_leader(best)), self.ranks.from_leader(score)
            if best:
                progress.best_score, progress.best_update, progress.validations_since_best = score, progress.update, 0
            else:
                progress.validations_since_best += 1
            self._note(replace(validation, best=best), reporter)
        else:
            progress.best_update = progress.update
        self.manager.save(progress)
        self.manager.prune(progress.best_update)

    def _look(self, validator: Validator | ReadingValidator, reporter: Reporter) -> Validation:
        """See how good what would be kept now is, on pairs of now and of before."""
        update, watcher = self.progress.update, self.watcher
        with self.manager.final_weights():
            found = self._in_memory(lambda size: validator.validate(update, size), reporter)
            if watcher is None:
                return found
            return replace(found, watched=self._in_memory(lambda size: watcher.validate(update, size), reporter))

    def _note(self, validation: Validation, reporter: Reporter) -> None:
        measures = validation.measures()
        self.journal.write(
            "validation",
            update=validation.update,
            loss=measures.pop("loss"),
            perplexity=finite(validation.perplexity),
            **measures,
            best=validation.best,
            samples=[[sample.source, sample.reference, sample.translation] for sample in validation.samples],
        )
        reporter.validation(validation)

    def is_over(self) -> bool:
        """Whether the run has come to its end, by its updates or by its patience."""
        patience = self.config.patience
        tired = patience > 0 and self.progress.validations_since_best >= patience
        return tired or self.progress.update >= self.config.updates

    def _plan(self, reporter: Reporter) -> Plan:
        return Plan(
            parameters=sum(parameter.numel() for parameter in self.model.parameters()),
            train_pairs=len(self.prepared.train),
            validation_pairs=0 if self.prepared.validation is None else len(self.prepared.validation),
            updates=self.config.updates,
            first_update=self.progress.update + 1,
            updates_per_epoch=self.feed.batches.batches_in_epoch(self.progress.position.epoch)
            / self.config.gradient_accumulation,
            threads=len(self.updater.workers.models),
            ranks=self.ranks.world,
            device=str(self.updater.device),
            memory=self._in_memory(lambda size: expected_peak(self.updater, self.prepared, size), reporter),
            rows="blocks" if isinstance(self.prepared.data, PlainTextConfig) else "pairs",
        )
