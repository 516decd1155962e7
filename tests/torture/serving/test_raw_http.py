"""R18: bytes that are not quite HTTP harm nobody, and no framing lets one request hide another."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re

import pytest

from tests.torture.example import Tally, sizes
from tests.torture.serving.mutations import Mutator
from tests.torture.serving.routes import BODIES
from tests.torture.serving.target import Client, Target

PROBE_EVERY = 100
PATIENCE = 0.3
"""Seconds that a client waits for more of an answer; most mutations that are cut make the server wait for the rest."""
STATUS_LINE = re.compile(rb"HTTP/1\.1 (\d\d\d) ")


async def exchange(target: Target, data: bytes) -> bytes:
    """Send bytes and read what comes, until the server closes the connection or sends nothing for a while."""
    reader, writer = await asyncio.open_connection(target.host, target.port)
    received = b""
    try:
        with contextlib.suppress(ConnectionError, TimeoutError):
            writer.write(data)
            while chunk := await asyncio.wait_for(reader.read(1 << 16), PATIENCE):
                received += chunk
    finally:
        writer.transport.abort()
    return received


async def exchange_all(target: Target, several: list[bytes]) -> list[bytes]:
    return await asyncio.gather(*(exchange(target, data) for data in several))


@sizes(300, 20_000)
def test_mutated_requests_harm_nobody(size: int, target: Target, tally: Tally) -> None:
    mutator = Mutator(target, seed=1)
    statuses: dict[bytes, int] = {}
    for _ in range(size // PROBE_EVERY):
        sent = [mutator.draw() for _ in range(PROBE_EVERY)]
        for data, received in zip(sent, asyncio.run(exchange_all(target, sent)), strict=True):
            found = STATUS_LINE.findall(received)
            assert not any(status.startswith(b"5") for status in found), (data[:2000], received[:2000])
            for status in found or [b"closed"]:
                statuses[status] = statuses.get(status, 0) + 1
        target.probe()
    assert {b"200", b"400", b"422"} <= statuses.keys(), "the mutations must reach the parser, the guard and the routes"
    counts = ", ".join(f"{status.decode()}: {number:,}" for status, number in sorted(statuses.items()))
    tally("mutated requests, a probe after every 100 is served", size, f", {counts}")


def test_nesting_of_any_depth_is_rejected(target: Target) -> None:
    with Client(target) as client:
        for depth, path in itertools.product((17, 100, 900, 1_100, 5_000, 100_000), BODIES):
            for value in ("[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth, "[" * depth):
                answer = client.send("POST", path, f'{{"x": {value}}}'.encode())
                assert answer.status == 400, (depth, path, answer)


HIDDEN = "GET /v1/models HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\n\r\n"
"""A request inside the body of another; a server that answers it reads bodies otherwise than a proxy before it."""
CHUNKED, ENDS = "Transfer-Encoding: chunked", "0\r\n\r\n"
SMUGGLED = {
    "length and chunked": (["Content-Length: {length}", CHUNKED], ENDS),
    "chunked and length": ([CHUNKED, "Content-Length: {length}"], ENDS),
    "length 0 and chunked": (["Content-Length: 0", CHUNKED], ENDS),
    "length of the first chunk": (["Content-Length: 4", CHUNKED], "{size:x}\r\n"),
    "two lengths": (["Content-Length: 0", "Content-Length: {length}"], ""),
    "two lengths, long first": (["Content-Length: {length}", "Content-Length: 0"], ""),
    "list of lengths": (["Content-Length: 0, {length}"], ""),
    "length with a sign": (["Content-Length: +0"], ""),
    "length in hexadecimal": (["Content-Length: 0x0"], ""),
    "length and a space": (["Content-Length : {length}"], ""),
    "folded length": (["Content-Length:\r\n {length}", "Content-Length: 0"], ""),
    "length after a bare LF": (["X: 1\nContent-Length: {length}", "Content-Length: 0"], ""),
    "chunked twice": (["Transfer-Encoding: chunked, chunked"], ENDS),
    "chunked in two headers": ([CHUNKED, CHUNKED], ENDS),
    "chunked and identity": (["Transfer-Encoding: chunked, identity"], ENDS),
    "unknown coding": (["Transfer-Encoding: xchunked"], ENDS),
    "identity and length": (["Transfer-Encoding: identity", "Content-Length: 0"], ""),
    "vertical tab": (["Transfer-Encoding: \x0bchunked", "Content-Length: 0"], ""),
    "space before the colon": (["Transfer-Encoding : chunked"], ENDS),
    "chunk size with a sign": ([CHUNKED], "+0\r\n\r\n"),
    "chunk size with 0x": ([CHUNKED], "0x0\r\n\r\n"),
    "chunk size with a space": ([CHUNKED], " 0\r\n\r\n"),
    "chunk size of 21 digits": ([CHUNKED], "000000000000000000000\r\n\r\n"),
    "chunk longer than its size": ([CHUNKED], "1\r\n{{}}\r\n0\r\n\r\n"),
    "bare LF in chunks": ([CHUNKED], "2\n{{}}\n0\n\n"),
    "bare LF in a chunk extension": ([CHUNKED], "2;\n{{}}\r\n0\r\n\r\n"),
}


@pytest.mark.parametrize("path", ["/v1/translate", "/health", "/v2/usage"])
def test_ambiguous_framing_ends_the_connection(path: str, target: Target) -> None:
    """A request whose length can be read in two ways gets one answer at most, and nothing after it is read."""
    host = f"{target.host}:{target.port}"
    hidden = HIDDEN.format(host=host, key=target.key)
    for name, (framing, begin) in SMUGGLED.items():
        sizes = {"length": len(begin) + len(hidden), "size": len(hidden)}
        headers = [f"Host: {host}", f"Authorization: Bearer {target.key}", "Content-Type: application/json"]
        lines = [f"POST {path} HTTP/1.1", *headers, *(one.format(**sizes) for one in framing)]
        data = "\r\n".join(lines) + "\r\n\r\n" + begin.format(**sizes) + hidden
        received = asyncio.run(exchange(target, data.encode("latin-1")))
        statuses = STATUS_LINE.findall(received)
        assert len(statuses) <= 1, (name, received)
        assert b'"owned_by"' not in received, name
        assert not statuses or statuses[0].startswith(b"4"), (name, received)


def test_a_request_after_another_is_answered(target: Target) -> None:
    """What the test above relies on: without an ambiguity, the second of two requests is answered."""
    data = target.request("POST", "/v1/translate", b"{}") + target.request("GET", "/v1/models")
    received = asyncio.run(exchange(target, data))
    assert STATUS_LINE.findall(received) == [b"422", b"200"]
    assert b'"owned_by"' in received


def test_a_mutation_is_the_same_for_the_same_seed(target: Target) -> None:
    assert [Mutator(target, 3).draw() for _ in range(5)] == [Mutator(target, 3).draw() for _ in range(5)]
