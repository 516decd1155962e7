"""Markdown (CommonMark, with tables and front matter): headings, paragraphs, list items and cells are translated.

Code, HTML blocks, front matter, link destinations and definitions are kept. A paragraph is one text, with its line
breaks where they were; a hard line break ends a text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from transduce.text.document.charset import DocumentText
from transduce.text.document.inline import InlineText
from transduce.text.document.markdown_inline import ESCAPES, markdown_tokens
from transduce.text.document.segment import DocumentOptions, DocumentSegment, unchanged

_LINE = re.compile(r"([^\n]*?)(\r?\n|\Z)")
_CONTAINER = re.compile(r"(?:[ \t]{0,3}>[ \t]?)*+")
_ITEM = re.compile(r"([ \t]*)([-*+]|\d{1,9}[.)])([ \t]++|$)(\[[ xX]\][ \t]++)?")
_HEADING = re.compile(r"[ \t]{0,3}#{1,6}(?:[ \t]++|$)")
_FENCE = re.compile(r"[ \t]*(`{3,}(?=[^`]*$)|~{3,}|:{3,}(?=\{(?:code|math|literal|mermaid|toc|eval))|\${2,}(?=\s*$))")
_DIV = re.compile(r"[ \t]*(?::{3,}|(?P<indents>(?:!!!|\?\?\?\+?)[ \t]++\w))")
"""A line that begins or ends a block of text, such as a note, or begins one that is indented."""
_ALERT = re.compile(r"\[![A-Za-z]++\][-+]?[ \t]*$")
"""The kind of a quoted note, `> [!NOTE]`."""
_RULE = re.compile(r"[ \t]{0,3}(?:(?:-[ \t]*+){3,}|(?:\*[ \t]*+){3,}|(?:_[ \t]*+){3,})$")
_UNDERLINE = re.compile(r"[ \t]{0,3}(?:=++|-++)[ \t]*+$")
_DEFINITION = re.compile(r"[ \t]{0,3}\[(?!\^)([^\]]++)\]:[ \t]*+\S")
_FOOTNOTE = re.compile(r"[ \t]{0,3}\[\^[^\]\s]++\]:[ \t]++")
_DELIMITERS = re.compile(r"[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")
_HTML = re.compile(
    r"[ \t]{0,3}<(?:(?P<raw>script|pre|style|textarea|!--|\?|!\[CDATA\[|![A-Za-z])|"
    r"/?(?:address|article|aside|base|blockquote|body|caption|center|col|colgroup|dd|details|dialog|dir|div|dl|dt|"
    r"fieldset|figcaption|figure|footer|form|frame|frameset|h[1-6]|head|header|hr|html|iframe|legend|li|link|main|menu|"
    r"menuitem|nav|noframes|ol|optgroup|option|p|param|search|section|source|summary|table|tbody|td|tfoot|th|thead|title|"
    r"tr|track|ul)(?:[\s/>]|$))",
    re.IGNORECASE,
)
_HTML_ENDS = {"!--": "-->", "?": "?>", "![cdata[": "]]>"}
BLOCK_START = re.compile(r"[-+*]\s|#{1,6}\s|>|\d{1,9}[.)]\s|=+\s*$|-+\s*$|```|~~~|\|")
"""What would begin a block at the beginning of a line."""


class _Row(NamedTuple):
    """A line: its container (blockquote markers), what follows, and its end."""

    container: str
    text: str
    end: str
    number: int

    @property
    def raw(self) -> str:
        return self.container + self.text + self.end

    @property
    def indent(self) -> int:
        """Columns of white space before its text."""
        return len(self.text.expandtabs(4)) - len(self.text.expandtabs(4).lstrip(" "))


class _Text(NamedTuple):
    """Part of a block that is a text: what precedes and follows it, its content, and its line breaks."""

    before: str
    content: str
    breaks: tuple[str, ...]
    after: str
    number: int


def read_markdown(document: DocumentText, options: DocumentOptions) -> Iterator[DocumentSegment]:
    """Yield the texts of a document."""
    rows = [_row(found[1], found[2], number) for number, found in enumerate(_LINE.finditer(document.whole()), start=1)]
    if rows and not rows[-1].raw:
        rows.pop()
    labels = {found[1].casefold().strip() for row in rows if (found := _DEFINITION.match(row.text))}
    for block in _Blocks(rows).read():
        yield unchanged(block) if isinstance(block, str) else _segment(block, labels, document.name)


def _row(text: str, end: str, number: int) -> _Row:
    container = _CONTAINER.match(text)
    assert container is not None
    return _Row(container.group(), text[container.end() :], end, number)


def _segment(block: _Text, labels: Collection[str], name: str) -> DocumentSegment:
    tokens = markdown_tokens(block.content, block.breaks, labels)
    text = InlineText(tokens, ESCAPES, f"{name}:{block.number}", BLOCK_START)
    rest = iter(block.breaks)
    original = block.before + re.sub("\n", lambda _: next(rest), block.content) + block.after
    if not text.has_words:
        return unchanged(original)
    is_start = BLOCK_START.match(text.text) is not None

    def write(translations: Sequence[str]) -> str:
        written = text.write(translations[0])
        if not is_start and BLOCK_START.match(written):
            written = re.sub(r"^(\d*)", r"\1\\", written, count=1)
        return block.before + written + block.after

    return DocumentSegment((text.text,), write, original)


class _Blocks:
    """Splits the lines of a document into blocks."""

    def __init__(self, rows: Sequence[_Row]) -> None:
        self._rows, self._at = rows, 0
        self._content = 0
        """Columns that the content of the current list item is indented; 0 outside of lists."""

    def read(self) -> Iterator[str | _Text]:
        """Yield what is kept, as strings, and texts."""
        yield from self._front_matter()
        blank = True
        while self._at < len(self._rows):
            row = self._rows[self._at]
            if not row.text.strip():
                yield self._take()
                blank = True
                continue
            if row.indent < self._content and blank and not _ITEM.match(row.text):
                self._content = 0
            kept = self._kept_block(row, blank)
            if kept is not None:
                yield kept
            elif self._is_table(row):
                yield from self._table()
            else:
                yield from self._texts(row)
            blank = False

    def _take(self, count: int = 1) -> str:
        """Return the next lines."""
        found = "".join(row.raw for row in self._rows[self._at : self._at + count])
        self._at += count
        return found

    def _front_matter(self) -> Iterator[str]:
        marker = self._rows[0].text.rstrip() if self._rows else ""
        if marker not in ("---", "+++"):
            return
        for count, row in enumerate(self._rows[1:], start=2):
            if row.text.rstrip() == marker:
                yield self._take(count)
                return

    def _kept_block(self, row: _Row, blank: bool) -> str | None:
        """Return a block that has no text, or None."""
        item = _ITEM.match(row.text)
        inner = row.text if item is None else row.text[item.end() :]
        if (fence := _FENCE.match(inner)) is not None:
            return self._take(self._fenced(fence[1]))
        if blank and item is None and row.indent >= self._content + 4:
            return self._take()
        html = _HTML.match(row.text)
        if html is not None:
            return self._take(self._html(html["raw"]))
        div = _DIV.match(row.text)
        if div is not None and div["indents"]:
            self._content = row.indent + 4
        if (
            div
            or any(line.match(row.text) for line in (_RULE, _DEFINITION))
            or (row.container and _ALERT.match(row.text))
        ):
            return self._take()
        return None

    def _fenced(self, fence: str) -> int:
        """Return the number of lines of fenced code, up to the end of the document if it is not closed."""
        closing = re.compile(rf"[ \t]*{re.escape(fence[0])}{{{len(fence)},}}[ \t]*$")
        for place in range(self._at + 1, len(self._rows)):
            if closing.match(self._rows[place].text):
                return place + 1 - self._at
        return len(self._rows) - self._at

    def _html(self, raw: str | None) -> int:
        """Return the number of lines of an HTML block: up to its end, or to a blank line."""
        name = (raw or "").lower()
        end = _HTML_ENDS.get(name, f"</{name}>" if name.isalpha() else ">" if name else None)
        for place in range(self._at, len(self._rows)):
            text = self._rows[place].text
            if (end is None and not text.strip()) or (end is not None and end in text.lower()):
                return place - self._at + (end is not None)
        return len(self._rows) - self._at

    def _is_table(self, row: _Row) -> bool:
        following = self._rows[self._at + 1].text if self._at + 1 < len(self._rows) else ""
        return "|" in row.text and "-" in following and _DELIMITERS.match(following) is not None

    def _table(self) -> Iterator[str | _Text]:
        """Yield the cells of a table."""
        for count in range(len(self._rows)):
            row = self._rows[self._at] if self._at < len(self._rows) else None
            if row is None or not row.text.strip() or (count > 1 and "|" not in row.text):
                return
            self._at += 1
            if count == 1:
                yield row.raw
                continue
            yield row.container
            for number, cell in enumerate(_cells(row.text)):
                yield _Text("|" if number else "", cell, (), "", row.number)
            yield row.end

    def _texts(self, row: _Row) -> Iterator[str | _Text]:
        """Yield the text of a heading, a list item or a paragraph, in parts where hard breaks end a line."""
        item = _ITEM.match(row.text)
        if item is not None:
            self._content = len(row.text[: item.end()].expandtabs(4))
        start = item or _FOOTNOTE.match(row.text)
        begin = 0 if start is None else start.end()
        heading = _HEADING.match(row.text, begin)
        if heading is not None:
            self._at += 1
            end = _heading_end(row.text, heading.end())
            before, after = row.container + row.text[: heading.end()], row.text[end:] + row.end
            yield _Text(before, row.text[heading.end() : end], (), after, row.number)
            return
        before, content, breaks = row.container + row.text[:begin], [row.text[begin:]], list[str]()
        first = row.number
        while True:
            self._at += 1
            following = self._rows[self._at] if self._at < len(self._rows) else None
            if following is None or not self._continues(following):
                break
            space = following.text[: len(following.text) - len(following.text.lstrip())]
            mark = _hard_break(content[-1])
            if mark:
                content[-1] = content[-1].removesuffix(mark)
                yield _Text(before, "\n".join(content), tuple(breaks), mark + row.end, first)
                before, content, breaks = following.container + space, [], []
                first = following.number
            else:
                breaks.append(row.end + following.container + space)
            content.append(following.text[len(space) :])
            row = following
        yield _Text(before, "\n".join(content), tuple(breaks), row.end, first)

    def _continues(self, row: _Row) -> bool:
        """Whether a line continues a paragraph."""
        if not row.text.strip() or _UNDERLINE.match(row.text) or _RULE.match(row.text) or _HEADING.match(row.text):
            return False
        if any(start.match(row.text) for start in (_ITEM, _FENCE, _DIV, _HTML, _FOOTNOTE)):
            return False
        return not self._is_table(row)


def _heading_end(text: str, begin: int) -> int:
    """Return where the text of a heading ends: before closing hashes."""
    stripped = text.rstrip(" \t")
    core = stripped.rstrip("#")
    if core == stripped or (len(core) > begin and core[-1] not in " \t"):
        return len(text)
    return max(begin, len(core.rstrip(" \t")))


def _hard_break(text: str) -> str:
    """Return what makes the end of a line a hard break: two spaces or a backslash."""
    space = text[len(text.rstrip(" ")) :]
    return space if len(space) > 1 else "\\" if text.endswith("\\") else ""


def _cells(text: str) -> list[str]:
    """Split a row of a table at vertical bars that are neither escaped nor in a code span."""
    cells, begin = list[str](), 0
    for found in re.finditer(r"\\.|`[^`]*+`|\|", text):
        if found.group() == "|":
            cells.append(text[begin : found.start()])
            begin = found.end()
    return [*cells, text[begin:]]
