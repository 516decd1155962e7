"""The inline markup of Markdown: emphasis, links, code spans, HTML, escapes, formulas (`$x$`) and attributes (`{#top}`)
as tokens, in linear time.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence

from transduce.text.document.inline import Role, Token, plain
from transduce.text.document.markup import TAG, reference

ESCAPES = {character: f"\\{character}" for character in "\\`*_[]<|"}
"""Characters that text escapes unless the source does not."""

_PIECE = re.compile(
    r"\\[!-/:-@\[-`{-~]|(?P<ticks>`++)|(?P<mark>\*++|_++|~~++)|!?\[\^[^\]\s]++\]|!\[|\[|\]|\{\{[^{}]*+\}\}|\{%[^%]*+%\}|"
    r"\{[#.:][^{}\n]*+\}|(?<![\w$])\$\$?(?![\s$])[^$\n]*+(?<!\s)\$\$?(?![\w$])|"
    r"<(?:https?|mailto|ftp):[^\s<>]*+>|<|&(?:#\d++|#[xX][0-9a-fA-F]++|[A-Za-z][A-Za-z0-9]*+);|[ \t]*+\n|"
    r"[^\\`*_~!\[\]{<&$\n \t]++|[ \t]++|.",
    re.DOTALL,
)
_DESTINATION = re.compile(
    r"\]\(\s*+(?:<[^<>\n]*+>|[^\s()<>]*+(?:\([^\s()<>]*+\)[^\s()<>]*+)*+)"
    r"(?:\s++(?:\"[^\"]*+\"|'[^']*+'|\([^()]*+\)))?\s*+\)|\]\[[^\[\]]++\]"
)
_LABEL = re.compile(r"\](?:\[\])?")


class _Scanner:
    """Splits the content of a block, in which a line break is `\\n` alone."""

    def __init__(self, content: str, labels: Collection[str]) -> None:
        self._content, self._labels = content, labels
        self._ticks: dict[int, list[int]] = {}
        for found in re.finditer(r"`++", content):
            self._ticks.setdefault(len(found.group()), []).append(found.start())
        self._has_tags = self._has_comments = True
        self.tokens: list[Token] = []
        self._brackets: list[tuple[int, int]] = []
        """Opening brackets: (place among the tokens, offset)."""

    def scan(self) -> list[Token]:
        """Return the tokens."""
        place = 0
        while (found := _PIECE.match(self._content, place)) is not None:
            raw = found.group()
            place = found.end()
            if found["ticks"]:
                place = self._code_span(found.start(), raw)
            elif found["mark"]:
                self.tokens.append(self._emphasis(raw, found.start(), place))
            elif raw in ("[", "!["):
                self._brackets.append((len(self.tokens), found.start()))
                self.tokens.append(plain(raw))
            elif raw == "]":
                place = self._closing(found.start())
            elif raw == "<":
                place = self._html(found.start())
            else:
                self.tokens.append(_simple(raw))
        return self.tokens

    def _code_span(self, begin: int, ticks: str) -> int:
        places = self._ticks[len(ticks)]
        after = bisect_right(places, begin)
        if after == len(places):
            self.tokens.append(plain(ticks))
            return begin + len(ticks)
        end = places[after] + len(ticks)
        self.tokens.append(Token("code", self._content[begin:end]))
        return end

    def _emphasis(self, raw: str, begin: int, end: int) -> Token:
        """Return a delimiter run as a code if it may begin or end emphasis (CommonMark, left- and right-flanking)."""
        before, after = self._content[begin - 1 : begin] or " ", self._content[end : end + 1] or " "
        opens = not after.isspace() and (after.isalnum() or not before.isalnum())
        closes = not before.isspace() and (before.isalnum() or not after.isalnum())
        if raw[0] == "_" and before.isalnum() and after.isalnum():
            opens = closes = False
        if not opens and not closes:
            return plain(raw)
        if opens and closes:
            opens = not self._is_open(raw)
        return Token("code", raw, role="open" if opens else "close", name=raw)

    def _is_open(self, raw: str) -> bool:
        """Whether the last delimiter run is an open one of the same kind."""
        for token in reversed(self.tokens[-64:]):
            if token.kind == "code" and token.name:
                return token.role == "open" and token.name == raw
        return False

    def _closing(self, begin: int) -> int:
        """Make a link of the last opening bracket, if a destination or a known label follows."""
        found = _DESTINATION.match(self._content, begin)
        if not self._brackets:
            self.tokens.append(plain("]"))
            return begin + 1
        first, offset = self._brackets.pop()
        is_image = self.tokens[first].raw == "!["
        if found is None:
            label = self._content[offset + 1 + is_image : begin]
            if label.casefold().strip() not in self._labels:
                self.tokens.append(plain("]"))
                return begin + 1
            closing = _LABEL.match(self._content, begin)
            assert closing is not None
            self.tokens[first:] = [Token("code", self._content[offset : closing.end()])]
            return closing.end()
        if is_image:
            self.tokens[first:] = [Token("code", self._content[offset : found.end()])]
        else:
            self.tokens[first] = Token("code", "[", role="open", name="link")
            self.tokens.append(Token("code", found.group(), role="close", name="link"))
        return found.end()

    def _html(self, begin: int) -> int:
        """Read a tag or a comment; after one that is not closed, none is looked for."""
        if self._has_comments and self._content.startswith("<!--", begin):
            end = self._content.find("-->", begin)
            if end >= 0:
                self.tokens.append(Token("code", self._content[begin : end + 3]))
                return end + 3
            self._has_comments = False
        tag = TAG.match(self._content, begin) if self._has_tags else None
        if tag is None:
            self._has_tags = self._has_tags and not re.match(r"</?[A-Za-z]", self._content[begin : begin + 3])
            self.tokens.append(plain("<"))
            return begin + 1
        role: Role = "single" if tag.group().endswith("/>") else "close" if tag["close"] else "open"
        self.tokens.append(Token("code", tag.group(), role=role, name=tag["name"].lower()))
        return tag.end()


def _simple(raw: str) -> Token:
    if raw[0] == "\\" and len(raw) == 2:
        return Token("text", raw, raw[1])
    if raw[0] == "&" and len(raw) > 1:
        return reference(raw)
    if raw.endswith("\n"):
        return Token("gap", raw)
    if len(raw) > 1 and (raw[0] in "[<" or raw.startswith(("![", "{", "$"))):
        return Token("code", raw)
    return plain(raw)


def markdown_tokens(content: str, breaks: Sequence[str], labels: Collection[str]) -> Iterator[Token]:
    """Yield the tokens of a block; `breaks` are its line breaks with what the next lines begin with."""
    rest = iter(breaks)
    for token in _Scanner(content, labels).scan():
        if "\n" not in token.raw:
            yield token
            continue
        first, *others = token.raw.split("\n")
        raw = first + "".join(next(rest) + other for other in others)
        yield token._replace(raw=raw, text=raw if token.kind == "text" else token.text)
