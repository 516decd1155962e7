"""The run that is tested: 20 updates of two batches each, checkpoints at 6, 12, 18 and 20, done in half a second."""

from __future__ import annotations

from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.torture.fork_server import ForkServer, Outcome
from tests.unit.cli import example
from transduce.storage.journal import read_journal
from transduce.training.checkpoint import Checkpoints

UPDATES, EVERY = 20, 6
FURTHER = "gradient_accumulation = 2\nkeep_last = 2\naverage_checkpoints = 2"
RECIPE = (
    example.RECIPE.replace("updates = 20", f"updates = {UPDATES}\n{FURTHER}")
    .replace("validate_every = 10", f"validate_every = {EVERY}")
    .replace("log_every = 5", "log_every = 1")
    .replace("decode_examples = 5", "decode_examples = 2")
)


class Tally(Protocol):
    """Counts trials that passed, under a heading."""

    def __call__(self, what: str, passed: int, note: str = "") -> None: ...


def sizes(sample: int, everything: int) -> pytest.MarkDecorator:
    """Run a test with a few trials by default, and with all of them in `make torture`."""
    return pytest.mark.parametrize(
        "size",
        [pytest.param(sample, id="sample"), pytest.param(everything, id="all", marks=pytest.mark.torture)],
    )


def some(values: Iterable[str], sample: Container[str]) -> list[Any]:
    """Parameters of which a few are tried by default, and all in `make torture`."""
    return [value if value in sample else pytest.param(value, marks=pytest.mark.torture) for value in values]


class Run:
    """A run folder, and the commands that begin it and go on with it."""

    def __init__(self, fork_server: ForkServer, place: Path, name: str = "run") -> None:
        self.fork_server, self.place, self.folder = fork_server, place, place / name
        self.checkpoints = Checkpoints(self.folder, EVERY)
        self.seconds = 0.0
        """That it took without an interruption, for those that were timed."""

    @property
    def command(self) -> list[str]:
        """What a person types now: to begin, or if there is a run already, to go on."""
        if (self.folder / "recipe.toml").exists():
            return ["train", "--resume", str(self.folder)]
        return ["train", "--recipe", str(self.place / "recipe.toml"), "--output", str(self.folder)]

    def go(self, **plan: Any) -> Outcome:
        """Begin or go on, wherever it leads."""
        return self.fork_server.run(*self.command, **plan)

    def result(self) -> dict[str, str]:
        """Every file of the run with its SHA-256, hidden ones too; only times may differ between two runs."""
        found = example.snapshot(self.folder)
        return {name: digest for name, digest in found.items() if name != "timing.jsonl"}

    def reached(self) -> int:
        """The last update that the journal speaks of."""
        journal = self.folder / "journal.jsonl"
        events = read_journal(journal) if journal.exists() else []
        return max((event["update"] for event in events if event["event"] == "update"), default=0)

    def saved(self) -> int:
        """The update of the newest whole checkpoint, 0 for none; damage is an error."""
        found = self.checkpoints.latest()
        assert found is None or found[1] == [], found
        return found[0] if found else 0


def differences(one: dict[str, str], other: dict[str, str]) -> list[str]:
    """The files in which two results differ."""
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
