"""Large bodies and answers on the event loop: one piece at a time, and at most half of the time.

To parse or render a large JSON value takes milliseconds, in which nobody else is answered. A loop that runs two hundred
of them one after the other, because they became ready together, keeps everybody waiting for all; and a request takes
about ten turns of the loop. So large work waits in line, while small requests pass.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

T = TypeVar("T")

LARGE = 1 << 14
"""Characters from which work waits in line: about a tenth of a millisecond."""
NUMBER = 20
"""Characters that a number is counted as."""


class LargeWork:
    """The line in which large work waits."""

    def __init__(self) -> None:
        self._line = asyncio.Lock()

    async def run(self, work: Callable[[], T]) -> T:
        """Do one piece of work; the next one waits for as long again as this one took (of the processor's time)."""
        await self._line.acquire()
        started = time.thread_time()
        try:
            return work()
        finally:
            asyncio.get_running_loop().call_later(time.thread_time() - started, self._line.release)


def large_work(request: Request) -> LargeWork:
    """The line of the application."""
    found: LargeWork = request.app.state.large_work
    return found


async def json_response(request: Request, content: dict[str, Any]) -> Response:
    """Answer with a JSON object; the entries of a large one are rendered one after the other."""
    if extent(content) < LARGE:
        return JSONResponse(content)
    work, members = large_work(request), []
    for name, value in content.items():
        if isinstance(value, list):
            rendered = b"[" + b",".join([await work.run(partial(render, entry)) for entry in value]) + b"]"
        else:
            rendered = render(value)
        members.append(render(name) + b":" + rendered)
    return Response(b"{" + b",".join(members) + b"}", media_type="application/json")


def render(value: Any) -> bytes:
    """JSON as starlette renders it."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def extent(value: Any) -> int:
    """About how many characters a value has as JSON; of a list of numbers, only the first is looked at."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(extent, value.values()))
    if isinstance(value, list) and value and isinstance(value[0], int | float):
        return NUMBER * len(value)
    return sum(map(extent, value)) if isinstance(value, list) else NUMBER
