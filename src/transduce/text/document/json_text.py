"""JSONL and JSON: strings under some keys are translated, every other character is kept.

A line of JSONL needs the key of its text. In a JSON document all strings are translated, or those under the given
keys; keys are never translated. Dots name keys within keys: `page.title`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from transduce.config import counted
from transduce.errors import DataError, SettingsError, suggestion
from transduce.text.document.charset import DocumentText
from transduce.text.document.inline import InlineText, Token, plain
from transduce.text.document.segment import DocumentOptions, DocumentSegment, Unit, unchanged
from transduce.text.document.table import join_columns
from transduce.text.lines import normalise

_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"|[{}\[\],:]|[^\s{}\[\],:"]++', re.DOTALL)
_ESCAPE = re.compile(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u....|\\.|[^\\]++", re.DOTALL)
_BREAK = re.compile(r"((?:\\r)?\\n|\\r)")
_ESCAPES = {chr(code): f"\\u{code:04x}" for code in range(32)} | {
    '"': '\\"',
    "\\": "\\\\",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\b": "\\b",
    "\f": "\\f",
}


class Path(NamedTuple):
    """The keys that lead to a value, the last one first; lists have none."""

    key: str
    parent: Path | None
    is_about_others: bool
    """Whether a key begins with @, which marks descriptions of messages (ARB), attributes and types (JSON-LD)."""

    def is_at(self, parts: Sequence[str], from_root: bool) -> bool:
        """Whether it ends with these keys, or consists of them."""
        here: Path | None = self
        for part in reversed(parts):
            if here is None or here.key != part:
                return False
            here = here.parent
        return here is None or not from_root


def json_strings(text: str) -> Iterator[tuple[Path | None, int, int]]:
    """Yield the keys, the beginning and the end of each string of valid JSON that is no key itself."""
    parents: list[Path | None] = []
    here: Path | None = None
    is_object: list[bool] = []
    expects_key = False
    for found in _TOKEN.finditer(text):
        token = found.group()
        if token in ("{", "["):
            parents.append(here)
            is_object.append(token == "{")
            expects_key = token == "{"
        elif token in ("}", "]"):
            here = parents.pop()
            is_object.pop()
            expects_key = False
        elif token == ",":
            expects_key = is_object[-1]
            here = parents[-1]
        elif expects_key and token != ":":
            key, parent = json.loads(token, strict=False), parents[-1]
            is_about_others = key.startswith("@") or (parent is not None and parent.is_about_others)
            here, expects_key = Path(key, parent, is_about_others), False
        elif token[0] == '"':
            yield here, found.start(), found.end()


class StringText:
    """A JSON string: each line of it is a text."""

    def __init__(self, raw: str, is_ascii: bool, where: str) -> None:
        """Read a string with its quotes; in an ASCII document, translations are escaped to ASCII."""
        self._is_ascii = is_ascii
        self._parts = [part if number % 2 else _line(part, where) for number, part in enumerate(_breaks(raw[1:-1]))]
        self._lines = [part for part in self._parts if isinstance(part, InlineText) and part.text]
        self.texts = [line.text for line in self._lines]

    def write(self, translations: Sequence[str]) -> str:
        """Return the string with translations."""
        rest = iter(translations)
        parts = [part if isinstance(part, str) else part.write(next(rest) if part.text else "") for part in self._parts]
        written = "".join(['"', *parts, '"'])
        return json_ascii(written) if self._is_ascii else written


def _breaks(raw: str) -> list[str]:
    """Split at line breaks; a backslash that is escaped itself begins none."""
    if "\\\\" not in raw:
        return _BREAK.split(raw)
    parts, begin = list[str](), 0
    for found in re.finditer(r"\\\\|((?:\\r)?\\n|\\r)", raw):
        if found.group(1):
            parts += [raw[begin : found.start()], found.group()]
            begin = found.end()
    return [*parts, raw[begin:]]


def _line(raw: str, where: str) -> InlineText:
    return InlineText(map(_token, _ESCAPE.findall(raw)), _ESCAPES, where)


def _token(raw: str) -> Token:
    if not raw.startswith("\\"):
        return plain(raw)
    meant = json.loads(f'"{raw}"')
    return Token("text", raw, meant) if len(meant) == 1 else Token("code", raw)


def json_ascii(text: str) -> str:
    """Escape what is not ASCII; characters beyond 16 bits take two escapes."""
    return text if text.isascii() else re.sub(r"[^\x00-\x7f]+", lambda found: json.dumps(found.group())[1:-1], text)


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not JSON ({_reason(error)}); each line must be one JSON object") from None


def _reason(error: Exception) -> str:
    return getattr(error, "msg", None) or ("nested too deeply" if isinstance(error, RecursionError) else "a bad number")


# Translation.


def read_jsonl(document: DocumentText, options: DocumentOptions) -> Iterator[DocumentSegment]:
    """Yield the lines, each of which is an object."""
    if not options.fields and not options.source_columns:
        raise SettingsError(
            f"{document.name}: give the field to translate with --field (a key), or translate whole lines with "
            "--format text"
        )
    if options.source_columns and options.target_column is None:
        raise SettingsError("give the key that the translation is written to with --target-column")
    if options.target_column and any(counted(key) for key in options.fields):
        raise SettingsError("the columns of a JSONL file are keys, not numbers")
    for line in document.lines():
        where = f"{document.name}:{line.number}"
        if not line.text.strip():
            yield unchanged(line.raw)
            continue
        record = _parsed(line.text, where)
        segment = (_joined if options.source_columns else _in_place)(line.text, line.end, record, options, where)
        if options.language_field:
            language = key_value(record, options.language_field, where).strip()
            if not language:
                raise DataError(f"{where}: has no target language")
            segment = replace(segment, target_language=language)
        yield segment


def _in_place(line: str, end: str, record: Any, options: DocumentOptions, where: str) -> DocumentSegment:
    """Translate the strings under some keys; of equal keys the last one counts."""
    places: dict[str, tuple[int, int]] = {}
    for field in options.fields:
        key_value(record, field, where)
        direct = isinstance(record, dict) and field in record
        parts = [field] if direct else field.split(".")
        for path, begin, stop in json_strings(line):
            if path is not None and path.is_at(parts, from_root=True):
                places[field] = begin, stop
    return _spliced(line, end, sorted(set(places.values())), where, line.isascii() and "\\u" in line)


def _spliced(text: str, end: str, places: Sequence[tuple[int, int]], where: str, is_ascii: bool) -> DocumentSegment:
    strings = [StringText(text[begin:stop], is_ascii, where) for begin, stop in places]

    def write(translations: Sequence[str]) -> str:
        rest, parts, place = iter(translations), list[str](), 0
        for found, (begin, stop) in zip(strings, places, strict=True):
            parts += [text[place:begin], found.write([next(rest) for _ in found.texts])]
            place = stop
        return "".join([*parts, text[place:], end])

    return DocumentSegment([one for found in strings for one in found.texts], write, text + end)


def _joined(line: str, end: str, record: Any, options: DocumentOptions, where: str) -> DocumentSegment:
    """Translate several values as one text into another key, which is appended if it is new."""
    target = options.target_column or ""
    text = join_columns([key_value(record, key, where) for key in options.source_columns], options.separator)
    found = [place for path, *place in json_strings(line) if path is not None and path.is_at([target], from_root=True)]
    if target in record and not found:
        raise DataError(f"{where}: '{target}' is not a string; choose another --target-column")
    is_ascii = line.isascii() and "\\u" in line

    def write(translations: Sequence[str]) -> str:
        value = json.dumps(translations[0], ensure_ascii=is_ascii)
        if found:
            begin, stop = found[-1]
            return line[:begin] + value + line[stop:] + end
        close = line.rindex("}")
        body = line[:close].rstrip()
        return f"{body}, {json.dumps(target, ensure_ascii=is_ascii)}: {value}{line[len(body) :]}{end}"

    return DocumentSegment((normalise(text, where),), write, line + end)


def read_json(document: DocumentText, options: DocumentOptions) -> Iterator[DocumentSegment]:
    """Yield the strings of a document, each with what precedes it."""
    if options.source_columns or options.target_column or options.language_field:
        raise SettingsError(
            f"{document.name}: source and target columns are for TSV, CSV and JSONL files, not for JSON"
        )
    text = document.whole()
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        name = f"{document.name}:{getattr(error, 'lineno', 1)}"
        other = "jsonl if each line is an object" if "Extra data" in str(error) else "text if it is plain text"
        raise DataError(f"{name}: not JSON ({_reason(error)}); fix it, or give --format {other}") from None
    wanted = [field.split(".") for field in options.fields]
    is_ascii = text.isascii() and "\\u" in text
    place, line = 0, 1
    for path, begin, stop in json_strings(text):
        if wanted and not (path is not None and any(path.is_at(parts, from_root=False) for parts in wanted)):
            continue
        if not wanted and path is not None and path.is_about_others:
            continue
        line += text.count("\n", place, begin)
        yield _spliced(text[place:stop], "", [(begin - place, stop - place)], f"{document.name}:{line}", is_ascii)
        place = stop
    if wanted and not place and text.strip():
        raise DataError(f"{document.name}: has no string under {' or '.join(options.fields)}; choose another --field")
    if text[place:]:
        yield unchanged(text[place:])


# Training.


def jsonl_units(document: DocumentText, options: DocumentOptions) -> Iterator[Unit]:
    """Yield a pair for each line."""
    sources, target = options.source_columns or ("source",), options.target_column or "target"
    for line in document.lines():
        where = f"{document.name}:{line.number}"
        try:
            record = json.loads(line.text)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{where}: not JSON ({error}); each line must be one JSON object") from None
        values = [_one_line(record, key, where) for key in (*sources, target)]
        source = values[0] if len(sources) == 1 else options.separator.join(values[:-1])
        yield Unit(source, values[-1], line.number)


def _one_line(record: Any, key: str, where: str) -> str:
    value = key_value(record, key, where)
    if "\n" in value:
        raise DataError(f"{where}: '{key}' contains a line break; replace it by a space")
    return normalise(value, f"{where}: '{key}'")


def key_value(record: Any, key: str, where: str) -> str:
    """Return the text under a key, or under nested keys if there is no such key."""
    value = record
    for part in [key] if isinstance(record, dict) and key in record else key.split("."):
        if isinstance(record, list):
            raise DataError(
                f"{where}: is a JSON array; write each of its objects on a line of its own, as `jq -c '.[]'` does"
            )
        if not isinstance(value, dict):
            raise DataError(f"{where}: is not a JSON object with the key '{key}'; each line must be one such object")
        if part not in value:
            raise DataError(f"{where}: has no key '{key}'{suggestion(part, value)}")
        value = value[part]
    if not isinstance(value, str):
        raise DataError(f"{where}: '{key}' is {json.dumps(value)[:40]}, not a string; write the text in quotes")
    return value
