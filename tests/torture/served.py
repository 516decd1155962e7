"""A server in processes of its own, clients for it, and what the system says about its memory."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
IDLE_METRICS = ("transduce_active", "transduce_waiting", "transduce_queue_tokens")


@dataclass(frozen=True)
class Answer:
    """What a request was answered with; status 0 is a connection that was closed without an answer."""

    status: int
    headers: dict[str, str]
    body: bytes
    seconds: float

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Served:
    """A server that is ready; what it prints later is kept, too."""

    def __init__(self, *arguments: str, module: str = "transduce") -> None:
        command = [sys.executable, "-m", module, "serve", *arguments, "--port", "0"]
        self.process = subprocess.Popen(
            command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, cwd=ROOT, bufsize=1
        )
        self.printed: list[str] = []
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.printed.append(line)
            if "stop with Ctrl-C" in line:
                break
        found = re.search(r"http://127\.0\.0\.1:(\d+)", "".join(self.printed))
        assert found is not None, "".join(self.printed)
        self.port = int(found[1])
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        """Read on, or a server that prints much would wait for ever."""
        assert self.process.stderr is not None
        with self.process.stderr:
            for line in self.process.stderr:
                self.printed.append(line)

    def engines(self) -> list[int]:
        """The processes of the models."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(child) for child in children]

    def resident(self) -> int:
        """Bytes of resident memory of all its processes."""
        return sum(map(resident_bytes, (self.process.pid, *self.engines())))

    def counts(self) -> dict[str, tuple[int, int]]:
        """Tasks of the server and threads of each engine, with their objects; for an instrumented server."""
        pids, before = (self.process.pid, *self.engines()), len(self.printed)
        for pid in pids:
            os.kill(pid, signal.SIGUSR1)
        until = time.monotonic() + 20
        while True:
            found = [line.split() for line in self.printed[before:] if re.match(r"(server|engine) \d+ \d+$", line)]
            if len(found) == len(pids):
                tasks = next((int(one), int(other)) for kind, one, other in found if kind == "server")
                engines = [(int(one), int(other)) for kind, one, other in found if kind == "engine"]
                return {"server": tasks, "engines": (sum(a for a, _ in engines), sum(b for _, b in engines))}
            assert time.monotonic() < until, self.printed[before:]
            time.sleep(0.01)

    def threads(self) -> int:
        return sum(len(list(Path(f"/proc/{pid}/task").iterdir())) for pid in (self.process.pid, *self.engines()))

    def files(self) -> int:
        return sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in (self.process.pid, *self.engines()))


@contextmanager
def serving(*arguments: str, module: str = "transduce") -> Iterator[Served]:
    served = Served(*arguments, module=module)
    try:
        yield served
    finally:
        served.process.send_signal(signal.SIGTERM)
        try:
            served.process.wait(40)
        except subprocess.TimeoutExpired:
            served.process.kill()
            served.process.wait()


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Client:
    """One keep-alive connection; requests on it come one after the other."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def send(self, path: str, body: Any = None) -> None:
        """Send a request without waiting for the answer: POST with a body, GET without."""
        if self.reader is not None and self.reader.at_eof():  # the server closes connections that are idle
            self.close()
        if self._writer is None or self._writer.is_closing():
            self.reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 24)
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        head = f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        if body is not None:
            head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n"
        self._writer.write(head.encode() + b"\r\n" + data)

    async def answer(self) -> Answer:
        """Read one answer; a connection that ends first is status 0."""
        began = time.perf_counter()
        assert self.reader is not None
        try:
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
            status = int(head[0].split()[1])
            if "content-length" in headers:
                body = await self.reader.readexactly(int(headers["content-length"]))
            else:
                body = b"".join([chunk async for chunk in self._chunks()])
        except (asyncio.IncompleteReadError, ConnectionError):
            self.close()
            return Answer(0, {}, b"", time.perf_counter() - began)
        if headers.get("connection") == "close":
            self.close()
        return Answer(status, headers, body, time.perf_counter() - began)

    async def ask(self, path: str, body: Any = None) -> Answer:
        await self.send(path, body)
        return await self.answer()

    async def _chunks(self) -> AsyncIterator[bytes]:
        assert self.reader is not None
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            yield (await self.reader.readexactly(size + 2))[:-2]
        await self.reader.readexactly(2)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()
        self._writer = None


@asynccontextmanager
async def connected(served: Served, count: int = 1) -> AsyncIterator[list[Client]]:
    clients = [Client(served.port) for _ in range(count)]
    try:
        yield clients
    finally:
        for client in clients:
            client.close()
        await asyncio.sleep(0)


async def metrics(client: Client) -> dict[str, float]:
    """The measurements of the server, by name and labels."""
    answer = await client.ask("/metrics")
    assert answer.status == 200
    lines = (line.rpartition(" ") for line in answer.body.decode().splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}


def total(found: dict[str, float], name: str) -> float:
    """A measurement of all models together."""
    return sum(value for key, value in found.items() if key.partition("{")[0] == name)


async def idle_again(client: Client, patience: float) -> float:
    """Wait until the engines have no request and no queue left, and return the seconds that it took."""
    began = time.perf_counter()
    while True:
        found = await metrics(client)
        busy = {name: total(found, name) for name in IDLE_METRICS if total(found, name)}
        seconds = time.perf_counter() - began
        if not busy:
            return seconds
        assert seconds < patience, busy
        await asyncio.sleep(0.02)


async def in_parallel(served: Served, bodies: Sequence[Any], count: int, path: str = "/v1/translate") -> list[Answer]:
    """Send requests over `count` connections and return their answers in the order of the requests."""
    found: list[Answer | None] = [None] * len(bodies)
    places = iter(range(len(bodies)))
    async with connected(served, count) as clients:

        async def work(client: Client) -> None:
            for place in places:
                found[place] = await client.ask(path, bodies[place])

        await asyncio.gather(*map(work, clients))
    return [answer for answer in found if answer is not None]


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The slope of the least-squares line through points."""
    mean_x, mean_y = (sum(values) / len(points) for values in zip(*points, strict=True))
    above = sum((x - mean_x) * (y - mean_y) for x, y in points)
    return above / max(1e-12, sum((x - mean_x) ** 2 for x, _ in points))
