"""Corpora from disk or stdin: pairs of text (two line-aligned files, or one file with both sides), or plain text.

Nothing is dropped or repaired here: a line that is not a pair is an error with its file and line number; units without
a translation to train on, and pairs that are unusable (an empty side, say), are for the caller to count.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, zip_longest
from typing import Annotated, Literal, NamedTuple, Self

import pydantic

from transduce.config import Config, counted
from transduce.errors import DataError, TransduceError
from transduce.text.document.formats import PAIRED, kind_by_name, read_units
from transduce.text.document.segment import DocumentOptions
from transduce.text.document.table import looks_like_header, unnamed_columns
from transduce.text.lines import MAX_LINE_BYTES, STDIN, normalise, read_lines, shown
from transduce.text.tokenizer import AnyTokenizer
from transduce.text.tokenizer.special import NAME

__all__ = ["MAX_LINE_BYTES", "STDIN", "CorpusFiles", "Pair", "normalise", "read_lines", "read_pairs"]

PairFormat = Literal["tsv", "csv", "jsonl", "tmx", "xliff", "po"]
"""Formats of a file with both sides."""
Column = int | str
Columns = Annotated[tuple[Column, ...], pydantic.Field(strict=False)]
Languages = tuple[str | None, str | None]
"""Source and target language."""
_TABLES = ("tsv", "csv")
_ROWS = (*_TABLES, "jsonl")


class Pair(NamedTuple):
    """One source with its target, and their line number."""

    source: str
    target: str
    line: int
    """Counted from 1."""


class CorpusFiles(Config):
    """Files of a parallel corpus: two line-aligned files, or one file with both sides.

    "-" is standard input, plain or gzip; it can be read only once.
    """

    source: str | None = None
    """File with one source per line, aligned with the lines of `target`."""

    target: str | None = None
    """File with one target per line."""

    alignment: str | None = None
    """File with the word alignment of each pair of lines in Pharaoh format (`0-0 1-2`, source word first, counted from
    0), for `training.guided_alignment`. Words are separated by white space. For training corpora of two files."""

    path: str | None = None
    """One file with both sides, instead of `source` and `target`: TSV, CSV, JSONL, TMX, XLIFF or PO."""

    format: Literal["auto", "lines", "tsv", "csv", "jsonl", "tmx", "xliff", "po"] = "auto"
    """Format of the files; "auto" goes by the name: two files are lines, otherwise .tsv, .csv, .jsonl or .json, .tmx,
    .xliff or .xlf, .po, also .gz. Of TMX, XLIFF and PO, units are used that are translated and not fuzzy."""

    source_column: Column | Columns | None = None
    """Column of the source. In a TSV or CSV a number from 1, or a name if the first row is a header; by default the
    column that a header names source, or 1.
    In a JSONL a key ("source" by default), with dots for keys within keys, as in "translation.de". Several, as in
    ["lemma", "features"], are joined to one source."""

    target_column: Column | None = None
    """Column of the target; by default the one that a header names target, or 2, and "target" in a JSONL."""

    separator: str | None = None
    """What joins several source columns; a space by default."""

    header: bool | None = None
    """Whether the first row of a TSV or CSV is a header; by default it is if columns are named, or if it names columns
    for source and target itself."""

    weight: float | None = pydantic.Field(default=None, gt=0, le=1000)
    """How often each pair is seen per epoch, 1 by default. For training corpora; 0.25 uses a different quarter of the
    pairs in each epoch."""

    source_language: str | None = pydantic.Field(default=None, pattern=f"^{NAME}$")
    """Language of the sources, if the corpora of a run differ; `[data]` sets it for all. It selects the language of a
    TMX file."""

    target_language: str | None = pydantic.Field(default=None, pattern=f"^{NAME}$")
    """Language of the targets (`de`, `pt-BR`, …). If training corpora name it, the model becomes multilingual:
    a tag such as >>de<< precedes each source."""

    @pydantic.model_validator(mode="after")
    def _possible(self) -> Self:
        if self.path is not None and (self.source is not None or self.target is not None):
            raise ValueError("give either source and target, or path alone, not both")
        if self.path is not None and self.alignment is not None:
            raise ValueError("alignment belongs to the lines of two files; give source and target instead of path")
        if self.path is None:
            self._check_two_files()
        elif self.format == "lines":
            raise ValueError("lines come from two files: give source and target instead of path")
        elif self.layout in _ROWS:
            self._check_columns()
        elif self._has_columns:
            raise ValueError(f"columns are for TSV, CSV and JSONL files, not for {self.layout}")
        return self

    @property
    def _has_columns(self) -> bool:
        return self.source_column is not None or self.target_column is not None

    def _check_two_files(self) -> None:
        if self.source is None and self.target is None:
            raise ValueError(
                "no files given: set source and target (line-aligned files), or path (one file with both sides)"
            )
        if self.source is None or self.target is None:
            given, lacking = ("target", "source") if self.source is None else ("source", "target")
            raise ValueError(f"{given} is given but {lacking} is not; a corpus needs both sides")
        if self.source == self.target == STDIN:
            raise ValueError(
                "source and target cannot both be stdin; give one of them as a file, or pipe a TSV as path"
            )
        if self.alignment == STDIN:
            raise ValueError("alignment cannot be stdin; give a file")
        if self.format not in ("auto", "lines"):
            raise ValueError(f"source and target are files of lines; for a {self.format} file give path")
        if self._has_columns:
            raise ValueError("columns are for a TSV, CSV or JSONL file given as path")

    def _check_columns(self) -> None:
        sources, target = self.columns
        for column in (*sources, target):
            number = counted(column)
            if self.layout == "jsonl" and number is not None:
                raise ValueError("the columns of a JSONL file are names, not numbers")
            if not column.strip() or number == 0 or column.startswith("-"):
                raise ValueError(f"invalid column '{column}'; columns are numbers from 1, names of a header, or keys")
        if not sources or len({*sources, target}) <= len(sources):
            raise ValueError(f"source and target need different columns, but source is {', '.join(sources)}")

    @property
    def name(self) -> str:
        """Name in reports."""
        return f"{self.source}, {self.target}" if self.path is None else self.path

    @property
    def layout(self) -> PairFormat | Literal["lines"]:
        """The format with "auto" resolved."""
        if self.path is None:
            return "lines"
        if self.format != "auto":
            return self.format
        try:
            kind = None if self.path == STDIN else kind_by_name(self.path)
        except TransduceError as error:
            raise ValueError(str(error).rpartition(", or give")[0]) from None
        kind = "jsonl" if kind == "json" else kind
        if kind not in PAIRED:
            raise ValueError(
                f"no format follows from the name {self.path!r}; set format (--path-format) to one of "
                f"{', '.join(PAIRED)}"
            )
        return kind  # type: ignore[return-value]

    @property
    def columns(self) -> tuple[tuple[str, ...], str]:
        """The columns of sources and target with the defaults filled in."""
        given = self.source_column if isinstance(self.source_column, tuple) else (self.source_column,)
        defaults = ("source", "target") if self.layout == "jsonl" else ("1", "2")
        sources = tuple(defaults[0] if column is None else str(column) for column in given)
        return sources, defaults[1] if self.target_column is None else str(self.target_column)


Skip = Callable[[Pair, str], None]
"""Called for each unit that is not a pair to train on, with the reason."""


def read_pairs(files: CorpusFiles, languages: Languages = (None, None), skip: Skip | None = None) -> Iterator[Pair]:
    """Yield the pairs of a corpus in order, reading as little ahead as possible.

    An error (unequal files, a bad line) is raised when the stream reaches it, so use the pairs only after the end.
    `languages` are those of a corpus that names none itself; `skip` is called with units that are not pairs.
    """
    if files.path is None:
        assert files.source is not None and files.target is not None, "checked by the validator"
        return _read_aligned(files.source, files.target)
    return _read_units(files, files.path, languages, skip)


def _read_units(files: CorpusFiles, path: str, languages: Languages, skip: Skip | None) -> Iterator[Pair]:
    sources, target = files.columns
    options = DocumentOptions(
        source_columns=() if files.source_column is None and files.layout in _TABLES else sources,
        target_column=None if files.target_column is None and files.layout in _TABLES else target,
        separator=" " if files.separator is None else files.separator,
        header=files.header,
        source_language=files.source_language or languages[0],
        target_language=files.target_language or languages[1],
    )
    assert files.layout != "lines"
    for unit in read_units(path, files.layout, options):
        pair = Pair(unit.source, unit.target, unit.line)
        if unit.unused is None:
            yield pair
        elif skip is not None:
            skip(pair, unit.unused)


def further_columns(files: CorpusFiles) -> str | None:
    """Say which columns of a table are used where it has more, and what its first row looks like; None if nobody has to
    choose."""
    if files.layout not in _TABLES or files._has_columns or files.path == STDIN:
        return None
    cells = unnamed_columns(read_lines(str(files.path)), files.layout == "csv")
    if cells is None:
        return None
    name, is_header = shown(str(files.path)), files.header is None and looks_like_header(cells)
    if len(cells) <= 2:
        pair = " and ".join(f"'{cell}'" for cell in cells)
        return (
            f"{name}: {pair} are read as the first pair; give --header if they name the columns" if is_header else None
        )
    return (
        f"{name} has {len(cells)} columns: source is column 1 and target column 2; --source-column and --target-column "
        f"choose others, --header if the first row names them{', as it seems to' if is_header else ''}"
    )


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
        f"{shown(source_path)} has {num_sources:,} line{'s' * (num_sources != 1)} but {shown(target_path)} has "
        f"{num_targets:,}; "
        "line N of one must be the translation of line N of the other"
    )


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
