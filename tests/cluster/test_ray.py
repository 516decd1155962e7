"""`transduce translate --ray` on a cluster of three nodes, of which one is killed: the file of one process."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.torture.fork_server import PROJECT

pytestmark = pytest.mark.long

LINES, BLOCK_LINES, TRIALS = 16 * 512, 512, 5
OPTIONS = ("--engine", "torch", "--threads", "1")
PATIENCE = 600.0
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": os.pathsep.join([str(PROJECT / "src"), str(PROJECT)]),
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_failure_threshold": "3",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
"""Nodes on one machine: a dead one is noticed sooner than by default."""


class ThreeNodes:
    """A cluster with one processor for each node."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        self.others = [self._cluster.add_node(num_cpus=1) for _ in range(2)]
        self._cluster.wait_for_nodes()

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def kill(self, number: int) -> None:
        """Kill a node that is not the head, with all its processes."""
        self._cluster.remove_node(self.others.pop(number), allow_graceful=False)

    def add(self) -> None:
        self.others.append(self._cluster.add_node(num_cpus=1))
        self._cluster.wait_for_nodes()


@pytest.fixture(scope="module")
def nodes() -> Iterator[ThreeNodes]:
    utils = pytest.importorskip(
        "ray.cluster_utils", reason="needs ray; `make test-cluster` installs it (pip install 'transduce[ray]', 79 MB)"
    )
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        cluster = utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        try:
            yield ThreeNodes(cluster)
        finally:
            cluster.shutdown()


def translate(*arguments: str | Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "transduce", "translate", *map(str, arguments), *OPTIONS]
    return subprocess.Popen(command, env={**os.environ, **ENVIRONMENT}, stderr=subprocess.PIPE, text=True)


def finished(process: subprocess.Popen[str]) -> str:
    """Wait for the end, which must be a good one; return what was printed."""
    _, message = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, message
    return message


def test_a_cluster_of_which_a_node_is_killed_writes_the_file_of_one_process(
    nodes: ThreeNodes, trained: Path, tmp_path: Path
) -> None:
    draw, big, alone = random.Random(24), tmp_path / "big.txt", tmp_path / "alone"
    big.write_text("".join(" ".join(draw.choices("abcdefg", k=draw.randint(0, 6))) + "\n" for _ in range(LINES)))
    finished(translate(trained, big, "--output", alone))
    losses = 0
    for trial in range(TRIALS):
        output = tmp_path / f"out-{trial}"
        command = (trained, big, "--output", output, "--ray", nodes.address, "--block-lines", str(BLOCK_LINES))
        process = translate(*command)
        complete = draw.randint(1, 8)
        while process.poll() is None and len(list(tmp_path.glob(f"{output.name}.blocks/*[0-9].json"))) < complete:
            time.sleep(0.05)
        nodes.kill(draw.randrange(2))
        message = finished(process)
        losses += "an actor was lost, and another takes its block" in message
        assert output.read_bytes() == alone.read_bytes()
        assert not Path(f"{output}.blocks").exists()
        nodes.add()
    assert losses == TRIALS, "a node was killed when nothing was left to do"


def test_the_command_is_killed_and_run_again(nodes: ThreeNodes, trained: Path, tmp_path: Path) -> None:
    draw, big, alone, output = random.Random(25), tmp_path / "big.txt", tmp_path / "alone", tmp_path / "out"
    big.write_text("".join(" ".join(draw.choices("abcdefg", k=draw.randint(0, 6))) + "\n" for _ in range(LINES // 2)))
    finished(translate(trained, big, "--output", alone))
    command = (trained, big, "--output", output, "--ray", nodes.address, "--block-lines", str(BLOCK_LINES))
    process = translate(*command)
    while process.poll() is None and not (tmp_path / "out.blocks/000002.json").exists():
        time.sleep(0.05)
    process.kill()
    process.communicate()
    assert "complete before: " in finished(translate(*command))
    assert output.read_bytes() == alone.read_bytes()
