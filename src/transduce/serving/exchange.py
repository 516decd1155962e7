"""One request and its response on the wire: the headers of every response, and bodies that nobody read.

A request may be answered before its body was read (no key, too large). To close the connection at once would make the
operating system reset it, and many clients would never see the answer. To read on would let anybody send gigabytes. So
a short rest is read, of a longer one the connection is closed a little later.
"""

from __future__ import annotations

import asyncio

from starlette.types import Message, Receive, Scope, Send

from transduce.serving.security import SECURITY_HEADERS

SHORT = 1 << 16
"""Bytes of a declared body that are read although the answer is known."""
WAIT_FOR_REST = 0.1
LINGER = 0.5
"""Seconds that a client has to read its answer before the connection is closed."""


class Exchange:
    """Wraps `receive` and `send` of one request."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        self._receive, self._send = receive, send
        headers = dict(scope["headers"])
        self._declared: bytes = headers.get(b"content-length", b"0")
        self._unread = self._declared != b"0" or b"transfer-encoding" in headers
        self._state = scope["app"].state
        self._is_last = bool(scope["state"].get("overloaded"))
        self._extra = (*SECURITY_HEADERS, (b"x-request-id", request_id.encode()))
        self._closes = False
        self.status: int | None = None
        """Of the response, once it has started."""
        self.completed = False
        self.error_status: int | None = None
        """Of an error after the response had started, which could not be sent any more."""

    async def receive(self) -> Message:
        """Receive the next part of the request."""
        message = await self._receive()
        if message["type"] != "http.request" or not message.get("more_body", False):
            self._unread = False
        return message

    async def send(self, message: Message) -> None:
        """Send a part of the response."""
        if message["type"] == "http.response.start":
            await self._read_short_rest()
            self.status = message["status"]
            self._closes = self._unread
            given = {name for name, _ in message.get("headers", ())}
            more = [(name, value) for name, value in self._extra if name not in given]
            is_last = self._closes or self._is_last or getattr(self._state, "stopping", False)
            closing = [(b"connection", b"close")] if is_last else []
            message = {**message, "headers": [*message.get("headers", ()), *more, *closing]}
        elif not message.get("more_body", False):
            if self._closes:
                await self._send({**message, "more_body": True})
                await asyncio.sleep(LINGER)
                message = {"type": "http.response.body", "body": b""}
            self.completed = True
        await self._send(message)

    async def _read_short_rest(self) -> None:
        """Read what a client is about to send anyway, so that the connection can be used again."""
        if not self._unread or not self._declared.isdigit() or not 0 < int(self._declared[:9]) <= SHORT:
            return
        try:
            async with asyncio.timeout(WAIT_FOR_REST):
                while self._unread:
                    await self.receive()
        except TimeoutError:
            pass
