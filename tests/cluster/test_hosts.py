"""Two hosts train together: two agents of `torchrun` with two ranks each, on addresses of one machine.

Host "other" is killed as by a power cut, agent and ranks at once, and replaced by a new agent, which runs what the
scripts of `deploy` run: `--resume` if there is a run.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.torture.example import RECIPE, UPDATES, differences
from tests.torture.fork_server import PROJECT
from tests.torture.test_ranks import result
from transduce.storage.journal import read_journal

pytestmark = pytest.mark.long

PATIENCE = 400.0
RANKS_OF_FIRST, RANKS_OF_SECOND = (0, 1), (2, 3)
"""Agents are ordered by their addresses, and ranks by their agents."""
MOMENTS = [
    (0, "tokenising", 1),
    (2, "gradient", 9),
    (0, "gradient", 14),
    (0, "saving", 9),
    (3, "gradient", 30),
]
"""The rank of the host that is killed, and where it is then: twice with the leader in the middle, once as it saves."""
REPEATED = (0, "saving", 9)
"""The moment after which the new agent repeats the first command, as a scheduler may: the leader must find out that it
has to resume."""


def environment() -> dict[str, str]:
    paths = os.pathsep.join([str(PROJECT / "src"), str(PROJECT)])
    # Otherwise an agent that stays keeps the address of a first host that was replaced, and its ranks wait there.
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


def free_port() -> int:
    with contextlib.closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Agents:
    """Agents of one job; the first to start is the rendezvous host."""

    def __init__(self, place: Path) -> None:
        self.place, self.port = place, free_port()
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, address: str, *arguments: str | Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc_per_node=2"]
        command += ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{self.port}", "--rdzv-id=test"]
        command += ["--max-restarts=3", f"--local-addr={address}", "-m", *map(str, arguments)]
        with (self.place / f"log-{len(self.running)}").open("wb") as log:
            process = subprocess.Popen(
                command, env=environment(), stdout=log, stderr=log, start_new_session=True, cwd=self.place
            )
        self.running.append(process)
        return process

    def wait(self) -> None:
        """Wait until all have ended well."""
        began = time.monotonic()
        for process in self.running:
            process.wait(max(1.0, PATIENCE - (time.monotonic() - began)))
        assert all(process.returncode in (0, -signal.SIGKILL) for process in self.running), self.logs()
        assert self.running[-1].returncode == 0, self.logs()

    def kill(self, agent: subprocess.Popen[bytes]) -> None:
        """Kill an agent and its ranks, each of which leads a session of its own."""
        children = Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()
        for process in (agent.pid, *map(int, children)):
            os.kill(process, signal.SIGKILL)
        agent.wait()

    def end(self) -> None:
        for process in self.running:
            if process.poll() is None:
                self.kill(process)

    def logs(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-3000:] for path in sorted(self.place.glob("log-*")))


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    if sys.platform != "linux":
        pytest.skip("uses addresses of the loopback network and /proc; Linux removes this skip")
    (tmp_path / "recipe.toml").write_text(RECIPE)
    found = Agents(tmp_path)
    yield found
    found.end()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two hosts that nobody interrupted."""
    place = tmp_path_factory.mktemp("whole-hosts")
    (place / "recipe.toml").write_text(RECIPE)
    agents = Agents(place)
    try:
        for address in ("127.0.0.2", "127.0.0.3"):
            agents.start(address, "transduce", "train", "--recipe", "recipe.toml", "--output", "run")
        agents.wait()
    finally:
        agents.end()
    return place / "run"


def test_two_hosts_write_the_journal_of_one_process(whole: Path, tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(RECIPE)
    command = [sys.executable, "-m", "transduce", "train", "--recipe", "recipe.toml", "--output", "run"]
    subprocess.run(command, cwd=tmp_path, env=environment(), check=True, capture_output=True)
    one, four = (read_journal(folder / "journal.jsonl") for folder in (tmp_path / "run", whole))
    compared = 0
    for kind in ("update", "validation"):
        events = [[event for event in journal if event["event"] == kind] for journal in (one, four)]
        assert len(events[0]) == len(events[1]) > 0
        for alone, together in zip(*events, strict=True):
            numbers = {name: value for name, value in alone.items() if isinstance(value, int | float)}
            assert {name: together[name] for name in numbers} == pytest.approx(numbers, rel=1e-5)
            compared += len(numbers)
    assert compared > 3 * UPDATES


@pytest.mark.parametrize(("rank", "moment", "call"), MOMENTS, ids=str)
def test_a_host_is_lost_and_replaced(rank: int, moment: str, call: int, agents: Agents, whole: Path) -> None:
    place = agents.place
    plan = {"place": str(place), "rank": rank, "moment": moment, "call": call, "number": signal.SIGSTOP}
    (place / "plan.json").write_text(json.dumps(plan))
    address = "127.0.0.1" if rank in RANKS_OF_FIRST else "127.0.0.3"
    train = ("train", "--recipe", "recipe.toml", "--output", "run")
    agents.start("127.0.0.2", "tests.torture.killed_rank", place / "plan.json", *train)
    time.sleep(0.5)  # the one that is not killed is the rendezvous host
    while not _listens(agents.port):
        time.sleep(0.1)
    lost = agents.start(address, "tests.torture.killed_rank", place / "plan.json", *train)
    began = time.monotonic()
    while not (place / "note").exists():
        assert time.monotonic() - began < PATIENCE and lost.poll() is None, agents.logs()
        time.sleep(0.05)
    agents.kill(lost)
    there = (place / "run/recipe.toml").exists() and (rank, moment, call) != REPEATED
    agents.start(address, "transduce", *(("train", "--resume", "run") if there else train))
    agents.wait()
    assert differences(result(place / "run"), result(whole)) == []


def _listens(port: int) -> bool:
    with contextlib.closing(socket.socket()) as found:
        return found.connect_ex(("127.0.0.1", port)) == 0


def test_the_script_for_slurm_trains_on_two_hosts_and_resumes(tmp_path: Path, whole: Path) -> None:
    """With stand-ins for `scontrol` and `srun`, which start a task for each host."""
    programs = {
        "scontrol": "printf '127.0.0.1\\n127.0.0.2\\n'",
        "srun": 'shift; for host in 127.0.0.1 127.0.0.2; do SLURMD_NODENAME=$host "$@" & done; wait -n && wait',
        "torchrun": f'exec "{sys.executable}" -m torch.distributed.run "$@"',
    }
    (tmp_path / "bin").mkdir()
    for name, body in programs.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "recipe.toml").write_text(RECIPE)
    slurm = {"SLURM_JOB_ID": str(free_port()), "SLURM_JOB_NODELIST": "two", "SLURM_JOB_NUM_NODES": "2"}
    slurm |= {"SLURM_GPUS_ON_NODE": "2", "RECIPE": "recipe.toml", "RUN": str(tmp_path / "run")}
    given = environment() | slurm | {"PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    del given["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"]  # the script sets it
    script = ["bash", str(PROJECT / "deploy/slurm/train.sbatch")]
    first = subprocess.run(script, cwd=tmp_path, env=given, capture_output=True, text=True, check=False)
    assert first.returncode == 0, first.stderr
    assert differences(result(tmp_path / "run"), result(whole)) == []
    again = subprocess.run(script, cwd=tmp_path, env=given, capture_output=True, text=True, check=False)
    assert again.returncode == 0 and "already finished" in again.stderr, again.stderr
