"""Corpora from disk or stdin: pairs of text (two line-aligned files, a TSV or a JSONL), or documents of plain text.

Nothing is dropped or repaired here: a line that is not a pair is an error with its file and line number; pairs that are
unusable (an empty side, say) are for the caller to count.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, zip_longest
from pathlib import PurePath
from typing import Any, Literal, NamedTuple, Self

import pydantic

from transduce.config import Config, counted
from transduce.errors import DataError, suggestion
from transduce.text.lines import MAX_LINE_BYTES, STDIN, normalise, read_lines, shown
from transduce.text.tokenizer import AnyTokenizer
from transduce.text.tokenizer.special import NAME

__all__ = ["MAX_LINE_BYTES", "STDIN", "CorpusFiles", "Pair", "normalise", "read_lines", "read_pairs"]

Format = Literal["lines", "tsv", "jsonl"]

_FORMATS: dict[str, Format] = {".tsv": "tsv", ".jsonl": "jsonl", ".json": "jsonl"}


class Pair(NamedTuple):
    """One source with its target, and their line number."""

    source: str
    target: str
    line: int
    """Counted from 1."""


class CorpusFiles(Config):
    """Files of a parallel corpus: two line-aligned files, or one file with two columns.

    "-" is standard input, plain or gzip; it can be read only once.
    """

    source: str | None = None
    """File with one source per line, aligned with the lines of `target`."""

    target: str | None = None
    """File with one target per line."""

    path: str | None = None
    """One TSV or JSONL file with both sides, instead of `source` and `target`."""

    format: Literal["auto", "lines", "tsv", "jsonl"] = "auto"
    """Format of the files; "auto" goes by the name: two files are lines, otherwise .tsv, .jsonl or .json, also .gz."""

    source_column: int | str | None = None
    """Column of the source. In a TSV a number from 0 (the default), or a name if the first line is a header.
    In a JSONL a key ("source" by default), with dots for keys within keys, as in "translation.de"."""

    target_column: int | str | None = None
    """Column of the target: 1 in a TSV and "target" in a JSONL by default."""

    weight: float | None = pydantic.Field(default=None, gt=0, le=1000)
    """How often each pair is seen per epoch, 1 by default. For training corpora; 0.25 uses a different quarter of the
    pairs in each epoch."""

    source_language: str | None = pydantic.Field(default=None, pattern=f"^{NAME}$")
    """Language of the sources, if the corpora of a run differ; `[data]` sets it for all."""

    target_language: str | None = pydantic.Field(default=None, pattern=f"^{NAME}$")
    """Language of the targets (`de`, `pt-BR`, …). If training corpora name it, the model becomes multilingual:
    a tag such as >>de<< precedes each source."""

    @pydantic.model_validator(mode="after")
    def _possible(self) -> Self:
        if self.path is not None and (self.source is not None or self.target is not None):
            raise ValueError("give either source and target, or path alone, not both")
        if self.path is None:
            self._check_two_files()
        elif self.format == "lines":
            raise ValueError("lines come from two files: give source and target instead of path")
        if self.layout != "lines":
            self._check_columns()
        return self

    def _check_two_files(self) -> None:
        if self.source is None and self.target is None:
            raise ValueError(
                "no files given: set source and target (line-aligned files), or path (a TSV or JSONL file)"
            )
        if self.source is None or self.target is None:
            given, lacking = ("target", "source") if self.source is None else ("source", "target")
            raise ValueError(f"{given} is given but {lacking} is not; a corpus needs both sides")
        if self.source == self.target == STDIN:
            raise ValueError(
                "source and target cannot both be stdin; give one of them as a file, or pipe a TSV as path"
            )
        if self.format not in ("auto", "lines"):
            raise ValueError(f"source and target are files of lines; for a {self.format} file give path")
        if self.source_column is not None or self.target_column is not None:
            raise ValueError("columns are for a TSV or JSONL file given as path")

    def _check_columns(self) -> None:
        if self.layout == "jsonl" and (isinstance(self.source_column, int) or isinstance(self.target_column, int)):
            raise ValueError("the columns of a JSONL file are names, not numbers")
        for column in self.columns:
            if column == "" or (isinstance(column, int) and column < 0):
                raise ValueError(f"invalid column {column!r}; use a number from 0 for a TSV, a name for a JSONL")
        if self.columns[0] == self.columns[1]:
            raise ValueError(f"source and target cannot both be column {self.columns[0]!r}")

    @property
    def name(self) -> str:
        """Name in reports."""
        return f"{self.source}, {self.target}" if self.path is None else self.path

    @property
    def layout(self) -> Format:
        """The format with "auto" resolved."""
        if self.path is None:
            return "lines"
        if self.format != "auto":
            return self.format
        suffixes = [suffix.lower() for suffix in PurePath(self.path).suffixes if suffix.lower() != ".gz"]
        if not suffixes or suffixes[-1] not in _FORMATS:
            raise ValueError(f"no format follows from the name {self.path!r}; use .tsv or .jsonl, or set format")
        return _FORMATS[suffixes[-1]]

    @property
    def columns(self) -> tuple[int | str, int | str]:
        """The columns of source and target with the defaults filled in; a TSV's "2" is the number 2."""
        if self.layout == "jsonl":
            return _or(self.source_column, "source"), _or(self.target_column, "target")
        return _numbered(_or(self.source_column, 0)), _numbered(_or(self.target_column, 1))


def _or(column: int | str | None, default: int | str) -> int | str:
    return default if column is None else column


def _numbered(column: int | str) -> int | str:
    number = counted(column) if isinstance(column, str) else column
    return column if number is None else number


def read_pairs(files: CorpusFiles) -> Iterator[Pair]:
    """Yield the pairs of a corpus in order, reading as little ahead as possible.

    An error (unequal files, a bad line) is raised when the stream reaches it, so use the pairs only after the end.
    """
    if files.path is None:
        assert files.source is not None and files.target is not None, "checked by the validator"
        return _read_aligned(files.source, files.target)
    return _read_tsv(files, files.path) if files.layout == "tsv" else _read_jsonl(files, files.path)


def _read_aligned(source_path: str, target_path: str) -> Iterator[Pair]:
    sources, targets = read_lines(source_path), read_lines(target_path)
    number = 0
    source: str | None = None
    target: str | None = None
    for source, target in zip_longest(sources, targets):
        if source is None or target is None:
            break
        number += 1
        yield Pair(source, target, number)
    else:
        return
    num_sources = number + (source is not None) + sum(1 for _ in sources)
    num_targets = number + (target is not None) + sum(1 for _ in targets)
    raise DataError(
        f"{shown(source_path)} has {num_sources:,} lines but {shown(target_path)} has {num_targets:,}; "
        "the files must be line-aligned"
    )


def _read_tsv(files: CorpusFiles, path: str) -> Iterator[Pair]:
    """Read tab-separated columns; quotes are text."""
    wanted = list(files.columns)
    has_header = any(isinstance(column, str) for column in wanted)
    for number, line in enumerate(read_lines(path), start=1):
        cells = line.split("\t")
        if has_header and number == 1:
            wanted = [_header_column(column, cells, path) for column in wanted]
            continue
        source, target = (int(column) for column in wanted)
        if max(source, target) >= len(cells):
            raise DataError(
                f"{shown(path)}:{number}: no column {max(source, target)}: the line has {len(cells)} tab-separated "
                "columns, counted from 0; fix the line or choose other columns"
            )
        yield Pair(cells[source], cells[target], number)


def _header_column(column: int | str, header: list[str], path: str) -> int:
    if isinstance(column, int):
        return column
    if column not in header:
        raise DataError(
            f"{shown(path)}:1: the header has no column '{column}'{suggestion(column, filter(None, header))}"
        )
    return header.index(column)


def _read_jsonl(files: CorpusFiles, path: str) -> Iterator[Pair]:
    source_key, target_key = (str(column) for column in files.columns)
    for number, line in enumerate(read_lines(path), start=1):
        where = f"{shown(path)}:{number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{where}: not JSON ({error}); each line must be one JSON object") from None
        yield Pair(_field(record, source_key, where), _field(record, target_key, where), number)


def _field(record: Any, key: str, where: str) -> str:
    """Return the text under a key, or under nested keys if there is no such key."""
    value = record
    for part in [key] if isinstance(record, dict) and key in record else key.split("."):
        if not isinstance(value, dict):
            raise DataError(f"{where}: is not a JSON object with the key '{key}'; each line must be one such object")
        if part not in value:
            raise DataError(f"{where}: has no key '{key}'{suggestion(part, value)}")
        value = value[part]
    if not isinstance(value, str):
        raise DataError(f"{where}: '{key}' is {json.dumps(value)[:40]}, not a string; write the text in quotes")
    if "\n" in value:
        raise DataError(f"{where}: '{key}' contains a line break; replace it by a space")
    return normalise(value, f"{where}: '{key}'")


# Documents of plain text, long ones in parts that fit into memory.
#
# Nothing of a document is lost: its line breaks are characters like any other. A setting says where documents end.

DocumentRule = Literal["blank", "line", "file"]

PART_CHARACTERS = 2**14
"""A longer document is split into parts of about this many characters …"""
MAX_CHARACTERS = 2**22
"""… and at most this many, even without a good place to split."""

_SAFE_CUT = re.compile(r".+(?=[ \n]\S)", re.DOTALL)
"""Up to the last space or line break that is followed by something else. Every tokenizer that pre-tokenizes into words
splits there, so that the tokens before and after are independent."""

_LETTERS = ("character", "byte")
"""Kinds of tokenizer for which text can be split anywhere; `feature` is not among them."""


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
