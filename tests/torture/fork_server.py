"""A process that has loaded and tried everything once, and forks: a `transduce` of one's own starts in milliseconds.

Each child runs the program's real entry point with arguments of its own, and may be given a plan: a disk that fails
(`disk.py`), signals at moments (`moments.py`), a limit on file sizes, another user. It is a process like any other: it
is killed with kill -9, and its exit code is the system's.

Requests and answers are lines of JSON on standard input and output.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[2]
PATIENCE = 600.0
"""Seconds until a child that does not end is given up."""


@dataclass(frozen=True)
class Outcome:
    """How a child ended."""

    code: int
    """Its exit code; minus the signal's number if one killed it."""
    out: str
    err: str
    seconds: float

    @property
    def last_line(self) -> str:
        """The last line printed on standard error."""
        return self.err.splitlines()[-1]

    @property
    def error(self) -> str:
        """The one sentence of an error, after checking that it is the last line and no traceback."""
        assert "Traceback" not in self.err, self.err
        lines = [line for line in self.err.splitlines() if line.startswith("error: ")]
        assert len(lines) == 1 and self.err.splitlines()[-1] == lines[0], self.err
        return lines[0]


@dataclass(frozen=True)
class Child:
    """A child that was started."""

    pid: int
    streams: Path
    began: float


class ForkServer:
    """The test's end of the line."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.born = folder, 0
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",  # threads and forks do not mix
            "PYTHONPATH": os.pathsep.join([str(PROJECT / "src"), str(PROJECT)]),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.torture.fork_server"],
            cwd=PROJECT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert self._answer() == {"ready": True}
        except BaseException:
            self._process.kill()
            self.close()
            raise

    def close(self) -> None:
        """End it."""
        self._process.communicate()

    def start(self, *arguments: str | Path, **plan: Any) -> Child:
        """Start `transduce` with these arguments."""
        self.born += 1
        streams = self.folder / f"child-{self.born}"
        request = {"arguments": [*map(str, arguments)], "streams": str(streams), "plan": plan}
        return Child(self._ask(request)["pid"], streams, time.monotonic())

    def wait(self, child: Child) -> Outcome:
        """Wait for a child's end."""
        status = self._ask({"wait": child.pid})["status"]
        out, err = (Path(f"{child.streams}.{name}") for name in ("out", "err"))
        outcome = Outcome(status, out.read_text(), err.read_text(), time.monotonic() - child.began)
        out.unlink()
        err.unlink()
        return outcome

    def run(self, *arguments: str | Path, **plan: Any) -> Outcome:
        """Start and wait."""
        return self.wait(self.start(*arguments, **plan))

    def kill_after(self, seconds: float, *arguments: str | Path) -> Outcome:
        """Start, and kill -9 after so long."""
        child = self.start(*arguments)
        time.sleep(seconds)
        self.kill(child)
        return self.wait(child)

    def kill(self, child: Child) -> None:
        """Kill -9, but not before it has opened the files of its streams."""
        while not Path(f"{child.streams}.err").exists():
            time.sleep(0.001)
        os.kill(child.pid, signal.SIGKILL)  # nobody has waited for it: the number is still its own

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], PATIENCE)
        assert ready, "a child did not end"
        line = self._process.stdout.readline()
        assert line, "the fork_server has ended; what it said is on standard error"
        answer: dict[str, Any] = json.loads(line)
        return answer


def serve() -> None:
    """The fork_server's own life."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    _warm_up()
    print(json.dumps({"ready": True}), file=answers)
    for line in iter(sys.stdin.readline, ""):
        request = json.loads(line)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            print(json.dumps({"status": os.waitstatus_to_exitcode(status)}), file=answers)
        elif pid := os.fork():
            print(json.dumps({"pid": pid}), file=answers)
        else:
            answers.close()
            try:
                _live(request)
            finally:
                os._exit(99)  # it must never come back here


def _warm_up() -> None:
    """Run everything once: imports, and what torch puts off until its first use."""
    import torch

    torch.set_num_threads(1)
    import gguf.quants  # noqa: F401

    from tests.torture import moments, saves  # noqa: F401
    from tests.unit.cli.example import RECIPE
    from transduce.cli.main import run

    with tempfile.TemporaryDirectory() as name, Path(os.devnull).open("w") as nowhere:
        path = Path(name) / "recipe.toml"
        path.write_text(RECIPE)
        stderr, sys.stderr = sys.stderr, nowhere
        changes = ["--set", "training.updates=2", "--set", "training.validate_every=1"]
        folder = str(path.parent / "run")
        code = run(["train", "--recipe", str(path), *changes, "--output", folder])
        written = ["--output", f"{folder}/out", "--engine", "torch", "--format", "text"]
        code += run(["translate", folder, str(path), *written])
        code += run(["import", folder, "--output", f"{folder}/imported"]) - 65
        sys.stderr = stderr
    assert code == 0
    assert len(os.listdir("/proc/self/task")) == 1, "a fork copies no threads, so there must be none"  # noqa: PTH208


def _live(request: dict[str, Any]) -> None:
    """A child's life."""
    for number, (name, flags) in enumerate((("", 0), (".out", 1), (".err", 1))):
        path, mode = (f"{request['streams']}{name}", os.O_WRONLY | os.O_CREAT) if flags else (os.devnull, os.O_RDONLY)
        os.dup2(os.open(path, mode, 0o666), number)
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode) for number, mode in enumerate("rww"))
    from tests.torture.disk import Disk
    from tests.torture.moments import Moments
    from tests.torture.saves import save_after_save
    from transduce.cli.main import entry

    plan = request["plan"]
    disk = Disk(Path(plan.get("root", "/nowhere")), **plan.get("disk", {}))
    if "signals" in plan:
        Moments(plan["signals"], Path(plan["note"])).install(disk)
    if "root" in plan:
        disk.install()
    if "largest_file" in plan:
        resource.setrlimit(resource.RLIMIT_FSIZE, (plan["largest_file"], resource.RLIM_INFINITY))
    if "user" in plan:
        os.setuid(plan["user"])
    end, began, worked, held = os._exit, time.monotonic(), time.process_time(), _memory("VmRSS")
    if "limits" in plan:  # neither is the program's own: whoever exceeds them is killed, or fails to allocate
        signal.alarm(plan["limits"]["seconds"])
        most = _memory("VmData") + plan["limits"]["bytes"]
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))

    def counted(code: int) -> None:
        if "count" in plan:
            Path(plan["count"]).write_text(str(disk.count))
        if "measure" in plan:
            used = {"seconds": time.monotonic() - began, "processor": time.process_time() - worked}
            used["megabytes"] = (_memory("VmHWM") - held) / 2**20
            Path(plan["measure"]).write_text(json.dumps(used))
        end(code)

    os._exit = counted  # type: ignore[assignment]
    if "save" in plan:
        save_after_save(Path(plan["root"]), plan["save"])
        disk.reach("end")  # the power may fail right afterwards: what was saved is saved
        os._exit(0)
    sys.argv = ["transduce", *request["arguments"]]
    entry()


def _memory(name: str) -> int:
    """One of this process's sizes, in bytes: VmRSS now, VmHWM at most since it was forked, VmData allocated."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    serve()
