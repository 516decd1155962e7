"""The training loop: updates, and validations and checkpoints between them.

A run is a function of (recipe, data, seed). The order of the data and the randomness of dropout are functions of the
seed and the position, so that stopping and resuming changes nothing, to the last bit.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from transduce.data.batching import Batch
from transduce.data.order import Position
from transduce.data.prepared import Prepared
from transduce.errors import SettingsError, TransduceError
from transduce.evaluation.metrics import finite
from transduce.models.interface import Model
from transduce.training.checkpoint import SETTINGS, CheckpointManager, Progress
from transduce.training.config import TrainingConfig
from transduce.training.distributed import ALONE, Ranks
from transduce.training.interruption import Interruption
from transduce.training.memory import (
    SMALLEST_MICRO_BATCH,
    SharedShortage,
    expected_peak,
    keep_freed_memory,
    ran_out_of_memory,
    resident_bytes,
)
from transduce.training.optimizer import build_schedule
from transduce.training.reporter import Plan, Reporter, Step, Validation
from transduce.training.step import TrainStep
from transduce.training.task import Task
from transduce.training.update import QueuedResult, StepResult, read
from transduce.training.validation import Validator
from transduce.training.workers import Calibration

T = TypeVar("T")

MAX_SKIPPED = 10
"""Updates in a row without a finite loss and gradient after which a run fails."""


@dataclass(frozen=True)
class Unread:
    """An update whose result was not looked at yet."""

    update: int
    epoch: int
    rate: float
    began: float
    result: StepResult | QueuedResult


class Trainer:
    """One run: a model, its data, and its progress."""

    def __init__(
        self,
        model: Model,
        task: Task[Any],
        prepared: Prepared,
        config: TrainingConfig,
        folder: Path,
        fingerprint: dict[str, Any],
        ranks: Ranks = ALONE,
    ) -> None:
        """`fingerprint` is all that the weights depend on; saved with each checkpoint, compared when resuming."""
        self.model, self.task, self.prepared, self.config = model, task, prepared, config
        self.fingerprint, self.ranks = fingerprint, ranks
        keep_freed_memory()
        self.train_step = TrainStep(model, task.loss, config, ranks)
        self.calibration = Calibration(self.train_step.workers)
        self.schedule = build_schedule(config, model.width)
        self.batch_source = task.batch_source(prepared, config, model)
        self.validator = self._validator(prepared.validation)
        self.extra_validator = self._validator(prepared.extra_validation)
        if self.extra_validator is not None and self.validator is None:
            raise SettingsError("data.extra_validation needs data.validation too, which selects the checkpoints")
        self.manager = CheckpointManager(folder, config, self.train_step, fingerprint)
        self.checkpoints, self.journal = self.manager.checkpoints, self.manager.journal
        self.progress = Progress(micro_batch_tokens=config.micro_batch_size)
        self._unread: list[Unread] = []

    def _validator(self, split: Any) -> Validator | None:
        if split is None:
            return None
        return self.task.validator(self.prepared, split, self.config, self.train_step.workers)

    def resume(self, reporter: Reporter) -> None:
        """Restore the newest intact checkpoint, if there is one."""
        self.progress = self.manager.resume(reporter)

    def run(
        self, reporter: Reporter, interruption: Interruption, stop_reason: Callable[[], str | None] | None = None
    ) -> Progress:
        """Train until the last update, an early stop, or an interruption, which saves and raises.

        `stop_reason` says, on the leading rank, why the run should stop now; None to continue.
        """
        self._begin(reporter)
        for batches, position, began in self._updates():
            self._update(batches, position, began, reporter)
            if self._is_time_to_read():
                rolled_back = self._read(reporter)
                if not rolled_back and self._is_time_to_validate():  # a restored update has been validated and saved
                    self._validate(reporter)
            if self.is_over() or (stop_reason is not None and self._stopped(stop_reason(), reporter)):
                break
            if self.ranks.agree(interruption):
                self._read(reporter)
                self.manager.save(self.progress)
                self.ranks.wait()  # until the leader has saved: when a rank leaves, `torchrun` ends the others
                interruption.stop(self.progress.update, reported=not self.ranks.leads)
        self.journal.time("ended", update=self.progress.update)
        return self.progress

    def _stopped(self, reason: str | None, reporter: Reporter) -> bool:
        """Save and return True if there is a reason to stop; a resumed run then continues as if there were none."""
        if not self.ranks.from_leader(reason is not None):
            return False
        self.manager.save(self.progress)
        self.journal.time("stopped", update=self.progress.update, reason=reason)
        reporter.warn(f"stopped at update {self.progress.update:,}: {reason}")
        return True

    def close(self) -> None:
        """Release threads and files, however the run ended."""
        self.train_step.workers.close()
        self.journal.close()

    @contextlib.contextmanager
    def closed_on_error(self) -> Iterator[None]:
        """Close if an error occurs before the run begins."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    def _begin(self, reporter: Reporter) -> None:
        """Check the disk, report the plan and, for fine-tuning, validate the initial checkpoint."""
        self.manager.check_disk_space()
        if self.progress.update == 0:
            known = {name: value for name, value in self.fingerprint.items() if name != SETTINGS}
            self.journal.write("began", **known)
        reporter.begin(self._plan(reporter))
        if self.progress.update == 0 and self.config.initial_checkpoint is not None and self.validator is not None:
            before = self._run_validation(self.validator, reporter)
            self.progress.before = before.measures()
            self._log_validation(before, reporter)

    def _updates(self) -> Iterator[tuple[list[Batch], Position, float]]:
        """Yield the batches of each update, the position after them, and the time at which they were requested."""
        if self.is_over():
            return
        batches: list[Batch] = []
        began = time.perf_counter()
        for position, batch in self.batch_source.starting(self.progress.position):
            batches.append(batch)
            if len(batches) == self.config.gradient_accumulation:
                yield batches, position, began
                batches, began = [], time.perf_counter()

    def _update(self, batches: list[Batch], position: Position, began: float, reporter: Reporter) -> None:
        """Make one update, or on a GPU queue it."""
        progress = self.progress
        update = progress.update + 1
        rate, has_batches = self.schedule(update), time.perf_counter()
        result = self._in_memory(lambda size: self.train_step.run(batches, update, rate, size), reporter)
        if self.manager.ema is not None and (isinstance(result, QueuedResult) or result.finite):
            self.manager.ema.update(update)
        self._unread.append(Unread(update, progress.position.epoch, rate, began, result))
        progress.update, progress.position = update, position
        if self.calibration.observe(result.tokens, time.perf_counter() - has_batches):
            threads = self.train_step.workers.active
            self.journal.time("calibrated", threads=threads, tokens_per_second=self.calibration.speeds)

    def _is_time_to_read(self) -> bool:
        """Whether to find out what the last updates did: always, but for GPUs, which would have to be waited for."""
        queued = isinstance(self._unread[-1].result, QueuedResult)
        is_logged = self.progress.update % self.config.log_every == 0
        return not queued or is_logged or self._is_time_to_validate() or self.is_over()

    def _read(self, reporter: Reporter) -> bool:
        """Count, report and log the updates since the last call; return whether the run was rolled back."""
        unread, self._unread = self._unread, []
        results = read([one.result for one in unread])
        now = time.perf_counter()
        for one, result in zip(unread, results, strict=True):
            self._count(result, one.update, reporter)
            seconds = (now - unread[0].began) / len(unread)
            loss = result.loss / result.tokens
            step = Step(one.update, one.epoch, loss, one.rate, result.gradient_norm, result.tokens, seconds)
            reporter.step(step)
            if self._rolled_back(step, reporter):
                return True
            self._log(step)
        return False

    def _count(self, result: StepResult, update: int, reporter: Reporter) -> None:
        """Add an update to the progress; too many in a row that were not finite are an error."""
        progress = self.progress
        if result.finite:
            progress.skipped_in_a_row = 0
            progress.tokens += result.tokens
            progress.window_loss += result.loss
            progress.window_tokens += result.tokens
            return
        progress.skipped += 1
        progress.skipped_in_a_row += 1
        self.journal.write("skipped", update=update, loss=str(result.loss), norm=str(result.gradient_norm))
        reporter.warn(f"skipped update {update:,}: loss or gradient not finite ({progress.skipped:,} skipped so far)")
        if progress.skipped_in_a_row >= MAX_SKIPPED:
            raise TransduceError(
                f"the loss or gradient was not finite {MAX_SKIPPED} updates in a row, up to {update:,}; "
                "lower training.learning_rate, raise training.warmup or set training.max_grad_norm"
            )

    def _in_memory(self, work: Callable[[int], T], reporter: Reporter) -> T:
        """Do work with the current micro-batch size; where memory runs out, halve it for the rest of the run."""
        progress = self.progress
        while True:
            try:
                return work(progress.micro_batch_tokens)
            except (MemoryError, RuntimeError) as error:
                if not ran_out_of_memory(error):
                    raise
                self._check_can_halve(error)
            progress.micro_batch_tokens //= 2
            self.journal.write(
                "out_of_memory", update=progress.update + 1, micro_batch_tokens=progress.micro_batch_tokens
            )
            reporter.warn(
                f"out of memory at update {progress.update + 1:,}; continuing with micro-batches of "
                f"{progress.micro_batch_tokens:,} tokens and the same batches"
            )

    def _check_can_halve(self, error: BaseException) -> None:
        """Raise where a smaller micro-batch does not help, or where other ranks would not use it too."""
        progress = self.progress
        if progress.micro_batch_tokens <= SMALLEST_MICRO_BATCH:
            raise TransduceError(
                f"out of memory at update {progress.update + 1:,}, even with micro-batches of "
                f"{progress.micro_batch_tokens} tokens; choose a smaller model, or shorter texts with data.max_length"
            ) from None
        if self.ranks.world > 1 and not isinstance(error, SharedShortage):  # the other ranks do not know
            raise TransduceError(
                f"rank {self.ranks.rank} ran out of memory at update {progress.update + 1:,}; start a new run "
                f"with training.micro_batch_tokens={progress.micro_batch_tokens // 2}"
            ) from None

    def _rolled_back(self, step: Step, reporter: Reporter) -> bool:
        """Warn when the loss diverges, and roll back if `training.max_rollbacks` allows; return whether it did."""
        if not math.isfinite(step.loss) or not self.progress.divergence.observe(step.loss):
            return False
        self.journal.write("diverging", update=step.update, loss=step.loss)
        diverged = f"the loss diverged at update {step.update:,}, to {step.loss:.3f}"
        before = self.manager.roll_back(self.progress) if self.progress.rollbacks < self.config.max_rollbacks else None
        if before is None:
            reporter.warn(
                f"{diverged}; if it does not recover, lower training.learning_rate or set training.max_grad_norm"
            )
            return False
        self.progress = before
        reporter.warn(f"{diverged}; rolled back to update {before.update:,}, skipping the batches since")
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
        return update % self.config.validation_interval == 0 or update == self.config.updates

    def _validate(self, reporter: Reporter) -> None:
        """Validate, save a checkpoint, and prune older ones."""
        progress = self.progress
        if self.validator is not None:
            validation = self._run_validation(self.validator, reporter)
            best, score = self.validator.better(validation, progress.best_score, progress.best_loss)
            best, score = bool(self.ranks.from_leader(best)), self.ranks.from_leader(score)
            if best:
                progress.best_score, progress.best_loss = score, self.ranks.from_leader(validation.loss)
                progress.best_update, progress.validations_since_best = progress.update, 0
            else:
                progress.validations_since_best += 1
            self._log_validation(replace(validation, best=best), reporter)
        else:
            progress.best_update = progress.update
        self.manager.save(progress)
        self.manager.prune(progress.best_update)

    def _run_validation(self, validator: Validator, reporter: Reporter) -> Validation:
        """Validate the weights that would be saved now, on the validation split and the extra one."""
        update, extra = self.progress.update, self.extra_validator
        with self.manager.final_weights():
            found = self._in_memory(lambda size: validator.validate(update, size), reporter)
            if extra is None:
                return found
            return replace(found, extra=self._in_memory(lambda size: extra.validate(update, size), reporter))

    def _log_validation(self, validation: Validation, reporter: Reporter) -> None:
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
        """Whether the run has reached its last update or run out of patience."""
        patience = self.config.patience
        out_of_patience = patience > 0 and self.progress.validations_since_best >= patience
        return out_of_patience or self.progress.update >= self.config.updates

    def _plan(self, reporter: Reporter) -> Plan:
        largest = partial(self.task.largest_batch, self.prepared)
        return Plan(
            parameters=sum(parameter.numel() for parameter in self.model.parameters()),
            train_pairs=len(self.prepared.train),
            validation_pairs=0 if self.prepared.validation is None else len(self.prepared.validation),
            updates=self.config.updates,
            first_update=self.progress.update + 1,
            is_over=self.is_over(),
            updates_per_epoch=self.batch_source.batches.batches_in_epoch(self.progress.position.epoch)
            / self.config.gradient_accumulation,
            threads=len(self.train_step.workers.models),
            ranks=self.ranks.world,
            device=str(self.train_step.device),
            memory=self._in_memory(lambda size: expected_peak(self.train_step, largest, size), reporter),
            rows=self.task.rows,
        )
