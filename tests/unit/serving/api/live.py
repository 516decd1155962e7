"""A server on a free port, with models that are not there: what clients are tested with."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import requests

from tests.unit.serving.fake_backend import ENCODER, GENERATOR, TRANSLATOR, FakeBackend
from transduce.serving.app import create_app
from transduce.serving.job import Job, ModelInfo
from transduce.serving.limits import Limits
from transduce.serving.security import ServerSettings
from transduce.serving.server import Server
from transduce.serving.service import Service

KEY = "a key of this test"
MULTILINGUAL = replace(
    TRANSLATOR,
    name="nllb",
    source_languages=("fra_Latn", "eng_Latn", "spa_Latn"),
    target_languages=("fra_Latn", "zho_Hans", "zho_Hant", "por_Latn"),
    default_source="eng_Latn",
    default_target=None,
)
UNSTATED = replace(
    TRANSLATOR, name="unstated", source_languages=(), target_languages=(), default_source=None, default_target=None
)
ALL = (TRANSLATOR, MULTILINGUAL, GENERATOR, ENCODER)


class Live:
    """A running server: its address and its models."""

    def __init__(self, url: str, backends: list[FakeBackend]) -> None:
        self.url = url
        self.backends = {backend.info.name: backend for backend in backends}

    def post(self, path: str, **arguments: Any) -> requests.Response:
        """Send a POST request."""
        return requests.post(self.url + path, timeout=10, **arguments)

    def get(self, path: str, **arguments: Any) -> requests.Response:
        """Send a GET request."""
        return requests.get(self.url + path, timeout=10, **arguments)

    def job(self, model: str) -> Any:
        """The last job of a model."""
        return self.backends[model].jobs[-1]

    def jobs(self) -> list[Job]:
        """The jobs of all models since `forget`."""
        return [job for backend in self.backends.values() for job in backend.jobs]

    def forget(self) -> None:
        """Begin anew: no jobs, no errors."""
        for backend in self.backends.values():
            backend.jobs.clear()
            backend.clients.clear()
            backend.error, backend.error_after, backend.cancelled, backend.state = None, 0, 0, "ready"


@contextmanager
def live(*infos: ModelInfo, keys: tuple[str, ...] = (), limits: Limits | None = None) -> Iterator[Live]:
    """Run a server with these models in a thread."""
    limits = limits or Limits()
    backends = [FakeBackend(info) for info in infos]
    app = create_app(Service(backends, limits), ServerSettings(api_keys=keys, limits=limits))
    server = Server(app, port=0, limits=limits)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    try:
        until(lambda: server.started)
        yield Live(f"http://127.0.0.1:{server.port}", backends)
    finally:
        server.stop()
        thread.join(10)
        assert not thread.is_alive()


def until(condition: Any) -> None:
    """Wait until something holds, ten seconds at most."""
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end, "waited for ten seconds"
        time.sleep(0.005)
