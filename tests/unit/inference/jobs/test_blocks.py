"""Blocks: the cut of a text file into byte ranges is the cut into windows that one process makes."""

from __future__ import annotations

import contextlib
import gzip
import random
from pathlib import Path

import pytest

from transduce.errors import DataError, SettingsError
from transduce.inference.jobs.blocks import (
    MAX_BLOCKS,
    MIN_BLOCK_LINES,
    USUAL_BLOCKS,
    Block,
    BlockReader,
    cut_blocks,
    default_block_lines,
)
from transduce.inference.jobs.job import TORCH_WINDOW
from transduce.inference.jobs.source import Source

LONG = "ü" * 50_000
"""Three of these, or more, fill a window of any number of lines; in bytes two would."""


def text(seed: int, lines: int) -> bytes:
    """Lines of many kinds: long ones, empty ones, CRLF, separators that end no line, marks in the middle."""
    draw = random.Random(seed)
    kinds = ("a b", "", "é\u2028x", "\ufeffmark", "tab\tx\x0b", "word " * 40)
    end = ("\n", "\n", "\r\n")
    found = "".join((LONG if draw.random() < 0.02 else draw.choice(kinds)) + draw.choice(end) for _ in range(lines))
    return found.encode()


@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("beginning", [b"", b"\xef\xbb\xbf"], ids=["", "BOM"])
def test_windows_of_blocks_are_those_of_the_whole_file(beginning: bytes, compressed: bool, tmp_path: Path) -> None:
    content = beginning + text(5, 4000) + b"no end"
    path = tmp_path / "x"
    path.write_bytes(gzip.compress(content) if compressed else content)
    blocks = list(cut_blocks(str(path), 2 * TORCH_WINDOW))
    assert len(blocks) > 4 and any(block.lines < 2 * TORCH_WINDOW for block in blocks[:-1])
    whole = list(Source.open(str(path), "text").windows(TORCH_WINDOW))
    with contextlib.closing(BlockReader(str(path))) as reader:
        parts = [window for block in blocks for window in reader.source(block).windows(TORCH_WINDOW)]
    for one, other in zip(parts, whole, strict=True):
        assert one.texts == other.texts and one.first == other.first
        written = [segment.write(segment.texts) for segment in one.segments]
        assert written == [segment.write(segment.texts) for segment in other.segments]
        assert [segment.original for segment in one.segments] == [segment.original for segment in other.segments]
    assert sum(block.size for block in blocks) == len(content)
    assert sum(block.lines for block in blocks) == content.count(b"\n") + 1


def test_an_empty_file_has_no_blocks_and_one_of_a_mark_alone_has_one(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"")
    assert list(cut_blocks(str(path), 512)) == []
    path.write_bytes(b"\xef\xbb\xbf")
    (block,) = cut_blocks(str(path), 512)
    with contextlib.closing(BlockReader(str(path))) as reader:
        (window,) = reader.source(block).windows(512)
    assert [segment.write(()) for segment in window.segments] == ["\ufeff"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\n" * 600 + b"b \xff\n", "x:601: is not UTF-8 text (it has the byte 0xff)"),
        (b"a\n" * 600 + b"b\0\n", "x:601: is not UTF-8 text (it has a NUL byte)"),
        (b"a\n" * 7 + b"b" * (2**24 + 1), "x:8: the line is longer than 16 MiB"),
    ],
    ids=["latin-1", "NUL", "long"],
)
def test_what_is_no_text_is_an_error_with_its_line(
    content: bytes, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x").write_bytes(content)
    with pytest.raises(DataError) as caught:
        list(cut_blocks("x", 512))
    assert message in str(caught.value)


def test_a_block_that_changed_is_an_error_with_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"a\n" * 1200)
    first, second, _ = cut_blocks(str(path), 512)
    path.write_bytes(b"a\n" * 600 + b"b\n" + b"a\n" * 599)
    with contextlib.closing(BlockReader(str(path))) as reader:
        reader.source(first)
        with pytest.raises(DataError, match="lines 513 to 1,024"):
            reader.source(second)


def test_blocks_are_multiples_of_windows_and_not_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"a\n" * 1200)
    with pytest.raises(SettingsError, match="multiple of 512"):
        list(cut_blocks(str(path), 1000))
    monkeypatch.setattr("transduce.inference.jobs.blocks.MAX_BLOCKS", 2)
    with pytest.raises(SettingsError, match="more than 2 blocks"):
        list(cut_blocks(str(path), 512))


def test_blocks_of_a_huge_file_are_longer(tmp_path: Path) -> None:
    small, huge = tmp_path / "small", tmp_path / "huge"
    small.write_bytes(b"a\n")
    with huge.open("wb") as file:
        file.truncate(100 * 10**9)  # a billion lines of 100 bytes; sparse
    assert default_block_lines(str(small)) == MIN_BLOCK_LINES
    assert 10**9 / default_block_lines(str(huge)) <= USUAL_BLOCKS < MAX_BLOCKS
    assert default_block_lines(str(huge)) % TORCH_WINDOW == 0


def test_the_lines_of_a_block_are_counted_from_one() -> None:
    assert Block(1, 512, 100, 0, 0, "").span == "lines 513 to 612"
