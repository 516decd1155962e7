"""PO message catalogues of gettext: messages without a translation get one, marked fuzzy for review.

A translation has the layout of its message: the same line breaks, strings continued on further lines alike. All other
lines are kept, also those that are unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from transduce.errors import DataError
from transduce.text.document.charset import DocumentText, Line
from transduce.text.document.inline import InlineText, Token, plain
from transduce.text.document.segment import DocumentOptions, DocumentSegment, Unit, unchanged
from transduce.text.document.value import paired_lines
from transduce.text.lines import normalise

_CHARSET = re.compile(rb"charset=([\w:.-]+)")
_STRING = re.compile(r'(\s*(?:(msgctxt|msgid|msgid_plural|msgstr(?:\[\d+\])?)\s*)?)"((?:[^"\\]++|\\.)*+)"(\s*)$')
_BEGUN = re.compile(r'\s*(?:msg(?:ctxt|id|str)\b|")')
_ESCAPE = re.compile(r"\\.|[^\\]++")
_MEANT = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_ESCAPES = {meant: f"\\{letter}" for letter, meant in _MEANT.items()}


def po_charset(head: bytes) -> str | None:
    """Return the encoding that the header declares."""
    found = _CHARSET.search(head)
    return None if found is None else found.group(1).decode("ascii")


class _String(NamedTuple):
    """A line with a string."""

    head: str
    """What precedes its first quote."""
    raw: str
    """What is between its quotes."""
    tail: str
    """What follows, with the end of the line."""


@dataclass
class _Message:
    """An entry: its lines, and the strings of each field."""

    lines: list[Line] = field(default_factory=list)
    fields: dict[str, list[_String]] = field(default_factory=dict)
    first_string: int | None = None
    """Place of its first line that is no comment."""

    @property
    def original(self) -> str:
        return "".join(line.raw for line in self.lines)

    @property
    def number(self) -> int:
        """The line of its first string, counted from 1."""
        return self.lines[self.first_string or 0].number

    @property
    def targets(self) -> list[str]:
        """The names of its translations."""
        return [name for name in self.fields if name.startswith("msgstr")]

    @property
    def is_fuzzy(self) -> bool:
        return any(line.text.startswith("#,") and "fuzzy" in line.text for line in self.lines)

    def text(self, name: str) -> str:
        """What a field means."""
        return "".join(_meant(string.raw) for string in self.fields.get(name, ()))


def _messages(document: DocumentText) -> Iterator[_Message]:
    """Yield the entries; one ends at a blank line, or where the next one begins behind its translations."""
    message, name = _Message(), ""
    for line in document.lines():
        found = None if line.text.startswith("#") else _STRING.match(line.text)
        if found is None and _BEGUN.match(line.text):
            raise DataError(
                f"{document.name}:{line.number}: a string is not closed, or has text behind it; fix the line"
            )
        begins = line.text.startswith("#") or (found is not None and found[2] in ("msgctxt", "msgid"))
        if not line.text.strip() or (begins and message.targets):
            if message.lines:
                yield message
            message, name = _Message(), ""
        message.lines.append(line)
        if found is None:
            continue
        name = found[2] or name
        if not name:
            raise DataError(f"{document.name}:{line.number}: a string belongs to no message; add msgid before it")
        if message.first_string is None:
            message.first_string = len(message.lines) - 1
        message.fields.setdefault(name, []).append(_String(found[1], found[3], found[4] + line.end))
    if message.lines:
        yield message


def _meant(raw: str) -> str:
    return "".join(token.text or token.raw for token in map(_token, _ESCAPE.findall(raw)))


def _token(raw: str) -> Token:
    if not raw.startswith("\\"):
        return plain(raw)
    meant = _MEANT.get(raw[1])
    return Token("code", raw) if meant is None else Token("text", raw, meant)


class _Layout:
    """The strings of a field: each line is a text."""

    def __init__(self, strings: Sequence[_String], where: str) -> None:
        lines: list[list[Token]] = [[]]
        self._breaks: list[str] = []
        for number, string in enumerate(strings):
            if number:
                lines[-1].append(Token("join", f'"{strings[number - 1].tail}{string.head}"'))
            for token in map(_token, _ESCAPE.findall(string.raw)):
                if token.text == "\n":
                    self._breaks.append(token.raw)
                    lines.append([])
                else:
                    lines[-1].append(token)
        self._lines = [InlineText(tokens, _ESCAPES, where) for tokens in lines]
        self.texts = [line.text for line in self._lines if line.text]

    def write(self, translations: Sequence[str]) -> str:
        """Return the strings with translations, from the first quote to the last."""
        rest = iter(translations)
        written = [line.write(next(rest) if line.text else "") for line in self._lines]
        return "".join(['"', *(part for pair in zip(written, [*self._breaks, ""], strict=True) for part in pair), '"'])


# Translation.


def read_po(document: DocumentText, options: DocumentOptions) -> Iterator[DocumentSegment]:
    """Yield the messages."""
    for message in _messages(document):
        done = any(message.text(name) for name in message.targets)
        if not message.text("msgid") or not message.targets or (done and not options.retranslate):
            yield unchanged(message.original)
        else:
            yield _translated(message, f"{document.name}:{message.number}")


def _translated(message: _Message, where: str) -> DocumentSegment:
    names = ["msgid", *(["msgid_plural"] if "msgid_plural" in message.fields else [])]
    layouts = [_Layout(message.fields[name], where) for name in names]
    if not any(layout.texts for layout in layouts):
        return unchanged(message.original)

    def write(translations: Sequence[str]) -> str:
        rest = iter(translations)
        values = [layout.write([next(rest) for _ in layout.texts]) for layout in layouts]
        return _with_fuzzy(message) + "".join(_field_lines(message, values))

    return DocumentSegment([text for layout in layouts for text in layout.texts], write, message.original)


def _field_lines(message: _Message, values: Sequence[str]) -> Iterator[str]:
    """Yield the lines from the first string on: a translation in place of its strings, all others as they are."""
    assert message.first_string is not None
    name, written = "", False
    for line in message.lines[message.first_string :]:
        found = _STRING.match(line.text)
        if found is None or line.text.startswith("#"):
            yield line.raw
            continue
        name, written = (found[2], False) if found[2] else (name, written)
        if not name.startswith("msgstr"):
            yield line.raw
        elif not written:
            value = values[0] if name in ("msgstr", "msgstr[0]") else values[-1]
            yield found[1] + value + message.fields[name][-1].tail
            written = True


def _with_fuzzy(message: _Message) -> str:
    """Return the comments of a message, with the flag `fuzzy`."""
    comments = message.lines[: message.first_string]
    if message.is_fuzzy:
        return "".join(line.raw for line in comments)
    for place, line in enumerate(comments):
        if line.text.startswith("#,"):
            flags = f"#, fuzzy,{line.text[2:]}{line.end}"
            return "".join([*(one.raw for one in comments[:place]), flags, *(one.raw for one in comments[place + 1 :])])
    place = next((place for place, line in enumerate(comments) if line.text.startswith("#|")), len(comments))
    end = message.lines[0].end or "\n"
    return "".join([*(one.raw for one in comments[:place]), f"#, fuzzy{end}", *(one.raw for one in comments[place:])])


# Training.


def po_units(document: DocumentText, options: DocumentOptions) -> Iterator[Unit]:
    """Yield the messages with their translations; those without one, fuzzy and obsolete ones with the reason.

    A plural is paired with the last of the translations.
    """
    for message in _messages(document):
        line = message.number
        if any(one.text.startswith("#~ msgid ") for one in message.lines):
            yield Unit("", "", line, "obsolete")
        source, targets = message.text("msgid"), message.targets
        if not source:
            continue
        pairs = [(source, message.text(targets[0]) if targets else "")]
        if "msgid_plural" in message.fields and len(targets) > 1:
            pairs.append((message.text("msgid_plural"), message.text(targets[-1])))
        for one, other in pairs:
            if not other.strip() or message.is_fuzzy:
                yield Unit(
                    " ".join(one.split()),
                    " ".join(other.split()),
                    line,
                    "untranslated" if not other.strip() else "fuzzy",
                )
                continue
            where = f"{document.name}:{line}"
            for first, second in paired_lines(one, other):
                yield Unit(normalise(first, where), normalise(second, where), line)
