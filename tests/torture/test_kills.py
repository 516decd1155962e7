"""kill -9 at any moment: started again until it is done, a run ends as if nothing had happened, to the last bit."""

from __future__ import annotations

import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.torture.disk import FAILURES
from tests.torture.example import EVERY, Run, Tally, differences, sizes, some
from tests.torture.fork_server import ForkServer, Outcome
from tests.unit.cli.example import start

SAVING_SHARE = 0.4
"""Of the kills that are aimed inside a save; the others come after a random time."""


def operations(fork_server: ForkServer, place: Path, scope: str) -> int:
    """How many file operations an uninterrupted run makes."""
    run, count = Run(fork_server, place, "counted"), place.parent / "count"
    assert run.go(root=str(place), disk={"scope": scope}, count=str(count)).code == 0
    shutil.rmtree(run.folder)
    return int(count.read_text())


def restarted_until_done(run: Run, whole: Run, killed: Callable[[], Outcome | None]) -> int:
    """Kill as asked until nobody asks any more, then go on to the end; return how often it was killed."""
    kills = 0
    while (outcome := killed()) is not None:
        if outcome.code == 0:
            break
        assert outcome.code == -signal.SIGKILL, outcome
        kills += 1
        assert run.reached() - run.saved() <= EVERY, "more than one interval was lost"
    end = run.go()
    assert end.code == 0, end
    assert differences(run.result(), whole.result()) == []
    return kills


@pytest.mark.torture
def test_a_forked_run_is_the_same_as_one_from_the_shell(whole: Run, place: Path) -> None:
    with start("train", "--recipe", place / "recipe.toml", "--output", place / "run") as process:
        _, err = process.communicate()
    assert process.returncode == 0, err
    assert differences(Run(whole.fork_server, place).result(), whole.result()) == []


@sizes(3, 100)
def test_a_run_that_is_killed_and_restarted_until_done_is_the_same_run(
    size: int, fork_server: ForkServer, whole: Run, place: Path, tally: Tally
) -> None:
    draw = random.Random(size)
    saving = operations(fork_server, place, "save")
    trials = kills = inside = 0
    while trials < size:
        run = Run(fork_server, place, f"run-{trials}-{kills}")
        aims = [draw.random() < SAVING_SHARE for _ in range(draw.choice((1, 1, 2)))]

        def killed(run: Run = run, aims: list[bool] = aims) -> Outcome | None:
            nonlocal inside
            if not aims:
                return None
            if not aims.pop():
                return fork_server.kill_after(draw.uniform(0.0, whole.seconds), *run.command)
            outcome = run.go(root=str(place), disk={"scope": "save", "at": draw.randint(1, saving)})
            inside += outcome.code != 0
            return outcome

        found = restarted_until_done(run, whole, killed)
        trials, kills = trials + (found > 0), kills + found  # one that ended before it was killed proves nothing
        shutil.rmtree(run.folder)
    assert size < 100 or inside >= 30
    tally("kill -9 and restart until done, bit-identical", trials, f"; {kills} kills, {inside} inside a save")


@sizes(1, 20)
@pytest.mark.parametrize("failure", some(FAILURES[:3], ["lose names"]))
def test_a_run_goes_on_after_a_crash_at_any_of_its_file_operations(
    size: int, failure: str, fork_server: ForkServer, whole: Run, place: Path, tally: Tally
) -> None:
    """From the recipe and the preparation of the data to the model; also when what was not forced to disk is lost."""
    draw = random.Random(failure)
    total = operations(fork_server, place, "all")
    places = sorted(draw.sample(range(1, total + 1), size))
    for at in places:
        run, left = Run(fork_server, place, f"run-{at}"), [at]

        def killed(run: Run = run, left: list[int] = left) -> Outcome | None:
            return run.go(root=str(place), disk={"failure": failure, "at": left.pop()}) if left else None

        assert restarted_until_done(run, whole, killed) == 1
        shutil.rmtree(run.folder)
    tally(f"crash ({failure}) at a file operation of a run, bit-identical", size, f"; of {total} operations")
