"""R27: SIGTERM under load takes no new work, finishes what runs, and cuts no answer; a killed server is soon back."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import socket
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.torture.example import Tally, sizes
from tests.torture.serving.target import Answer, Client, Target, read_answer, server_process

NO_NEW_WORK = 0.1
IN_FLIGHT = 30.0
READY_AGAIN = 10.0
CLIENTS = 16
BODIES = (
    {"text": "ein Hund läuft"},
    {"text": "ein Hund läuft", "stream": True},
    {"text": "ein Hund " * 2000},
    {"text": ["ein Hund"] * 50, "n_best": 8},
)
"""Short and long answers, and streams."""


@dataclass
class Load:
    """Clients that send one request after the other until they are turned away."""

    target: Target
    answers: list[tuple[float, float, dict[str, object], Answer]] = field(default_factory=list)
    """When a request was sent and answered, what it was, and the answer."""
    cut: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def client(self, place: int, stop: threading.Event) -> None:
        """One client."""
        body = BODIES[place % len(BODIES)]
        data = json.dumps(body).encode()
        while not stop.is_set():
            try:
                connection = self.target.connect(timeout=IN_FLIGHT + 5)
            except OSError:
                return
            with connection:
                self._requests(connection, body, data, stop)

    def _requests(self, connection: socket.socket, body: dict[str, object], data: bytes, stop: threading.Event) -> None:
        while not stop.is_set():
            sent = time.monotonic()
            try:
                connection.sendall(self.target.request("POST", "/v1/translate", data))
                answer = read_answer(connection, "POST")
            except (http.client.RemoteDisconnected, ConnectionError):
                return  # closed between two requests, or before the server took this one
            except (http.client.HTTPException, TimeoutError) as error:
                with self.lock:
                    self.cut.append(f"{type(error).__name__}: {error}")
                return
            with self.lock:
                self.answers.append((sent, time.monotonic(), body, answer))
            if answer.status != 200 or answer.closes:
                return


def is_whole(body: dict[str, object], answer: Answer) -> bool:
    """Whether an answer has everything: of a stream the last event, of a list every text."""
    if body.get("stream"):
        events = [line for line in answer.body.decode().split("\n\n") if line]
        return json.loads(events[-1].removeprefix("data: ")).get("done") is True
    texts = body["text"] if isinstance(body["text"], list) else [body["text"]]
    return [one["text"] for one in answer.json()["translations"]] == [str(text).upper() for text in texts]


@sizes(1, 20)
def test_sigterm_under_load(size: int, own_server: None, tmp_path: Path, tally: Tally) -> None:
    answered, last, latest_start = 0, 0.0, 0.0
    for trial in range(size):
        delay = (0.05, 0.4, 0.01, 1.0)[trial % 4]
        with server_process(tmp_path, delay=delay) as target:
            load, stop = Load(target), threading.Event()
            threads = [threading.Thread(target=load.client, args=(place, stop)) for place in range(CLIENTS)]
            for thread in threads:
                thread.start()
            time.sleep(0.3 + 2 * delay)
            with Client(target) as kept, Client(target) as checked:
                for client in (kept, checked):
                    assert client.send("GET", "/ready").status == 200
                assert target.process is not None and target.process.stdout is not None
                target.process.send_signal(signal.SIGTERM)
                signalled = time.monotonic()
                time.sleep(NO_NEW_WORK)
                refuses_new_work(target, kept, checked)
            for thread in threads:
                thread.join(IN_FLIGHT + 5)
            stop.set()
            assert target.process.wait(IN_FLIGHT) == 0
            assert target.process.stdout.readline() == "0\n", "a job was still running"
            assert target.faults() == []
        assert load.cut == []
        for sent, received, body, answer in load.answers:
            assert answer.status in (200, 503), answer
            if answer.status == 200:
                assert is_whole(body, answer), answer
                latest_start = max(latest_start, sent - signalled)
                last = max(last, received - signalled)
        assert latest_start < NO_NEW_WORK, "what was sent later was done"
        in_flight = [one for one in load.answers if one[0] < signalled < one[1] and one[3].status == 200]
        assert in_flight, "nothing was running at the signal"
        answered += len(in_flight)
    assert last <= IN_FLIGHT
    taken = f"last sent {1000 * latest_start:.0f} ms after it"
    note = f" in {size} shutdowns, last answered {1000 * last:.0f} ms after the signal, {taken}"
    tally("requests in flight at SIGTERM that were answered in full", answered, note)


def refuses_new_work(target: Target, kept: Client, checked: Client) -> None:
    """No connection is accepted; on one that is open, work is rejected, and it is alive but not ready."""
    try:
        fresh = target.connect(timeout=2.0)
    except OSError:
        pass
    else:
        with fresh:
            raise AssertionError("a connection was accepted after the signal")
    for client, method, path, expected in ((kept, "POST", "/v1/translate", 503), (checked, "GET", "/ready", 503)):
        with contextlib.suppress(
            OSError, http.client.HTTPException
        ):  # it may be closed already: that is no work either
            answer = client.send(method, path, b'{"text": "a"}' if method == "POST" else None)
            assert answer.status == expected, answer


def test_a_server_that_stops_is_alive_but_not_ready(own_server: None, tmp_path: Path) -> None:
    """While it finishes a request; new connections are refused, and those without a request are soon closed."""
    with server_process(tmp_path, delay=1.0) as target:
        with target.connect() as working, target.connect() as ready, target.connect() as alive:
            working.sendall(target.request("POST", "/v1/translate", b'{"text": "ein Hund"}'))
            for connection, path in ((ready, "/ready"), (alive, "/health")):
                connection.sendall(target.request("GET", path)[:-2])  # the server does not close what is half sent
            time.sleep(0.3)
            assert target.process is not None
            target.process.send_signal(signal.SIGTERM)
            time.sleep(0.02)
            statuses = {}
            for connection, path in ((ready, "/ready"), (alive, "/health")):
                with contextlib.suppress(OSError, http.client.HTTPException):
                    connection.sendall(b"\r\n")
                    statuses[path] = read_answer(connection, "GET").status
            assert (statuses.get("/ready", 503), statuses.get("/health", 200)) == (503, 200)
            assert read_answer(working, "POST").json()["translations"][0]["text"] == "EIN HUND"
        assert target.process.wait(10) == 0


@sizes(1, 5)
def test_a_killed_server_is_soon_back(size: int, own_server: None, tmp_path: Path, tally: Tally) -> None:
    longest = 0.0
    for _ in range(size):
        with server_process(tmp_path, delay=0.2) as target, target.connect() as connection:
            connection.sendall(target.request("POST", "/v1/translate", b'{"text": "ein Hund"}'))
            assert target.process is not None
            target.process.kill()
            target.process.wait()
        started = time.monotonic()
        with server_process(tmp_path) as target, Client(target) as client:
            assert client.send("GET", "/ready").status == 200
            longest = max(longest, time.monotonic() - started)
    assert longest <= READY_AGAIN
    tally("servers killed and ready again", size, f", longest {longest:.1f} s")
