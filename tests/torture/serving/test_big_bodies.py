"""R21: of a body that is too large, no more than the limit is read, however its size is stated."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import socket
import time

import pytest

from tests.torture.example import Tally, sizes
from tests.torture.serving.target import Answer, Client, Target, read_answer, unread

LIMIT = 1 << 20
READ_AT_MOST = LIMIT + (1 << 16)
FRAMING = 1 << 10
"""What the sizes of chunks take besides."""
PIECE = b" " * (1 << 16)
PATHS = ("/v1/translate", "/v1/completions", "/v2/translate", "/translate", "/detect", "/health")


def flood(target: Target, path: str, size: int, chunked: bool) -> tuple[int, Answer | None]:
    """Send a body of this size for as long as the server takes it; return how many bytes it has read, and its answer.

    The bytes that are still in the system's buffers are not counted.
    """
    framing = ("Transfer-Encoding", "chunked") if chunked else ("Content-Length", str(size))
    head = target.request("POST", path, headers=[("Content-Type", "application/json"), framing])
    piece = b"%x\r\n%s\r\n" % (len(PIECE), PIECE) if chunked else PIECE
    sent = most = 0
    with target.connect(timeout=0.1) as connection:
        connection.sendall(head)
        end = time.monotonic() + 2.0
        while sent < size and time.monotonic() < end:
            try:
                sent += connection.send(piece[sent % len(piece) :])
            except TimeoutError:
                most = max(most, sent - unread(target, connection))
                if answered(connection):
                    break
            except ConnectionError:
                break
        else:
            most = max(most, sent - unread(target, connection))
        connection.settimeout(5.0)
        with contextlib.suppress(ConnectionError, http.client.HTTPException, TimeoutError):
            return most, read_answer(connection, "POST")
    return most, None


def answered(connection: socket.socket) -> bool:
    """Whether something has come back."""
    try:
        return bool(connection.recv(1, socket.MSG_PEEK))
    except TimeoutError:
        return False


@pytest.mark.parametrize("chunked", [False, True], ids=["declared", "chunked"])
@sizes(1, len(PATHS))
def test_a_stream_of_a_gibibyte_is_cut_off(size: int, chunked: bool, target: Target, tally: Tally) -> None:
    before, most = target.resident(), 0
    for path in PATHS[:size]:
        read, answer = flood(target, path, 1 << 30, chunked)
        assert read <= READ_AT_MOST + FRAMING * chunked, (path, read)
        assert answer is not None, path
        assert answer.status == 413 or (path == "/health" and answer.status in (200, 405)), (path, answer)
        most = max(most, read)
    growth = target.resident() - before
    assert growth < 8 << 20
    note = f", at most {most:,} bytes read, memory +{growth / 1e6:.1f} MB"
    tally(f"bodies of 1 GiB cut off, {'chunked' if chunked else 'declared'}", size, note)


@pytest.mark.parametrize("chunked", [False, True], ids=["declared", "chunked"])
def test_the_limit_is_exact(chunked: bool, target: Target) -> None:
    """1 MiB is read and found wanting, one byte more is not."""
    body = b'{"text": "a"}'
    with Client(target) as client:
        for size, status in ((LIMIT, 200), (LIMIT + 1, 413)):
            padded = body + b" " * (size - len(body))
            if not chunked:
                answer = client.send("POST", "/v1/translate", padded)
            else:
                pieces = [padded[start : start + 60_000] for start in range(0, size, 60_000)]
                data = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
                headers = [("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")]
                answer = client.send_raw(target.request("POST", "/v1/translate", headers=headers) + data)
            assert answer.status == status, (size, answer)


def test_compressed_bodies_are_not_unpacked(target: Target) -> None:
    bomb = gzip.compress(b'{"text": "' + b"a" * (20 << 20) + b'"}')
    assert len(bomb) < LIMIT
    before = target.resident()
    with Client(target) as client:
        for encoding in (
            "gzip",
            "GZIP",
            "deflate",
            "br",
            "zstd",
            "x-gzip",
            "identity, gzip",
            "gzip, identity",
            "aes128gcm",
        ):
            for path in PATHS[:-1]:
                answer = client.send("POST", path, bomb, [("Content-Encoding", encoding)])
                assert answer.status == 415, (encoding, path, answer)
        assert client.send("POST", "/v1/translate", bomb).status == 400, "without the header it is no JSON"
    assert target.resident() - before < 8 << 20


def test_a_declared_length_alone_is_rejected_before_the_body(target: Target) -> None:
    for length in (LIMIT + 1, 1 << 30, 1 << 62, 10**40):
        with target.connect() as connection:
            connection.sendall(target.request("POST", "/v1/translate", headers=[("Content-Length", str(length))]))
            assert read_answer(connection, "POST").status in (400, 413), "the body never comes"
