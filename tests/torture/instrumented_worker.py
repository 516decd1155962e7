"""The process of a model that fails on some words, each in its own way, and counts its objects on SIGUSR1.

`instrumented_server` starts it. A word of POISON in a source fails when it is encoded; as the prefix of a translation
it fails in the step that reads it, in the middle of a batch. ABORT ends the process natively.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from transduce.serving import worker
from transduce.serving.job import ModelInfo
from transduce.serving.process import EngineSettings
from transduce.serving.runner import Runner, TranslatorRunner


class Panic(BaseException):
    """What a library in Rust raises."""


def _raise_panic() -> None:
    raise Panic("called `Option::unwrap()` on a `None` value")


def _raise() -> None:
    raise ValueError("the model raises")


def _out_of_memory() -> None:
    raise MemoryError


def _allocate() -> None:
    torch.empty(1 << 60, dtype=torch.uint8)  # PyTorch's own error of memory that cannot be had


def _assert() -> None:
    raise AssertionError("shape mismatch")


POISON: dict[str, Callable[[], None]] = {
    "raises": _raise,
    "memory": _out_of_memory,
    "allocate": _allocate,
    "panic": _raise_panic,
    "asserts": _assert,
}
ABORT = "abort"
WORDS = [*POISON, ABORT]


class Poisoned:
    """Comes before the class of the model in the order of methods."""

    poison: dict[int, Callable[[], None]]

    def _taste(self, tokens: Tensor) -> None:
        for number, fail in self.poison.items():
            if bool((tokens == number).any()):
                fail()

    def encode(self, source: Tensor, *arguments: Any) -> Any:
        self._taste(source)
        return super().encode(source, *arguments)  # type: ignore[misc]

    def step_groups(self, tokens: Sequence[Tensor], states: Sequence[Any]) -> Any:
        for one in tokens:
            self._taste(one)
        return super().step_groups(tokens, states)  # type: ignore[misc]

    def extend(self, tokens: Tensor, *arguments: Any) -> Any:
        self._taste(tokens)
        return super().extend(tokens, *arguments)  # type: ignore[misc]


def poison(runner: Runner) -> None:
    """Let the model of a translator fail on the words that it knows of those above."""
    if not isinstance(runner, TranslatorRunner):
        return
    translator = runner._translator
    model: Any = translator.model
    model.__class__ = type("PoisonedModel", (Poisoned, type(model)), {})
    known = {word: translator.source.encode(word)[0] for word in WORDS}
    model.poison = {known[word]: fail for word, fail in POISON.items()} | {known[ABORT]: os.abort}


def _count(number: int, frame: FrameType | None) -> None:
    gc.collect()
    line = f"engine {threading.active_count()} {len(gc.get_objects())}\n"
    os.write(2, line.encode())  # whole: all engines write to the same pipe


def main() -> None:
    """Run the process."""
    signal.signal(signal.SIGUSR1, _count)
    load = worker.load_runner

    def load_poisoned(settings: EngineSettings) -> tuple[Runner, ModelInfo]:
        runner, info = load(settings)
        poison(runner)
        return runner, info

    worker.load_runner = load_poisoned
    worker.main()


if __name__ == "__main__":
    main()
