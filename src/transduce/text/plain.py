"""Plain text from disk or stdin, one document after the other, in pieces that fit memory however long a document is.

Nothing is lost of a document: its line breaks are characters like any other. What ends one is a setting.
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

PIECE_CHARACTERS = 2**14
"""A longer document comes in pieces of about this many characters …"""
MOST_CHARACTERS = 2**22
"""… and of no more than this, also where no place to cut is found."""

_SAFE_CUT = re.compile(r".+(?=[ \n]\S)", re.DOTALL)
"""Up to the last space or line break that something else follows. Every tokenizer that cuts text into words first cuts
there, so that tokens before and behind do not depend on each other."""

_LETTERS = ("character", "byte")
"""Kinds of tokenizer that any place is as good as another to cut for."""


class TextFile(Config):
    """Where plain text is: `{text = "corpus.txt.gz"}`. "-" is standard input, which can be read once only."""

    text: str
    """A file of UTF-8 text, plain or gzip."""
    document: DocumentRule = "blank"
    """What ends a document: a blank line, every line break, or the end of the file alone. Of a file, all line breaks
    are kept, blank lines too, and the last line ends with one; of documents between blank lines, those within."""
    weight: float | None = pydantic.Field(default=None, gt=0, le=1000)
    """How often each block of its text is seen in an epoch, 1 if not given. For training corpora."""

    @property
    def name(self) -> str:
        """What a report calls it."""
        return self.text


class Piece(NamedTuple):
    """A document, or a part of a long one."""

    text: str
    begins: bool = True
    """Whether a document begins here; otherwise the one before goes on."""


def read_documents(file: TextFile) -> Iterator[Piece]:
    """Yield the documents of a file in order; of documents that are lines, the blank ones too, for who counts them."""
    lines = read_lines(file.text)
    if file.document == "line":
        yield from map(Piece, lines)
        return
    if file.document == "file":
        yield from _pieces(f"{line}\n" for line in lines)
        return
    for line in lines:
        if line.strip():
            yield from _pieces(_joined(chain([line], lines)))


def _joined(lines: Iterator[str]) -> Iterator[str]:
    """The text of a document up to the next blank line, a line break between its lines."""
    yield next(lines)
    for line in lines:
        if not line.strip():
            return
        yield f"\n{line}"


def _pieces(parts: Iterable[str]) -> Iterator[Piece]:
    """Put a document together, and cut it where it grows too long."""
    begins, waiting, size, enough = True, [], 0, 2 * PIECE_CHARACTERS
    for part in parts:
        waiting.append(part)
        size += len(part)
        while size >= enough:
            text = "".join(waiting)
            place = _place(text)
            if place is None:  # nothing to cut at yet: look again when there is twice as much
                waiting, enough = [text], 2 * size
                break
            yield Piece(text[:place], begins)
            begins, waiting, size, enough = False, [text[place:]], len(text) - place, 2 * PIECE_CHARACTERS
    if size:
        yield Piece("".join(waiting), begins)


def _place(text: str) -> int | None:
    """Where to cut a long text; None where it is better to read on first."""
    found = _SAFE_CUT.match(text, 0, 2 * PIECE_CHARACTERS) or _SAFE_CUT.match(text)
    if found is not None:
        return found.end()
    return MOST_CHARACTERS if len(text) > MOST_CHARACTERS else None


def encode_pieces(tokenizer: AnyTokenizer, pieces: Sequence[Piece]) -> list[list[int]]:
    """Return the tokens of each piece; those of a document's pieces together are the tokens of the document."""
    adds_space, extra = _habits(tokenizer)
    for piece in pieces:
        if not piece.begins and piece.text[0] not in " \n" and tokenizer.kind not in _LETTERS:
            raise DataError(
                f"a document has no space or line break within {MOST_CHARACTERS:,} characters, so that it cannot be "
                "cut into words; use a tokenizer of kind character or byte, or break it into documents"
            )
    goes_on = [adds_space and not piece.begins and piece.text[0] == " " for piece in pieces]
    rows = tokenizer.encode_batch(
        [piece.text[1:] if on else piece.text for piece, on in zip(pieces, goes_on, strict=True)]
    )
    if not extra:
        return rows
    doubled = [not piece.begins and piece.text[0] == "\n" for piece in pieces]
    return [row[extra:] if two else row for row, two in zip(rows, doubled, strict=True)]


def _habits(tokenizer: AnyTokenizer) -> tuple[bool, int]:
    """What a tokenizer does at the beginning of a text: whether it puts a space there, so that the one where a document
    was cut has to be left out; and how many tokens it puts before a line break there."""
    before, whole, line = tokenizer.encode("a"), tokenizer.encode("a\nb"), tokenizer.encode("\nb")
    adds_space = tokenizer.encode("a b") == [*before, *tokenizer.encode("b")]
    return adds_space, max(0, len(before) + len(line) - len(whole))
