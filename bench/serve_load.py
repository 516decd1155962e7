"""Load generator of `bench/serve.py`: HTTP over plain sockets, in a process of its own that needs little of a core.

Reads a plan as one JSON object from standard input and writes the answers as one JSON array to standard output, each
as [number of the request, second of its arrival, second of its answer or null, status, body].
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

GRACE = 5.0
"""Seconds to wait for answers after the last arrival."""
MAX_CONNECTIONS = 600
"""Connections; with Poisson arrivals, further requests wait for one."""

Answered = Callable[["Connection", int, bytes], None]


class Connection(asyncio.Protocol):
    """One connection that is kept alive, with one request at a time."""

    def __init__(self, answered: Answered) -> None:
        self._answered = answered
        self._received = b""
        self.transport: asyncio.Transport | None = None
        self.request: list[Any] | None = None
        """The record of the request that it waits for."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        if self.request is not None:
            self._answered(self, 0, b"")

    def send(self, request: list[Any], message: bytes) -> None:
        """Send a request."""
        assert self.transport is not None
        self.request = request
        self.transport.write(message)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        if not found:
            return
        lower = head.lower()
        place = lower.find(b"content-length:")
        length = int(lower[place + 15 :].split(b"\r\n", 1)[0])
        if len(body) >= length:
            self._received = b""
            self._answered(self, int(head[9:12]), body)


class Load:
    """Sends requests and records the answers."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan, self.port = plan, plan["port"]
        self.loop = asyncio.get_running_loop()
        self.messages = [self._message(body.encode()) for body in plan["bodies"]]
        self.next = plan["first"]
        self.records: list[list[Any]] = []
        self.idle: list[Connection] = []
        self.waiting: deque[list[Any]] = deque()
        self.connections = 0
        self.unanswered = 0
        self.sending = True

    def _message(self, body: bytes) -> bytes:
        head = (
            f"POST {self.plan['path']} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def arrive(self) -> list[Any]:
        """Record the next request."""
        record = [self.next % len(self.messages), self.loop.time(), None, 0, ""]
        self.next += 1
        self.records.append(record)
        self.unanswered += 1
        return record

    def send(self, connection: Connection, record: list[Any]) -> None:
        connection.send(record, self.messages[record[0]])

    def answered(self, connection: Connection, status: int, body: bytes) -> None:
        """Record an answer and use the connection again."""
        record, connection.request = connection.request, None
        assert record is not None
        record[2:] = [self.loop.time() if status else None, status, body.decode()]
        self.unanswered -= 1
        if connection.transport is None:
            self.connections -= 1
        elif self.waiting:
            self.send(connection, self.waiting.popleft())
        elif self.plan["rate"]:
            self.idle.append(connection)
        elif self.sending:
            self.send(connection, self.arrive())

    async def connect(self) -> Connection:
        self.connections += 1
        _, connection = await self.loop.create_connection(lambda: Connection(self.answered), "127.0.0.1", self.port)
        return connection

    async def closed_loop(self) -> None:
        """Clients that send their next request when they have an answer."""
        for connection in [await self.connect() for _ in range(self.plan["clients"])]:
            self.send(connection, self.arrive())
        if self.plan["requests"]:
            while len(self.records) - self.unanswered < self.plan["requests"]:
                await asyncio.sleep(0.02)
        else:
            await asyncio.sleep(self.plan["seconds"])
        self.sending = False
        await self.drain()

    async def poisson(self) -> None:
        """Requests that arrive at random, whatever became of the earlier ones."""
        draw = random.Random(self.plan["seed"])
        began = due = self.loop.time()
        while due - began < self.plan["seconds"]:
            due += draw.expovariate(self.plan["rate"])
            await asyncio.sleep(max(0.0, due - self.loop.time()))
            record = self.arrive()
            record[1] = due
            while self.idle and self.idle[-1].transport is None:
                self.idle.pop()
            if self.idle:
                self.send(self.idle.pop(), record)
            elif self.connections < MAX_CONNECTIONS:
                self.send(await self.connect(), record)
            else:
                self.waiting.append(record)
        self.waiting.clear()
        await self.drain()

    async def drain(self) -> None:
        """Wait for the answers that are still to come, but not for ever."""
        until = self.loop.time() + self.plan["grace"]
        while self.unanswered and self.loop.time() < until:
            await asyncio.sleep(0.02)


async def run(plan: dict[str, Any]) -> list[list[Any]]:
    """Carry out a plan; times count from its begin."""
    load = Load(plan)
    began = load.loop.time()
    await (load.poisson() if plan["rate"] else load.closed_loop())
    for record in load.records:
        record[1] -= began
        record[2] = None if record[2] is None else record[2] - began
    return load.records


def main() -> None:
    print(json.dumps(asyncio.run(run(json.load(sys.stdin)))))


if __name__ == "__main__":
    main()
