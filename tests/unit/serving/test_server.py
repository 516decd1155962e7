"""The server on real sockets: slow clients, too many of them, clients that go away, and stopping."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

from tests.unit.serving.front import BEARER, KEY, Front, connect, raw_request, read_all, running, wait_until
from transduce.errors import Busy, CannotCreate
from transduce.serving.connection import Timeouts
from transduce.serving.limits import Limits
from transduce.serving.server import Server, bind

SHORT = Timeouts(header=0.3, body=0.3, write=0.3, idle=0.5, shutdown=3.0)
ROOT = Path(__file__).resolve().parents[3]
CLIENT = httpx2.Client(verify=False, limits=httpx2.Limits(max_keepalive_connections=0))
"""Opens a connection for each request."""
TEXT = json.dumps({"text": "ein Hund"}).encode()


def url(server: Server, path: str = "/v1/translate") -> str:
    return f"http://127.0.0.1:{server.port}{path}"


def test_requests_of_one_connection_are_answered_one_after_the_other() -> None:
    with running(Front().app) as server, connect(server) as connection:
        connection.sendall(raw_request(TEXT) + raw_request(method="GET", path="/health", connection="close"))
        answers = read_all(connection)
        assert answers.count(b"HTTP/1.1 200 OK") == 2
        assert b"EIN HUND" in answers
        assert b"server:" not in answers.lower()


def test_an_answer_in_two_writes_does_not_wait_for_an_acknowledgement() -> None:
    with running(Front().app) as server, connect(server) as connection:
        connection.sendall(raw_request(TEXT))
        assert b"200 OK" in connection.recv(4096)
        (accepted,) = server.server_state.connections
        used = accepted.transport.get_extra_info("socket")
        assert used.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


DRIPS = {
    "nothing": (b"", b""),
    "header lines": (b"GET /health HTTP/1.1\r\n", b"X-Slow: 1\r\n"),
    "a header value": (b"GET /health HTTP/1.1\r\nHost: localhost", b"x"),
    "a body": (raw_request(b" " * 1000)[:-1000], b" "),
    "chunks": (raw_request(transfer_encoding="chunked").replace(b"Content-Length: 0\r\n", b""), b"1\r\n \r\n"),
}
"""The beginning of a request and what then comes again and again."""


def seconds_until_closed(connection: socket.socket, begin: bytes, drip: bytes) -> float:
    started = time.monotonic()
    connection.sendall(begin)
    connection.settimeout(0.05)
    with connection, contextlib.suppress(ConnectionError):
        while time.monotonic() - started < 5:
            try:
                if not connection.recv(1 << 16):
                    break
            except TimeoutError:
                connection.sendall(drip)
    return time.monotonic() - started


def test_a_request_that_arrives_byte_by_byte_is_cut_off() -> None:
    front = Front()
    with running(front.app, SHORT) as server, ThreadPoolExecutor(len(DRIPS)) as pool:
        clients = {name: pool.submit(seconds_until_closed, connect(server), *drip) for name, drip in DRIPS.items()}
        for name, client in clients.items():
            assert 0.25 < client.result() < 1.5, name
        wait_until(lambda: not server.server_state.tasks)
        with connect(server) as waiting:
            assert read_all(waiting).startswith(b"HTTP/1.1 408"), "a client that waits is told why"


def test_an_idle_connection_is_closed() -> None:
    with running(Front().app, SHORT) as server, connect(server) as connection:
        connection.sendall(raw_request(method="GET", path="/health"))
        started = time.monotonic()
        assert read_all(connection).startswith(b"HTTP/1.1 200")
        assert 0.3 < time.monotonic() - started < 2


def test_a_client_that_does_not_read_its_answer_is_cut_off() -> None:
    front = Front(limits=Limits(max_body_bytes=8 << 20, max_characters=8 << 20))
    with running(front.app, SHORT) as server:
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", server.port))
        connection.settimeout(10)
        connection.sendall(raw_request(json.dumps({"text": "a" * (7 << 20)}).encode()))
        wait_until(lambda: front.translator.jobs)
        wait_until(lambda: not server.server_state.connections, 3)
        assert len(read_all(connection)) < 7 << 20
        connection.close()
        assert CLIENT.get(url(server, "/health")).status_code == 200


def test_unread_answers_are_bounded_and_the_slowest_reader_goes_first() -> None:
    limits = Limits(max_body_bytes=8 << 20, max_characters=8 << 20, max_unread_bytes=20 << 20)
    front = Front(limits=limits)
    body = raw_request(
        json.dumps({"text": "a" * (2 << 20), "beam_size": 8, "n_best": 8}).encode()
    )  # 16 MiB, of which the system holds up to 4
    with running(front.app, limits=limits) as server, contextlib.ExitStack() as stack:
        readers = []
        for number in range(2):
            connection = stack.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", server.port))
            connection.settimeout(10)
            connection.sendall(body)
            wait_until(lambda number=number: len(front.translator.jobs) > number)
            readers.append(connection)
        wait_until(lambda: len(server.server_state.connections) == 1, 3)
        assert len(read_all(readers[0])) < 8 << 20, "the first one was disconnected"
        assert len(readers[1].recv(100)) == 100
        assert CLIENT.get(url(server, "/health")).status_code == 200


def test_slow_clients_do_not_slow_the_others() -> None:
    with running(Front().app, Timeouts(header=2, body=2, write=2, idle=2)) as server:
        slow = [connect(server) for _ in range(50)]
        for place, connection in enumerate(slow):
            connection.sendall(raw_request(b" " * 100)[: 20 + 2 * place])
        started = time.monotonic()
        for _ in range(20):
            assert CLIENT.post(url(server), json={"text": "a"}).status_code == 200
        assert time.monotonic() - started < 2
        for connection in slow:
            connection.close()


def test_too_many_connections_are_told_to_try_again_later() -> None:
    limits = Limits(max_connections=4)
    front = Front(limits=limits)
    with running(front.app, limits=limits) as server:
        held = [connect(server) for _ in range(4)]
        wait_until(lambda: len(server.server_state.connections) == 4)
        started = time.monotonic()
        response = CLIENT.post(url(server), json={"text": "a"})
        assert time.monotonic() - started < 1
        assert (response.status_code, response.headers["Retry-After"]) == (503, "1")
        assert response.headers["Connection"] == "close"
        assert front.translator.jobs == []
        for connection in held:
            connection.close()
        wait_until(lambda: not server.server_state.connections)
        assert CLIENT.post(url(server), json={"text": "a"}).status_code == 200


def test_connections_without_a_request_make_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The quietest goes first, whether it has sent nothing, half a header, or a request long ago; none that works."""
    monkeypatch.setattr("transduce.serving.connection.LONG_QUIET", 0.5)
    limits = Limits(max_connections=4)
    front = Front(limits=limits)
    with running(front.app, limits=limits) as server, contextlib.ExitStack() as stack:
        working, idle, dripping, silent = (stack.enter_context(connect(server)) for _ in range(4))
        front.translator.delay = 3.0
        working.sendall(raw_request(TEXT))
        idle.sendall(raw_request(method="GET", path="/health"))
        assert b"200 OK" in idle.recv(4096)
        dripping.sendall(b"GET /health HTTP/1.1\r\n")
        wait_until(lambda: len(server.server_state.connections) == 4)
        time.sleep(0.7)
        for _ in range(3):
            other = stack.enter_context(connect(server))
            other.sendall(raw_request(method="GET", path="/health"))
            assert b"200 OK" in other.recv(4096)
        for quiet in (idle, dripping, silent):
            assert b"HTTP" not in read_all(quiet), "it is closed without another answer"
        answer = b""
        while b"EIN HUND" not in answer:  # head and body may arrive apart or together
            answer += working.recv(4096)


def test_connections_far_above_the_maximum_are_closed_at_once() -> None:
    limits = Limits(max_connections=4)
    with running(Front(limits=limits).app, limits=limits) as server:
        held = [connect(server) for _ in range(6)]
        wait_until(lambda: len(server.server_state.connections) == 6)
        with connect(server) as another:
            assert read_all(another) == b""
        for connection in held:
            connection.close()


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "chunked"])
def test_a_large_body_is_answered_but_not_read(declared: bool) -> None:
    """The client gets its 413 although it is still sending, and cannot send on."""
    with running(Front().app) as server, connect(server) as connection:
        if declared:
            connection.sendall(raw_request(content_length=str(1 << 30)))
        else:
            connection.sendall(raw_request(transfer_encoding="chunked").replace(b"Content-Length: 0\r\n", b""))
        chunk = b" " * 65536
        data = chunk if declared else b"10000\r\n" + chunk + b"\r\n"
        sent = 0
        connection.settimeout(0.3)
        try:
            while sent < 1 << 26:
                connection.sendall(data)
                sent += len(data)
        except (TimeoutError, ConnectionError):
            pass
        assert sent < 1 << 25, "no more than the buffers of the system hold"


def test_large_bodies_that_arrive_slowly_do_not_fill_the_memory() -> None:
    """Three of 300 KB would exceed the limit of all; small ones are served meanwhile, and large ones afterwards."""
    limits = Limits(max_large_bodies_bytes=700_000)
    front = Front(limits=limits)
    with running(front.app) as server, contextlib.ExitStack() as stack:
        slow = [stack.enter_context(connect(server)) for _ in range(3)]
        for connection in slow:
            connection.sendall(raw_request(TEXT + b" " * 300_000)[:-1])
        wait_until(lambda: front.app.state.large_bodies.held > 550_000)
        answers = []
        for connection in slow:
            connection.settimeout(0.5)
            with contextlib.suppress(TimeoutError):
                answers.append(connection.recv(4096))
        assert len(answers) == 1
        assert answers[0].startswith(b"HTTP/1.1 503")
        assert CLIENT.post(url(server), json={"text": "a"}).status_code == 200
        for connection in slow:
            connection.close()
        wait_until(lambda: front.app.state.large_bodies.held == 0)
        padded = TEXT + b" " * 600_000
        response = CLIENT.post(url(server), content=padded, headers={"Content-Type": "application/json"})
        assert response.status_code == 200


def test_a_client_that_sends_too_much_sees_why() -> None:
    with running(Front().app) as server:
        assert CLIENT.post(url(server), content=b" " * (3 << 20)).status_code == 413

        def chunks() -> object:
            for _ in range(64):
                yield b" " * 65536

        response = CLIENT.post(url(server), content=chunks(), headers={"Content-Type": "application/json"})
        assert response.status_code == 413


def test_a_rejected_request_leaves_its_connection_usable() -> None:
    with running(Front(keys=(KEY,)).app) as server, httpx2.Client(verify=False) as client:
        for _ in range(3):
            assert client.post(url(server), json={"text": "a"}).status_code == 401
        assert client.post(url(server), json={"text": "a"}, headers=BEARER).status_code == 200
        assert len(server.server_state.connections) == 1


JUNK = [
    b"\x00\x01\x02\x03\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 500,
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET /health HTTP/1.1\r\n\r\n",
    b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
    b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"".join(b"x%d: 1\r\n" % n for n in range(10_000)) + b"\r\n",
    b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 100_000,
    b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
    b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"GET " + b"/a" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /%ff%fe%00 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    b"GET http://evil.com/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    b"CONNECT evil.com:443 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close, upgrade\r\nUpgrade: websocket\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
]


def test_junk_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    with running(Front().app, SHORT) as server:
        connections = [connect(server) for _ in JUNK]
        for connection, junk in zip(connections, JUNK, strict=True):
            connection.sendall(junk)
        for connection, junk in zip(connections, JUNK, strict=True):
            assert read_all(connection)[:10] != b"HTTP/1.1 5", junk[:80]
            connection.close()
        assert CLIENT.get(url(server, "/health")).status_code == 200
    assert caplog.text == ""


def test_a_client_that_goes_away_cancels_its_job_in_the_queue_and_in_a_stream() -> None:
    front = Front()
    with running(front.app) as server:
        front.translator.gate = asyncio.Event()
        for body in (TEXT, json.dumps({"text": "ein Hund", "stream": True}).encode()):
            with connect(server) as connection:
                connection.sendall(raw_request(body))
                wait_until(lambda: front.translator.running == 1)
            wait_until(lambda: front.translator.running == 0)
        assert front.translator.cancelled == 2
        front.translator.gate = None
        front.translator.delay = 0.05
        with connect(server) as connection:
            connection.sendall(raw_request(json.dumps({"text": "a " * 1000, "stream": True}).encode()))
            answer = b""
            while b"data: " not in answer:
                answer += connection.recv(4096)
        wait_until(lambda: front.translator.running == 0)


def test_a_stream_arrives_piece_by_piece() -> None:
    front = Front()
    front.translator.delay = 0.1
    with running(front.app) as server, CLIENT.stream("POST", url(server), json={"text": "a b", "stream": True}) as got:
        arrived = [(time.monotonic(), line) for line in got.iter_lines() if line]
    assert [json.loads(line.removeprefix("data: ")).get("text") for _, line in arrived] == ["A", " B", None]
    assert arrived[-1][0] - arrived[0][0] > 0.1
    assert got.headers["Content-Type"].startswith("text/event-stream")


def test_stopping_finishes_what_runs_and_takes_nothing_new() -> None:
    front = Front()
    front.translator.delay = 0.6
    answers: list[httpx2.Response] = []
    with running(front.app) as server:
        address = url(server)
        waiting = threading.Thread(target=lambda: answers.append(CLIENT.post(address, json={"text": "a"})))
        waiting.start()
        wait_until(lambda: front.translator.running)
        server.stop()
        time.sleep(0.1)
        with pytest.raises(httpx2.ConnectError):
            CLIENT.get(url(server, "/health"))
        assert front.translator.running == 1
        waiting.join()
    assert answers[0].json()["translations"][0]["text"] == "A"


def test_stopping_waits_only_so_long() -> None:
    front = Front()
    answers: list[httpx2.Response] = []
    with running(front.app, Timeouts(shutdown=0.3)) as server:
        front.translator.gate = asyncio.Event()
        address = url(server)
        waiting = threading.Thread(target=lambda: answers.append(CLIENT.post(address, json={"text": "a"})))
        waiting.start()
        wait_until(lambda: front.translator.running)
        started = time.monotonic()
    assert time.monotonic() - started < 3
    waiting.join()
    assert answers[0].status_code == 503
    assert front.translator.running == 0


def test_a_stream_that_stopping_cuts_is_logged_as_503(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "transduce.access")
    front = Front()
    with running(front.app, Timeouts(shutdown=0.2)) as server, connect(server) as connection:
        front.translator.delay = 0.05
        connection.sendall(raw_request(json.dumps({"text": "a " * 400, "stream": True}).encode()))
        received = b""
        while b"data:" not in received:
            received += connection.recv(1 << 16)
        server.stop()
        received += read_all(connection)
    assert received.startswith(b"HTTP/1.1 200") and b"done" not in received
    lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == "transduce.access"]
    assert [line["status"] for line in lines] == [503]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM; another system removes this")
def test_a_signal_stops_the_server_in_order() -> None:
    script = """
import asyncio, threading
from tests.unit.serving.front import Front, wait_until
from transduce.serving.server import Server
front = Front()
front.translator.delay = 0.5
server = Server(front.app, port=0)
threading.Thread(target=wait_until, args=(lambda: server.started and not print(server.port, flush=True), 30)).start()
asyncio.run(server.serve())
print("stopped", front.translator.running, flush=True)
"""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    port = int(process.stdout.readline())
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.settimeout(10)
        connection.sendall(raw_request(TEXT))
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        assert b"EIN HUND" in read_all(connection)
    assert process.stdout.readline() == "stopped 0\n"
    assert process.wait(timeout=10) == 0
    process.stdout.close()


def test_a_port_in_use_and_an_unknown_host_are_errors() -> None:
    (taken,) = bind("127.0.0.1", 0)
    taken.listen()
    with pytest.raises(Busy, match="in use"):
        bind("127.0.0.1", taken.getsockname()[1])
    taken.close()
    with pytest.raises(CannotCreate, match="host"):
        bind("no-such-host.invalid", 0)


def test_addresses_of_clients_come_from_trusted_proxies_only() -> None:
    for trusted, expected in (((), "address:127.0.0.1"), (("127.0.0.1",), "address:192.0.2.9")):
        front = Front()
        server = Server(front.app, port=0, trusted_proxies=trusted)
        thread = threading.Thread(target=lambda server=server: asyncio.run(server.serve()))
        thread.start()
        wait_until(lambda server=server: server.started)
        CLIENT.post(url(server), json={"text": "a"}, headers={"X-Forwarded-For": "192.0.2.9"})
        server.stop()
        thread.join()
        assert front.translator.clients == [expected]


def test_answers_are_sent_without_waiting_for_more() -> None:
    sockets = bind("127.0.0.1", 0)
    assert [one.proto for one in sockets] == [socket.IPPROTO_TCP], "asyncio sets TCP_NODELAY on no others"
    for one in sockets:
        one.close()
