"""TSV and CSV: some columns of each row are translated, all others are kept.

In TSV, quotes are text and a row is a line. In CSV (RFC 4180) a quoted field may have delimiters, line breaks and
doubled quotes. The delimiter is the one that a first line `sep=;` states, as spreadsheets write it; otherwise a comma,
a semicolon, a tab or a vertical bar: the one that gives the first rows equally many columns, or else the most frequent
in the first line. Rows are read one by one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import NamedTuple

from transduce.config import counted
from transduce.errors import DataError, SettingsError, suggestion
from transduce.text.document.charset import DocumentText, Line
from transduce.text.document.segment import DocumentOptions, DocumentSegment, Unit, unchanged
from transduce.text.document.value import ValueText, paired_lines
from transduce.text.language_names import NAMES
from transduce.text.lines import MAX_LINE_BYTES, normalise

DELIMITERS = ",;\t|"
SOURCE_NAMES = frozenset({"source", "src", "source_text", "input"})
TARGET_NAMES = frozenset({"target", "tgt", "trg", "target_text", "output", "translation"})
"""Names of columns by which the first row is taken for a header."""

_USUAL = """
id idx index no nr key line text sentence phrase word words term lemma form forms features feats tag tags pos msd label
labels class category question query sql code command cmd title description context domain grapheme graphemes
phoneme phonemes pronunciation ipa spelling prompt response completion reference original translated simple complex
score license
"""
_COLUMN_WORDS = SOURCE_NAMES | TARGET_NAMES | {"answer", *_USUAL.split(), *NAMES, *map(str.lower, NAMES.values())}
"""What columns are usually called by, languages included."""
_STATED = re.compile(r'"?sep=([^\w" ])"?')
"""A first line that states the delimiter."""
_LOOKAHEAD = 16
"""Lines that are compared where the first one has several possible delimiters."""
_OPEN = re.compile(r' *+"')
_CLOSED = re.compile(r'[^"]*+(?:""[^"]*+)*+"')
"""The rest of a quoted field."""
_QUOTED = re.compile(r'"[^"]*"?')


class Row(NamedTuple):
    """A row as it is written."""

    cells: list[str]
    end: str
    number: int
    """Of its first line."""

    @property
    def is_blank(self) -> bool:
        """Whether it is an empty line."""
        return len(self.cells) == 1 and not self.cells[0].strip()


class Table:
    """The rows of a TSV or CSV document."""

    def __init__(self, document: DocumentText, quoted: bool) -> None:
        self.name, self._quoted = document.name, quoted
        lines = document.lines()
        first = next(lines, None)
        stated = _STATED.fullmatch(first.text) if quoted and first is not None else None
        self.preamble = "" if stated is None or first is None else first.raw
        """A first line that states the delimiter."""
        begun = [] if stated or first is None else [first]
        if quoted and begun and _candidates(begun[0].text):
            begun += islice(lines, _LOOKAHEAD)
        self._lines = chain(begun, lines)
        self.delimiter = stated[1] if stated else _delimiter([line.text for line in begun]) if quoted else "\t"

    def rows(self) -> Iterator[Row]:
        """Yield the rows."""
        if not self._quoted:
            for line in self._lines:
                yield Row(line.text.split("\t"), line.end, line.number)
            return
        for line in self._lines:
            yield self._row(line)

    def value(self, cell: str) -> str:
        """Return what a cell means."""
        if not self._quoted or not (quoted := cell.strip(" ")).startswith('"'):
            return cell
        return quoted[1:-1].replace('""', '"')

    def cell(self, value: str, before: str = "") -> str:
        """Return a value as a cell, quoted if necessary or if the cell was before."""
        if not self._quoted:
            return re.sub(r"[\t\r\n]", " ", value)
        was_quoted = before.lstrip(" ").startswith('"')
        if not was_quoted and not re.search(f'[{re.escape(self.delimiter)}\r\n]|^ *"', value):
            return value
        doubled = value.replace('"', '""')
        begin, end = (before.index('"'), before.rindex('"') + 1) if was_quoted else (0, len(before))
        return f'{before[:begin]}"{doubled}"{before[end:]}'

    def _row(self, first: Line) -> Row:
        """Read a record, which takes further lines while a quoted field is open."""
        cells, line, place, size = list[str](), first, 0, 0
        while True:
            if (opened := _OPEN.match(line.text, place)) is not None:
                begun, end = [opened.group()], opened.end()
                while (found := _CLOSED.match(line.text, end)) is None:
                    begun += [line.text[end:], line.end]
                    size += len(line.text)
                    following = next(self._lines, None) if size <= MAX_LINE_BYTES else None
                    if following is None:
                        raise DataError(f"{self.name}:{first.number}: a quoted field is not closed; add its quote")
                    line, end = following, 0
                end = found.end()
                while end < len(line.text) and line.text[end] == " " != self.delimiter:
                    end += 1
                cells.append("".join([*begun, found.group(), line.text[found.end() : end]]))
                if end < len(line.text) and line.text[end] != self.delimiter:
                    raise DataError(
                        f"{self.name}:{line.number}: text follows the closing quote of a field; quote all of the "
                        "field, and double the quotes in it"
                    )
            else:
                end = line.text.find(self.delimiter, place)
                end = len(line.text) if end < 0 else end
                cells.append(line.text[place:end])
            if end == len(line.text):
                return Row(cells, line.end, first.number)
            place = end + 1

    def header(self, wanted: Sequence[str], given: bool | None) -> tuple[Row | None, Iterator[Row]]:
        """Return the header, if there is one, and the rows; `wanted` are the columns that are used."""
        rows = self.rows()
        first = next(rows, None)
        if first is None:
            return None, rows
        named = any(counted(column) is None for column in wanted)
        if given is False and named:
            raise SettingsError("columns are named by a header; give numbers, counted from 1, or leave out --no-header")
        if given or named or (given is None and _side_columns([self.value(cell) for cell in first.cells])):
            return first, rows
        return None, chain([first], rows)

    def column(self, column: str, header: Row | None) -> int:
        """Return the place of a column that is given by its number or name."""
        number = counted(column)
        if number == 0 or (number is None and column.isdecimal()):
            raise SettingsError(f"'{column[:40]}' is no column; columns are numbers from 1, or names of the header")
        if number is not None:
            return number - 1
        names = [] if header is None else [self.value(cell).strip() for cell in header.cells]
        if column not in names:
            line = 1 if header is None else header.number
            raise DataError(
                f"{self.name}:{line}: the header has no column '{column}'{suggestion(column, filter(None, names))}"
            )
        return names.index(column)

    def get(self, row: Row, place: int) -> str:
        """Return a value of a row; a row without it is an error."""
        if place >= len(row.cells):
            raise DataError(
                f"{self.name}:{row.number}: no column {place + 1}: the row has only {len(row.cells)}; fix the row or "
                "choose another column, counted from 1"
            )
        return self.value(row.cells[place])


def _side_columns(cells: Sequence[str]) -> tuple[str, str] | None:
    """Return the numbers of the columns that a row names for source and target; None if it does not name both."""
    names = [cell.strip().lower() for cell in cells]
    found = [
        next((str(place) for place, name in enumerate(names, start=1) if name in known), None)
        for known in (SOURCE_NAMES, TARGET_NAMES)
    ]
    return (found[0], found[1]) if found[0] and found[1] else None


def unnamed_columns(lines: Iterable[str], quoted: bool) -> list[str] | None:
    """Return the first row of a table, unless it names the columns of source and target."""
    first, *others = [*islice(lines, _LOOKAHEAD + 1)] or [""]
    stated = _STATED.fullmatch(first) if quoted else None
    delimiter = stated[1] if stated else _delimiter([first, *others]) if quoted else "\t"
    line = others[0] if stated and others else first
    cells = (_QUOTED.sub(lambda found: found[0].replace(delimiter, " "), line) if quoted else line).split(delimiter)
    cells = [cell.strip('" ') for cell in cells]
    return None if _side_columns(cells) else cells


def looks_like_header(cells: Sequence[str]) -> bool:
    """Whether all cells of a first row are different words that columns are usually called by, `text_en` for one."""
    names = [cell.lower() for cell in cells]
    return len({*names}) == len(names) > 1 and all({*re.split(r"[\s_.-]+", name)} <= _COLUMN_WORDS for name in names)


def _candidates(line: str) -> bool:
    """Whether a first line has several possible delimiters."""
    outside = _QUOTED.sub("", line)
    return sum(delimiter in outside for delimiter in DELIMITERS) > 1


def _delimiter(lines: Sequence[str]) -> str:
    """Return the delimiter that is as frequent in all lines, or the one that is most frequent in the first."""
    rows = _QUOTED.sub("", "\n".join(lines)).split("\n")
    if not _candidates(lines[0]):
        return max(DELIMITERS, key=rows[0].count)
    counts = {delimiter: [row.count(delimiter) for row in rows if row.strip()] for delimiter in DELIMITERS}
    return max(DELIMITERS, key=lambda one: (min(counts[one]) == max(counts[one]) > 0, counts[one][0]))


# Translation.


def read_table(document: DocumentText, options: DocumentOptions, quoted: bool) -> Iterator[DocumentSegment]:
    """Yield the rows, with the texts of the columns that are translated."""
    if not options.fields and not options.source_columns:
        raise SettingsError(
            f"{document.name}: give the column to translate with --field (a number from 1, or a name of the header), "
            "or translate whole lines with --format text"
        )
    table = Table(document, quoted)
    target = options.target_column
    language = [options.language_field] if options.language_field else []
    wanted = [*options.fields, *options.source_columns, *language]
    header, rows = table.header(wanted, options.header)
    fields = [table.column(column, header) for column in options.fields]
    sources = [table.column(column, header) for column in options.source_columns]
    places = [table.column(column, header) for column in language]
    into: int | None = None
    if target is not None:
        names = [] if header is None else [table.value(cell).strip() for cell in header.cells]
        into = table.column(target, header) if target in names or counted(target) else None
    elif sources:
        raise SettingsError("give the column that the translation is written to with --target-column")
    if table.preamble:
        yield unchanged(table.preamble)
    if header is not None:
        appended = table.delimiter + table.cell(target) if target is not None and into is None else ""
        original = table.delimiter.join(header.cells) + header.end
        new = table.delimiter.join(header.cells) + appended + header.end
        yield DocumentSegment((), lambda _: new, original)
    for row in rows:
        if row.is_blank:
            yield unchanged(row.cells[0] + row.end)
            continue
        segment = (
            _in_place(table, row, fields) if not sources else _joined(table, row, sources, into, options.separator)
        )
        if places:
            found = table.get(row, places[0]).strip()
            if not found:
                raise DataError(f"{table.name}:{row.number}: has no target language")
            segment = replace(segment, target_language=found)
        yield segment


def _in_place(table: Table, row: Row, fields: Sequence[int]) -> DocumentSegment:
    """Translate some cells, line by line."""
    where = f"{table.name}:{row.number}"
    values = [ValueText(table.get(row, place), where) for place in fields]
    original = table.delimiter.join(row.cells) + row.end

    def write(translations: Sequence[str]) -> str:
        rest, cells = iter(translations), list(row.cells)
        for place, value in zip(fields, values, strict=True):
            cells[place] = table.cell(value.write([next(rest) for _ in value.texts]), row.cells[place])
        return table.delimiter.join(cells) + row.end

    return DocumentSegment([text for value in values for text in value.texts], write, original)


def _joined(table: Table, row: Row, sources: Sequence[int], into: int | None, separator: str) -> DocumentSegment:
    """Translate several cells as one text into another column."""
    text = join_columns([table.get(row, place) for place in sources], separator)
    cells = row.cells
    original = table.delimiter.join(cells) + row.end
    if into is not None and into > len(cells):
        table.get(row, into - 1)

    def write(translations: Sequence[str]) -> str:
        place = len(cells) if into is None else into
        written = table.cell(translations[0], cells[place] if place < len(cells) else "")
        return table.delimiter.join([*cells[:place], written, *cells[place + 1 :]]) + row.end

    return DocumentSegment((normalise(text, f"{table.name}:{row.number}"),), write, original)


def join_columns(values: Sequence[str], separator: str) -> str:
    """Return several columns as one source; line breaks become spaces."""
    return separator.join(re.sub(r"[\r\n]+", " ", value) for value in values)


read_tsv = partial(read_table, quoted=False)
read_csv = partial(read_table, quoted=True)


# Training.


def _units(document: DocumentText, options: DocumentOptions, quoted: bool) -> Iterator[Unit]:
    """Yield a pair for each row; values of a CSV with as many lines as each other are pairs of lines."""
    table = Table(document, quoted)
    given = [*options.source_columns, *([options.target_column] if options.target_column else [])]
    header, rows = table.header(given, options.header)
    of_header = _side_columns([] if header is None else [table.value(cell) for cell in header.cells])
    source, target = ("1", "2") if of_header is None or given else of_header
    sources, target = options.source_columns or (source,), options.target_column or target
    columns = [table.column(column, header) for column in sources]
    into = table.column(target, header)
    for row in rows:
        if row.is_blank and quoted:
            continue
        values, where = [table.get(row, place) for place in columns], f"{table.name}:{row.number}"
        source = values[0] if len(values) == 1 else join_columns(values, options.separator)
        for one, other in paired_lines(source, table.get(row, into)) if quoted else [(source, table.get(row, into))]:
            yield Unit(normalise(one, where), normalise(other, where), row.number)


tsv_units = partial(_units, quoted=False)
csv_units = partial(_units, quoted=True)
