"""R23: clients that send or read slowly, or do nothing, are closed in time, and the others do not notice.

When a connection is closed, the system's table of connections says: a slow reader would notice late.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import multiprocessing
import socket
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from tests.torture.example import Tally
from tests.torture.serving.routes import BODIES
from tests.torture.serving.target import Client, Target, percentile, server_process, tcp_table

ESTABLISHED = "01"
LARGE = json.dumps({"text": "a" * 40_000, "n_best": 16, "beam_size": 16}).encode()
"""Its answer is 650 KB of text: more than the system buffers for a client that announces small segments."""


@dataclasses.dataclass(frozen=True)
class Size:
    """How many clients of each kind, and the seconds after which each kind must be closed."""

    header_drips: int
    body_drips: int
    slow_readers: int
    idle: int
    bounds: tuple[float, float, float, float]
    interval: float
    """Seconds between two bytes of a drip."""
    seconds: float
    """For which another client sends requests meanwhile."""
    timeouts: dict[str, float] = dataclasses.field(default_factory=dict)


SAMPLE = Size(
    20,
    10,
    10,
    20,
    (5.0, 5.0, 5.0, 5.0),
    0.1,
    1.5,
    {"header": 0.7, "body": 1.2, "write": 1.2, "idle": 1.8, "shutdown": 3.0},
)
EVERYTHING = Size(500, 200, 200, 500, (15.0, 30.0, 30.0, 60.0), 1.0, 45.0)


class SlowClients:
    """Many slow clients in one thread."""

    def __init__(self, target: Target, size: Size) -> None:
        self.target, self.size = target, size
        self.opened: dict[str, dict[int, float]] = {}
        """Since when each client (by its port) of each kind is connected."""
        self.closed: dict[int, float] = {}
        self.unanswered: list[bytes] = []

    async def run(self) -> None:
        """Open all clients, and return when all are closed, or when the last of them should have been."""
        size = self.size
        kinds: list[tuple[str, int, Callable[[int, str], Awaitable[None]]]] = [
            ("header drips", size.header_drips, self._header_drip),
            ("body drips", size.body_drips, self._body_drip),
            ("slow readers", size.slow_readers, self._slow_reader),
            ("idle", size.idle, self._idle),
        ]
        tasks = []
        for name, number, kind in kinds:
            self.opened[name] = {}
            tasks += [asyncio.create_task(kind(place, name)) for place in range(number)]
        try:
            await self._watch(len(tasks))
        finally:
            for task in tasks:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, asyncio.CancelledError | OSError):
                raise outcome

    async def _watch(self, number: int) -> None:
        end = time.monotonic() + max(self.size.bounds) + 10.0
        while time.monotonic() < end:
            await asyncio.sleep(0.1)
            ports = [port for several in self.opened.values() for port in several]  # before the table is read
            listed = {
                int(row[2].split(":")[1], 16)
                for row in await asyncio.to_thread(tcp_table)
                if row[3] == ESTABLISHED and int(row[1].split(":")[1], 16) == self.target.port
            }
            now = time.monotonic()
            for port in ports:
                if port not in listed:
                    self.closed.setdefault(port, now)
            if len(ports) == number == len(self.closed):
                return

    async def _connect(self, name: str, small: bool = False) -> socket.socket:
        loop = asyncio.get_running_loop()
        made = await asyncio.to_thread(self.target.connect, 10.0, 4096 if small else None)
        made.setblocking(False)
        self.opened[name][made.getsockname()[1]] = loop.time()
        return made

    async def _drip(self, name: str, begin: bytes, piece: bytes) -> None:
        made = await self._connect(name)
        loop = asyncio.get_running_loop()
        with made, contextlib.suppress(OSError):
            await loop.sock_sendall(made, begin)
            while True:
                await loop.sock_sendall(made, piece)
                await asyncio.sleep(self.size.interval)

    async def _header_drip(self, place: int, name: str) -> None:
        whole = self.target.request("GET", "/health")
        variants = ((whole[:-2], b"X: 1\r\n"), (whole[:-4], b"x"), (b"G", b"E"), (b"GET /", b"a"), (b"", b"X"))
        await self._drip(name, *variants[place % len(variants)])

    async def _body_drip(self, place: int, name: str) -> None:
        headers = [("Content-Type", "application/json")]
        if place % 2:
            headers.append(("Transfer-Encoding", "chunked"))
            begin, piece = self.target.request("POST", "/v1/translate", headers=headers), b"1\r\n \r\n"
        else:
            headers.append(("Content-Length", "100000"))
            begin, piece = self.target.request("POST", "/v1/translate", headers=headers), b" "
        await self._drip(name, begin, piece)

    async def _slow_reader(self, place: int, name: str) -> None:
        made = await self._connect(name, small=True)
        loop = asyncio.get_running_loop()
        with made, contextlib.suppress(OSError):
            await loop.sock_sendall(made, self.target.request("POST", "/v1/translate", LARGE))
            await loop.sock_recv(made, 1)
            self.opened[name][made.getsockname()[1]] = loop.time()  # it is slow only since there is something to read
            if place % 2:
                await asyncio.Event().wait()
            while await loop.sock_recv(made, 1):
                await asyncio.sleep(self.size.interval)

    async def _idle(self, place: int, name: str) -> None:
        made = await self._connect(name)
        loop = asyncio.get_running_loop()
        with made, contextlib.suppress(OSError):
            if place % 5:  # the others never send anything
                await loop.sock_sendall(made, self.target.request("GET", "/health"))
                answer = await loop.sock_recv(made, 1 << 16)
                if not answer.startswith(b"HTTP/1.1 200"):
                    self.unanswered.append(answer)
            await asyncio.Event().wait()


def normal_latencies(target: Target, seconds: float) -> list[float]:
    """Seconds of requests that another client makes meanwhile, each on a connection of its own."""
    found, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        started = time.perf_counter()
        with Client(target) as client:
            answer = client.post("/v1/translate", BODIES["/v1/translate"])
        assert answer.status == 200, answer
        found.append(time.perf_counter() - started)
        time.sleep(0.02)
    return found


async def attack(target: Target, size: Size) -> tuple[SlowClients, list[float]]:
    """Let slow clients loose; another client, in a process that does nothing else, notes its latencies meanwhile."""
    clients, other = SlowClients(target, size), dataclasses.replace(target, process=None)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        await asyncio.wrap_future(pool.submit(normal_latencies, other, 0.1))  # it has started
        normal = asyncio.wrap_future(pool.submit(normal_latencies, other, size.seconds))
        await clients.run()
        return clients, await normal


@pytest.mark.parametrize(
    "size", [pytest.param(SAMPLE, id="sample"), pytest.param(EVERYTHING, id="all", marks=pytest.mark.torture)]
)
def test_slow_clients_are_closed_and_nobody_else_notices(
    size: Size, shared_target: Target, tmp_path: Path, tally: Tally
) -> None:
    with contextlib.ExitStack() as stack:
        target = shared_target
        if target.is_fake or size.timeouts:
            target = stack.enter_context(server_process(tmp_path, timeouts=size.timeouts))
        baseline = normal_latencies(target, 1.0 if size is SAMPLE else 5.0)
        files = target.files()
        clients, normal = asyncio.run(attack(target, size))
        notes = []
        for (name, opened), bound in zip(clients.opened.items(), size.bounds, strict=True):
            lived = [clients.closed.get(port, float("inf")) - since for port, since in opened.items()]
            notes.append(f"{name} {max(lived):.1f} s")
            assert max(lived) <= bound, (name, sorted(lived)[-5:])
            assert min(lived) > 0.3, f"{name}: a client was closed before it was slow"
        assert clients.unanswered == []
        deadline = time.monotonic() + 5.0
        while target.files() > files and time.monotonic() < deadline:
            time.sleep(0.05)
        assert target.files() <= files
        target.probe()
        assert target.faults() == []
    before, during, longest = percentile(baseline, 0.95), percentile(normal, 0.95), 1000 * max(normal)
    if size is not SAMPLE:  # a busy machine must not fail the default tests
        assert during <= max(2 * before, 20.0), (before, during, longest)
    number = size.header_drips + size.body_drips + size.slow_readers + size.idle
    notes.append(f"p95 of others {during:.1f} ms, at most {longest:.0f}, before {before:.1f} ms")
    tally("slow clients closed in time", number, ", longest: " + ", ".join(notes))
