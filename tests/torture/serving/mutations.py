"""Requests that are not quite HTTP: valid ones, broken in every part, drawn from a seed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

from tests.torture.serving.routes import BODIES, FORM
from tests.torture.serving.target import Target

METHODS = (
    b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"TRACE", b"CONNECT", b"PRI", b"get", b"G", b"",
    b"GET\0", b"GE T", b"\xff\xfe", b"POST" * 500, b"PROPFIND", b"QUERY", b"GET\t", b"{}",
)  # fmt: skip
VERSIONS = (
    b"HTTP/1.1", b"HTTP/1.0", b"HTTP/0.9", b"HTTP/2.0", b"HTTP/9.9", b"HTTP/1.1 ", b"http/1.1", b"HTTP/1.10", b"",
    b"HTTP/-1.1", b"HTTP/1,1", b"HTTPS/1.1", b"RTSP/1.0", b"HTTP/1.1\r\n X",
)  # fmt: skip
TARGETS = (
    b"/", b"*", b"", b"//", b"/%", b"/%zz", b"/%00", b"/%ff%fe", b"/\xff\xfe\xfd", b"/\xc3\x28",
    b"/v1/translate%0d%0aX:1",
    b"http://evil.com/v1/translate", b"http://localhost/v1/models", b"evil.com:443", b"/v1/models/\xf0\x9f\x98\x80",
    b"/v1/models/%F0%9F%98%80", b"/" + b"a" * 20_000, b"/" + b"a/" * 7_000, b"/v1/translate?" + b"a=b&" * 3_000,
    b"/translate?q=%ff&source=de&target=en", b"/translate?q", b"/translate?&&&=", b"/v2/translate?text=%u1234",
    b"/v1/translate#x", b"/v1/translate;x", b"/./v1/translate", b"/v1/../v1/translate", b"\\v1\\translate", b"/v1 /x",
    b"/\0", b"/%2e%2e/%2e%2e/etc/passwd", b"/v1/translate\x0b", b"/health?" + b"%41" * 5_000,
)  # fmt: skip
LENGTHS = (
    b"-1", b"+5", b"0x5", b"5 5", b"5,5", b"5, 6", b"", b" ", b"5\0", b"999999999999999999999999", b"1e3", b"5.0",
    b"NaN",
    b"\xb2", b"0005", b"18446744073709551616", b"5;", b"'5'", b"05 ", b"\t5",
)  # fmt: skip
ENCODINGS = (
    b"chunked", b"Chunked", b" chunked", b"chunked ", b"chunked, chunked", b"chunked, identity", b"identity, chunked",
    b"gzip, chunked", b"xchunked", b"chunked;q=1", b"\x0bchunked", b"chunked\0", b"", b"identity", b"cow", b"'chunked'",
    b"chunked,", b",chunked", b"chu\nnked", b"chunked\r\nTransfer-Encoding: identity",
)  # fmt: skip
HEADERS = (
    b"X\0: 1", b"X Y: 1", b"X : 1", b" X: 1", b": 1", b"X", b"X:\r\n folded", b"X: \xff\xfe", b"X: \x00", b"X: a\rb",
    b"",
    b"X: " + b"x" * 20_000, b"Host: evil.com", b"Host:", b"Expect: 100-continue", b"Expect: nonsense", b"Upgrade: h2c",
    b"Connection: upgrade, close", b"Upgrade: websocket", b"Connection: \xff", b"Range: bytes=0-,0-,0-",
    b"Cookie: =;=;",
    b"Content-Type: application/json; charset=utf-7", b"Content-Type: \xff/\xff", b"Content-Type: multipart/form-data",
    b"Content-Encoding: gzip", b"Content-Encoding: \xff", b"X-Forwarded-For: 1, \xff, ::", b"X-Forwarded-Proto: \0",
    b"Authorization: \xff\xfe", b"Authorization: Bearer " + b"k" * 9_000, b"Authorization:", b"Origin: \xff",
    b"TE: trailers",
    b"Trailer: Content-Length", b"Content-Length: 3", b"Transfer-Encoding: chunked", b"Sec-Fetch-Site: \xff",
    b"Via: 9.9 \0",
)  # fmt: skip
CHUNKS = (
    b"zz\r\nab\r\n0\r\n\r\n", b"-1\r\n\r\n", b"0x2\r\nab\r\n0\r\n\r\n", b"2;a=b\r\nab\r\n0\r\n\r\n", b"2\nab\n0\n\n",
    b"2 \r\nab\r\n0\r\n\r\n", b"2\r\nabcdef\r\n0\r\n\r\n", b"ffffffffffffffff\r\nab", b"fffffffffffffffff\r\nab",
    b"2;" + b"x" * 20_000 + b"\r\nab\r\n0\r\n\r\n", b"0\r\nX: 1\r\n\r\n", b"0\r\n" + b"X: 1\r\n" * 5_000 + b"\r\n",
    b"0\r\nX", b"1\r\n{\r\n" * 3_000, b"\r\n\r\n", b"", b"2\r\n{}\r\n0\r\nContent-Length: 5\r\n\r\n",
    b"2\r\n{}\r\n00000000000000000000\r\n\r\n", b"2\r\n{}0\r\n\r\n", b"+2\r\n{}\r\n0\r\n\r\n",
    b"2\r\r\n{}\r\n0\r\n\r\n",
)  # fmt: skip
DEEP = 100_000
JSONS = (
    b"", b"{", b"}", b"[", b"nul", b"{}{}", b"\xff", b"\xef\xbb\xbf{}", b"\x00{}", b'{"text": NaN}', b'{"text": 1e999}',
    b'{"text": -Infinity}', b'{"text": "\xc3"}', b'{"text": "\\ud800"}', b'{"text": "\\u00"}', b'{"text": "\\x41"}',
    b'{"text": "a", "text": "b"}', b"[" * DEEP, b"[" * DEEP + b"]" * DEEP, b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    b'{"text": ' + b"[" * DEEP + b"]" * DEEP + b"}", b'{"text": ' + b"9" * 100_000 + b"}", b'{"text": "a",}', b"'a'",
    b'{"text": "' + b"\\u0000" * 1_000 + b'"}', b'{"text": "a\nb"}', b'{"text": "' + b"a" * 900_000 + b'"}', b"\r\n",
    b"#",
    b'{"text": [' + b'"a",' * 100_000 + b'"a"]}', b'{"text": {"a": 1}}', b"{" + b'"a":1,' * 50_000 + b'"b":1}', b"NaN",
    '{"text": "\ud83d"}'.encode("utf-8", "surrogatepass"), '{"text": "ä"}'.encode("utf-16"),
    b'{"text": "a"}' + b" " * 900_000,
)  # fmt: skip


class Mutator:
    """Draws requests for a server; the same seed draws the same."""

    def __init__(self, target: Target, seed: int) -> None:
        self._target, self._draw = target, random.Random(seed)
        self._kinds: tuple[Callable[[], bytes], ...] = (
            self._bytes, self._bytes, self._line, self._lengths, self._encodings, self._headers, self._chunks,
            self._json,
            self._json, self._many_headers, self._spliced, self._noise,
        )  # fmt: skip

    def draw(self) -> bytes:
        """One request."""
        return self._draw.choice(self._kinds)()

    def _valid(self) -> bytes:
        path, fields = self._draw.choice(list(BODIES.items()))
        if path in ("/translate", "/v2/translate", "/detect") and self._draw.random() < 0.3:
            return self._target.request("POST", path, b"q=a&text=a&source=de", [("Content-Type", FORM)])
        if self._draw.random() < 0.2:
            return self._target.request("GET", self._draw.choice(("/health", "/metrics", "/docs", "/v1/models/a")))
        return self._target.request("POST", path, json.dumps(fields).encode())

    def _parts(self) -> tuple[bytes, list[bytes], bytes]:
        head, _, body = self._valid().partition(b"\r\n\r\n")
        line, *headers = head.split(b"\r\n")
        return line, headers, body

    def _joined(self, line: bytes, headers: list[bytes], body: bytes) -> bytes:
        end = b"\r\n" if self._draw.random() < 0.9 else self._draw.choice((b"\n", b"\r", b"\r\n\r\n", b"\n\r", b""))
        return end.join([line, *headers]) + end + end + body

    def _bytes(self) -> bytes:
        """Flip, insert, delete, repeat or cut bytes."""
        data = bytearray(self._valid())
        for _ in range(self._draw.choice((1, 1, 2, 3, 8, 30))):
            at = self._draw.randrange(len(data) or 1)
            match self._draw.randrange(5):
                case 0 if data:
                    data[at] ^= 1 << self._draw.randrange(8)
                case 1:
                    data[at:at] = self._draw.randbytes(self._draw.choice((1, 2, 50)))
                case 2:
                    del data[at : at + self._draw.choice((1, 2, 20))]
                case 3:
                    data[at:at] = data[at : at + 20] * self._draw.choice((1, 2, 50))
                case 4 if self._draw.random() < 0.3:
                    del data[at:]
        return bytes(data)

    def _line(self) -> bytes:
        line, headers, body = self._parts()
        parts: list[bytes] = line.split(b" ")
        place = self._draw.randrange(3)
        parts[place] = self._draw.choice((METHODS, TARGETS, VERSIONS)[place])
        space = self._draw.choice((b" ", b" ", b" ", b"  ", b"\t", b"", b"\0"))
        return self._joined(space.join(parts), headers, body)

    def _lengths(self) -> bytes:
        """Content-Length that is wrong, or given twice."""
        line, headers, body = self._parts()
        if self._draw.random() < 0.5:
            headers = [one for one in headers if not one.startswith(b"Content-Length")]
        for _ in range(self._draw.choice((1, 1, 2))):
            value = self._draw.choice((*LENGTHS, str(len(body) + self._draw.choice((-1, 0, 1, 5, 100_000))).encode()))
            headers.append(b"Content-Length: " + value)
        self._draw.shuffle(headers)
        return self._joined(line, headers, body)

    def _encodings(self) -> bytes:
        """Transfer-Encoding in odd spellings, with and without Content-Length, and a request inside the body."""
        line, headers, body = self._parts()
        if self._draw.random() < 0.6:
            headers = [one for one in headers if not one.startswith(b"Content-Length")]
        name = self._draw.choice(
            (b"Transfer-Encoding", b"transfer-encoding", b"Transfer-Encoding ", b"Transfer_Encoding")
        )
        headers.append(name + b": " + self._draw.choice(ENCODINGS))
        chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
        inner = self._target.request("GET", "/metrics") if self._draw.random() < 0.5 else b""
        return self._joined(line, headers, self._draw.choice((chunked, body)) + inner)

    def _headers(self) -> bytes:
        line, headers, body = self._parts()
        for _ in range(self._draw.choice((1, 1, 2, 5))):
            headers.insert(self._draw.randrange(len(headers) + 1), self._draw.choice(HEADERS))
        if self._draw.random() < 0.1:
            headers.append(self._draw.choice(headers))
        return self._joined(line, headers, body)

    def _chunks(self) -> bytes:
        line, headers, _ = self._parts()
        headers = [one for one in headers if not one.startswith(b"Content-Length")]
        return self._joined(line, [*headers, b"Transfer-Encoding: chunked"], self._draw.choice(CHUNKS))

    def _json(self) -> bytes:
        path = self._draw.choice(list(BODIES))
        return self._target.request("POST", path, self._draw.choice(JSONS))

    def _many_headers(self) -> bytes:
        line, headers, body = self._parts()
        number = self._draw.choice((90, 101, 500, 10_000))
        return self._joined(line, [*headers, *(b"x%d: 1" % one for one in range(number))], body)

    def _spliced(self) -> bytes:
        """Two requests in one write, the first one broken."""
        first, second = self._bytes(), self._valid()
        return first[: self._draw.randrange(len(first) + 1)] + second

    def _noise(self) -> bytes:
        hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"  # a TLS ClientHello
        begin = self._draw.choice(
            (b"", hello, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\r\n" * 50, b"SSH-2.0-x\r\n", b"\0")
        )
        return begin + self._draw.randbytes(self._draw.choice((0, 1, 100, 5_000)))
