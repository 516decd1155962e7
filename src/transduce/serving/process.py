"""A model in a process of its own, as a backend: jobs are sent as JSON lines, and the process is restarted if it ends.

Messages to the process: its settings (first line); a job `{"id", "job", "client", "timeout", "stream"}`; the end of a
job `{"id", "cancel"}`. Messages from it: `{"ready", "statistics"}` or `{"failed", "exit_code"}` once; `{"statistics"}`
while it works; and of each job `{"id", "piece"}` as often as there is text, then exactly one of `{"id", "result"}`,
`{"id", "error"}` and `{"id", "cancelled"}`. Nothing is pickled.

A job occupies the process until that last message, also if nobody waits for it any more: clients that send and
disconnect, again and again, would otherwise fill the process with jobs that are not counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import math
import os
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from dataclasses import asdict, dataclass, replace
from typing import Literal

from transduce.config import Table
from transduce.errors import TransduceError
from transduce.serving.backend import BackendState, Statistics
from transduce.serving.job import Job, JobError, ModelInfo, Result
from transduce.serving.limits import Limits

server_log = logging.getLogger("transduce.server")

MAX_LINE = 1 << 27
"""Bytes of the longest message."""
ISOLATED = ("-P",)
"""Options of Python: no module is imported from the working directory."""
GRACE = 2.0
"""Seconds after a job's deadline until the process is no longer waited for."""
BACKOFF = (0.5, 30.0)
"""Seconds before the first restart, and at most; they double with each restart in a row."""
FULL = 0.9
"""Share of a queue's tokens from which the server rejects jobs itself. The process would reject them, too, but after it
has read and tokenized them, among all its other work: seconds later under overload."""
REJECTED = 20.0
"""Rejected jobs per second for each second of Retry-After: the more clients are told to come back, the later, or those
who come back keep the server from telling anybody in time."""
MAX_RETRY_AFTER = 30.0
LAST_WORDS = 2.0
"""Seconds that a process has to end after its output has, before it is killed."""
STABLE = 60.0
"""Seconds after which a process that ends is not counted as a restart in a row."""

WORKER = "transduce.serving.worker"
"""The module that runs in the process."""

Engine = Literal["auto", "torch", "ctranslate2"]
Precision = Literal["float32", "int8"]
Inbox = asyncio.Queue[Table]


@dataclass(frozen=True)
class EngineSettings:
    """How a model is run."""

    folder: str
    name: str
    engine: Engine = "torch"
    precision: Precision = "float32"
    device: str = "cpu"
    threads: int = 1
    """Threads of PyTorch's operations, or workers of CTranslate2."""
    max_queue_tokens: int = Limits.max_queue_tokens
    max_active_rows: int = Limits.max_active_rows
    max_requests: int = Limits.max_requests


def _environment() -> dict[str, str]:
    """The environment of an engine: few arenas, or what hundreds of threads free stays where no other can use it."""
    return {"MALLOC_ARENA_MAX": "2", **os.environ}


def available_cores() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class LoadError(TransduceError):
    """A model that could not be loaded, with the exit code of the reason."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class ProcessBackend:
    """One model; `start` loads it."""

    info: ModelInfo

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._process: Process | None = None
        self._jobs: dict[int, Inbox] = {}
        """Where the messages about the jobs go that somebody waits for."""
        self._unfinished: set[int] = set()
        """The jobs of which the process has not sent the last message."""
        self._numbers = itertools.count()
        self._state: BackendState = "loading"
        self._statistics, self._restarts = Statistics(), 0
        self._rejected, self._rejected_at = 0.0, 0.0
        """Jobs for which there was no space in about the last second, and when the last of them came."""
        self._supervision: asyncio.Task[None] | None = None

    @property
    def state(self) -> BackendState:
        """Whether it takes jobs."""
        return self._state

    @property
    def full(self) -> str | None:
        """Why it takes no further job now; None if it does."""
        if len(self._unfinished) >= self._settings.max_requests:
            return f"{len(self._unfinished):,} requests are in progress; try again later"
        tokens = self._statistics.queue_tokens
        is_full = tokens >= FULL * self._settings.max_queue_tokens
        return f"{tokens:,} tokens are waiting already; try again later" if is_full else None

    @property
    def pid(self) -> int | None:
        """The process, while there is one."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Load the model; raises LoadError."""
        await self._spawn()
        self._supervision = asyncio.create_task(self._supervise())

    async def stop(self) -> None:
        """End the process; the jobs that it has are not finished."""
        self._state = "stopped"
        if self._supervision is not None:
            self._supervision.cancel()
            await asyncio.wait([self._supervision])
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        self._fail_all()

    def statistics(self) -> Statistics:
        """The newest counters."""
        return replace(self._statistics, restarts=self._restarts)

    async def run(self, job: Job, client: str, timeout: float) -> Result:
        """Carry out a job; raises JobError."""
        async with contextlib.aclosing(self._messages(job, client, timeout, streams=False)) as messages:
            async for message in messages:
                return _result(message)
        raise AssertionError("a job ends with a result or an error")

    async def stream(self, job: Job, client: str, timeout: float) -> AsyncGenerator[str | Result, None]:
        """Carry out a job of one text and yield its text piece by piece, then the result; raises JobError."""
        async with contextlib.aclosing(self._messages(job, client, timeout, streams=True)) as messages:
            async for message in messages:
                yield message["piece"] if "piece" in message else _result(message)

    async def _messages(self, job: Job, client: str, timeout: float, streams: bool) -> AsyncGenerator[Table, None]:
        """Send a job and yield the messages about it; closing the iterator cancels the job."""
        if self._state != "ready":
            raise JobError("unavailable", f"the model '{self.info.name}' is {self._state}", retry_after=2.0)
        if self.full is not None:
            raise self._busy(self.full)
        number, inbox = next(self._numbers), Inbox()
        until = asyncio.get_running_loop().time() + timeout + GRACE
        self._jobs[number] = inbox
        self._unfinished.add(number)
        is_over = False
        try:
            self._send({"id": number, "job": job.model_dump(), "client": client, "timeout": timeout, "stream": streams})
            while not is_over:
                try:
                    async with asyncio.timeout_at(until):  # not around `yield`: other tasks may ask for the next one
                        message = await inbox.get()
                except TimeoutError:
                    raise JobError("deadline", "the model did not respond in time", retry_after=1.0) from None
                is_over = "piece" not in message
                yield message
        finally:
            if not is_over:
                self._send({"id": number, "cancel": True})
            del self._jobs[number]

    def _busy(self, message: str) -> JobError:
        """The error of a job for which there is no space, with a time to come back."""
        now = time.monotonic()
        self._rejected = 1.0 + self._rejected * math.exp(self._rejected_at - now)
        self._rejected_at = now
        return JobError("busy", message, min(MAX_RETRY_AFTER, max(1.0, self._rejected / REJECTED)))

    def _send(self, message: Table) -> None:
        process = self._process
        if process is not None and process.stdin is not None and not process.stdin.is_closing():
            process.stdin.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")

    async def _spawn(self) -> None:
        """Start the process and wait until the model is loaded."""
        self._process = process = await asyncio.create_subprocess_exec(
            *(sys.executable, *ISOLATED, "-m", WORKER), stdin=PIPE, stdout=PIPE, limit=MAX_LINE, env=_environment()
        )
        self._send(asdict(self._settings))
        try:
            message = await self._receive(process)
            if message is not None and "failed" not in message:
                self.info = ModelInfo.from_json(message["ready"])
                self._statistics, self._state = Statistics(**message["statistics"]), "ready"
                return
        except (ValueError, KeyError, TypeError):
            await _end(process)
            raise LoadError("its process sent an invalid message", 1) from None
        await process.wait()
        reason = f"its process ended with code {process.returncode}" if message is None else message["failed"]
        raise LoadError(reason, 1 if message is None else message["exit_code"])

    async def _receive(self, process: Process) -> Table | None:
        """The next message of the process; None when it has ended."""
        assert process.stdout is not None
        line = await process.stdout.readline()
        message: Table | None = json.loads(line) if line.endswith(b"\n") else None
        return message

    async def _supervise(self) -> None:
        """Hand out messages; when the process ends, fail its jobs and start another."""
        in_a_row = 0
        while True:
            assert self._process is not None
            began = time.monotonic()
            try:
                await self._hand_out(self._process)
            except Exception as error:  # whatever it sends, the server goes on
                server_log.error("model %s: a message cannot be read: %s", self.info.name, type(error).__name__)
            self._state = "restarting"
            self._fail_all()
            code = await _end(self._process)
            server_log.error("model %s: its process ended with code %s and is started again", self.info.name, code)
            in_a_row = 0 if time.monotonic() - began > STABLE else in_a_row + 1
            self._restarts += 1
            while True:
                await asyncio.sleep(min(BACKOFF[0] * 2 ** min(max(0, in_a_row - 1), 16), BACKOFF[1]))
                try:
                    await self._spawn()
                    break
                except (LoadError, OSError) as error:
                    in_a_row += 1
                    server_log.error("model %s: cannot be loaded: %s", self.info.name, error)

    async def _hand_out(self, process: Process) -> None:
        """Pass messages to the jobs that wait for them, until the process ends."""
        while (message := await self._receive(process)) is not None:
            if "id" not in message:
                self._statistics = Statistics(**message["statistics"])
                continue
            if "piece" not in message:
                self._unfinished.discard(message["id"])
            if message.get("error", {}).get("reason") == "busy":
                message["error"] = self._busy(message["error"]["message"]).to_json()
            if (inbox := self._jobs.get(message["id"])) is not None:
                inbox.put_nowait(message)

    def _fail_all(self) -> None:
        """End all jobs; which of them ended the process is not known."""
        error = JobError("failed", "the model's process ended while it worked on this request; it is started again")
        self._unfinished.clear()
        self._statistics = replace(self._statistics, queue_tokens=0, waiting=0, active=0, rows=0, resident_bytes=0)
        for inbox in self._jobs.values():
            inbox.put_nowait({"error": error.to_json()})


async def _end(process: Process) -> int:
    """Wait until a process whose output has ended is gone, and return its exit code."""
    try:
        async with asyncio.timeout(LAST_WORDS):
            return await process.wait()
    except TimeoutError:
        process.kill()
        return await process.wait()


def _result(message: Table) -> Result:
    """The result in the last message of a job; raises JobError if it failed."""
    if "result" in message:
        found: Result = message["result"]
        return found
    if "error" in message:
        raise JobError.from_json(message["error"])
    raise JobError("unavailable", "the request was cancelled", retry_after=1.0)
