"""Servers that `bench/serve.py` measures: our own and the baselines, each a process, and what they answered."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

HERE = Path(__file__).resolve().parent
READY = 180.0
"""Seconds in which a server must be ready."""

Engine = Literal["torch", "torch_int8", "ctranslate2"]


@dataclass(frozen=True)
class System:
    """A contender."""

    name: str
    engine: Engine
    """Whose translations its answers are compared with."""
    command: tuple[str, ...]
    """What follows `python`; FOLDER stands for the model folder."""


def _ours(name: str, engine: Engine, *options: str) -> System:
    return System(name, engine, ("-m", "transduce", "serve", "FOLDER", *options))


def _baseline(name: str, engine: Engine, system: str) -> System:
    return System(name, engine, (str(HERE / "serve_baselines.py"), "FOLDER", system))


SYSTEMS = {
    system.name: system
    for system in (
        _ours("torch", "torch", "--engine", "torch"),
        _ours("torch_int8", "torch_int8", "--engine", "torch", "--precision", "int8"),
        _ours("ct2", "ctranslate2", "--engine", "ctranslate2", "--precision", "int8"),
        _baseline("sequential", "torch", "sequential"),
        _baseline("static", "torch", "static"),
        _baseline("shrinking", "torch", "shrinking"),
        _baseline("ct2_starlette", "ctranslate2", "ctranslate2"),
    )
}
"""Ours first, then the baselines (a) to (d)."""


class Server:
    """A server in a process group of its own, on a port of its own."""

    def __init__(self, system: System, folder: Path, log: Path) -> None:
        self.system, self.port = system, _free_port()
        arguments = [str(folder) if part == "FOLDER" else part for part in system.command]
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, *arguments, "--port", str(self.port)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_until_ready(self) -> str | None:
        """Wait; return why the server is not available, if it is not."""
        until = time.monotonic() + READY
        while time.monotonic() < until:
            if self._process.poll() is not None:
                lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
                return lines[-1] if lines else f"exited with {self._process.returncode}"
            address = f"http://127.0.0.1:{self.port}/ready"
            with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=READY):  # raises if not ready
                return None
            time.sleep(0.1)
        return f"was not ready within {READY:.0f} s"

    def stop(self) -> None:
        """Ask it to stop, then kill what is left of its group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Servers:
    """The servers of one model; all run, and those that are not measured are idle."""

    def __init__(self, systems: Sequence[System], folder: Path, logs: Path) -> None:
        self._folder, self._logs = folder, logs
        self.running: dict[str, Server] = {}
        logs.mkdir(parents=True, exist_ok=True)
        for system in systems:
            self.start(system)

    def start(self, system: System) -> None:
        """Start a server and wait; one that does not start is left out."""
        server = Server(system, self._folder, self._logs / f"{self._folder.name}-{system.name}.log")
        reason = server.wait_until_ready()
        if reason is None:
            self.running[system.name] = server
        else:
            server.stop()
            print(f"{system.name}: left out: {reason}", flush=True)

    def restart(self, name: str) -> None:
        """Start a server again, without the requests that it still had."""
        server = self.running.pop(name)
        server.stop()
        self.start(server.system)

    def stop(self) -> None:
        """Stop all."""
        for server in self.running.values():
            server.stop()


@contextlib.contextmanager
def serving(systems: Sequence[System], folder: Path, logs: Path) -> Iterator[Servers]:
    """Run servers of one model."""
    servers = Servers(systems, folder, logs)
    try:
        yield servers
    finally:
        servers.stop()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
    return port


# Load.


@dataclass(frozen=True)
class Answer:
    """One request and what became of it; times are seconds from the begin of the load."""

    request: int
    arrived: float
    answered: float | None
    text: str | None
    """None where the answer was an error or is missing."""

    @property
    def latency(self) -> float:
        return float("inf") if self.answered is None or self.text is None else self.answered - self.arrived


def send_load(server: Server, bodies: Sequence[str], **plan: Any) -> list[Answer]:
    """Let the load generator send requests: `clients`, and `seconds` or `requests`, or a `rate`."""
    whole = {"clients": 1, "seconds": 0.0, "requests": 0, "rate": 0.0, "seed": 1, "first": 0, "grace": 60.0, **plan}
    done = subprocess.run(
        [sys.executable, str(HERE / "serve_load.py")],
        input=json.dumps({**whole, "port": server.port, "path": "/v1/translate", "bodies": bodies}),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [
        Answer(request, arrived, answered, _text_of(body) if status == 200 else None)
        for request, arrived, answered, status, body in json.loads(done.stdout)
    ]


def _text_of(body: str) -> str:
    """The translation in an answer, of a baseline or of our server."""
    table = json.loads(body)
    if "text" not in table:
        (table,) = table["translations"]
    while isinstance(table, list):
        table = table[0]
    text: str = table["text"]
    return text


# Answers.


class Expected:
    """The translations of an engine alone, to find answers that belong to another request."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._words = [Counter(re.findall(r"\w+", text)) for text in texts]

    def is_same(self, answer: Answer) -> bool:
        """Whether an answer is the expected translation."""
        return answer.text == self._texts[answer.request]

    def is_crossed(self, answer: Answer) -> bool:
        """Whether an answer is more like the translation of another request than like that of its own."""
        if answer.text is None or self.is_same(answer):
            return False
        words = Counter(re.findall(r"\w+", answer.text))
        likeness = [2 * (words & own).total() / max(1, words.total() + own.total()) for own in self._words]
        return likeness[answer.request] < max(likeness)


@dataclass(frozen=True)
class Measurement:
    """One system under a load."""

    rate: float
    """Sentences per second."""
    p50: float
    p95: float
    """Seconds."""
    count: int
    errors: int
    same: float
    """Share of answers that are equal to those of the engine alone."""
    crossed: int


def measure(answers: Sequence[Answer], expected: Expected, after: float, until: float) -> Measurement:
    """Measure what was answered in an interval.

    The rate is the slope of a line through the times of the answers: batches are answered in bursts, and a count would
    depend on how many bursts fall into the interval.
    """
    counted = sorted(
        (one for one in answers if one.answered is not None and after <= one.answered <= until),
        key=lambda one: one.answered or 0.0,
    )
    good = [one for one in counted if one.text is not None]
    latencies = [one.latency for one in good] or [float("inf")]
    return Measurement(
        rate=_slope([one.answered or 0.0 for one in good], after, until),
        p50=float(np.percentile(latencies, 50)),
        p95=float(np.percentile(latencies, 95)),
        count=len(good),
        errors=len(counted) - len(good) + sum(one.answered is None for one in answers),
        same=sum(map(expected.is_same, good)) / max(1, len(good)),
        crossed=sum(map(expected.is_crossed, good)),
    )


def _slope(times: Sequence[float], after: float, until: float) -> float:
    """The slope of the least-squares line through the number of events as a function of time.

    With u from -1 to 1 over the interval, an event at u adds 3/4 (1 - u²) to it, by integration.
    """
    half, middle = (until - after) / 2, (until + after) / 2
    place = (np.array(times) - middle) / half
    return float(np.sum(0.75 * (1 - place**2)) / half) if times else 0.0
