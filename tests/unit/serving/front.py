"""The application over fake models, called directly or through a real socket."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from starlette.applications import Starlette
from starlette.testclient import TestClient

from tests.unit.serving.fake_backend import ENCODER, GENERATOR, FakeBackend
from transduce.serving.app import create_app
from transduce.serving.connection import Timeouts
from transduce.serving.limits import Limits
from transduce.serving.security import ServerSettings
from transduce.serving.server import Server
from transduce.serving.service import Service

KEY = "correct-horse"
BEARER = {"Authorization": f"Bearer {KEY}"}


@dataclass
class Front:
    """An application and the fake models behind it."""

    keys: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        self.translator, self.generator, self.encoder = FakeBackend(), FakeBackend(GENERATOR), FakeBackend(ENCODER)
        service = Service([self.translator, self.generator, self.encoder], self.limits)
        settings = ServerSettings(api_keys=self.keys, allowed_hosts=self.hosts, limits=self.limits)
        self.app: Starlette = create_app(service, settings)
        self.client = TestClient(self.app, base_url="http://localhost")


@contextlib.contextmanager
def running(
    app: Starlette,
    timeouts: Timeouts | None = None,
    limits: Limits | None = None,
    trusted_proxies: tuple[str, ...] = (),
) -> Iterator[Server]:
    """A server of the application on a free port, in a thread."""
    timeouts = timeouts or Timeouts(shutdown=5.0)
    server = Server(app, port=0, timeouts=timeouts, limits=limits, trusted_proxies=trusted_proxies)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    try:
        wait_until(lambda: server.started)
        yield server
    finally:
        server.stop()
        thread.join(timeout=20)
        assert not thread.is_alive()


def wait_until(condition: object, seconds: float = 5.0) -> None:
    """Wait for a condition that another thread will make true."""
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


def connect(server: Server) -> socket.socket:
    """A connection to the server."""
    made = socket.create_connection(("127.0.0.1", server.port))
    made.settimeout(10)
    return made


def read_all(connection: socket.socket) -> bytes:
    """Everything until the server closes the connection."""
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while chunk := connection.recv(1 << 16):
            data += chunk
    return data


def raw_request(body: bytes = b"", method: str = "POST", path: str = "/v1/translate", **headers: str) -> bytes:
    """A request as bytes; further headers are given as content_type="…"."""
    given = {"Host": "localhost", "Content-Type": "application/json", "Content-Length": str(len(body))}
    given |= {name.replace("_", "-").title(): value for name, value in headers.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + body
