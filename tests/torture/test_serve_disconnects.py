"""Clients that go away in the queue, while it decodes and in a stream leave no row, no task and no memory behind."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from typing import Any

import pytest

from tests.torture.example import Tally
from tests.torture.served import Client, Served, connected, idle_again, metrics, percentile, slope, total
from tests.torture.served_model import sentences

TEXTS = sentences(100, longest=20)
WAVE = 50
"""Clients that go away at the same time."""
PATIENCE = 2.0
"""Seconds; counters are reported four times a second, and a step of a loaded machine takes its time."""


def long_request(draw: random.Random, stream: bool = False) -> dict[str, Any]:
    """A request that would take many steps."""
    return {"text": draw.choice(TEXTS), "max_length": 150, "min_length": 150, "stream": stream}


async def go_away(client: Client, kind: str, draw: random.Random) -> None:
    """Send a request and close the connection: before it can begin, while it is decoded, or in its stream."""
    await client.send("/v1/translate", long_request(draw, kind == "in a stream"))
    if kind == "in a stream":
        assert client.reader is not None
        head = await client.reader.readuntil(b"\r\n\r\n")
        if b" 200 " in head.partition(b"\r\n")[0]:
            await client.reader.readuntil(b"data: ")
    elif kind == "while it decodes":
        await asyncio.sleep(draw.uniform(0.05, 0.2))
    else:
        await asyncio.sleep(draw.choice((0.0, 0.005, 0.02)))
    client.close()


async def wave(served: Served, last: Client, draw: random.Random, kinds: Counter[str], count: int) -> float:
    """Let clients go away, and return the seconds until nothing of them is left."""
    async with connected(served, count) as clients:
        chosen = [draw.choice(("in the queue", "while it decodes", "in a stream")) for _ in clients]
        kinds.update(chosen)
        await asyncio.gather(*(go_away(client, kind, draw) for client, kind in zip(clients, chosen, strict=True)))
        return await idle_again(last, PATIENCE)


async def disconnects(served: Served, count: int) -> tuple[Counter[str], list[float], list[tuple[float, float]]]:
    draw, kinds = random.Random(7), Counter[str]()
    times: list[float] = []
    memory: list[tuple[float, float]] = []
    async with connected(served) as (last,):
        size = min(WAVE, count)
        await wave(served, last, draw, Counter(), size)  # threads and buffers are made once
        before = await asyncio.to_thread(served.counts)
        files = served.files()
        while kinds.total() < count:
            times.append(await wave(served, last, draw, kinds, size))
            memory.append((kinds.total(), served.resident()))
        answer = await last.ask("/v1/translate", {"text": TEXTS[0], "max_length": 5})
        assert answer.status == 200
        found = await metrics(last)
        assert total(found, "transduce_restarts_total") == 0 or served.process.poll() is None
        await _no_more_tasks(served, before["server"][0])
        after = await asyncio.to_thread(served.counts)
        assert served.files() <= files + 2
    assert after["server"][1] - before["server"][1] <= 500 + count // 10, (before, after)
    assert after["engines"][1] - before["engines"][1] <= 5000 + count // 10, (before, after)
    return kinds, times, memory


async def _no_more_tasks(served: Served, before: int) -> None:
    """Wait until connections that were closed are gone from the server, too."""
    until = time.monotonic() + 5
    while (now := (await asyncio.to_thread(served.counts))["server"][0]) > before:
        assert time.monotonic() < until, (before, now)
        await asyncio.sleep(0.1)


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(30, id="sample"),
        pytest.param(1000, id="all", marks=pytest.mark.torture),
        pytest.param(10_000, id="memory", marks=[pytest.mark.torture, pytest.mark.timeout(1800)]),
    ],
)
def test_clients_that_go_away_leave_nothing_behind(count: int, served: Served, tally: Tally) -> None:
    kinds, times, memory = asyncio.run(disconnects(served, count))
    settled = memory[len(memory) // 4 :]
    per_request = slope(settled) if len(settled) > 5 else 0.0
    if count >= 10_000:
        assert per_request <= 1024
    every = ", ".join(f"{number:,} {kind}" for kind, number in sorted(kinds.items()))
    tally(
        f"clients that went away ({count:,}), nothing left of them",
        kinds.total(),
        f"; {every}; idle after p50 {percentile(times, 0.5):.2f}, at most {max(times):.2f} s; "
        f"{per_request:.0f} bytes per request",
    )
