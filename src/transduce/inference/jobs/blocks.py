"""Blocks: a large text file, cut into byte ranges that processes on any number of machines translate on their own.

The cut depends on the text alone. A block is made of whole windows of a job for PyTorch, so that a file in blocks is
translated in the same batches as by one process. Cutting decodes only what it must: a billion lines are minutes.
"""

from __future__ import annotations

import codecs
import contextlib
import functools
import hashlib
import io
import itertools
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from transduce.errors import DataError, SettingsError
from transduce.inference.jobs.job import GZIP_RATIO, TORCH_WINDOW
from transduce.inference.jobs.source import CHARACTERS_PER_LINE, Source
from transduce.text.document.charset import DocumentText
from transduce.text.document.formats import with_mark
from transduce.text.document.plain import read_plain
from transduce.text.document.segment import NO_OPTIONS, DocumentSegment, unchanged
from transduce.text.lines import MAX_LINE_BYTES, open_bytes

MIN_BLOCK_LINES = 8192
"""Default lines of a block of a small file: a minute of one core's work, or several."""
USUAL_BLOCKS = 20_000
"""Blocks above which they become longer by default: each is two files in one folder."""
MAX_BLOCKS = 100_000
LINE_BYTES = 100
"""Of a typical line, to estimate the lines of a file."""


@dataclass(frozen=True)
class Block:
    """A part of a text file."""

    number: int
    """Counted from 0, in the order of the file."""
    first: int
    """Number of its first line, from 0."""
    lines: int
    offset: int
    """Where it begins, in bytes of the decompressed text."""
    size: int
    """Bytes."""
    sha256: str

    @property
    def span(self) -> str:
        """Its lines, counted from 1, for messages."""
        return f"lines {self.first + 1:,} to {self.first + self.lines:,}"


def default_block_lines(path: str) -> int:
    """Return the lines of a block that suit the size of a file."""
    lines = Path(path).stat().st_size * (GZIP_RATIO if path.endswith(".gz") else 1) / LINE_BYTES
    found = MIN_BLOCK_LINES
    while lines / found > USUAL_BLOCKS:
        found *= 2
    return found


def cut_blocks(path: str, block_lines: int) -> Iterator[Block]:
    """Cut a text file, plain or gzip, into blocks of `block_lines` lines, or fewer long ones."""
    if block_lines % TORCH_WINDOW:
        raise SettingsError(f"--block-lines {block_lines:,}: must be a multiple of {TORCH_WINDOW}")
    first = offset = 0
    with open_bytes(path) as stream:
        windows = _windows(stream, path)
        for number in itertools.count():
            digest, lines, size = hashlib.sha256(), 0, 0
            for window in itertools.islice(windows, block_lines // TORCH_WINDOW):
                content = b"".join(window)
                _check(content, path, first + lines)
                digest.update(content)
                lines, size = lines + len(window), size + len(content)
            if not lines:
                return
            if number == MAX_BLOCKS:
                raise SettingsError(f"{path}: has more than {MAX_BLOCKS:,} blocks; raise --block-lines {block_lines}")
            yield Block(number, first, lines, offset, size, digest.hexdigest())
            first, offset = first + lines, offset + size


def _windows(stream: io.BufferedReader, path: str) -> Iterator[list[bytes]]:
    """Yield the lines of windows, as `Source.windows` cuts the same text."""
    most = TORCH_WINDOW * CHARACTERS_PER_LINE
    lines = iter(functools.partial(stream.readline, MAX_LINE_BYTES + 1), b"")
    waiting: list[bytes] = []
    done = 0
    while window := waiting + list(itertools.islice(lines, TORCH_WINDOW - len(waiting))):
        waiting = []
        if sum(map(len, window)) >= most:  # bytes; in characters it may be fewer
            window, waiting = _within(window, most, path, done)
        done += len(window)
        yield window


def _within(lines: list[bytes], most: int, path: str, before: int) -> tuple[list[bytes], list[bytes]]:
    """Split lines after the one that reaches `most` characters."""
    left = most
    for count, line in enumerate(lines, start=1):
        if len(line) > MAX_LINE_BYTES:
            raise DataError(
                f"{path}:{before + count}: the line is longer than {MAX_LINE_BYTES // 2**20} MiB; split the text into "
                "lines, one per example"
            )
        left -= len(line.decode("utf-8", "replace"))
        if left <= 0:
            return lines[:count], lines[count:]
    return lines, []


def _check(content: bytes, path: str, lines: int) -> None:
    """Raise unless a part of a file, which `lines` lines precede, is UTF-8 text."""
    try:
        content.decode("utf-8")
        wrong, at = "a NUL byte", content.find(b"\0")
    except UnicodeDecodeError as error:
        wrong, at = f"the byte 0x{content[error.start]:02x}", error.start
    if at >= 0:
        line = lines + content.count(b"\n", 0, at) + 1
        raise DataError(
            f"{path}:{line}: is not UTF-8 text (it has {wrong}); convert the file with iconv or fix that line"
        )


class BlockReader:
    """Reads blocks of one file, which stays open: in ascending order a compressed one is decompressed once."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._opened = contextlib.ExitStack()
        self._stream = self._opened.enter_context(open_bytes(path))

    def close(self) -> None:
        """Close the file."""
        self._opened.close()

    def source(self, block: Block) -> Source:
        """Return a block as the input of a job, after checking that it is as it was when the file was cut."""
        try:
            self._stream.seek(block.offset)
            content = self._stream.read(block.size)
        except (EOFError, OSError, zlib.error):  # a compressed file that has been replaced
            content = b""
        if hashlib.sha256(content).hexdigest() != block.sha256:
            raise DataError(f"{self.path}: {block.span} are not what they were when this translation was begun")
        return Source(_segments(content, self.path, block), first=block.first)


def _segments(content: bytes, name: str, block: Block) -> Iterator[DocumentSegment]:
    """Yield the lines of a block. A byte-order mark is one only at the beginning of the file."""
    marked = block.number == 0 and content.startswith(codecs.BOM_UTF8)
    stream = io.BytesIO(content if marked else codecs.BOM_UTF8 + content)
    text = DocumentText(io.BufferedReader(stream), name, None, typed=False)
    segments = read_plain(text, NO_OPTIONS)
    first = next(segments, None)
    if marked:
        first = unchanged(text.mark) if first is None else with_mark(first, text.mark)
    if first is not None:
        yield first
    yield from segments
