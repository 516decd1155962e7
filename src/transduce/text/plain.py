"""Stream documents of plain text from disk or stdin, long ones in parts that fit into memory.

Nothing of a document is lost: its line breaks are characters like any other. A setting says where documents end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Literal, NamedTuple

import pydantic

from transduce.config import Config
from transduce.errors import DataError
from transduce.text.lines import read_lines
from transduce.text.tokenizer import AnyTokenizer

DocumentRule = Literal["blank", "line", "file"]

PART_CHARACTERS = 2**14
"""A longer document is split into parts of about this many characters …"""
MAX_CHARACTERS = 2**22
"""… and at most this many, even without a good place to split."""

_SAFE_CUT = re.compile(r".+(?=[ \n]\S)", re.DOTALL)
"""Up to the last space or line break that is followed by something else. Every tokenizer that pre-tokenizes into words
splits there, so that the tokens before and after are independent."""

_LETTERS = ("character", "byte")
"""Kinds of tokenizer for which text can be split anywhere."""


class TextFile(Config):
    """A file of plain text: `{text = "corpus.txt.gz"}`. "-" is standard input, which can be read only once."""

    text: str
    """A file of UTF-8 text, plain or gzip."""
    document: DocumentRule = "blank"
    """What ends a document: a blank line, every line break, or only the end of the file. With "file" all line breaks
    are kept, also blank lines; with "blank" those within a document."""
    weight: float | None = pydantic.Field(default=None, gt=0, le=1000)
    """How often each block of its text is seen per epoch, 1 by default. For training corpora."""

    @property
    def name(self) -> str:
        """Name in reports."""
        return self.text


class DocumentPart(NamedTuple):
    """A document, or a part of a long one."""

    text: str
    begins: bool = True
    """Whether a document begins here; otherwise it continues the previous part."""


def read_documents(file: TextFile) -> Iterator[DocumentPart]:
    """Yield the documents of a file in order; with document = "line" also blank ones, which the caller counts."""
    lines = read_lines(file.text)
    if file.document == "line":
        yield from map(DocumentPart, lines)
        return
    if file.document == "file":
        yield from _pieces(f"{line}\n" for line in lines)
        return
    for line in lines:
        if line.strip():
            yield from _pieces(_joined(chain([line], lines)))


def _joined(lines: Iterator[str]) -> Iterator[str]:
    """Yield the text of a document up to the next blank line."""
    yield next(lines)
    for line in lines:
        if not line.strip():
            return
        yield f"\n{line}"


def _pieces(parts: Iterable[str]) -> Iterator[DocumentPart]:
    """Join a document, and split it if it grows too long."""
    begins, waiting, size, enough = True, [], 0, 2 * PART_CHARACTERS
    for part in parts:
        waiting.append(part)
        size += len(part)
        while size >= enough:
            text = "".join(waiting)
            place = _place(text)
            if place is None:  # no place to split yet: try again with twice as much
                waiting, enough = [text], 2 * size
                break
            yield DocumentPart(text[:place], begins)
            begins, waiting, size, enough = False, [text[place:]], len(text) - place, 2 * PART_CHARACTERS
    if size:
        yield DocumentPart("".join(waiting), begins)


def _place(text: str) -> int | None:
    """Return where to split a long text; None to read on first."""
    found = _SAFE_CUT.match(text, 0, 2 * PART_CHARACTERS) or _SAFE_CUT.match(text)
    if found is not None:
        return found.end()
    return MAX_CHARACTERS if len(text) > MAX_CHARACTERS else None


def encode_pieces(tokenizer: AnyTokenizer, pieces: Sequence[DocumentPart]) -> list[list[int]]:
    """Return the tokens of each part; those of a document's parts together are the tokens of the document."""
    adds_space, extra = _start_behaviour(tokenizer)
    for piece in pieces:
        if not piece.begins and piece.text[0] not in " \n" and tokenizer.kind not in _LETTERS:
            raise DataError(
                f"a document has no space or line break within {MAX_CHARACTERS:,} characters, so it cannot be "
                "split into words; use a tokenizer of kind character or byte, or shorter documents"
            )
    goes_on = [adds_space and not piece.begins and piece.text[0] == " " for piece in pieces]
    rows = tokenizer.encode_batch(
        [piece.text[1:] if on else piece.text for piece, on in zip(pieces, goes_on, strict=True)]
    )
    if not extra:
        return rows
    doubled = [not piece.begins and piece.text[0] == "\n" for piece in pieces]
    return [row[extra:] if two else row for row, two in zip(rows, doubled, strict=True)]


def _start_behaviour(tokenizer: AnyTokenizer) -> tuple[bool, int]:
    """Return how a tokenizer treats the beginning of a text: whether it prepends a space (then the space at which a
    document was split is dropped), and how many tokens it puts before a line break there."""
    before, whole, line = tokenizer.encode("a"), tokenizer.encode("a\nb"), tokenizer.encode("\nb")
    adds_space = tokenizer.encode("a b") == [*before, *tokenizer.encode("b")]
    return adds_space, max(0, len(before) + len(line) - len(whole))
