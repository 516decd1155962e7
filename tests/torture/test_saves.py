"""A save that is cut short at any of its file operations leaves the old checkpoint or the new one, never a mix."""

from __future__ import annotations

import random
import shutil
import signal
from pathlib import Path

import pytest

from tests.torture.disk import FAILURES
from tests.torture.example import Tally, sizes, some
from tests.torture.fork_server import ForkServer
from tests.torture.saves import EVERY, SAVES, make, possible, save_after_save
from tests.unit.cli.example import snapshot
from transduce.training.checkpoint import Checkpoints
from transduce.training.run_folder import locked_run


def cut_short(fork_server: ForkServer, template: Path, run: Path, name: str, failure: str, at: int) -> int:
    """Save in a process that is struck at one operation; return how it ended."""
    shutil.copytree(template, run)
    return fork_server.run(root=str(run), disk={"failure": failure, "at": at}, save=name).code


@sizes(1, 10_000)
@pytest.mark.parametrize("failure", some(FAILURES[:3], ["lose names"]))
@pytest.mark.parametrize("name", SAVES)
def test_after_a_crash_in_a_save_the_newest_checkpoint_is_the_old_or_the_new(
    size: int, name: str, failure: str, fork_server: ForkServer, tmp_path: Path, tally: Tally
) -> None:
    trial = SAVES[name]
    template, whole = tmp_path / "template", tmp_path / "saved"
    template.mkdir()
    make(template, name)
    allowed = possible(tmp_path / "possible", name)
    shutil.copytree(template, whole)
    with locked_run(whole, resume=True):
        save_after_save(whole, name)
    count = tmp_path / "count"
    shutil.copytree(template, tmp_path / "counted")
    assert fork_server.run(root=str(tmp_path / "counted"), save=name, count=str(count)).code == 0
    operations = int(count.read_text())
    old = max((update for update, _ in trial.before), default=None)
    chosen = range(1, operations + 1)
    if size < operations:
        chosen = [*sorted(random.Random(name + failure).sample(chosen[:-1], size)), operations]
    for at in chosen:
        run = tmp_path / f"run-{at}"
        assert cut_short(fork_server, template, run, name, failure, at) == -signal.SIGKILL
        with locked_run(run, resume=True):
            found = Checkpoints(run, EVERY).latest()
            if at == operations:
                assert found is not None and found[0] == trial.new[0], "what was saved was not safe yet"
            if found is None:
                assert old is None, f"nothing is left after operation {at}"
            else:
                assert found[0] in {old, trial.new[0]} and found[1] == [], f"operation {at}: {found}"
                assert snapshot(Checkpoints(run).path(found[0])) in allowed[found[0]], f"operation {at}: a mix"
            save_after_save(run, name)
        assert snapshot(run) == snapshot(whole), f"operation {at}: something is left over"
        shutil.rmtree(run)
    tally(f"crash ({failure}) at a file operation of a save, old or new", len(chosen))
