"""More clients than a server can serve: each request has one answer, its own, or is told at once to come back."""

from __future__ import annotations

import asyncio
import math
import random
import resource
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.torture.conftest import QUEUE_TOKENS
from tests.torture.example import Tally
from tests.torture.served import Client, Served, connected, idle_again, metrics, percentile, total
from tests.torture.served_model import sentences
from transduce.inference.load import load_translator

QUESTIONS = {"sample": 20, "all": 600}
GROWTH = 200e6
"""Bytes that resident memory of all processes may grow."""


@dataclass(frozen=True)
class Question:
    """A request, and the answer of the model alone."""

    body: dict[str, Any]
    text: str
    score: float


def questions(folder: Path, count: int) -> list[Question]:
    """Requests of which no two have the same answer: text and score together are the marker of each."""
    translator, texts = load_translator(folder), sentences(count, longest=40)
    found: list[Question] = []
    for options in ({"max_length": 19}, {"max_length": 23, "method": "beam", "beam_size": 8}):
        half = texts[:: 2 if "method" in options else 1]
        for text, (best, *_) in zip(half, translator.translate(half, n_best=1, align=True, **options), strict=True):
            found.append(Question({"text": text, **options}, best.text, best.score))
    markers = Counter((question.text, round(question.score, 3)) for question in found)
    return [question for question in found if markers[question.text, round(question.score, 3)] == 1]


@dataclass
class Observed:
    """What the clients of a server saw, and what was seen of its processes meanwhile."""

    sent: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    rejections: list[float] = field(default_factory=list)
    """Seconds until each was told to come back."""
    latencies: list[float] = field(default_factory=list)
    crossed: list[tuple[Question, Any]] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    queue: float = 0.0
    lag: list[float] = field(default_factory=list)
    """Seconds that this process itself was late: a part of every latency that it measures."""


async def keep_asking(client: Client, asked: list[Question], until: float, seen: Observed, seed: int) -> None:
    """One client: the next request when the last is answered, later if the server says so."""
    draw = random.Random(seed)
    await asyncio.sleep(draw.random() * min(2.0, (until - time.monotonic()) / 8))
    while time.monotonic() < until:
        question = draw.choice(asked)
        seen.sent += 1
        began = time.perf_counter()
        answer = await client.ask("/v1/translate", question.body)
        seconds = time.perf_counter() - began
        seen.statuses[answer.status] += 1
        if answer.status == 200:
            seen.latencies.append(seconds)
            found = answer.json["translations"][0]
            if found["text"] != question.text or abs(found["score"] - question.score) > 4e-4:
                seen.crossed.append((question, found))
        elif answer.status in (429, 503):
            seen.rejections.append(seconds)
            await asyncio.sleep(int(answer.headers["retry-after"]) * (0.5 + draw.random()))


async def watch(served: Served, until: float, seen: Observed) -> None:
    async with connected(served) as (client,):
        while time.monotonic() < until:
            before = time.perf_counter()
            await asyncio.sleep(0.2)
            seen.lag.append(time.perf_counter() - before - 0.2)
            seen.memory.append(served.resident())
            seen.queue = max(seen.queue, total(await metrics(client), "transduce_queue_tokens"))


async def idle_latency(client: Client, question: Question) -> float:
    began = time.perf_counter()
    answer = await client.ask("/v1/translate", question.body)
    return time.perf_counter() - began if answer.status == 200 else math.inf


async def overload(served: Served, asked: list[Question], clients: int, seconds: float) -> tuple[Observed, float]:
    """Load the server; return what was seen, and the seconds until it was as fast as before."""
    seen = Observed()
    async with connected(served, clients + 1) as (last, *many):
        usual = percentile([await idle_latency(last, asked[0]) for _ in range(9)], 0.5)
        before = await metrics(last)
        until = time.monotonic() + seconds
        started = served.resident()
        everybody = (keep_asking(client, asked, until, seen, seed) for seed, client in enumerate(many))
        await asyncio.gather(watch(served, until, seen), *everybody)
        ended = time.perf_counter()
        while await idle_latency(last, asked[0]) > 2 * usual + 0.02:
            assert time.perf_counter() - ended < 5.0
        recovered = time.perf_counter() - ended
        await idle_again(last, 5.0)
        counted = Counter[str]()
        for name, value in (await metrics(last)).items():
            if name.startswith("transduce_requests_total") and "/v1/translate" in name:
                counted["all"] += int(value - before.get(name, 0))
    assert sum(seen.statuses.values()) == seen.sent, "each request has one answer"
    assert counted["all"] >= seen.sent, "and the server counts it"
    seen.memory.insert(0, started)
    return seen, recovered


@pytest.mark.parametrize(
    ("clients", "seconds", "kind"),
    [
        pytest.param(150, 1.0, "sample", id="sample"),
        pytest.param(1000, 60.0, "all", id="all", marks=pytest.mark.torture),
    ],
)
def test_more_clients_than_can_be_served_get_their_answer_or_are_told_to_come_back(
    clients: int, seconds: float, kind: str, served: Served, random_model: Path, tally: Tally
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < clients + 100:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, clients + 100), hard))
    asked = questions(random_model, QUESTIONS[kind])
    seen, recovered = asyncio.run(overload(served, asked, clients, seconds))
    assert not seen.crossed, seen.crossed[:3]
    assert set(seen.statuses) <= {200, 429, 503} and seen.statuses[200] > 0 and seen.rejections
    assert seen.queue <= QUEUE_TOKENS
    growth = max(seen.memory) - seen.memory[0]
    shares = " ".join(f"p{share} {1000 * percentile(seen.rejections, share / 100):.0f}" for share in (50, 95, 99, 100))
    within = sum(latency <= 0.1 for latency in seen.rejections) / len(seen.rejections)
    tally(
        f"requests of {clients:,} clients, each with one answer and none crossed",
        seen.sent,
        f"; {seen.statuses[200]:,} answered, {len(seen.rejections):,} told to come back after {shares} ms "
        f"({within:.1%} within 100 ms, own lag p95 {1000 * percentile(seen.lag, 0.95):.0f} ms); "
        f"{growth / 1e6:.0f} MB more, at most {seen.queue:.0f} tokens queued, fast again after {recovered:.2f} s",
    )
    middle = len(seen.memory) // 2
    assert growth <= GROWTH and max(seen.memory[middle:]) - max(seen.memory[:middle]) <= GROWTH / 8
    assert kind == "sample" or within >= 0.99, "told at once; a few may wait where other programs run"
