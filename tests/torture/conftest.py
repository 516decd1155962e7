"""One fork_server and one uninterrupted run for all trials, and a summary of how many of them went well."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.torture.example import RECIPE, Run, Tally
from tests.torture.fork_server import ForkServer
from tests.torture.served import Served, serving
from tests.torture.served_model import save_random_model

SUMMARY = pytest.StashKey[dict[str, tuple[int, str, float]]]()


@pytest.fixture(scope="session")
def fork_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """Where processes come from."""
    if sys.platform != "linux":
        pytest.skip("the trials look at /proc and fork; Linux removes this skip")
    fork_server = ForkServer(tmp_path_factory.mktemp("fork_server"))
    yield fork_server
    fork_server.close()


@pytest.fixture(scope="session")
def whole(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that nobody interrupted; nobody may change it."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "recipe.toml").write_text(RECIPE)
    run = Run(fork_server, folder)
    outcome = run.go()
    assert outcome.code == 0, outcome
    run.seconds = outcome.seconds
    return run


STORED = Path(__file__).resolve().parents[1] / "unit" / "stored"
QUEUE_TOKENS = 6144


@pytest.fixture(scope="session")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the model of `served_model`."""
    return save_random_model(tmp_path_factory.mktemp("served") / "random")


@pytest.fixture(scope="session")
def served(random_model: Path) -> Iterator[Served]:
    """A server of that model and of a language model."""
    if sys.platform != "linux":
        pytest.skip("the trials look at /proc; Linux removes this skip")
    folders = (str(random_model), str(STORED / "language_modeling"))
    limits = ("--workers", "1", "--threads", "1", "--max-queue-tokens", str(QUEUE_TOKENS))
    with serving(*folders, *limits, module="tests.torture.instrumented_server") as found:
        yield found


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """An own folder with the recipe in it."""
    folder = tmp_path / "place"  # what a disk buries goes beside it
    folder.mkdir()
    (folder / "recipe.toml").write_text(RECIPE)
    return folder


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Tally:
    """Takes what was tried for the summary at the end."""
    tallies = request.config.stash.setdefault(SUMMARY, {})
    began = time.monotonic()

    def count(what: str, passed: int, note: str = "") -> None:
        before, _, seconds = tallies.get(what, (0, "", 0.0))
        tallies[what] = (before + passed, note, seconds + time.monotonic() - began)

    return count


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what was tried; whatever went wrong is a failed test above."""
    for what, (passed, note, seconds) in config.stash.get(SUMMARY, {}).items():
        terminalreporter.write_line(f"{what}: {passed:,} of {passed:,}{note}  [{seconds:.0f} s]")
