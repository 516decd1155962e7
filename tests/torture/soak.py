"""Ten minutes of mixed load on a server of three models: `make soak`, or `SOAK="--minutes 1"` for less.

Translations (greedy, beam search with alternatives and alignment), streams, language model, vectors and predictions,
clients that disconnect while they wait, while it decodes and in a stream, and requests that are wrong. Every minute:
resident memory of the server and of its engines, file descriptors, threads, and latencies. Every answer that should
not be there is counted as unexpected and fails the soak. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.torture.served import Client, Served, idle_again, percentile, resident_bytes, serving, slope
from tests.torture.served_model import save_random_model, sentences

STORED = Path(__file__).resolve().parents[1] / "unit" / "stored"
THINK = 0.1
"""Longest pause of a client between two requests, in seconds."""
TEXTS = sentences(500)
WORDS = ("one", "two", "three", "red", "green", "blue")
WRONG: list[tuple[str, Any, int]] = [
    ("/v1/translate", b"{", 400),
    ("/v1/translate", {"text": "ban", "beams": 3}, 422),
    ("/v1/translate", {"text": ["ban"] * 200}, 422),
    ("/v1/translate", {"text": "ban " * 20_000}, 413),
    ("/v1/nothing", {}, 404),
    ("/v1/generate", {"prompt": "one", "model": "random"}, 422),
]


class Load:
    """What the clients do, and what they saw."""

    def __init__(self, served: Served) -> None:
        self.served, self.until = served, 0.0
        self.latencies: dict[str, list[float]] = {}
        self.counts: Counter[str] = Counter()
        self.unexpected: list[str] = []

    async def ask(self, client: Client, kind: str, path: str, body: Any, status: int = 200) -> None:
        """Send a request and note its latency."""
        began = time.perf_counter()
        answer = await client.ask(path, body)
        self.latencies.setdefault(kind, []).append(time.perf_counter() - began)
        self.counts[kind] += 1
        if answer.status != status or ("content-length" not in answer.headers and b'"done"' not in answer.body):
            self.unexpected.append(f"{kind}: {answer.status} {answer.body[:200]!r}")

    async def repeat(self, work: Callable[[Client, random.Random], Awaitable[None]], seed: int) -> None:
        """One client."""
        draw, client = random.Random(seed), Client(self.served.port)
        while time.monotonic() < self.until:
            await work(client, draw)
            await asyncio.sleep(THINK * draw.random())
        client.close()

    async def greedy(self, client: Client, draw: random.Random) -> None:
        body = {"text": draw.choice(TEXTS), "max_length": draw.randint(3, 29)}
        await self.ask(client, "greedy", "/v1/translate", body)

    async def beam(self, client: Client, draw: random.Random) -> None:
        texts = draw.sample(TEXTS, draw.choice((1, 1, 5)))
        body = {"text": texts, "method": "beam", "beam_size": draw.choice((2, 4, 8)), "n_best": 2, "alignment": True}
        await self.ask(client, "beam", "/v1/translate", body)

    async def stream(self, client: Client, draw: random.Random) -> None:
        await self.ask(client, "stream", "/v1/translate", {"text": draw.choice(TEXTS), "stream": True})

    async def generate(self, client: Client, draw: random.Random) -> None:
        body = {"prompt": " ".join(draw.choices(WORDS, k=3)), "max_length": 40, "stream": draw.random() < 0.3}
        await self.ask(client, "generate", "/v1/generate", body)

    async def encode(self, client: Client, draw: random.Random) -> None:
        texts = [" ".join(draw.choices(WORDS, k=draw.randint(1, 9))) for _ in range(draw.randint(1, 9))]
        await self.ask(client, "encode", draw.choice(("/v1/embed", "/v1/predict")), {"text": texts})

    async def wrong(self, client: Client, draw: random.Random) -> None:
        path, body, status = draw.choice(WRONG)
        await self.ask(client, "wrong", path, body, status)

    async def disconnect(self, client: Client, draw: random.Random) -> None:
        """Go away at once, after a while, or after the beginning of a stream."""
        streams = draw.random() < 0.4
        await client.send("/v1/translate", {"text": draw.choice(TEXTS), "max_length": 200, "stream": streams})
        if streams:
            assert client.reader is not None
            await client.reader.readuntil(b"data: ")
        else:
            await asyncio.sleep(draw.choice((0.0, 0.02, 0.1)))
        client.close()
        self.counts["disconnect"] += 1


def clients_of(load: Load) -> list[Callable[[Client, random.Random], Awaitable[None]]]:
    return [
        *[load.greedy] * 8,
        *[load.beam] * 3,
        *[load.stream] * 3,
        *[load.generate] * 2,
        *[load.encode] * 2,
        *[load.disconnect] * 3,
        load.wrong,
    ]


async def soak(served: Served, seconds: float, interval: float) -> dict[str, Any]:
    """Run the load and print a line for each interval."""
    load = Load(served)
    load.until = time.monotonic() + seconds
    tasks = [asyncio.create_task(load.repeat(work, seed)) for seed, work in enumerate(clients_of(load))]
    rows: list[dict[str, float]] = []
    while time.monotonic() < load.until - 0.1:
        await asyncio.sleep(min(interval, load.until - time.monotonic()))
        every = [latency for several in load.latencies.values() for latency in several]
        row = {
            "server_mb": resident_bytes(served.process.pid) / 1e6,
            "engines_mb": sum(map(resident_bytes, served.engines())) / 1e6,
            "files": served.files(),
            "threads": served.threads(),
            "requests": sum(load.counts.values()),
            **{f"p{share}_ms": 1000 * percentile(every, share / 100) for share in (50, 95, 99)},
        }
        rows.append(row)
        slowest = {kind: round(1000 * percentile(several, 0.95)) for kind, several in sorted(load.latencies.items())}
        print(
            f"{len(rows):3}  " + "  ".join(f"{name} {value:,.1f}" for name, value in row.items()), slowest, flush=True
        )
        load.latencies.clear()
    await asyncio.gather(*tasks)
    last = Client(served.port)
    idle = await idle_again(last, 5.0)
    last.close()
    for line in load.unexpected[:20]:
        print(line)
    settled = list(enumerate(rows))[len(rows) // 4 :]
    per_hour = 3600 / interval
    return {
        "minutes": seconds / 60,
        "requests": dict(load.counts),
        "unexpected": len(load.unexpected),
        "idle_again_s": round(idle, 3),
        "server_mb_per_hour": round(per_hour * slope([(place, row["server_mb"]) for place, row in settled]), 2),
        "engines_mb_per_hour": round(per_hour * slope([(place, row["engines_mb"]) for place, row in settled]), 2),
        **{name: [round(row[name], 1) for row in rows] for name in rows[0] if name != "requests"},
    }


def main() -> None:
    """Serve, load and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    chosen = parser.parse_args()
    seconds = 60 * chosen.minutes
    with tempfile.TemporaryDirectory() as folder:
        model = save_random_model(Path(folder) / "random")
        others = (str(STORED / task) for task in ("language_modeling", "text_encoding"))
        with serving(str(model), *others, "--workers", "1", "--threads", "1") as served:
            result = asyncio.run(soak(served, seconds, min(60.0, seconds / 4)))
            printed = [line for line in served.printed if "ended with code" in line or "a job failed" in line]
    result["faults_printed"] = len(printed)
    print(json.dumps(result))
    sys.exit(1 if result["unexpected"] or printed else 0)


if __name__ == "__main__":
    main()
