"""One rank of a run, of which one is killed or frozen at a moment, the first time that `torchrun` starts them.

    torchrun --nproc_per_node=2 --max-restarts=1 -m tests.torture.killed_rank PLAN.json train …

The plan says who, when, by which signal, and where to note it down. Every rank of every start leaves a file with its
process's number.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import transduce.run_setup
from tests.torture.disk import Disk
from tests.torture.moments import Moments
from transduce.cli.main import entry


def main() -> None:
    """Set the trap, then be `transduce`."""
    plan = json.loads(Path(sys.argv[1]).read_text())
    rank, start = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
    place = Path(plan["place"])
    (place / f"process-{start}-{rank}").write_text(str(os.getpid()))
    if (int(rank), start) == (plan["rank"], "0"):
        wanted = {"moment": plan["moment"], "call": plan["call"], "number": plan.get("number", signal.SIGKILL)}
        moments, disk = Moments([wanted], place / "note"), Disk(place)
        moments.install(disk)
        if plan["moment"] == "saving":
            disk.install()
        transduce.run_setup.build_model = moments._ringing(transduce.run_setup.build_model, "building")  # type: ignore[assignment]
    sys.argv = ["transduce", *sys.argv[2:]]
    entry()


if __name__ == "__main__":
    main()
