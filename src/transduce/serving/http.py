"""What every HTTP API of the server uses: reading requests, checking them, carrying out jobs, answering with streams.

A route's function is `async def name(request: Request) -> Response`. It raises RequestError or JobError; the app turns
these into the error body of the route's API. All checks happen before a job is made.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

import anyio
import pydantic
from starlette.requests import ClientDisconnect, Request
from starlette.responses import StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from transduce.config import Config, Table
from transduce.errors import TransduceError, brief, suggestion
from transduce.serving.backend import Backend
from transduce.serving.job import Job, Result
from transduce.serving.limits import Limits
from transduce.serving.service import Service

ConfigT = TypeVar("ConfigT", bound=Config)
T = TypeVar("T")


@dataclass(frozen=True)
class Operation:
    """How a path is described in the OpenAPI document, besides its function's docstring."""

    request: type[pydantic.BaseModel] | None = None
    """The JSON body of a POST request, or the query of a GET request."""
    response: type[pydantic.BaseModel] | None = None
    """The JSON body of the answer."""
    forms: bool = False
    """Whether the fields may also come form-encoded or in the query string."""
    stream: bool = False
    """Whether the answer may also be a stream of server-sent events."""
    example: Table | None = None
    """A request for the documentation."""
    media_type: str = "application/json"
    """Of the answer."""
    other_types: tuple[str, ...] = ()
    """Further types that the answer may have."""


@dataclass(frozen=True)
class Api:
    """One HTTP API: its routes and the form of its errors."""

    name: str
    routes: Callable[[Service], list[Route]]
    error_body: Callable[[int, str, str | None], Table]
    """(status, message, parameter) -> JSON body."""
    unauthorized: int = 401
    """Status for a missing or wrong key."""
    invalid: int = 422
    """Status for an invalid parameter."""
    key_in_body: bool = False
    """Whether the routes check the key themselves, by `check_key`."""
    operations: Mapping[str, Operation] = field(default_factory=dict)
    """Descriptions of the routes, by path."""


class RequestError(TransduceError):
    """A request that is rejected: status, message for the client, offending parameter."""

    def __init__(
        self, status: int, message: str, parameter: str | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.parameter = parameter
        self.retry_after = retry_after


class Keys:
    """The keys that a server accepts. Only digests are kept, and compared in constant time."""

    def __init__(self, keys: Sequence[str] = ()) -> None:
        self._digests = [hashlib.sha256(key.encode()).digest() for key in keys]

    @property
    def required(self) -> bool:
        """Whether the server has keys at all."""
        return bool(self._digests)

    def accept(self, candidate: bytes) -> bool:
        """Whether this is one of the keys; every key is compared, whichever matches."""
        digest = hashlib.sha256(candidate).digest()
        return sum(hmac.compare_digest(digest, known) for known in self._digests) > 0


@dataclass
class Record:
    """What the access log and the metrics say about a request: no text, no key."""

    id: str = ""
    started: float = field(default_factory=time.perf_counter)
    route: str = ""
    """The route's path template; empty for an unknown path."""
    model: str | None = None
    client: str | None = None
    """Whom the work is counted for, where a key was accepted."""
    input_tokens: int = 0
    output_tokens: int = 0
    first_token: float | None = None
    """Seconds from the request to the first piece of a stream."""
    job_seconds: float = 0.0
    authorized: bool = False


def record_of(request: Request) -> Record:
    """Return the record of a request; the app has put it there."""
    found = request.scope.setdefault("state", {}).setdefault("record", Record())
    assert isinstance(found, Record)
    return found


def client_of(request: Request) -> str:
    """Return whom work is counted for: "key:…" (a hash) or "address:…".

    Addresses of one IPv6 network of 64 bits count as one: a single machine has them all.
    """
    known = record_of(request).client
    if known is not None:
        return known
    return _client_at(request.client.host if request.client else "unknown")


@lru_cache(maxsize=4096)
def _client_at(host: str) -> str:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return f"address:{host}"
    if address.version == 6 and address.ipv4_mapped is None:
        return f"address:{ipaddress.IPv6Network((address, 64), strict=False)}"
    return f"address:{host}"


def check_key(request: Request, candidate: str | None) -> bool:
    """Return whether a request may be served: the server has no key, its header had one, or the candidate is one.

    The candidate is a key from the body or the query of an API with `key_in_body`.
    """
    record = record_of(request)
    keys: Keys = getattr(request.app.state, "keys", Keys())
    if not keys.required or record.authorized:
        return True
    if candidate is None:
        return False
    data = candidate.encode("utf-8", errors="surrogatepass")
    if not keys.accept(data):
        return False
    authorize(record, data)
    return True


def authorize(record: Record, key: bytes) -> None:
    """Note that a request came with an accepted key; its work is counted for that key."""
    record.authorized = True
    record.client = f"key:{hashlib.sha256(b'client:' + key).hexdigest()[:16]}"


def check_texts(texts: Sequence[str], limits: Limits, parameter: str) -> None:
    """Check the number of texts and of their characters; raises RequestError (413 or 422)."""
    if not texts:
        raise RequestError(422, f"{parameter} is empty; give at least one text", parameter)
    if len(texts) > limits.max_texts:
        raise RequestError(
            422, f"{parameter} has {len(texts):,} texts; at most {limits.max_texts:,} are allowed", parameter
        )
    characters = sum(map(len, texts))
    if characters > limits.max_characters:
        raise RequestError(
            413, f"{parameter} has {characters:,} characters; at most {limits.max_characters:,} are allowed", parameter
        )


def parse(config: type[ConfigT], table: Table, limits: Limits, entries: int | None = None) -> ConfigT:
    """Validate parameters; raises RequestError (422) with the parameter's name. Unknown parameters are rejected.

    Validators of the config find the limits in their context (`info.context`). `entries` is what a list may have,
    where that is more than texts or terms.
    """
    known = {name for field_name, info in config.model_fields.items() for name in (info.alias or field_name,)}
    unknown = next((name for name in table if name not in known), None)
    if unknown is not None:
        name = brief(unknown)
        raise RequestError(422, f"unknown parameter {name}{suggestion(unknown[:80], known)}", unknown[:80])
    for name, value in table.items():
        _check_size(name, value, entries or max(limits.max_texts, limits.max_terms))
    try:
        return config.model_validate(table, context=limits)
    except pydantic.ValidationError as error:
        raise _invalid(error) from None


async def run_job(request: Request, service: Service, backend: Backend, job: Job) -> Result:
    """Carry out a job; a client that disconnects cancels it (ClientDisconnect). Raises JobError."""
    return (await run_jobs(request, service, [(backend, job)]))[0]


async def run_jobs(request: Request, service: Service, jobs: Sequence[tuple[Backend, Job]]) -> list[Result]:
    """Carry out jobs as `run_job`, at the same time: they share one timeout, and the first error cancels the others."""
    record = record_of(request)
    for backend, _ in jobs:
        _begin(request, backend)
    started = time.perf_counter()
    results = await _unless_disconnected(request, _run_all(service, jobs, client_of(request)))
    record.job_seconds = time.perf_counter() - started
    for result in results:
        _count_tokens(record, result)
    return results


async def stream_job(
    request: Request, service: Service, backend: Backend, job: Job
) -> AsyncGenerator[str | Result, None]:
    """Start a job and return its pieces and then its result: `pieces = await stream_job(…)`.

    This waits for the first piece, so that a job that cannot start is an error with its status (JobError), not a broken
    stream. Closing the pieces cancels the job; `sse` closes its source when the client disconnects.
    """
    record = _begin(request, backend)
    pieces = aiter(service.stream(backend, job, client_of(request)))
    try:
        first = await _unless_disconnected(request, anext(pieces))
    except BaseException:
        await close(pieces)
        raise
    record.first_token = time.perf_counter() - record.started

    async def rest() -> AsyncGenerator[str | Result, None]:
        started = time.perf_counter()
        try:
            piece = first
            while True:
                if isinstance(piece, dict):
                    record.job_seconds = time.perf_counter() - started
                    _count_tokens(record, piece)
                yield piece
                try:
                    piece = await anext(pieces)
                except StopAsyncIteration:
                    return
        finally:
            await close(pieces)

    return rest()


async def close(pieces: AsyncIterator[Any]) -> None:
    """Close an iterator that can be closed, even while the task is being cancelled."""
    aclose = getattr(pieces, "aclose", None)
    if aclose is not None:
        with anyio.CancelScope(shield=True):
            await aclose()


class EventStream(StreamingResponse):
    """Server-sent events; closes its source whatever happens to the connection."""

    media_type = "text/event-stream"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            assert isinstance(self.body_iterator, AsyncIterator)
            await close(self.body_iterator)


def sse(events: AsyncIterator[str]) -> StreamingResponse:
    """Return server-sent events, a `data: …` for each string; closes the source when the client disconnects."""

    async def lines() -> AsyncGenerator[str, None]:
        try:
            async for event in events:
                yield "".join(f"data: {line}\n" for line in event.split("\n")) + "\n"
        finally:
            await close(events)

    return EventStream(_Closing(lines(), events))


class _Closing:
    """An iterator together with its source: a generator that was never started does not close its source itself."""

    def __init__(self, lines: AsyncGenerator[str, None], source: AsyncIterator[str]) -> None:
        self._lines, self._source = lines, source

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        return await anext(self._lines)

    async def aclose(self) -> None:
        await self._lines.aclose()
        await close(self._source)


def _begin(request: Request, backend: Backend) -> Record:
    """Note the model in the request's record. No job begins without a key: this also holds if a route forgets it."""
    record = record_of(request)
    record.model = backend.info.name
    if not check_key(request, None):
        raise RequestError(401, "this server needs a key")
    return record


async def _unless_disconnected(request: Request, work: Awaitable[T]) -> T:
    """Await work; cancel it and raise ClientDisconnect if the client goes away first."""
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(_disconnect(request))
    try:
        await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        watch.cancel()
        task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait((task, watch))
        if task.done() and not task.cancelled():
            task.exception()  # it is known, or nobody waits for it any more


async def _run_all(service: Service, jobs: Sequence[tuple[Backend, Job]], client: str) -> list[Result]:
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(service.run(backend, job, client)) for backend, job in jobs]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


TOKEN_COUNTS = (("source_tokens", "target_tokens"), ("prompt_tokens", "written_tokens"), ("tokens", ""))
"""The names under which results count tokens read and written; job.py lists the results."""


def _count_tokens(record: Record, result: Result) -> None:
    for read, written in TOKEN_COUNTS:
        record.input_tokens += int(result.get(read, 0))
        record.output_tokens += int(result.get(written, 0))


def _check_size(name: str, value: Any, most: int) -> None:
    """Reject long lists and objects before each of their entries is validated."""
    if not isinstance(value, list | dict):
        return
    if len(value) > most:
        raise RequestError(422, f"{name} has {len(value):,} entries; at most {most:,} are allowed", name)
    for inner in value if isinstance(value, list) else value.values():
        _check_size(name, inner, most)


PLAIN_WORDS = (
    ("Input should be", "it must be"),
    ("greater than or equal to", "at least"),
    ("less than or equal to", "at most"),
    ("a valid ", "a "),
    ("a integer", "an integer"),
)
"""Words of pydantic and ours."""


def _invalid(error: pydantic.ValidationError) -> RequestError:
    """Turn the first of pydantic's errors into one sentence that names the parameter."""
    first = error.errors(include_url=False)[0]
    name = str(first["loc"][0])[:80] if first["loc"] else None
    if first["type"] == "extra_forbidden":
        inner = brief(".".join(map(str, first["loc"]))[:80])
        return RequestError(422, f"unknown parameter {inner}", name)
    if first["type"] == "missing":
        return RequestError(422, f"the parameter '{name}' is required", name)
    reason = str(first["msg"]).removeprefix("Value error, ")
    if first["type"] == "value_error":
        return RequestError(422, reason, name)
    for theirs, ours in PLAIN_WORDS:
        reason = reason.replace(theirs, ours)
    reason = reason[:1].lower() + reason[1:]
    return RequestError(422, f"{name} = {brief(first['input'])} is invalid: {reason}", name)
