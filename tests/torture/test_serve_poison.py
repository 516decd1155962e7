"""A request on which the model fails, however it fails, costs its neighbours in the batch nothing."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

from tests.torture.example import Tally, sizes
from tests.torture.instrumented_worker import ABORT, POISON
from tests.torture.served import Client, Served, connected, idle_again, in_parallel, metrics
from tests.torture.served_model import sentences


def poisoned(number: int, text: str) -> dict[str, Any]:
    """A request that fails when it is encoded, or in the middle of a step."""
    word = list(POISON)[number % len(POISON)]
    if number % 2:
        return {"text": text, "prefix": word, "max_length": 20}
    words = text.split()
    words[len(words) // 2] = word
    return {"text": " ".join(words), "max_length": 20}


@sizes(20, 1000)
def test_a_request_that_fails_does_not_affect_its_neighbours(size: int, served: Served, tally: Tally) -> None:
    draw = random.Random(3)
    texts = sentences(120, longest=30)
    plain = [{"text": text, "max_length": 5 + number % 15} for number, text in enumerate(texts)]
    expected = [
        answer.json["translations"][0]["text"] for answer in asyncio.run(in_parallel(served, plain, 16)) if answer.json
    ]
    bodies: list[tuple[dict[str, Any], int | None]] = [
        (poisoned(number, draw.choice(texts)), None) for number in range(size)
    ]
    bodies += [(plain[place], place) for place in (number % len(plain) for number in range(3 * size))]
    draw.shuffle(bodies)
    answers = asyncio.run(in_parallel(served, [body for body, _ in bodies], 32))
    isolated = 0
    for answer, (_, place) in zip(answers, bodies, strict=True):
        if place is None:
            assert answer.status == 500 and answer.headers["x-request-id"], answer
            isolated += 1
        else:
            assert answer.status == 200, answer
            assert answer.json["translations"][0]["text"] == expected[place]
    assert isolated == size and served.process.poll() is None
    asyncio.run(_still_idle(served))
    tally("requests on which the model fails, isolated in mixed batches", size, f"; {3 * size:,} neighbours")


async def _still_idle(served: Served) -> None:
    async with connected(served) as (client,):
        await idle_again(client, 5.0)


@sizes(1, 5)
def test_a_native_crash_costs_the_running_requests_of_its_engine_only(size: int, served: Served, tally: Tally) -> None:
    seconds = [asyncio.run(_crash(served)) for _ in range(size)]
    tally("native crashes of an engine, which comes back", size, f"; after at most {max(seconds):.1f} s")


async def _crash(served: Served) -> float:
    """Crash the translation model while requests of both models run; return the seconds until it is back."""
    long = {"text": sentences(1)[0], "max_length": 700, "min_length": 700}
    other = {"prompt": "one", "max_length": 300, "min_length": 300, "seed": 1}
    async with connected(served, 9) as (*clients, last):
        restarts = (await metrics(last))['transduce_restarts_total{model="random"}']
        running = [asyncio.create_task(client.ask("/v1/translate", long)) for client in clients[:4]]
        others = [asyncio.create_task(client.ask("/v1/generate", other)) for client in clients[4:]]
        await asyncio.sleep(0.1)
        crashing = await last.ask("/v1/translate", {"text": ABORT})
        began = time.perf_counter()
        assert crashing.status == 500
        assert {answer.status for answer in await asyncio.gather(*running)} <= {200, 500}
        assert [answer.status for answer in await asyncio.gather(*others)] == [200] * len(others)
        absent = await last.ask("/v1/translate", {"text": "ban"})
        assert absent.status in (200, 503) and (absent.status == 200 or absent.headers["retry-after"])
        await _until_ready(last)
        seconds = time.perf_counter() - began
        assert (await last.ask("/v1/translate", {"text": "ban", "max_length": 3})).status == 200
        assert (await metrics(last))['transduce_restarts_total{model="random"}'] == restarts + 1
    return seconds


async def _until_ready(client: Client) -> None:
    async with asyncio.timeout(60):
        while (await client.ask("/ready")).status != 200:
            await asyncio.sleep(0.1)
