"""The server that is attacked: one over fake models in a process of its own, or any whose address is given.

`TRANSDUCE_SERVER=127.0.0.1:8000 TRANSDUCE_SERVER_KEY=… pytest tests/torture/serving -m ''` attacks a server that runs
on this machine already. Its process is found by its listening socket, for its memory and its open files.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
KEY = "correct-horse-battery"
PROBE = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
Headers = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Answer:
    """What came back for one request."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    seconds: float
    closes: bool
    """Whether the server closes the connection."""

    def header(self, name: str) -> str:
        """The value of a header, empty if there is none."""
        return next((value for given, value in self.headers if given.lower() == name.lower()), "")

    def json(self) -> Any:
        """The body, which must be JSON."""
        return json.loads(self.body)


@dataclass
class Target:
    """A server: where it listens, its key, and its process."""

    port: int
    host: str = "127.0.0.1"
    key: str | None = None
    pid: int = 0
    log: Path | None = None
    """What it has logged, where we started it ourselves."""
    is_fake: bool = False
    """Whether its translations are the texts in upper case, and languages and names are those of the fake models."""
    process: subprocess.Popen[str] | None = field(default=None, repr=False)

    def connect(self, timeout: float = 10.0, receive_buffer: int | None = None) -> socket.socket:
        """Open a connection; with a small buffer, one whose client takes little at a time."""
        made = socket.socket()
        if receive_buffer is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)  # the system buffers by segments
        made.settimeout(timeout)
        try:
            made.connect((self.host, self.port))
        except OSError:
            made.close()
            raise
        return made

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Headers = (), with_key: bool = True
    ) -> bytes:
        """The bytes of a request; headers replace those that are there by default."""
        given = {"Host": f"{self.host}:{self.port}"}
        if body is not None:
            given |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
        if self.key is not None and with_key:
            given["Authorization"] = f"Bearer {self.key}"
        given |= dict(headers)
        head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + (body or b"")

    def probe(self) -> None:
        """See that the server serves."""
        with self.connect() as connection:
            connection.sendall(PROBE)
            answer = read_answer(connection, "GET")
        assert answer.status == 200, "the server does not answer any more"

    def resident(self) -> int:
        """Bytes of resident memory."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return 1024 * int(status.split("VmRSS:")[1].split()[0])

    def files(self) -> int:
        """Open file descriptors."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def logged(self) -> str:
        """Everything that the server has logged."""
        return "" if self.log is None else self.log.read_text(errors="replace")

    def faults(self) -> list[str]:
        """Lines of the log that a request must never cause."""
        lines = self.logged().splitlines()
        return [line for line in lines if not line.startswith("INFO transduce.access ")]


class Client:
    """One connection for many requests; it is opened again after the server has closed it."""

    def __init__(self, target: Target, timeout: float = 10.0) -> None:
        self.target, self._timeout = target, timeout
        self._connection: socket.socket | None = None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def send(
        self, method: str, path: str, body: bytes | None = None, headers: Headers = (), with_key: bool = True
    ) -> Answer:
        """Send a request and wait for its answer."""
        return self.send_raw(self.target.request(method, path, body, headers, with_key), method)

    def post(self, path: str, value: object, headers: Headers = ()) -> Answer:
        """Send JSON."""
        return self.send("POST", path, json.dumps(value).encode(), headers)

    def send_raw(self, data: bytes, method: str = "POST") -> Answer:
        """Send bytes and wait for one answer; a connection that was closed meanwhile is opened again, once."""
        fresh = self._connection is None
        if self._connection is None:
            self._connection = self.target.connect(self._timeout)
        started = time.perf_counter()
        try:
            with contextlib.suppress(ConnectionError):  # it may answer before it has read everything
                self._connection.sendall(data)
            answer = read_answer(self._connection, method, started)
        except (ConnectionError, http.client.RemoteDisconnected):
            self.close()
            if fresh:
                raise
            return self.send_raw(data, method)
        except BaseException:
            self.close()
            raise
        if answer.closes:
            self.close()
        return answer


def read_answer(connection: socket.socket, method: str, started: float | None = None) -> Answer:
    """Read one whole answer; raises http.client.HTTPException if it is cut."""
    started = time.perf_counter() if started is None else started
    with http.client.HTTPResponse(connection, method=method) as response:
        response.begin()
        closes = response.will_close
        body = response.read()
        return Answer(response.status, response.getheaders(), body, time.perf_counter() - started, closes)


@contextlib.contextmanager
def server_process(folder: Path, **options: Any) -> Iterator[Target]:
    """Start a server over fake models; `options` are those of server_process.run."""
    options = {"keys": [KEY], **options}
    log = folder / f"server-{time.monotonic_ns()}.log"
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "tests.torture.serving.server_process", json.dumps(options)]
    with log.open("w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, log.read_text()
        key = options["keys"][0] if options["keys"] else None
        yield Target(int(line), key=key, pid=process.pid, log=log, is_fake=True, process=process)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=40)
            except subprocess.TimeoutExpired:
                process.kill()
        process.stdout.close()
        process.wait()


def given_target() -> Target | None:
    """The server whose address the environment has, if any."""
    address = os.environ.get("TRANSDUCE_SERVER")
    if not address:
        return None
    host, _, port = address.rpartition(":")
    return Target(int(port), host or "127.0.0.1", os.environ.get("TRANSDUCE_SERVER_KEY"), pid=listener(int(port)))


def listener(port: int) -> int:
    """The process that listens on a port of this machine."""
    inodes = {f"socket:[{row[9]}]" for row in tcp_table() if row[3] == "0A" and int(row[1].split(":")[1], 16) == port}
    for folder in Path("/proc").glob("[0-9]*/fd"):
        with contextlib.suppress(OSError):
            if any(str(one.readlink()) in inodes for one in folder.iterdir()):
                return int(folder.parent.name)
    pytest.skip(f"no process of this user listens on port {port}; start the server on this machine")


def tcp_table() -> list[list[str]]:
    """The rows of the system's TCP connections."""
    return [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]


def unread(target: Target, connection: socket.socket) -> int:
    """Bytes of a connection that its client has sent and the server's process has not read."""
    own, total = connection.getsockname()[1], 0
    for row in tcp_table():
        local, remote = (int(address.split(":")[1], 16) for address in row[1:3])
        sending, receiving = (int(size, 16) for size in row[4].split(":"))
        if (local, remote) == (own, target.port):
            total += sending
        elif (local, remote) == (target.port, own):
            total += receiving
    return total


def percentile(seconds: Iterable[float], share: float) -> float:
    """A percentile of times, in milliseconds."""
    ordered = sorted(seconds)
    return 1000 * ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0
