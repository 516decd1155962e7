"""Moments of a run at which a signal may come: places in the program, each reached many times, counted from 1."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

import transduce.run
from tests.torture.disk import Disk
from transduce.cli.progress import PlainLines, PreparationProgress
from transduce.inference.torch_engine import TorchEngine
from transduce.training.checkpoint import Checkpoints
from transduce.training.validation import Validator

INSIDE_AN_UPDATE = ("gradient", "optimizer")


class Moments:
    """Sends signals to this process at the moments asked for, and notes at which update that was."""

    def __init__(self, signals: list[dict[str, Any]], note: Path) -> None:
        self.signals, self.note = signals, note
        self.reached: Counter[str] = Counter()
        self.reported = 0
        """The last update whose end was reported."""

    def install(self, disk: Disk) -> None:
        """Put a bell at each moment."""
        register_optimizer_step_pre_hook(lambda *_: self.reach("optimizer"))
        for place, name, moment in (
            (torch.autograd, "backward", "gradient"),
            (Validator, "validate", "validating"),
            (TorchEngine, "translate", "translating"),
            (Checkpoints, "restore", "restoring"),
            (transduce.run, "save_model", "finishing"),
        ):
            setattr(place, name, self._ringing(getattr(place, name), moment))
        begin, step, show = PlainLines.begin, PlainLines.step, PreparationProgress.show

        def begun(lines: PlainLines, plan: Any) -> None:
            begin(lines, plan)
            self.reported = plan.first_update - 1

        def reported(lines: PlainLines, found: Any) -> None:
            step(lines, found)
            self.reported = found.update
            self.reach("reported")

        def shown(progress: PreparationProgress, stage: str, count: int) -> None:
            show(progress, stage, count)
            self.reach(stage.split()[0])

        PlainLines.begin, PlainLines.step, PreparationProgress.show = begun, reported, shown  # type: ignore[method-assign]
        for wanted in self.signals:
            if wanted["moment"] == "saving":
                disk.scope, disk.at, disk.strike = "save", wanted["call"], lambda found=wanted: self._send(found)

    def _ringing(self, function: Callable[..., Any], moment: str) -> Callable[..., Any]:
        def ringing(*arguments: Any, **extra: Any) -> Any:
            self.reach(moment)
            return function(*arguments, **extra)

        return ringing

    def reach(self, moment: str) -> None:
        """Count, and send what was asked for at this moment."""
        self.reached[moment] += 1
        for wanted in self.signals:
            if (wanted["moment"], wanted["call"]) == (moment, self.reached[moment]):
                self._send(wanted)

    def _send(self, wanted: dict[str, Any]) -> None:
        update = self.reported + (wanted["moment"] in INSIDE_AN_UPDATE)
        self.note.write_text(json.dumps({"update": update, **wanted}))
        for _ in range(wanted.get("times", 1)):
            signal.raise_signal(wanted["number"])
