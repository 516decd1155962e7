"""Documents as text to translate and everything else, which is written back unchanged.

A document is a stream of segments. A segment has some texts, and writes itself with their translations; one without
texts is written unchanged. Formats: `text` (one text per line), `tsv` and `jsonl` (a column or a key of each line),
`srt` (subtitles), `po` (message catalogues).
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby, pairwise, takewhile
from typing import cast

from transduce.config import counted
from transduce.errors import DataError, SettingsError
from transduce.text.lines import normalise

Write = Callable[[Sequence[str]], str]


@dataclass(frozen=True)
class DocumentSegment:
    """A part of a document."""

    texts: list[str]
    """Texts to translate, without line breaks; often none."""
    write: Write
    """(translations) -> lines, with the last line break."""
    target_language: str | None = None
    """Target language given in the document."""


def segments(
    kind: str, lines: Iterable[str], field: str | None, where: str, language_field: str | None = None
) -> Iterator[DocumentSegment]:
    """Read a document; `field` is the column (from 1) or the key to translate.

    `language_field` is the column or key with the target language.
    """
    if language_field and kind not in ROWS:
        raise SettingsError(f"--target-language-field needs a TSV or JSONL file, not {kind}")
    if language_field and field:
        read, name = _COLUMNS[kind], language_field
        return (
            replace(read(line, field, at), target_language=_language(read(line, name, at), at))
            for number, line in enumerate(lines, start=1)
            for at in [f"{where}:{number}"]
        )
    if kind in ROWS:
        if not field:
            raise SettingsError(
                f"give the field to translate with --field (a {_FIELD[kind]}), or translate whole lines with "
                "--format text"
            )
        return (_COLUMNS[kind](line, field, f"{where}:{number}") for number, line in enumerate(lines, start=1))
    if field:
        raise SettingsError(f"--field is for tsv and jsonl, not for {kind}")
    return _BLOCKS[kind](lines) if kind in _BLOCKS else map(_line, lines)


def kind_of(path: str) -> str:
    """Return the format of a file by its name; text by default."""
    suffix = path.removesuffix(".gz").rpartition(".")[2].lower()
    return {"srt": "srt", "po": "po", "pot": "po", "tsv": "tsv", "jsonl": "jsonl"}.get(suffix, "text")


LONGEST_SUBTITLE = 1000
"""Maximum characters of a subtitle that is broken into lines."""
KINDS = ("text", "tsv", "jsonl", "srt", "po")
ROWS = ("tsv", "jsonl")
MARKED_UP = ("srt", "po")
"""Formats with placeholders and tags, which are always copied."""
"""Formats with structured lines; only their texts are normalised to NFC."""
_FIELD = {"tsv": "number from 1", "jsonl": "key"}


def _unchanged(lines: Sequence[str]) -> DocumentSegment:
    return DocumentSegment([], lambda _: "".join(f"{line}\n" for line in lines))


def _line(line: str) -> DocumentSegment:
    return DocumentSegment([line], lambda translations: f"{translations[0]}\n")


def _column(line: str, field: str, where: str) -> DocumentSegment:
    number = counted(field)
    if not number:
        raise SettingsError(f"--field {field}: a TSV column must be a number from 1")
    cells, place = line.split("\t"), number - 1
    if place >= len(cells):
        raise DataError(f"{where}: has {len(cells)} columns, but --field is {field}")

    def write(translations: Sequence[str]) -> str:
        return "\t".join([*cells[:place], translations[0].replace("\t", " "), *cells[place + 1 :]]) + "\n"

    return DocumentSegment([normalise(cells[place], where)], write)


def _key(line: str, field: str, where: str) -> DocumentSegment:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        raise DataError(f"{where}: is not JSON") from None
    if not isinstance(row, dict) or not isinstance(row.get(field), str):
        raise DataError(f"{where}: is not a JSON object with a string under '{field}'")
    start, end = _place_of(line, field)

    def write(translations: Sequence[str]) -> str:
        text = "\n".join(translations)
        return f"{line[:start]}{json.dumps(text, ensure_ascii=False)}{line[end:]}\n"

    return DocumentSegment(normalise(row[field], where).split("\n"), write)


def _place_of(line: str, field: str) -> tuple[int, int]:
    """Return the position of a key's value in a line of JSON, so that everything around it stays unchanged."""
    decode, found = json.JSONDecoder().raw_decode, (0, 0)
    place = _after_space(line, 0) + 1
    while (place := _after_space(line, place)) < len(line) and line[place] != "}":
        key, place = decode(line, place)
        start = _after_space(line, _after_space(line, place) + 1)  # the colon
        _, place = decode(line, start)
        if key == field:  # the last one counts
            found = start, place
        place = _after_space(line, place)
        place += line[place] == ","
    return found


_JSON_SPACE = re.compile(r"[ \t\n\r]*")


def _after_space(line: str, place: int) -> int:
    return cast(re.Match[str], _JSON_SPACE.match(line, place)).end()  # matches the empty string too


def _language(segment: DocumentSegment, where: str) -> str:
    """Return the language in the given column or key."""
    if len(segment.texts) != 1 or not segment.texts[0].strip():
        raise DataError(f"{where}: has no target language")
    return segment.texts[0].strip()


def _blocks(lines: Iterable[str]) -> Iterator[tuple[bool, list[str]]]:
    """Yield groups of lines: (are they blank, lines)."""
    for empty, group in groupby(lines, key=lambda line: not line.strip()):
        yield empty, list(group)


def _subtitles(lines: Iterable[str]) -> Iterator[DocumentSegment]:
    """Read SRT: a number, the times, and one or several lines, which are one text and are broken again.

    Times begin a subtitle, with or without a blank line before them; a blank line within it separates two texts.
    """
    text: list[str] = []
    begun = False
    for line, after in pairwise(chain(lines, [""])):
        times = _TIMES.match(line) is not None
        head = times or (line.strip().isdecimal() and _TIMES.match(after) is not None)
        if begun and not head and line.strip():
            text.append(line)
            continue
        if text:
            yield _subtitle(text)
            text = []
        yield _unchanged([line])
        begun = begun or times
    if text:
        yield _subtitle(text)


def _subtitle(lines: Sequence[str]) -> DocumentSegment:
    text = " ".join(line.strip() for line in lines)
    opening, closing = _OPENING_TAGS.match(text), _CLOSING_TAGS.search(text)
    assert opening is not None and closing is not None
    begin, end = opening.group(), closing.group()
    if len(begin) + len(end) > len(text):
        return _unchanged(lines)

    def write(translations: Sequence[str]) -> str:
        return f"{begin}{_broken(translations[0], len(lines))}{end}\n"

    return DocumentSegment([text[len(begin) : len(text) - len(end)]], write)


def _broken(text: str, lines: int) -> str:
    """Break a text into this many lines of about equal length."""
    if len(text) > LONGEST_SUBTITLE:
        return text
    widths = range(max(1, len(text) // lines), len(text) + 1)
    tries = (textwrap.wrap(text, width, break_long_words=False) for width in widths)
    return "\n".join(next((found for found in tries if len(found) <= lines), [text]))


_TIMES = re.compile(r"\s*\d[\d:.,]*\s*-->\s*\d")
_OPENING_TAGS = re.compile(r"(?:<[^<>]*>|\{\\[^{}]*\})*")
_CLOSING_TAGS = re.compile(r"(?:</[^<>]*>)*$")


def _messages(lines: Iterable[str]) -> Iterator[DocumentSegment]:
    """Read PO: entries without a translation get one, marked fuzzy for review; all others are unchanged."""
    for empty, block in _blocks(lines):
        if empty:
            yield _unchanged(block)
        else:
            yield from map(_message, _entries(block))


def _entries(block: Sequence[str]) -> Iterator[list[str]]:
    """Split entries that no blank line separates: an entry ends with its translations."""
    entry: list[str] = []
    has_translation = False
    for line in block:
        begins = line.startswith(("#", "msgctxt", "msgid"))
        if has_translation and begins:
            yield entry
            entry, has_translation = [], False
        entry.append(line)
        has_translation = has_translation or line.startswith("msgstr")
    yield entry


def _message(block: list[str]) -> DocumentSegment:
    fields: dict[str, str] = {}
    name = ""
    for line in block:
        found = _FIELD_LINE.match(line)
        if found is None:
            continue
        name = found.group(1) or name
        fields[name] = fields.get(name, "") + _unescaped(found.group(2))
    targets = [key for key in fields if key.startswith("msgstr")]
    if not fields.get("msgid") or not targets or any(fields[key] for key in targets):
        return _unchanged(block)
    originals = [fields["msgid"], *([fields["msgid_plural"]] if "msgid_plural" in fields else [])]
    texts = [text.split("\n") for text in originals]

    def write(translations: Sequence[str]) -> str:
        rest = iter(translations)
        singular, *plural = ["\n".join(next(rest) for _ in several) for several in texts]
        kept = list(takewhile(lambda line: not line.startswith("msgstr"), block))
        others = plural[-1] if plural else singular
        new = [f'{key} "{_escaped(singular if key in ("msgstr", "msgstr[0]") else others)}"' for key in targets]
        return "".join(f"{line}\n" for line in [*_fuzzy(kept), *new])

    return DocumentSegment([line for several in texts for line in several], write)


_FIELD_LINE = re.compile(r'(?:(msgctxt|msgid|msgid_plural|msgstr(?:\[\d+\])?)\s+)?"(.*)"\s*$')


def _fuzzy(lines: Sequence[str]) -> list[str]:
    flags = [place for place, line in enumerate(lines) if line.startswith("#,")]
    if flags:
        place = flags[0]
        already = "fuzzy" in lines[place]
        return [*lines[:place], lines[place] if already else f"#, fuzzy{lines[place][1:]}", *lines[place + 1 :]]
    place = next(place for place, line in enumerate(lines) if not line.startswith("#"))
    return [*lines[:place], "#, fuzzy", *lines[place:]]


_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\", "r": "\r"}
_LETTERS = {meant: letter for letter, meant in _ESCAPES.items()}


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found.group(1), found.group()), text)


def _escaped(text: str) -> str:
    return re.sub(r'[\n\t\r"\\]', lambda found: f"\\{_LETTERS[found.group()]}", text)


_COLUMNS: dict[str, Callable[[str, str, str], DocumentSegment]] = {"tsv": _column, "jsonl": _key}
_BLOCKS: dict[str, Callable[[Iterable[str]], Iterator[DocumentSegment]]] = {"srt": _subtitles, "po": _messages}
