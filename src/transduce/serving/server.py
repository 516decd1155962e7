"""Runs the application: listens, limits connections, and stops without losing an answer."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from types import FrameType

import uvicorn
from starlette.applications import Starlette
from uvicorn.server import HANDLED_SIGNALS

from transduce.errors import Busy, CannotCreate
from transduce.serving.connection import Connection, ServerConfig, Timeouts
from transduce.serving.limits import Limits

BACKLOG = 2048
SPARE_FILES = 256
"""File descriptors besides those of connections: models, pipes to engines, logs."""


class Server(uvicorn.Server):
    """uvicorn's server with time limits for clients; a signal stops it in order.

    At the first SIGTERM or SIGINT it accepts nothing new, finishes what runs within `Timeouts.shutdown` and `serve`
    returns. A second signal does not wait.
    """

    def __init__(
        self,
        app: Starlette,
        host: str = "127.0.0.1",
        port: int = 8000,
        *,
        limits: Limits | None = None,
        timeouts: Timeouts | None = None,
        trusted_proxies: tuple[str, ...] = (),
    ) -> None:
        timeouts = timeouts or Timeouts()
        config = ServerConfig(
            app,
            loop="asyncio",
            http=Connection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=bool(trusted_proxies),
            forwarded_allow_ips=list(trusted_proxies),
            backlog=BACKLOG,
            timeout_keep_alive=timeouts.idle,  # type: ignore[arg-type]  # uvicorn only adds it to a time
            timeout_graceful_shutdown=timeouts.shutdown,  # type: ignore[arg-type]
        )
        config.timeouts = timeouts
        limits = limits or Limits()
        config.max_connections, config.max_unread_bytes = limits.max_connections, limits.max_unread_bytes
        super().__init__(config)
        raise_file_limit(config.max_connections * 5 // 4 + SPARE_FILES)
        self._app = app
        self._sockets = bind(host, port)
        for one in self._sockets:  # who reads the address may connect at once and is answered as soon as `serve` runs
            one.listen(BACKLOG)
        self.port: int = self._sockets[0].getsockname()[1]
        """The port that it listens on, also where port 0 let the system choose."""
        self._loop: asyncio.AbstractEventLoop | None = None

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer requests until a signal or `stop`."""
        self._loop = asyncio.get_running_loop()
        with self.capture_signals():
            await self._serve(sockets or self._sockets)

    def stop(self) -> None:
        """Accept nothing new and finish what runs; may be called from any thread, several times."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop)
        self.should_exit = True

    def _stop(self) -> None:
        self._app.state.stopping = True
        for server in getattr(self, "servers", ()):
            server.close()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop at a signal; at the second one without waiting."""
        if self.should_exit:
            self.force_exit = True
        self.stop()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals while serving. uvicorn would raise them once more afterwards; here `serve` simply returns."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in HANDLED_SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: close the connections of clients that are too slow."""
        now = asyncio.get_running_loop().time()
        connections = [one for one in list(self.server_state.connections) if isinstance(one, Connection)]
        for connection in connections:
            connection.check_time(now)
        self._bound_unread(connections)
        return await super().on_tick(counter)

    def _bound_unread(self, connections: Sequence[Connection]) -> None:
        """Disconnect the slowest readers while all answers that wait for their readers take too much memory."""
        config = self.config
        assert isinstance(config, ServerConfig)
        held = sum(connection.unread[1] for connection in connections)
        if held <= config.max_unread_bytes:
            return
        for connection in sorted(connections, key=lambda connection: connection.unread[0]):
            if held <= config.max_unread_bytes:
                break
            held -= connection.unread[1]
            connection.transport.abort()


def bind(host: str, port: int) -> list[socket.socket]:
    """Return listening addresses of a host name; raises Busy if the port is taken."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise CannotCreate(f"--host {host}: cannot be resolved ({error}); check the name") from None
    sockets: list[socket.socket] = []
    try:
        for family, _, _, _, address in dict.fromkeys(found):
            # asyncio sets TCP_NODELAY only where the protocol is stated; without it every answer waits for 40 ms.
            one = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
            sockets.append(one)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            chosen = address[1] or sockets[0].getsockname()[1]
            one.bind((address[0], chosen, *address[2:]))
    except OSError as error:
        for one in sockets:
            one.close()
        if error.errno == errno.EADDRINUSE:
            raise Busy(f"port {port} of {host} is in use; stop that server, or choose another --port") from None
        raise CannotCreate(f"cannot bind to {host}, port {port} ({error.strerror}); choose others") from None
    return sockets


def raise_file_limit(wanted: int) -> None:
    """Let this process open so many files, as far as the system allows: each connection is one."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
