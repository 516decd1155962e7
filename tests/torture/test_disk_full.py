"""A disk that fills up: the old checkpoint stays whole, the bytes needed are said, and nothing is left over."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.torture.example import EVERY, UPDATES, Run, Tally, differences, sizes
from tests.torture.fork_server import ForkServer, Outcome
from transduce.storage.layout import OPTIMIZER, WEIGHTS

NEEDED = re.compile(r"\(a checkpoint needs ([\d,]+) bytes, [\d,]+ are free\)")


def refused(run: Run, outcome: Outcome) -> None:
    """A save that failed is told with the room that it needs; what was saved before is whole."""
    assert outcome.code == 74, outcome
    needed = NEEDED.search(outcome.error)
    assert needed is not None, outcome.error
    assert int(needed[1].replace(",", "")) > 3 * 4 * 5000, "weights and two moments of 5,552 parameters"
    assert run.reached() - run.saved() <= EVERY
    assert not list(run.folder.rglob(".*.writing")) + list(run.folder.rglob(".*.replaced"))


@sizes(2, 10_000)
def test_a_disk_that_is_full_at_any_write_of_a_save(
    size: int, fork_server: ForkServer, whole: Run, place: Path, tally: Tally
) -> None:
    count = place.parent / "count"
    run = Run(fork_server, place)
    plan = {"root": str(place), "disk": {"scope": "save", "failure": "full"}}
    assert run.go(**plan, count=str(count)).code == 0
    operations = range(1, int(count.read_text()) + 1)
    chosen = sorted(random.Random(13).sample(operations, size)) if size < len(operations) else operations
    for at in chosen:
        shutil.rmtree(run.folder)
        refused(run, run.go(root=str(place), disk={"scope": "save", "failure": "full", "at": at}))
        assert run.go().code == 0
        assert differences(run.result(), whole.result()) == [], f"operation {at}"
    tally("writes of a save at which the disk was full, then resumed bit-identical", len(chosen))


@pytest.mark.torture
def test_a_disk_that_is_full_at_any_other_write_of_a_run(
    fork_server: ForkServer, whole: Run, place: Path, tally: Tally, size: int = 25
) -> None:
    """The recipe, the data, the journal, the model: said so with exit code 74, and gone on with once there is room."""
    count, run = place.parent / "count", Run(fork_server, place)
    assert run.go(root=str(place), disk={"failure": "full"}, count=str(count)).code == 0
    for at in random.Random(19).sample(range(1, int(count.read_text()) + 1), size):
        shutil.rmtree(run.folder, ignore_errors=True)
        outcome = run.go(root=str(place), disk={"failure": "full", "at": at})
        assert outcome.code == 74 and "No space left on device" in outcome.error, f"operation {at}: {outcome}"
        assert run.go().code == 0
        assert differences(run.result(), whole.result()) == [], f"operation {at}"
    tally("writes of a whole run at which the disk was full, then gone on with bit-identical", size)


@sizes(1, 24)
def test_a_file_that_may_not_grow_further_is_the_same(
    size: int, fork_server: ForkServer, whole: Run, place: Path, tally: Tally
) -> None:
    """The system itself says no, half-way through the weights or the moments."""
    newest = whole.checkpoints.path(UPDATES)
    smallest = max(path.stat().st_size for path in whole.folder.rglob("*.json*") if path.parent.name != "data") + 500
    weights, moments = ((newest / name).stat().st_size for name in (WEIGHTS, OPTIMIZER))
    assert smallest < weights < moments
    run, draw = Run(fork_server, place), random.Random(17)
    for trial in range(size):
        limit = draw.randrange(*((smallest, weights) if trial % 2 else (weights, moments)))
        outcome = run.go(largest_file=limit)
        refused(run, outcome)
        assert "writing failed (File too large)" in outcome.error
        assert run.go().code == 0
        assert differences(run.result(), whole.result()) == [], f"{limit} bytes"
        shutil.rmtree(run.folder)
    tally("limits on the size of a file, then resumed bit-identical", size)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own, of a megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a small disk takes root's rights; run as root to remove this skip")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.torture
def test_a_disk_without_room_for_the_checkpoints_is_rejected_before_the_first_update(
    small_disk: Path, fork_server: ForkServer, whole: Run, place: Path
) -> None:
    shutil.copy(place / "recipe.toml", small_disk)
    run = Run(fork_server, small_disk)
    run.go(signals=[{"moment": "reported", "call": 8, "number": 15}], note=str(place / "note"))
    assert run.saved() == 8
    before = run.result()
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(shutil.disk_usage(small_disk).free - 100_000))
    outcome = run.go()
    assert outcome.code == 74
    assert re.search(r"the checkpoints need [\d,]+ bytes and [\d,]+ are free", outcome.error)
    assert differences(run.result(), before) == []
    ballast.unlink()
    assert run.go().code == 0
    assert differences(run.result(), whole.result()) == []
