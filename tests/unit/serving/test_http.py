"""What every API uses: reading, checking, carrying out, streaming."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest
from pydantic import Field
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request

from tests.unit.serving.fake_backend import FakeBackend
from transduce.config import Config
from transduce.serving.body import read_fields
from transduce.serving.http import (
    Keys,
    RequestError,
    check_key,
    check_texts,
    client_of,
    parse,
    record_of,
    run_job,
    run_jobs,
    sse,
    stream_job,
)
from transduce.serving.job import JobError, TranslateJob
from transduce.serving.limits import Limits
from transduce.serving.service import Service

LIMITS = Limits(max_texts=3, max_characters=10, max_terms=4)
JOB = TranslateJob(texts=["ein Hund läuft"])


class Wire:
    """The two ends of a request: what the client sent, and whether it is still there."""

    def __init__(self, body: bytes = b"", query: bytes = b"", client: str = "192.0.2.7", **headers: str) -> None:
        self.gone = asyncio.Event()
        self._body: bytes | None = body
        scope: dict[str, Any] = {
            "type": "http",
            "method": "POST",
            "query_string": query,
            "client": (client, 1),
            "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
            "app": Starlette(),
        }
        self.request = Request(scope, self._receive)

    async def _receive(self) -> dict[str, Any]:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}


def fields(wire: Wire) -> dict[str, Any]:
    return asyncio.run(read_fields(wire.request, LIMITS))


def test_fields_come_as_json_as_a_form_or_in_the_query_string() -> None:
    assert fields(Wire(b'{"q": ["a", "b"]}', content_type="application/json; charset=UTF-8")) == {"q": ["a", "b"]}
    form = "application/x-www-form-urlencoded"
    assert fields(Wire(b"q=%C3%BC+b&source=de", content_type=form)) == {"q": "ü b", "source": "de"}
    assert fields(Wire(b"q=a&q=b&q=c&x=", content_type=form)) == {"q": ["a", "b", "c"], "x": ""}
    assert fields(Wire(query=b"q=a%26b&api_key=k")) == {"q": "a&b", "api_key": "k"}
    assert fields(Wire()) == {}


@pytest.mark.parametrize(
    ("wire", "status"),
    [
        (lambda: Wire(b"q=a", content_type="text/plain"), 415),
        (lambda: Wire(b"q=a"), 415),
        (lambda: Wire(b"{}", content_type="application/json; charset=latin-1"), 415),
        (lambda: Wire(b"q=%FF", content_type="application/x-www-form-urlencoded"), 400),
        (lambda: Wire(b"q=\xff", content_type="application/x-www-form-urlencoded"), 400),
        (lambda: Wire(b"&".join([b"q=a"] * 1000), content_type="application/x-www-form-urlencoded"), 400),
        (lambda: Wire(b'{"q": "a"}', b"q=b", content_type="application/json"), 422),
        (lambda: Wire(b"[]", content_type="application/json"), 422),
        (lambda: Wire(b'{"q": 1, "q": 2}', content_type="application/json"), 400),
        (lambda: Wire(b" " * (1 << 20) + b"{}", content_type="application/json"), 413),
    ],
)
def test_other_bodies_are_rejected(wire: Any, status: int) -> None:
    with pytest.raises(RequestError) as raised:
        fields(wire())
    assert raised.value.status == status


def test_work_is_counted_for_a_key_or_else_for_an_address() -> None:
    assert client_of(Wire().request) == "address:192.0.2.7"
    assert client_of(Wire(client="2001:db8::1").request) == client_of(Wire(client="2001:db8::ffff").request)
    assert client_of(Wire(client="2001:db8:1::1").request) != client_of(Wire(client="2001:db8:2::1").request)
    keyed = Wire().request
    keyed.app.state.keys = Keys(["secret"])
    assert check_key(keyed, "secret")
    assert client_of(keyed).startswith("key:")
    assert "secret" not in client_of(keyed)


def test_a_key_is_needed_only_where_the_server_has_one() -> None:
    request = Wire().request
    assert check_key(request, None)
    request.app.state.keys = Keys(["one", "two"])
    assert not check_key(request, None)
    assert not check_key(request, "on")
    assert not check_key(request, "one ")
    assert not check_key(request, "\udcff")
    assert check_key(request, "two")
    assert check_key(request, None), "it was accepted before"


def test_texts_are_counted() -> None:
    check_texts(["12345", "12345"], LIMITS, "text")
    for texts, status in (([], 422), (["a"] * 4, 422), (["123456", "12345"], 413)):
        with pytest.raises(RequestError) as raised:
            check_texts(texts, LIMITS, "text")
        assert (raised.value.status, raised.value.parameter) == (status, "text")


class Sizes(Config):
    count: int = Field(ge=1, le=5)
    words: list[str] = Field(default_factory=list)


@pytest.mark.parametrize(
    ("table", "parameter", "words"),
    [
        ({"count": 6}, "count", "at most 5"),
        ({"count": True}, "count", "integer"),
        ({"count": "2"}, "count", "integer"),
        ({}, "count", "required"),
        ({"count": 1, "cuont": 1}, "cuont", "did you mean 'count'"),
        ({"count": 1, "x" * 1_000_000: 1}, "x" * 80, "unknown parameter"),
        ({"count": 1, "words": ["a", 2]}, "words", "string"),
        ({"count": 1, "words": [2] * 100_000}, "words", "at most 4"),
        ({"count": 1, "words": {"a": [1] * 5}}, "words", "at most 4"),
    ],
)
def test_an_invalid_parameter_is_named(table: dict[str, Any], parameter: str, words: str) -> None:
    with pytest.raises(RequestError, match=words) as raised:
        parse(Sizes, table, LIMITS)
    assert (raised.value.status, raised.value.parameter) == (422, parameter)
    assert len(str(raised.value)) < 300


def test_a_client_that_disconnects_cancels_its_job() -> None:
    async def scenario() -> None:
        wire, backend = Wire(), FakeBackend()
        backend.gate = asyncio.Event()
        task = asyncio.create_task(run_job(wire.request, Service([backend], LIMITS), backend, JOB))
        while not backend.running:
            await asyncio.sleep(0)
        wire.gone.set()
        with pytest.raises(ClientDisconnect):
            await task
        assert (backend.running, backend.cancelled) == (0, 1)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(scenario())


def test_a_finished_job_leaves_no_task_and_its_tokens_are_counted() -> None:
    async def scenario() -> None:
        wire, backend = Wire(), FakeBackend()
        await run_job(wire.request, Service([backend], LIMITS), backend, JOB)
        record = record_of(wire.request)
        assert (record.model, record.input_tokens, record.output_tokens) == ("de-en", 3, 3)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(scenario())


def test_jobs_of_one_request_run_at_the_same_time() -> None:
    async def scenario() -> None:
        wire, backend = Wire(), FakeBackend()
        backend.gate = asyncio.Event()
        task = asyncio.create_task(run_jobs(wire.request, Service([backend], LIMITS), [(backend, JOB)] * 2))
        async with asyncio.timeout(5):
            while backend.running < 2:
                await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
        backend.gate.set()
        assert [one["source_tokens"] for one in await task] == [3, 3]
        record = record_of(wire.request)
        assert (record.input_tokens, record.output_tokens) == (6, 6)
        assert record.job_seconds >= 0.05
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(scenario())


def test_the_first_error_of_several_jobs_is_raised_and_cancels_the_others() -> None:
    async def scenario() -> None:
        waiting, full = FakeBackend(), FakeBackend()
        waiting.gate, full.error = asyncio.Event(), JobError("busy", "the queue is full", 2.0)
        service = Service([waiting, full], LIMITS)
        with pytest.raises(JobError) as raised:
            await run_jobs(Wire().request, service, [(waiting, JOB), (full, JOB)])
        assert (raised.value.status, raised.value.retry_after) == (429, 2.0)
        assert (waiting.running, waiting.cancelled) == (0, 1)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(scenario())


def test_no_job_begins_without_the_key_even_if_a_route_forgets_to_check() -> None:
    async def scenario() -> None:
        wire, backend = Wire(), FakeBackend()
        wire.request.app.state.keys = Keys(["secret"])
        for begin in (run_job, stream_job):
            with pytest.raises(RequestError):
                await begin(wire.request, Service([backend], LIMITS), backend, JOB)
        assert backend.jobs == []

    asyncio.run(scenario())


def test_a_stream_that_cannot_start_raises_before_anything_is_sent() -> None:
    async def scenario() -> None:
        backend = FakeBackend()
        backend.error = JobError("busy", "the queue is full", 2.0)
        with pytest.raises(JobError, match="queue"):
            await stream_job(Wire().request, Service([backend], LIMITS), backend, JOB)
        assert backend.running == 0

    asyncio.run(scenario())


def test_closing_a_stream_cancels_its_job() -> None:
    async def scenario() -> None:
        backend = FakeBackend()
        pieces = await stream_job(Wire().request, Service([backend], LIMITS), backend, JOB)
        assert await anext(pieces) == "EIN"
        assert backend.running == 1
        await pieces.aclose()
        assert (backend.running, backend.cancelled) == (0, 1)

    asyncio.run(scenario())


class Source:
    """A source of events that says when it was closed."""

    def __init__(self) -> None:
        self.closed = False

    async def events(self) -> AsyncGenerator[str, None]:
        try:
            yield "one"
            yield "two\nlines"
            await asyncio.Event().wait()
        finally:
            self.closed = True


def test_events_are_data_lines_and_their_source_is_closed_when_the_client_goes_away() -> None:
    async def scenario() -> None:
        source, sent, wire = Source(), [], Wire()

        async def send(message: dict[str, Any]) -> None:
            sent.append(message.get("body", b""))
            if b"two" in sent[-1]:
                wire.gone.set()

        response = sse(source.events())
        await response({"type": "http", "asgi": {"spec_version": "2.3"}}, wire._receive, send)
        assert b"".join(sent) == b"data: one\n\ndata: two\ndata: lines\n\n"
        assert source.closed

    asyncio.run(scenario())


def test_a_source_is_closed_even_if_no_event_could_be_sent() -> None:
    async def scenario() -> None:
        closed = []

        class Unstarted(AsyncIterator[str]):
            async def __anext__(self) -> str:
                raise AssertionError

            async def aclose(self) -> None:
                closed.append(True)

        async def send(message: dict[str, Any]) -> None:
            raise OSError("broken pipe")

        with pytest.raises(OSError, match="broken"):
            await sse(Unstarted())({"type": "http", "asgi": {"spec_version": "2.3"}}, Wire()._receive, send)
        assert closed

    asyncio.run(scenario())
