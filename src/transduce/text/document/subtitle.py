"""Subtitles: SubRip (SRT) and WebVTT. The text of cues is translated; numbers, times, settings and notes are kept.

The lines of a cue are one text, broken again where the source was broken; a line that begins with a dash is another
speaker's, and a text of its own. Tags are markup, and so is such a dash.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, pairwise

from transduce.text.document.charset import DocumentText, Line
from transduce.text.document.inline import InlineText, Token, plain
from transduce.text.document.markup import reference
from transduce.text.document.segment import DocumentOptions, DocumentSegment, unchanged

_TIMES = re.compile(r"\s*\d[\d:.,]*\s*-->\s*\d")
_DASH = re.compile(r"\s*+(?:<[^<>]*+>\s*+)*+[-–—]")
_TOKEN = re.compile(
    r"<(/?)([^<>\s.\d/][^<>\s.]*+)[^<>]*+>|<[\d:.]++>|\{\\[^{}]*+\}|&[#\w]++;|\s++|[^<{&\s]++|.", re.DOTALL
)
_VTT_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_VTT_BLOCK = re.compile(r"(?:NOTE|STYLE|REGION)(?:\s|$)")


def read_srt(document: DocumentText, options: DocumentOptions) -> Iterator[DocumentSegment]:
    """Yield the cues of SubRip.

    Times begin a cue, with or without a blank line before them; a blank line within it separates two texts.
    """
    read = partial(_cue, escapes={}, name=document.name)
    text: list[Line] = []
    begun = False
    last = Line("", "", 0)
    for line, after in pairwise(chain(document.lines(), [last])):
        times = _TIMES.match(line.text) is not None
        head = times or (line.text.strip().isdecimal() and _TIMES.match(after.text) is not None)
        if begun and not head and line.text.strip():
            text.append(line)
            continue
        yield from _flushed(text, read)
        yield unchanged(line.raw)
        begun = begun or times
    yield from _flushed(text, read)


def read_vtt(document: DocumentText, options: DocumentOptions) -> Iterator[DocumentSegment]:
    """Yield the cues of WebVTT: of each block, what follows the times."""
    read = partial(_cue, escapes=_VTT_ESCAPES, name=document.name)
    text: list[Line] = []
    inside = kept = False
    previous_blank = True
    for line in document.lines():
        blank = not line.text.strip()
        if previous_blank and not blank:
            kept = _VTT_BLOCK.match(line.text) is not None or line.number == 1
            inside = False
        previous_blank = blank
        if inside and not blank and not kept:
            text.append(line)
            continue
        yield from _flushed(text, read)
        inside = not blank and not kept and (inside or _TIMES.match(line.text) is not None)
        yield unchanged(line.raw)
    yield from _flushed(text, read)


def _flushed(text: list[Line], read: Callable[[list[Line]], DocumentSegment]) -> Iterator[DocumentSegment]:
    """Yield the texts of a cue that has ended, and forget its lines."""
    group: list[Line] = []
    for line in text:
        if group and _DASH.match(line.text):
            yield read(group)
            group = []
        group.append(line)
    if group:
        yield read(group)
    text.clear()


def _cue(lines: Sequence[Line], escapes: dict[str, str], name: str) -> DocumentSegment:
    raw = "".join(line.raw for line in lines)
    found = InlineText(_tokens(raw, bool(escapes)), escapes, f"{name}:{lines[0].number}")
    if not found.has_words:
        return unchanged(raw)
    return DocumentSegment((found.text,), lambda translations: found.write(translations[0]), raw)


def _tokens(raw: str, escaped: bool) -> Iterable[Token]:
    """Split the lines of a cue; in WebVTT, characters may be escaped."""
    begun: list[str] = []
    dash = _DASH.match(raw)
    spoken = -1 if dash is None else dash.end() - 1
    for found in _TOKEN.finditer(raw):
        token = found.group()
        is_code = found.group(2) or (len(token) > 1 and token[0] in "<{")
        if found.start() == spoken:
            yield Token("code", token[0])
            token = token[1:]
        if not token:
            continue
        if not is_code and not ("\n" in token or (escaped and token[0] == "&" and len(token) > 1)):
            begun.append(token)
            continue
        if begun:
            yield plain("".join(begun))
            begun = []
        if not is_code:
            yield Token("gap", token) if "\n" in token else reference(token)
        elif found.group(2):
            yield Token("code", token, role="close" if found.group(1) else "open", name=found.group(2).lower())
        else:
            yield Token("code", token)
    if begun:
        yield plain("".join(begun))
