"""Callbacks: a user's own code that follows a run, and may end it.

A callback gets frozen values and never the model, so it cannot change what is trained: the weights are those of the
same run without it, up to where it ends the run.

    class StopWhenGood(transduce.Callback):
        def validation(self, validation):
            if validation.scores["bleu"] > 40:
                raise transduce.StopTraining("BLEU is above 40")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from transduce.training.reporter import Callback, Plan, Reporter, Step, Validation


class StopTraining(Exception):
    """Raised by a callback to end training after the current update; the best checkpoint becomes the model.

    The run can be resumed, and then continues as if it had not been stopped.
    """


class Callbacks:
    """Passes what a run reports to several callbacks, and keeps their request to stop."""

    def __init__(self, reporters: Sequence[Reporter]) -> None:
        self._reporters = reporters
        self.stop_reason: str | None = None
        """Why training has to stop, if a callback raised `StopTraining`."""

    def preparing(self, stage: str, count: int) -> None:
        self._each(lambda one: one.preparing(stage, count))

    def begin(self, plan: Plan) -> None:
        self._each(lambda one: one.begin(plan))

    def step(self, step: Step) -> None:
        self._each(lambda one: one.step(step))

    def validation(self, validation: Validation) -> None:
        self._each(lambda one: one.validation(validation))

    def warn(self, message: str) -> None:
        self._each(lambda one: one.warn(message))

    def end(self, message: str) -> None:
        self._each(lambda one: one.end(message))

    def _each(self, call: Callable[[Reporter], None]) -> None:
        for one in self._reporters:
            try:
                call(one)
            except StopTraining as stop:
                self.stop_reason = str(stop) or type(one).__name__


METHODS = ("preparing", "begin", "step", "validation", "warn", "end")


def check_callbacks(callbacks: Any) -> list[Reporter]:
    """Return the callbacks of a list; raise a `TypeError` for one that lacks a method, before anything is trained."""
    if isinstance(callbacks, Callback) or not isinstance(callbacks, Sequence):
        raise TypeError(f"callbacks must be a list of callbacks, not {type(callbacks).__name__}; write callbacks=[…]")
    for one in callbacks:
        if isinstance(one, type):
            raise TypeError(f"callbacks has the class {one.__name__}; pass an object: {one.__name__}()")
        missing = [name for name in METHODS if not callable(getattr(one, name, None))]
        if missing:
            raise TypeError(
                f"callbacks has {type(one).__name__}, which has no method {missing[0]}; derive it from "
                "transduce.Callback"
            )
    return list(callbacks)
