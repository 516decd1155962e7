"""Stream lines of text from a file, gzip or stdin: strict UTF-8, NFC, errors with file and line number.

Python's own text mode would guess encodings, end lines at U+2028 and read a gigabyte without a newline into memory.
Here only LF and CRLF end a line, and its length is limited.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import re
import stat
import sys
import unicodedata
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from transduce.errors import DataError, MissingInput

MAX_LINE_BYTES = 16 * 2**20
"""Maximum length of a line in bytes: far above any sentence, far below what would exhaust memory."""

MAX_WHOLE_BYTES = 2**30
"""Maximum size of a file that is read at once."""

BLOCK_BYTES = 2**18
"""Bytes decoded at a time; large enough to amortise per-line costs, small enough for the cache."""

STDIN = "-"
"""The path that means standard input."""

_GZIP_MAGIC = b"\x1f\x8b"
_UTF8_BOM = b"\xef\xbb\xbf"
_UNCOUNTED = len(_UTF8_BOM) + len(b"\r\n")
"""Bytes of a line that do not count towards its limit: a byte-order mark and the line ending."""
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")
_SURROGATE = re.compile("[\ud800-\udfff]")


def is_stream(path: str | Path) -> bool:
    """Whether a path is standard input, a pipe or a device, which can be read only once."""
    if str(path) == STDIN:
        return True
    try:
        mode = Path(path).stat().st_mode
    except (OSError, ValueError):  # reported when it is read
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def normalise(text: str, where: str = "the text") -> str:
    """Return the text in NFC, so that one word has one spelling; lone surrogates are an error that names `where`."""
    if text.isascii():
        return text
    check_surrogates(text, where)
    return unicodedata.normalize("NFC", text)


def denormalised_offset(text: str, place: int) -> int:
    """Map an offset in the normalised text to one in the text: NFC composes several characters into one."""
    return bisect_right(range(len(text) + 1), place, key=lambda end: len(normalise(text[:end]))) - 1


def check_surrogates(text: str, where: str = "the text") -> None:
    """Raise an error for lone surrogates, which cannot be encoded; `where` names the text."""
    lone = _SURROGATE.search(text)
    if lone:
        raise DataError(
            f"{where}: character {lone.start() + 1} is a lone surrogate (U+{ord(lone[0]):04X}), which is half "
            "a character; fix or remove it"
        )


class Meter:
    """Tracks how much of a file has been read; blocks are read ahead of their lines."""

    def __init__(self) -> None:
        self._streams: tuple[IO[bytes], IO[bytes]] | None = None
        self._read = (0, 0)

    def watch(self, file: IO[bytes], unpacked: IO[bytes]) -> None:
        """Start with a file that was just opened, and its decompressed stream."""
        self._streams = (file, unpacked)

    def remember(self) -> None:
        """Note how much was read, which a closed file no longer tells."""
        if self._streams is not None and not self._streams[0].closed:
            file, unpacked = self._streams
            self._read = (file.tell(), unpacked.tell())

    def at(self, handed: int) -> int:
        """Return the approximate offset in the file on disk at which `handed` bytes of its text end."""
        self.remember()
        read, text = self._read
        return min(read, round(handed * read / max(1, text)))


def read_lines(path: str | Path, meter: Meter | None = None, normalised: bool = True) -> Iterator[str]:
    """Yield the lines of a file (plain or gzip, by its first bytes) or of stdin ("-"), without their ends, in NFC.

    A byte-order mark at the start is dropped. An empty file has no lines. A meter tracks how far a file was read. Use
    `normalised=False` for JSON with character offsets.
    """
    name = shown(path)
    with open_bytes(path, meter) as stream:
        _check_text(stream.peek(), name)
        if str(path) == STDIN:  # lines as they arrive: typed input should not have to fill a block first
            yield from _each(stream, name, 0, normalised)
        else:
            yield from _decode_blocks(stream, name, normalised)


def read_whole(path: str | Path) -> str:
    """Return a file as one text, read like its lines but not in NFC: for JSON, which may have no line breaks."""
    name = shown(path)
    with open_bytes(path) as stream:
        _check_text(stream.peek(), name)
        blocks, left = [], MAX_WHOLE_BYTES
        while block := stream.read(BLOCK_BYTES):
            left -= len(block)
            if left < 0:
                raise DataError(f"{name}: is larger than {MAX_WHOLE_BYTES:,} bytes; convert it to JSONL")
            blocks.append(block)
    lines = b"".join(blocks).removeprefix(_UTF8_BOM).split(b"\n")
    return "\n".join(_text(line, name, number, normalised=False) for number, line in enumerate(lines, start=1))


def peek_bytes(path: str | Path, count: int) -> bytes:
    """Return the first bytes of a file, decompressed, or of what waits in stdin, which are read again later.

    Nothing is returned of what can be read only once: pipes, and compressed standard input.
    """
    if str(path) == STDIN:
        stdin = None if sys.stdin is None else sys.stdin.buffer
        head = stdin.peek(count) if isinstance(stdin, io.BufferedReader) else b""
        return b"" if head.startswith(_GZIP_MAGIC) else head
    if is_stream(path):
        return b""
    with open_bytes(path) as stream:
        return stream.peek(count)


@contextlib.contextmanager
def open_bytes(path: str | Path, meter: Meter | None = None) -> Iterator[io.BufferedReader]:
    """Open a file or stdin, decompressed; turn system errors into ours."""
    name = shown(path)
    if "\0" in name:
        raise MissingInput(f"{name}: the path contains a NUL character; check the path")
    try:
        if str(path) == STDIN:
            if sys.stdin is None:  # closed by the parent process
                raise MissingInput("stdin is closed; pipe text into it or give a file")
            yield _unpack(sys.stdin.buffer)
        else:
            with Path(path).open("rb") as stream:
                unpacked = _unpack(stream)
                if meter is not None:
                    meter.watch(stream, unpacked)
                try:
                    yield unpacked
                finally:
                    if meter is not None:
                        meter.remember()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{name}: the gzip file is damaged or truncated ({error}); download it again") from None
    except OSError as error:
        if isinstance(error, IsADirectoryError):
            raise MissingInput(f"{name}: is a folder; give a file") from None
        raise MissingInput(f"{name}: cannot be read ({error.strerror or error}); check the path") from None


def shown(path: str | Path) -> str:
    """Return the path as shown in messages."""
    return "stdin" if str(path) == STDIN else str(path)


def _unpack(stream: IO[bytes]) -> io.BufferedReader:
    """Return the stream, decompressed if it starts with gzip's magic bytes."""
    buffered = stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(cast(io.RawIOBase, stream))
    head = buffered.peek()
    if head[:2] == _GZIP_MAGIC or head == _GZIP_MAGIC[:1]:  # a slow pipe may deliver one byte at first
        return io.BufferedReader(gzip.GzipFile(fileobj=buffered, mode="rb"), 2**17)
    return buffered


def _each(stream: IO[bytes], name: str, number: int, normalised: bool) -> Iterator[str]:
    """Yield lines one by one; `number` lines came before."""
    while raw := stream.readline(MAX_LINE_BYTES + _UNCOUNTED):
        number += 1
        if number == 1:
            raw = raw.removeprefix(_UTF8_BOM)
            if not raw:  # a file of nothing but a byte-order mark
                return
            check_line_ends(raw, name)
        if raw.endswith(b"\n"):
            raw = raw[:-2] if raw.endswith(b"\r\n") else raw[:-1]
        if len(raw) > MAX_LINE_BYTES:
            raise DataError(
                f"{name}:{number}: the line is longer than {MAX_LINE_BYTES // 2**20} MiB; split the text into "
                "lines, one per example"
            )
        yield _text(raw, name, number, normalised)


def _decode_blocks(stream: io.BufferedReader, name: str, normalised: bool) -> Iterator[str]:
    """Yield the same lines as `_each`, several times faster: a regular block is decoded at once."""
    number = 0
    while block := stream.read(BLOCK_BYTES):
        if not block.endswith(b"\n"):
            block += stream.readline(MAX_LINE_BYTES + _UNCOUNTED)
        plain = _plain_lines(block, normalised)
        for line in _each(io.BytesIO(block), name, number, normalised) if plain is None else plain:
            number += 1
            yield line


def _plain_lines(block: bytes, normalised: bool) -> list[str] | None:
    """Return the lines of a block that need neither changes nor errors, or None."""
    if b"\0" in block or b"\r" in block or block.startswith(_UTF8_BOM) or len(block) > MAX_LINE_BYTES:
        return None
    try:
        text = block.decode("utf-8")
    except UnicodeDecodeError:
        return None
    if normalised and not (text.isascii() or unicodedata.is_normalized("NFC", text)):
        return None
    return text.removesuffix("\n").split("\n")


def check_line_ends(head: bytes, name: str, or_else: str = "") -> None:
    """Reject text whose lines end with CR alone, which would be one line."""
    if b"\n" not in head and head.rstrip(b"\r").count(b"\r") > 1:
        raise DataError(
            f"{name}: its lines end with CR alone, as on old Macs; convert it with `tr '\\r' '\\n'`{or_else}"
        )


def _check_text(head: bytes, name: str) -> None:
    if head.startswith(_UTF16_BOMS):
        raise DataError(f"{name}: is UTF-16 text, not UTF-8; convert it with `iconv -f UTF-16 -t UTF-8`")
    if b"\0" in head:
        raise DataError(f"{name}: looks like a binary file (it has NUL bytes); give a file of UTF-8 text")


def _text(raw: bytes, name: str, number: int, normalised: bool) -> str:
    """Decode one line; errors name its file and line number."""
    where = f"{name}:{number}"
    if b"\0" in raw:
        raise DataError(f"{where}: has a NUL byte and looks like binary data; give a file of UTF-8 text")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        column = len(raw[: error.start].decode("utf-8")) + 1
        raise DataError(
            f"{where}: not UTF-8 (byte 0x{raw[error.start]:02x} at column {column}); "
            "convert the file with iconv or fix that line"
        ) from None
    return normalise(text, where) if normalised else text
