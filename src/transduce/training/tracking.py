"""The numbers of a run for tools that draw them: TensorBoard (extra `tensorboard`), Weights & Biases (extra `wandb`).

Both are callbacks of a run; the journal remains the record of the run. TensorBoard's files are
written by tensorboardX, which needs no server: tensorboard itself is for whoever looks at them.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import math
import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from transduce.config import Table, write_toml
from transduce.errors import SettingsError
from transduce.training.reporter import Plan, Silent, Step, Validation

PROJECT = "transduce"
"""W&B's project, unless the variable WANDB_PROJECT names another."""


class Tracker(Silent):
    """Follows a run and passes its numbers on, every `log_every` updates and at every validation."""

    def __init__(self, folder: Path, tables: Table) -> None:
        """`folder` is the run's; `tables` are those of its recipe."""
        self.folder, self.tables = folder, tables
        self._every = int(tables["training"]["log_every"])
        self._loss, self._tokens, self._seconds = 0.0, 0, 0.0

    def begin(self, plan: Plan) -> None:
        self.open(plan)

    def step(self, step: Step) -> None:
        """Add an update; the loss is the mean per token since the last line, as in the journal."""
        if math.isfinite(step.loss):
            self._loss, self._tokens = self._loss + step.loss * step.tokens, self._tokens + step.tokens
        self._seconds += step.seconds
        if step.update % self._every or not self._tokens:
            return
        self.write(
            step.update,
            {
                "train/loss": self._loss / self._tokens,
                "train/learning_rate": step.learning_rate,
                "train/gradient_norm": step.gradient_norm,
                "train/tokens_per_second": self._tokens / max(self._seconds, 1e-9),
            },
        )
        self._loss, self._tokens, self._seconds = 0.0, 0, 0.0

    def validation(self, validation: Validation) -> None:
        values = {**validation.measures(), "perplexity": validation.perplexity}
        self.write(validation.update, {f"validation/{name}": value for name, value in values.items()})

    @abstractmethod
    def open(self, plan: Plan) -> None:
        """Begin, or continue after `plan.first_update - 1`."""

    @abstractmethod
    def write(self, update: int, values: Mapping[str, float]) -> None:
        """Pass on numbers by name."""

    @abstractmethod
    def close(self) -> None:
        """Write what is left, however the run ended."""


class TensorBoard(Tracker):
    """Event files in the folder `tensorboard` of the run."""

    def __init__(self, folder: Path, tables: Table) -> None:
        super().__init__(folder, tables)
        self._library = _library("tensorboardX", "tensorboard")
        self._writer: Any = None

    def open(self, plan: Plan) -> None:
        resumed = plan.first_update if plan.first_update > 1 else None  # what an interrupted process wrote beyond it
        self._writer = self._library.SummaryWriter(str(self.folder / "tensorboard"), purge_step=resumed)

    def write(self, update: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, update)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class WeightsAndBiases(Tracker):
    """A run of W&B, whose files are in the folder `wandb` of the run; WANDB_MODE=offline keeps them there."""

    def __init__(self, folder: Path, tables: Table) -> None:
        super().__init__(folder, tables)
        self._library = _library("wandb", "wandb")
        self._run: Any = None

    def open(self, plan: Plan) -> None:
        place = f"{self.folder.resolve()}\n{write_toml(self.tables)}"
        self._run = self._library.init(
            project=None if "WANDB_PROJECT" in os.environ else PROJECT,
            name=self.folder.name,
            id=hashlib.sha256(place.encode()).hexdigest()[:16],
            resume="allow",
            dir=str(self.folder),
            config=self.tables,
        )

    def write(self, update: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=update)

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()


TRACKERS: dict[str, type[Tracker]] = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases}


@contextlib.contextmanager
def open_trackers(names: Sequence[str], folder: Path, tables: Table) -> Iterator[list[Tracker]]:
    """Return trackers, which are callbacks of a run, and close them afterwards."""
    with contextlib.ExitStack() as stack:
        trackers = [TRACKERS[name](folder, tables) for name in dict.fromkeys(names)]
        for tracker in trackers:
            stack.callback(tracker.close)
        yield trackers


def _library(name: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise SettingsError(
            f"logging to {extra} needs the package {name}; install it with `pip install 'transduce[{extra}]'`"
        ) from None
