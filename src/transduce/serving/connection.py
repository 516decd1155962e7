"""One TCP connection: uvicorn's HTTP protocol with time limits against slow clients.

uvicorn limits the time of idle connections only. A client that sends a header or a body byte by byte, or does not read
its answer, would otherwise keep its connection for ever. `Server` calls `check_time` ten times a second.
"""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import dataclass
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from transduce.serving.limits import Limits
from transduce.serving.operations import error_body
from transduce.serving.security import SECURITY_HEADERS

READ_SIZE = 1 << 15
"""Bytes read from a connection at a time. Twice as many are read beyond a limit before reading stops."""
MAX_HEADER_BYTES = 1 << 14
LONG_QUIET = 1.0
"""Seconds without a request after which a connection may be closed to make room for another."""


@dataclass(frozen=True)
class Timeouts:
    """Seconds that clients have; a little below 15, 30, 30 and 60, within which connections are closed."""

    header: float = 14.0
    """To send a complete header."""
    body: float = 29.0
    """To send the body."""
    write: float = 29.0
    """To read what was sent to them."""
    idle: float = 59.0
    """Between two requests of one connection."""
    shutdown: float = 30.0
    """To finish what runs when the server stops."""


class ServerConfig(uvicorn.Config):
    """uvicorn's configuration and what connections need besides."""

    timeouts = Timeouts()
    max_connections = Limits.max_connections
    max_unread_bytes = Limits.max_unread_bytes


class StrictParser(h11.Connection):
    """h11's parser without the requests whose length two programs read differently (RFC 9112, section 6.1).

    h11 reads such a body in chunks. A proxy that goes by Content-Length would take what follows for a part of the body,
    and this server for another request: the connection must end, whatever the answer is.
    """

    def next_event(self) -> Any:
        """Return the next event; raises RemoteProtocolError, upon which uvicorn answers 400 and closes."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            given = {name for name, _ in event.headers}
            if b"transfer-encoding" in given and (b"content-length" in given or event.http_version < b"1.1"):
                raise h11.RemoteProtocolError("the length of the body is ambiguous")
        return event


class Connection(H11Protocol):
    """HTTP/1.1 with limits on time and on the number of connections."""

    config: ServerConfig
    _header_since: float | None = None
    _body_since: float | None = None
    _write_since: float | None = None
    _quiet_since: float | None = None
    """Since when the connection has no complete request."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection. At the maximum, the one that has been quiet for longest is closed for it.

        If there is none, some connections above the maximum are told so and the rest are closed.
        """
        self.conn = StrictParser(h11.SERVER, MAX_HEADER_BYTES)
        super().connection_made(transport)
        most = self.config.max_connections
        if len(self.connections) > most:
            self._close_quietest()
        if len(self.connections) > most + most // 4 + 1:
            transport.abort()
        elif len(self.connections) > most:
            self.app_state = {**self.app_state, "overloaded": True}
        transport.max_size = READ_SIZE  # type: ignore[attr-defined]
        self._header_since = self._quiet_since = self.loop.time()

    def data_received(self, data: bytes) -> None:
        """Take bytes of a request; no more of a body is read until the application has taken these."""
        super().data_received(data)
        if self.conn.their_state is h11.SEND_BODY and self.cycle is not None and self.cycle.body:
            self.flow.pause_reading()
        self._note_progress()

    def on_response_complete(self) -> None:
        """Go on with the next request of the connection."""
        super().on_response_complete()
        self._note_progress()

    def pause_writing(self) -> None:
        """Note since when the client does not read; a tick of a busy server comes seconds later."""
        super().pause_writing()
        self._write_since = self._write_since or self.loop.time()

    def shutdown(self) -> None:
        """Close the connection once it has nothing to finish."""
        try:
            super().shutdown()
        except h11.LocalProtocolError:  # the client broke the protocol before
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP."""
        self._reject(400, "the request is not valid HTTP/1.1, or its header is too large")

    def check_time(self, now: float) -> None:
        """Close the connection if its client is too slow."""
        timeouts = self.config.timeouts
        if self.transport.get_write_buffer_size() == 0:
            self._write_since = None
        elif self._write_since is None:
            self._write_since = now
        elif now - self._write_since > timeouts.write:
            self.transport.abort()
        if self.transport.is_closing():
            return
        if self._header_since is not None and now - self._header_since > timeouts.header:
            self._reject(408, "the request's header did not arrive in time")
        elif self._body_since is not None and now - self._body_since > timeouts.body:
            self._reject(408, "the request's body did not arrive in time")

    @property
    def unread(self) -> tuple[float, int]:
        """Since when the client has not read everything that was sent, and how many bytes are left."""
        return self._write_since or math.inf, self.transport.get_write_buffer_size()

    def _note_progress(self) -> None:
        """Note since when the header or body of the present request is incomplete; further bytes do not start anew."""
        state, now = self.conn.their_state, self.loop.time()
        in_header = state is h11.IDLE and bool(self.conn.trailing_data[0])
        in_body = state is h11.SEND_BODY
        self._header_since = (self._header_since or now) if in_header else None
        self._body_since = (self._body_since or now) if in_body else None
        has_request = self.cycle is not None and not self.cycle.response_complete
        self._quiet_since = None if has_request else self._quiet_since or now

    def _close_quietest(self) -> None:
        """Make room: clients that hold connections without requests must not keep the others out."""
        before = self.loop.time() - LONG_QUIET
        quiet = [
            (one._quiet_since, place, one)
            for place, one in enumerate(self.connections)
            if isinstance(one, Connection) and one._quiet_since is not None and one._quiet_since < before
        ]
        if quiet:
            quietest = min(quiet)[2]
            quietest.transport.abort()
            self.connections.discard(quietest)

    def _reject(self, status: int, message: str) -> None:
        """Answer without the application and close the connection."""
        body = json.dumps(error_body(status, message, None)).encode()
        headers: list[tuple[bytes, bytes]] = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
            *SECURITY_HEADERS,
        ]
        if self.cycle is not None and not self.cycle.response_complete:
            if self.cycle.response_started:
                self.transport.abort()
                return
            self.cycle.disconnected = True  # what the application sends from now on is dropped
        try:
            response = h11.Response(status_code=status, headers=headers, reason=STATUS_PHRASES[status])
            events: tuple[Any, ...] = (response, h11.Data(data=body), h11.EndOfMessage())
            self.transport.write(b"".join(self.conn.send(event) or b"" for event in events))
            self.transport.close()
        except h11.LocalProtocolError:
            self.transport.abort()
