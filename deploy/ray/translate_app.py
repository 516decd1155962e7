"""Replicas of a translator behind Ray Serve, in batches.

    pip install -c constraints.txt 'transduce[ray]' 'ray[serve]'
    cd deploy/ray && serve run translate_app:app model=/shared/runs/de-en replicas=2
    curl -d '{"text": "ein Hund"}' -H 'Content-Type: application/json' http://127.0.0.1:8000/translate

An example to build on. `transduce serve` has what it lacks: streams, glossaries, keys, limits, fairness between
clients, continuous batching. Ray and Ray Serve have no authentication unless you switch it on: keep their ports in a
private network.
"""

from __future__ import annotations

import asyncio
from typing import Any

import torch
from ray import serve
from starlette.requests import Request
from starlette.responses import JSONResponse

import transduce
from transduce.errors import TransduceError
from transduce.text.lines import check_surrogates

MAX_BYTES = 100_000


@serve.deployment(max_ongoing_requests=64, max_queued_requests=256)
class Replica:
    """A model, loaded once."""

    def __init__(self, model: str, threads: int) -> None:
        torch.set_num_threads(threads)  # Ray sets OMP_NUM_THREADS by the processors of a replica
        self._translator = transduce.load(model)

    @serve.batch(max_batch_size=32, batch_wait_timeout_s=0.01)
    async def _translate(self, texts: list[str]) -> list[str]:
        return await asyncio.to_thread(self._translator.translate, texts)

    async def __call__(self, request: Request) -> JSONResponse:
        try:
            body = await request.body()
            text = (await request.json())["text"] if len(body) <= MAX_BYTES else None
        except (ValueError, KeyError, TypeError):
            text = None
        if not isinstance(text, str):
            return JSONResponse({"error": f'send {{"text": "…"}}, at most {MAX_BYTES:,} bytes'}, 422)
        try:
            check_surrogates(text)  # before it is in a batch with others
        except TransduceError as error:
            return JSONResponse({"error": str(error)}, 422)
        return JSONResponse({"translation": await self._translate(text)})


def app(arguments: dict[str, str]) -> Any:
    """Build the application from the arguments of `serve run`."""
    threads = int(arguments.get("threads", "1"))
    replicas = Replica.options(
        num_replicas=int(arguments.get("replicas", "1")), ray_actor_options={"num_cpus": threads}
    )
    return replicas.bind(arguments["model"], threads)
