"""One rank of two is killed or frozen: the other ends, `torchrun` starts both again, and the run ends as if nothing had
been."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.torture.example import RECIPE, UPDATES, Tally, differences
from tests.torture.fork_server import PROJECT
from tests.unit.cli.example import snapshot
from transduce.storage.journal import read_journal
from transduce.training.checkpoint import Checkpoints

SOON = 30.0
"""Seconds that the death of one rank may take to end the others."""
PATIENCE = 300.0
SECONDS: list[float] = []
"""That it took each time."""
LEADER, FOLLOWER = 0, 1
TEN = [
    (LEADER, "reading", 1),
    (LEADER, "tokenising", 1),
    (FOLLOWER, "building", 1),
    (LEADER, "gradient", 9),
    (FOLLOWER, "gradient", 14),
    (FOLLOWER, "optimizer", 6),  # the leader goes on to validate and save
    (LEADER, "saving", 9),
    (LEADER, "translating", 2),
    (FOLLOWER, "validating", 3),
    (LEADER, "finishing", 1),
]
"""Who dies, where, and at which time that it comes there."""


def torchrun(*arguments: str | Path, restarts: int = 0) -> list[str]:
    """The command that starts two ranks."""
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    return [*start, f"--max-restarts={restarts}", "-m", *map(str, arguments)]


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(PROJECT / "src"), str(PROJECT)])}


def run(command: list[str]) -> None:
    """Run to the end, which must be a good one."""
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr


def result(folder: Path) -> dict[str, str]:
    """Every file of a run but its times."""
    return {name: digest for name, digest in snapshot(folder).items() if name != "timing.jsonl"}


def alive(process: Path) -> bool:
    """Whether a rank that left its number still runs; one that nobody has buried yet does not."""
    try:
        status = Path(f"/proc/{int(process.read_text())}/stat").read_text()
    except (OSError, ValueError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two ranks that nobody interrupted."""
    if sys.platform != "linux":
        pytest.skip("the trials look at /proc; Linux removes this skip")
    place = tmp_path_factory.mktemp("whole-ranks")
    (place / "recipe.toml").write_text(RECIPE)
    run(torchrun("transduce", "train", "--recipe", place / "recipe.toml", "--output", place / "run"))
    return place / "run"


def killed(
    place: Path, rank: int, moment: str, call: int, restarts: int, number: signal.Signals = signal.SIGKILL
) -> tuple[int, float]:
    """Kill a rank; return torchrun's exit code, and the seconds until the other rank of that start had ended."""
    plan: dict[str, Any] = {"place": str(place), "rank": rank, "moment": moment, "call": call, "number": number}
    (place / "plan.json").write_text(json.dumps(plan))
    train = ("train", "--recipe", place / "recipe.toml", "--output", place / "run")
    command = torchrun("tests.torture.killed_rank", place / "plan.json", *train, restarts=restarts)
    other, note = place / f"process-0-{1 - rank}", place / "note"
    with (place / "message").open("w") as message:
        process = subprocess.Popen(command, env=environment(), stdout=message, stderr=message)
        began, seconds = time.monotonic(), None
        while process.poll() is None:
            assert time.monotonic() - began < PATIENCE, (place / "message").read_text()
            if seconds is None and note.exists() and not alive(other):
                seconds = time.time() - note.stat().st_mtime
            time.sleep(0.02)
    assert note.exists(), f"the moment never came: {(place / 'message').read_text()}"
    left = [path.name for path in place.glob("process-*") if alive(path)]
    assert left == []
    return process.returncode, time.time() - note.stat().st_mtime if seconds is None else seconds


@pytest.mark.torture
@pytest.mark.parametrize(("rank", "moment", "call"), TEN, ids=lambda value: str(value))
def test_a_run_outlives_the_death_of_a_rank(
    rank: int, moment: str, call: int, whole: Path, place: Path, tally: Tally
) -> None:
    code, seconds = killed(place, rank, moment, call, restarts=1)
    assert code == 0, (place / "message").read_text()
    assert (place / "process-1-0").exists(), "it was never started again"
    assert seconds < SOON
    assert differences(result(place / "run"), result(whole)) == []
    SECONDS.append(seconds)
    note = f"; the other rank had ended after {max(SECONDS):.1f} s at most"
    tally("kill -9 of one rank of two, started again by torchrun, bit-identical", 1, note)


@pytest.mark.torture
@pytest.mark.parametrize("rank", [LEADER, FOLLOWER])
def test_a_run_outlives_a_rank_that_is_frozen(rank: int, whole: Path, place: Path) -> None:
    """Nothing closes its connections: the other hears that it fell silent, and `torchrun` kills it."""
    code, seconds = killed(place, rank, "gradient", 14, restarts=1, number=signal.SIGSTOP)
    message = (place / "message").read_text()
    assert code == 0, message
    assert f"rank {rank}" in message and "for 20 seconds" in message
    assert seconds < SOON
    assert differences(result(place / "run"), result(whole)) == []


@pytest.mark.torture
def test_without_restarts_nobody_is_left_and_the_run_can_be_resumed(whole: Path, place: Path) -> None:
    code, seconds = killed(place, FOLLOWER, "gradient", 14, restarts=0)
    message = (place / "message").read_text()
    assert code != 0
    assert seconds < SOON
    assert "another rank is gone" in message or "stopped at update" in message
    run(torchrun("transduce", "train", "--resume", place / "run"))
    assert differences(result(place / "run"), result(whole)) == []


@pytest.mark.torture
def test_a_run_goes_from_two_ranks_to_one_and_back(whole: Path, place: Path) -> None:
    """The order of the data is the same; the journal says where the number changed."""
    killed(place, LEADER, "gradient", 14, restarts=0)  # after the checkpoint at 6
    folder, one = place / "run", place / "one.json"
    plan = {"place": str(place), "rank": 0, "moment": "gradient", "call": 14}
    one.write_text(json.dumps(plan))
    alone = [sys.executable, "-m", "tests.torture.killed_rank", str(one), "train", "--resume", str(folder)]
    killed_alone = subprocess.run(
        alone, env={**environment(), "RANK": "0", "TORCHELASTIC_RESTART_COUNT": "0"}, capture_output=True, check=False
    )
    assert killed_alone.returncode == -9, killed_alone.stderr
    run(torchrun("transduce", "train", "--resume", folder))
    events, before = read_journal(folder / "journal.jsonl"), read_journal(whole / "journal.jsonl")
    noted = [(event["before"], event["now"]) for event in events if event["event"] == "ranks"]
    assert noted == [(2, 1), (1, 2)]
    tokens = [[event["tokens"] for event in found if event["event"] == "update"] for found in (events, before)]
    assert tokens[0] == tokens[1] and len(tokens[0]) == UPDATES
    losses = [[event["loss"] for event in found if event["event"] == "update"] for found in (events, before)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert Checkpoints(folder).updates()[-1] == UPDATES
