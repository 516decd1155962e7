"""Who may call: hosts, origins, keys, and what a request may look like before anything of it is read.

A server that listens on 127.0.0.1 is reachable from every web page that its user opens (DNS rebinding, requests across
origins), so that the Host and Origin headers are checked by default. Decisions use the route that was matched and raw
headers, never a URL made of them (CVE-2026-48710).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from starlette.types import ASGIApp, Receive, Scope, Send

from transduce.errors import brief
from transduce.serving.http import Api, Keys, Record, RequestError, authorize
from transduce.serving.limits import Limits

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
OPEN_ROUTES = ("/health", "/ready", "/", "/studio/page/{asset:path}")
"""The only routes that need no key: probes, and the studio's page, which is the same for everybody and asks for the key
that its requests need."""
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
MAX_HEADERS = 100

SECURITY_HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        b"img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
"""On every response. No CORS header is ever sent: pages of other origins cannot read anything."""

_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*)(?::([0-9]{1,5}))?")
_ORIGIN = re.compile(r"(https?)://([^/?#@\\\s]+)")


@dataclass(frozen=True)
class ServerSettings:
    """What an operator decides."""

    api_keys: tuple[str, ...] = field(default=(), repr=False)
    """Keys that clients may use; without any, everybody who reaches the server may call it."""
    allowed_hosts: tuple[str, ...] = ()
    """Names under which clients call the server, besides those of this machine; '*' allows all."""
    limits: Limits = field(default_factory=Limits)
    studio: bool = True
    """Whether the studio is served."""


@dataclass(frozen=True)
class Authority:
    """The host and port of a Host header or an origin."""

    host: str
    port: int | None

    @classmethod
    def parse(cls, text: str) -> Authority | None:
        """Read `name`, `name:port` or `[address]:port`; None for anything else, user names included."""
        match = _AUTHORITY.fullmatch(text)
        if match is None:
            return None
        host = match[1].lower()
        if host.startswith("["):
            try:
                host = f"[{ipaddress.IPv6Address(host[1:-1]).compressed}]"
            except ValueError:
                return None
        port = None if match[2] is None else int(match[2])
        return None if port is not None and port > 65535 else cls(host, port)


class Guard:
    """ASGI middleware that rejects what may not pass, by RequestError; the middleware around it answers."""

    def __init__(self, app: ASGIApp, settings: ServerSettings, keys: Keys) -> None:
        self._app = app
        self._keys = keys
        self._max_body = settings.limits.max_body_bytes
        self._hosts = _host_names((*LOOPBACK, *settings.allowed_hosts))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if scope["state"].get("overloaded"):
                raise RequestError(503, "the server has too many connections", retry_after=1.0)
            headers = _Headers(scope)
            host = self._check_host(headers)
            self._check_form(headers)
            if scope["method"] not in SAFE_METHODS:
                check_origin(headers, host)
            self._check_key(scope, headers)
            self._check_length(headers)
            self._check_running(scope)
        await self._app(scope, receive, send)

    def _check_host(self, headers: _Headers) -> Authority:
        """Only names that the operator knows: another one is an attacker's whose DNS points here."""
        given = headers.all(b"host")
        host = Authority.parse(given[0]) if len(given) == 1 else None
        if host is None:
            raise RequestError(400, "the Host header is missing or malformed")
        if "*" not in self._hosts and host.host not in self._hosts:
            raise RequestError(
                421, f"this server is not called {brief(host.host)}; its operator can allow the name by --allowed-host"
            )
        return host

    def _check_form(self, headers: _Headers) -> None:
        if headers.count > MAX_HEADERS:
            raise RequestError(431, f"the request has more than {MAX_HEADERS} headers")
        encodings = headers.all(b"content-encoding")
        if any(encoding.strip().lower() not in ("", "identity") for encoding in encodings):
            raise RequestError(415, "compressed bodies are not accepted; send the body without Content-Encoding")
        if headers.all(b"transfer-encoding") and headers.all(b"content-length"):
            raise RequestError(400, "give Content-Length or Transfer-Encoding, not both")

    def _check_length(self, headers: _Headers) -> None:
        """By what is declared; bodies of unknown length are counted while they are read."""
        for length in headers.all(b"content-length"):
            if not (length.isascii() and length.isdigit()):
                raise RequestError(400, "Content-Length must be a number")
            if len(length) > 15 or int(length) > self._max_body:
                raise RequestError(413, f"the body has more than {self._max_body:,} bytes")

    def _check_key(self, scope: Scope, headers: _Headers) -> None:
        record: Record = scope["state"]["record"]
        api: Api = scope["state"]["api"]
        if not self._keys.required:
            return
        for candidate in _header_keys(headers):
            if self._keys.accept(candidate):
                authorize(record, candidate)
        if not record.authorized and not api.key_in_body and record.route not in OPEN_ROUTES:
            raise RequestError(
                api.unauthorized, "this server needs a key: Authorization: Bearer KEY, or X-API-Key: KEY"
            )

    def _check_running(self, scope: Scope) -> None:
        """Take no new work while the server stops; what runs may finish."""
        if getattr(scope["app"].state, "stopping", False) and scope["method"] not in SAFE_METHODS:
            raise RequestError(503, "the server is stopping", retry_after=5.0)


def check_origin(headers: _Headers, host: Authority) -> None:
    """Reject requests that a web page of another origin makes: only pages of this server may change anything here."""
    given = headers.all(b"origin")
    if "cross-site" in headers.all(b"sec-fetch-site"):
        raise RequestError(403, "requests from pages of other sites are rejected")
    if not given:
        return
    match = _ORIGIN.fullmatch(given[0]) if len(given) == 1 else None
    origin = Authority.parse(match[2]) if match is not None else None
    if match is None or origin is None:
        raise RequestError(403, "requests from pages of other sites are rejected")
    default = 443 if match[1] == "https" else 80
    if (origin.host, origin.port or default) != (host.host, host.port or default):
        raise RequestError(403, "requests from pages of other sites are rejected")


class _Headers:
    """The raw headers of a request, by name."""

    def __init__(self, scope: Scope) -> None:
        self._headers: list[tuple[bytes, bytes]] = scope["headers"]

    @property
    def count(self) -> int:
        return len(self._headers)

    def raw(self, name: bytes) -> list[bytes]:
        return [value for given, value in self._headers if given == name]

    def all(self, name: bytes) -> list[str]:
        """The values of all headers of this name."""
        return [value.decode("latin-1") for value in self.raw(name)]


def _header_keys(headers: _Headers) -> list[bytes]:
    """The keys that a request brings: `Authorization: Bearer …` or `DeepL-Auth-Key …`, or `X-API-Key`."""
    keys = headers.raw(b"x-api-key")
    for value in headers.raw(b"authorization"):
        scheme, _, key = value.partition(b" ")
        if scheme.lower() in (b"bearer", b"deepl-auth-key"):
            keys.append(key.strip())
    return keys


def _host_names(allowed: Iterable[str]) -> set[str]:
    """The names of an allow-list as they are compared; ports are dropped, an IPv6 address may lack its brackets."""
    names = set()
    for name in allowed:
        parsed = Authority.parse(name) or Authority.parse(f"[{name}]")
        names.add(name if parsed is None else parsed.host)
    return names
