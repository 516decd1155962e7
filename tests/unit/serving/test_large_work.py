"""Large work on the event loop: one piece at a time, while small requests pass."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse

from tests.unit.serving.front import Front
from transduce.serving.large_work import LARGE, LargeWork, extent, json_response


def request_of(work: LargeWork) -> Request:
    app = Starlette()
    app.state.large_work = work
    return Request({"type": "http", "app": app})


def spin(seconds: float) -> None:
    """Keep the processor busy."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_large_work_runs_one_piece_in_a_turn_and_others_run_between() -> None:
    order: list[str] = []

    async def large(work: LargeWork) -> None:
        await work.run(lambda: (spin(0.002), order.append("large")))

    async def small() -> None:
        for _ in range(4):
            await asyncio.sleep(0)
        order.append("small")

    async def run() -> None:
        work = LargeWork()
        await asyncio.gather(*(large(work) for _ in range(20)), small())

    asyncio.run(run())
    assert order.count("large") == 20
    assert order.index("small") <= 5, "a request of few turns waits for few pieces, not for twenty"


def test_work_that_fails_or_is_cancelled_does_not_stop_the_line() -> None:
    async def run() -> str:
        work = LargeWork()
        with pytest.raises(ZeroDivisionError):
            await work.run(lambda: 1 // 0)
        waiting = [asyncio.create_task(work.run(lambda: "done")) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[1].cancel()
        return await waiting[2]

    assert asyncio.run(run()) == "done"


@pytest.mark.parametrize(
    "content",
    [
        {"model": "é", "translations": [{"text": "ü" * LARGE, "score": -0.25}, {"text": "\n\"'"}], "usage": {"a": 1}},
        {"data": [[0.1, 1e-7, -3.0] * LARGE, []], "none": None},
        {"text": "a" * LARGE, "empty": []},
        {"only": ["x" * LARGE]},
    ],
)
def test_large_json_is_the_same_as_small_json(content: dict[str, Any]) -> None:
    response = asyncio.run(json_response(request_of(LargeWork()), content))
    assert response.body == JSONResponse(content).body
    assert response.media_type == "application/json"


def test_the_extent_is_about_the_length() -> None:
    for value in ({"a": ["xyz" * 1000] * 7}, [{"b": "y" * 5000}, 1, None], "z" * 999):
        assert extent(value) == pytest.approx(len(json.dumps(value)), rel=0.1)


def test_a_large_answer_passes_through_every_api() -> None:
    front = Front()
    text = "ab" * LARGE
    own = front.client.post("/v1/translate", json={"text": text})
    assert own.json()["translations"][0]["text"] == text.upper()
    deepl = front.client.post("/v2/translate", json={"text": [text], "target_lang": "EN"})
    assert deepl.json()["translations"][0]["text"] == text.upper()
    libre = front.client.post("/translate", json={"q": text, "source": "de", "target": "en"})
    assert libre.json()["translatedText"] == text.upper()
    chat = front.client.post(
        "/v1/chat/completions", json={"model": "de-en", "messages": [{"role": "user", "content": text}]}
    )
    assert chat.json()["choices"][0]["message"]["content"] == text.upper()
