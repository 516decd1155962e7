"""Windows: all segments, once, in order, bounded by lines and by characters, whatever the document."""

from __future__ import annotations

import gzip
import io
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from transduce.errors import DataError
from transduce.inference.jobs.source import CHARACTERS_PER_LINE, DocumentWindow, Source
from transduce.text.document.charset import DocumentText
from transduce.text.document.formats import FORMATS, DocumentKind
from transduce.text.document.plain import read_plain
from transduce.text.document.segment import NO_OPTIONS, DocumentOptions, DocumentSegment
from transduce.text.lines import Meter

SUBTITLES = [line for number in range(9) for line in (f"{number}", f"00:00:0{number},000 --> x", f"text {number}", "")]
ROWS = [f'{{"text": "row {number}\\nsecond", "id": {number}}}' for number in range(9)]


def texts(windows: Iterator[DocumentWindow]) -> list[list[str]]:
    return [window.texts for window in windows]


def lines(count: int) -> list[str]:
    return [f"line {number}" for number in range(count)]


def segments(given: list[str], kind: DocumentKind = "text", field: str | None = None) -> Iterator[DocumentSegment]:
    content = "".join(f"{line}\n" for line in given).encode()
    document = DocumentText(io.BufferedReader(io.BytesIO(content)), "x", None, typed=False)  # type: ignore[arg-type]
    return FORMATS[kind].read(document, DocumentOptions(fields=(field,)) if field else NO_OPTIONS)


def source(given: list[str], kind: DocumentKind = "text", field: str | None = None) -> Source:
    return Source(segments(given, kind, field))


class Typed(io.RawIOBase):
    """Standard input that somebody types."""

    def __init__(self, given: Iterator[str]) -> None:
        self._given = given

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        line = next(self._given, "").encode()
        buffer[: len(line)] = line
        return len(line)


def typed(given: Iterator[str]) -> Iterator[DocumentSegment]:
    return read_plain(DocumentText(io.BufferedReader(Typed(given)), "x", None, typed=True), NO_OPTIONS)


def test_a_window_has_so_many_lines_and_the_last_one_what_is_left() -> None:
    found = list(source(lines(17)).windows(7))
    assert [len(window.segments) for window in found] == [7, 7, 3]
    assert [window.first for window in found] == [0, 7, 14]
    assert [text for window in found for text in window.texts] == lines(17)


def test_nothing_gives_no_window() -> None:
    assert list(source([]).windows(7)) == []
    assert list(source([]).windows_as_they_come()) == []


def test_long_lines_make_short_windows() -> None:
    """A window ends with the line that fills it, so a line is never too long for a window."""
    room = 5 * CHARACTERS_PER_LINE
    given = ["a" * (room // 2), "b" * (room // 2), "c", "d" * 1_000_000, "e", *"fghijkl"]
    assert [[text[0] for text in window] for window in texts(source(given).windows(5))] == [
        ["a", "b"],
        ["c", "d"],
        ["e", "f", "g", "h", "i"],
        ["j", "k", "l"],
    ]


def test_texts_inside_a_segment_count_as_lines_and_a_segment_is_never_cut() -> None:
    found = list(source(ROWS, "jsonl", "text").windows(5))
    assert [len(window.segments) for window in found] == [3, 3, 3]
    assert found[0].texts == ["row 0", "second", "row 1", "second", "row 2", "second"]


@pytest.mark.parametrize(
    ("kind", "given", "field"), [("text", lines(23), None), ("srt", SUBTITLES, None), ("jsonl", ROWS, "text")]
)
def test_what_was_passed_over_has_the_hash_of_what_was_handed_out(
    kind: DocumentKind, given: list[str], field: str | None
) -> None:
    """And the windows after it are the same as if nothing had been interrupted."""
    whole = list(source(given, kind, field).windows(4))
    assert len(whole) > 2
    for number, window in enumerate(whole):
        rest = source(given, kind, field)
        assert rest.skip(window.first + len(window.segments)) == window.digest
        after = list(rest.windows(4))
        assert [found.digest for found in after] == [found.digest for found in whole[number + 1 :]]
        assert [found.first for found in after] == [found.first for found in whole[number + 1 :]]


def test_the_hash_tells_apart_where_lines_end() -> None:
    assert source(["ab", "c"]).skip(2) != source(["a", "bc"]).skip(2)
    assert source(["ab", "c"]).skip(2) == source(["ab", "c", "d"]).skip(2)


def test_a_sample_is_handed_out_all_the_same() -> None:
    some = source(lines(11))
    assert some.sample(4) == lines(4)
    assert texts(some.windows(6)) == [lines(6), lines(11)[6:]]
    assert source(["x" * 2000, *lines(3)]).sample(4) == ["x" * 2000]


def test_lines_that_somebody_types_are_handed_out_without_waiting_for_more() -> None:
    asked = threading.Event()

    def typing() -> Iterator[str]:
        yield "first\n"
        assert asked.wait(30)
        yield "second\n"

    windows = Source(typed(typing())).windows_as_they_come()
    assert next(windows).texts == ["first"]
    asked.set()
    assert [text for window in windows for text in window.texts] == ["second"]


def test_an_error_of_reading_comes_through() -> None:
    def broken() -> Iterator[str]:
        yield "first\n"
        raise DataError("here")

    for windows in (
        Source(typed(broken())).windows_as_they_come(),
        Source(typed(broken())).windows(5),
    ):
        with pytest.raises(DataError, match="here"):
            list(windows)


@pytest.mark.parametrize("packed", [False, True])
def test_a_window_knows_where_in_the_file_it_ends(tmp_path: Path, packed: bool) -> None:
    """Also where lines were read ahead, for a sample or because a block has many."""
    text = "".join(f"some line {number * 7919 % 100_003:06d}\n" for number in range(60_000)).encode()
    path = tmp_path / "x"
    path.write_bytes(gzip.compress(text) if packed else text)
    found = Source.open(str(path))
    found.sample(30_000)
    size = path.stat().st_size
    shares = [window.read / size for window in found.windows(5000)]
    assert shares == pytest.approx([number / 12 for number in range(1, 13)], abs=0.2 if packed else 1e-9)
    assert found.read == size
    assert Meter().at(7) == 0
