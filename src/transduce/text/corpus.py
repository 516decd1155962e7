"""Pairs of text from disk or stdin: two line-aligned files, a TSV or a JSONL, one pair at a time.

Nothing is dropped or repaired here: what cannot be read as a pair is an error with its file and line, and what is
read but not wanted (an empty side, say) is for the reader's caller to count.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import PurePath
from typing import Any, Literal, NamedTuple, Self

import pydantic

from transduce.config import Config, counted
from transduce.errors import DataError, suggestion
from transduce.text.lines import MAX_LINE_BYTES, STDIN, normalise, read_lines, shown
from transduce.text.tokenizer.language_tag import NAME

__all__ = ["MAX_LINE_BYTES", "STDIN", "CorpusFiles", "Pair", "normalise", "read_lines", "read_pairs"]

Format = Literal["lines", "tsv", "jsonl"]

_FORMATS: dict[str, Format] = {".tsv": "tsv", ".jsonl": "jsonl", ".json": "jsonl"}


class Pair(NamedTuple):
    """One source with its target, and where they stand."""

    source: str
    target: str
    line: int
    """Counted from 1."""


class CorpusFiles(Config):
    """Where pairs of text are: two line-aligned files, or one file with two columns.

    "-" is standard input, plain or gzip; it can be read once only.
    """

    source: str | None = None
    """File with one source text per line; its partner is the same line of `target`."""

    target: str | None = None
    """File with one target text per line."""

    path: str | None = None
    """One TSV or JSONL file with both sides, instead of `source` and `target`."""

    format: Literal["auto", "lines", "tsv", "jsonl"] = "auto"
    """What the files are; "auto" goes by the name: two files are lines, else .tsv, .jsonl or .json before any .gz."""

    source_column: int | str | None = None
    """Column of the source. In a TSV a number from 0 (the default), or a name if the first line is a header.
    In a JSONL a key ("source" by default), with dots for keys within keys, as in "translation.de"."""

    target_column: int | str | None = None
    """Column of the target: 1 in a TSV and "target" in a JSONL by default."""

    weight: float | None = pydantic.Field(default=None, gt=0, le=1000)
    """How often each of its pairs is seen in an epoch, 1 if not given. For training corpora; 0.25 is another quarter
    of the pairs in each epoch."""

    source_language: str | None = pydantic.Field(default=None, pattern=f"^{NAME}$")
    """Language of the sources, where the corpora of a run are in several; `[data]` says it for all."""

    target_language: str | None = pydantic.Field(default=None, pattern=f"^{NAME}$")
    """Language of the targets (`de`, `pt-BR`, …). Where training corpora name one, it is learned as a request:
    a tag such as >>de<< goes before each source."""

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
            raise ValueError("name the text: source and target (two line-aligned files), or path (a TSV or JSONL file)")
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
                raise ValueError(f"there is no column {column!r}; a TSV's are counted from 0, a JSONL's have names")
        if self.columns[0] == self.columns[1]:
            raise ValueError(f"source and target cannot both be column {self.columns[0]!r}")

    @property
    def name(self) -> str:
        """What a report calls it."""
        return f"{self.source}, {self.target}" if self.path is None else self.path

    @property
    def layout(self) -> Format:
        """The format with "auto" worked out."""
        if self.path is None:
            return "lines"
        if self.format != "auto":
            return self.format
        suffixes = [suffix.lower() for suffix in PurePath(self.path).suffixes if suffix.lower() != ".gz"]
        if not suffixes or suffixes[-1] not in _FORMATS:
            raise ValueError(f"cannot tell from the name {self.path!r} what it holds; set format to tsv or jsonl")
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

    An error (unequal files, a bad line) comes when the stream reaches it, so use what was read only after the end.
    """
    if files.path is None:
        assert files.source is not None and files.target is not None, "the validator saw both"
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
        "line n of one must be the partner of line n of the other"
    )


def _read_tsv(files: CorpusFiles, path: str) -> Iterator[Pair]:
    """Columns between tabs, as they stand: quotes are text."""
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
                f"{shown(path)}:{number}: there is no column {max(source, target)} (counted from 0), the line has "
                f"{len(cells)} between tabs; fix the line or name other columns"
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
            raise DataError(f"{where}: not JSON ({error}); each line must hold one JSON object") from None
        yield Pair(_field(record, source_key, where), _field(record, target_key, where), number)


def _field(record: Any, key: str, where: str) -> str:
    """Return the text under a key, or under keys within keys when no such key stands there whole."""
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
        raise DataError(f"{where}: '{key}' has a line break in it; a pair is one line each side, so put a space there")
    return normalise(value, f"{where}: '{key}'")
