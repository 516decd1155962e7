"""Lines from bytes: what ends one, what is refused, and where the refusal points."""

from __future__ import annotations

import gzip
import io
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.errors import DataError, MissingInput
from transduce.text import lines as line_module
from transduce.text.lines import normalise, read_lines


def written(folder: Path, content: bytes, name: str = "corpus.txt") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"one", ["one"]),
        (b"one\n", ["one"]),
        (b"one\n\ntwo\n", ["one", "", "two"]),
        (b"one\r\ntwo\r\n", ["one", "two"]),
        (b"a\rb\n", ["a\rb"]),
        (b"\xef\xbb\xbfone\n\xef\xbb\xbftwo\n", ["one", "\ufefftwo"]),
        (b"\xef\xbb\xbf", []),
        ("a\u2028b\x0bc\x85d\x1ce\u2029f\x0cg\n".encode(), ["a\u2028b\x0bc\x85d\x1ce\u2029f\x0cg"]),
        (b"  two  spaces\t\n", ["  two  spaces\t"]),
        ("e\u0301\n".encode(), ["é"]),
    ],
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_only_line_feeds_end_lines_and_nothing_else_changes_but_nfc(tmp_path, content, lines, pack):
    assert list(read_lines(written(tmp_path, pack(content)))) == lines


@given(st.lists(st.text(st.characters(exclude_characters="\n\r\0\ufeff", exclude_categories=["Cs"]))))
def test_any_lines_come_back_from_a_file(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("lines") / "corpus.txt"
    path.write_bytes("".join(line + "\n" for line in lines).encode())
    assert list(read_lines(path)) == [unicodedata.normalize("NFC", line) for line in lines]


def test_gzip_is_known_by_its_first_bytes_not_by_its_name(tmp_path):
    assert list(read_lines(written(tmp_path, gzip.compress(b"packed\n", mtime=0), "corpus.txt"))) == ["packed"]
    assert list(read_lines(written(tmp_path, b"plain\n", "corpus.gz"))) == ["plain"]


def test_gzip_of_several_members_is_one_file(tmp_path):
    path = written(tmp_path, gzip.compress(b"one\ntw", mtime=0) + gzip.compress(b"o\n", mtime=0))
    assert list(read_lines(path)) == ["one", "two"]


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_a_dash_is_standard_input(monkeypatch, pack):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(pack("größe\nzwei".encode()))))
    assert list(read_lines("-")) == ["größe", "zwei"]


def test_closed_standard_input_is_reported(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(MissingInput, match="stdin is closed"):
        list(read_lines("-"))


def test_a_bad_byte_is_named_with_file_line_and_column(tmp_path):
    path = written(tmp_path, "gut\nüber\xff\n".encode("latin-1").replace(b"\xfc", "ü".encode()), "train.de")
    with pytest.raises(DataError) as refusal:
        list(read_lines(path))
    assert str(refusal.value) == (
        f"{path}:2: not UTF-8 (byte 0xff at column 5); convert the file with iconv or fix that line"
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "looks like a binary file"),
        ("größe\n".encode("utf-16"), "UTF-16"),
        (b"one\n" * 30_000 + b"t\0wo\n", ":30001: has a NUL byte"),
        (b"\xed\xa0\x80\n", ":1: not UTF-8"),
        (gzip.compress(b"line\n" * 1000, mtime=0)[:-9], "damaged or truncated"),
        (gzip.compress(b"line\n" * 1000, mtime=0)[:15], "damaged or truncated"),
        (gzip.compress(b"line\n" * 1000, mtime=0)[:-6] + b"\1\2\3\4\5\6", "damaged or truncated"),
        (gzip.compress(b"line\n", mtime=0) + b"rubbish", "damaged or truncated"),
        (gzip.compress(bytes(range(256))), "looks like a binary file"),
    ],
)
def test_what_is_not_utf8_text_is_rejected_by_name(tmp_path, content, words):
    path = written(tmp_path, content)
    with pytest.raises(DataError, match=words) as refusal:
        list(read_lines(path))
    assert str(path) in str(refusal.value)


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_a_line_is_read_up_to_the_limit_and_rejected_beyond(tmp_path, monkeypatch, pack):
    monkeypatch.setattr(line_module, "MAX_LINE_BYTES", 2**20)
    longest = b"x" * 2**20
    assert [len(line) for line in read_lines(written(tmp_path, pack(longest + b"\r\n" + longest)))] == [2**20] * 2
    with pytest.raises(DataError, match=":2: the line is longer than 1 MiB"):
        list(read_lines(written(tmp_path, pack(b"short\n" + longest + b"xxx"))))


def test_a_small_gzip_of_an_endless_line_does_not_fill_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(line_module, "MAX_LINE_BYTES", 2**16)
    seen = []
    real_readline = io.BufferedReader.readline

    class Counting(io.BufferedReader):
        def readline(self, size: int | None = -1) -> bytes:
            seen.append(size)
            return real_readline(self, size)

    monkeypatch.setattr(line_module.io, "BufferedReader", Counting)
    with pytest.raises(DataError, match=":1: the line is longer"):
        list(read_lines(written(tmp_path, gzip.compress(b"x" * 2**24, mtime=0))))
    assert seen == [2**16 + 5]  # a mark before the first line, and the line's end, do not count


@pytest.mark.parametrize("name", ["missing.txt", ".", "missing/corpus.txt"])
def test_a_path_that_cannot_be_read_is_missing_input(tmp_path, name):
    with pytest.raises(MissingInput, match=r"cannot be read|is a folder"):
        list(read_lines(tmp_path / name))


def test_reading_is_a_stream_that_closes_its_file(tmp_path):
    lines = read_lines(written(tmp_path, b"good\n" + b"\xff\n"))
    assert next(lines) == "good"
    lines.close()


@given(st.text())
def test_normalising_twice_is_normalising_once(text):
    once = normalise(text)
    assert normalise(once) == once == unicodedata.normalize("NFC", text)


@pytest.mark.parametrize("text", ["a\ud800", "a\udfffb", "a\ude00\ud83d"])
def test_half_characters_are_rejected_with_their_place(text):
    with pytest.raises(DataError, match=r"here: character 2 is a lone surrogate \(U\+D"):
        normalise(text, "here")


def test_lines_that_end_with_cr_alone_are_an_error(tmp_path: Path) -> None:
    """They would be one line: a corpus of one pair, a table of one row."""
    (tmp_path / "x").write_bytes(b"a b\rc d\re f\r")
    with pytest.raises(DataError, match="CR alone"):
        list(read_lines(tmp_path / "x"))
    (tmp_path / "x").write_bytes(b"a\rb\n")
    assert list(read_lines(tmp_path / "x")) == ["a\rb"]


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_a_meter_knows_what_was_read_of_a_file_that_was_closed(tmp_path: Path, pack) -> None:
    """A short file is closed before anybody asks."""
    path, meter = written(tmp_path, pack(b"a b\nc\n")), line_module.Meter()
    assert list(read_lines(path, meter)) == ["a b", "c"]
    assert meter.at(6) == path.stat().st_size
    assert meter.at(3) < path.stat().st_size
