"""The characters of a document: its encoding, from a byte-order mark or a declaration, and decoding as a stream.

Encoding again must give the same bytes, or a document could not be kept byte for byte; this is checked.
"""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from transduce.errors import DataError
from transduce.text.lines import BLOCK_BYTES, MAX_LINE_BYTES

BYTE_ORDER_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
MARK = "\ufeff"
HEAD_BYTES = 4096
"""Bytes of the beginning in which a declaration is looked for."""
MAX_DOCUMENT_CHARACTERS = 2**28
"""Maximum size of a document in a format that is read as a whole."""

_KNOWN = re.compile(
    r"utf_8|ascii|latin_1|iso8859_\d+|cp(?:125\d|437|850|866|874|932|949|950)|koi8_[ru]|shift_jis|euc_(?:jp|kr)|"
    r"gb(?:2312|k|18030)|big5|mac_roman|tis_620"
)
"""Encodings that a document may declare, by Python's names."""

Declaration = Callable[[bytes], str | None]
"""Finds the encoding that the first bytes of a document declare."""


class Line(NamedTuple):
    """A line of a document."""

    text: str
    """Without its end."""
    end: str
    """LF, CRLF, or nothing at the end of the document."""
    number: int
    """Counted from 1."""

    @property
    def raw(self) -> str:
        """The line with its end."""
        return self.text + self.end


class DocumentText:
    """The text of a document, which is read once: by lines, in pieces, or as a whole."""

    def __init__(self, stream: io.BufferedReader, name: str, declaration: Declaration | None, typed: bool) -> None:
        """Start reading; `typed` input is read line by line, without waiting for more."""
        self._stream, self.name, self._typed = stream, name, typed
        head = stream.peek(HEAD_BYTES)
        self.encoding = next((found for mark, found in BYTE_ORDER_MARKS.items() if head.startswith(mark)), "")
        self.mark = MARK if self.encoding else ""
        """The byte-order mark."""
        if not self.encoding:
            if b"\0" in head:
                raise DataError(f"{name}: looks like a binary file (it has NUL bytes); give a file of text")
            self.encoding = _python_name(declaration and declaration(head[:HEAD_BYTES]), name)

    def encode(self, text: str, references: bool = False) -> bytes:
        """Return text in the encoding of the document; what it lacks as `&#1096;`, if the format has references."""
        try:
            return text.encode(self.encoding, "xmlcharrefreplace" if references else "strict")
        except UnicodeEncodeError as error:
            raise DataError(
                f"{self.name}: a translation has the character '{text[error.start]}', which the file's encoding "
                f"({self.encoding}) lacks; convert the file to UTF-8"
            ) from None

    def chunks(self) -> Iterator[str]:
        """Yield the text in pieces of any length, without the byte-order mark."""
        decoder = codecs.getincrementaldecoder(self.encoding)()
        number, first, checked, waiting = 1, True, not self.encoding.startswith("utf"), b""
        while True:
            block = self._stream.readline(MAX_LINE_BYTES) if self._by_line else self._stream.read(BLOCK_BYTES)
            failure: DataError | None = None
            try:
                text = decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                failure = self._undecodable(error, number)
                text = error.object[: error.start].decode(self.encoding)
            if first and text:
                self.mark, first = MARK if text.startswith(MARK) else "", False
                text = text.removeprefix(MARK)
            if "\0" in text:
                text = text[: text.index("\0")]
                line = number + text.count("\n")
                failure = DataError(
                    f"{self.name}:{line}: has a NUL byte and looks like binary data; give a file of text"
                )
            if failure is not None:  # lines before it are used
                yield text[: text.rfind("\n") + 1]
                raise failure
            if checked:
                raw, waiting = waiting + block, decoder.getstate()[0]
                if text.encode(self.encoding, "replace") != raw[: len(raw) - len(waiting)]:
                    raise DataError(f"{self.name}: cannot be kept unchanged in {self.encoding}; convert it to UTF-8")
            number += text.count("\n")
            if text:
                yield text
            if not block:
                return

    @property
    def _by_line(self) -> bool:
        return self._typed and not self.encoding.startswith("utf-16")

    def lines(self) -> Iterator[Line]:
        """Yield the lines; only LF and CRLF end one."""
        number, begun, size = 1, list[str](), 0
        for chunk in self.chunks():
            *complete, rest = chunk.split("\n")
            for text in complete:
                if begun:
                    text, begun, size = "".join([*begun, text]), [], 0
                yield Line(text[:-1], "\r\n", number) if text.endswith("\r") else Line(text, "\n", number)
                number += 1
            if rest:
                begun.append(rest)
                size += len(rest)
            if size > MAX_LINE_BYTES:
                raise DataError(
                    f"{self.name}:{number}: the line is longer than {MAX_LINE_BYTES // 2**20} MiB; split the text into "
                    "lines, one per example"
                )
        if begun:
            yield Line("".join(begun), "", number)

    def whole(self) -> str:
        """Return all of the text, without the byte-order mark."""
        found, size = list[str](), 0
        for chunk in self.chunks():
            found.append(chunk)
            size += len(chunk)
            if size > MAX_DOCUMENT_CHARACTERS:
                raise DataError(
                    f"{self.name}: has more than {MAX_DOCUMENT_CHARACTERS // 2**20} million characters; split it"
                )
        return "".join(found)

    def _undecodable(self, error: UnicodeDecodeError, number: int) -> DataError:
        before = error.object[: error.start].decode(self.encoding, "replace")
        what = "UTF-8" if self.encoding == "utf-8" else self.encoding
        return DataError(
            f"{self.name}:{number + before.count(chr(10))}: not {what} (byte 0x{error.object[error.start]:02x} at "
            f"column {len(before) - before.rfind(chr(10))}); convert the file with iconv or fix that line"
        )


def _python_name(declared: str | None, name: str) -> str:
    """Return Python's name of a declared encoding; UTF-8 without one."""
    if not declared or declared.lower().startswith(("utf-16", "utf16", "charset")):  # it is read as single bytes
        return "utf-8"
    try:
        found = codecs.lookup(declared).name.replace("-", "_")
    except (LookupError, ValueError):
        found = ""
    if not _KNOWN.fullmatch(found):
        raise DataError(
            f"{name}: is declared to be in the encoding '{declared[:40]}', which is unknown; convert it to UTF-8"
        )
    return "utf-8" if found in ("utf_8", "ascii") else found


def line_of(text: str, place: int) -> int:
    """Return the number of the line at an offset, counted from 1."""
    return text.count("\n", 0, place) + 1
