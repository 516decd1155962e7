"""XLIFF 1.2 and 2.0: units without a target get one, with its state; inline elements, notes and all others are kept.

In 1.2 the new target has `state="needs-review-translation"`; in 2.0 its segment has `state="translated"`. A source of
1.2 that is segmented (`<mrk mtype="seg">`) is translated segment by segment, and so is its target.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from transduce.errors import DataError
from transduce.text.document.charset import DocumentText
from transduce.text.document.inline import InlineText, Token
from transduce.text.document.markup import (
    CDATA_END,
    ESCAPES,
    attributes,
    cdata_tokens,
    elements,
    only_cdata,
    xml_tokens,
)
from transduce.text.document.segment import DocumentOptions, DocumentSegment, Unit, unchanged
from transduce.text.document.xml_document import Tag, XmlDocument, opened, set_attribute
from transduce.text.lines import normalise

OPAQUE: Mapping[str, str] = {
    **dict.fromkeys(("x", "ph", "it", "cp", "ut", "sub"), "single"),
    **dict.fromkeys(("bx", "bpt", "sc", "sm"), "open"),
    **dict.fromkeys(("ex", "ept", "ec", "em"), "close"),
}
"""Inline elements of XLIFF and TMX that are copied with their content, and whether they open or close a pair."""

UNTRANSLATED = ("new", "needs-translation")
"""States of a target in XLIFF 1.2 that is no translation yet."""
FOR_REVIEW = (
    "needs-adaptation",
    "needs-l10n",
    "needs-review-adaptation",
    "needs-review-l10n",
    "needs-review-translation",
)
_UNIT = {1: "trans-unit", 2: "segment"}


def inline_text(raw: str, where: str) -> InlineText:
    """Read the content of an element."""
    cdata = only_cdata(raw)
    if cdata is not None:
        return InlineText(cdata_tokens(cdata), {}, where, never=CDATA_END)
    return InlineText(xml_tokens(raw, OPAQUE), ESCAPES, where)


def plain_text(raw: str, where: str) -> str:
    """Return the text of an element without markup, on one line."""
    cdata = only_cdata(raw)
    tokens: Iterator[Token] = xml_tokens(raw, OPAQUE, protect=False) if cdata is None else cdata_tokens(cdata)
    text = "".join(" " if token.kind == "gap" else token.text for token in tokens)
    return normalise(" ".join(text.split()), where)


@dataclass
class _Unit:
    """A trans-unit of 1.2 or a segment of 2.0, while its tags are read."""

    open: Tag
    depth: int
    translatable: bool
    unit: Tag | None = None
    source: tuple[Tag, Tag] | None = None
    segmented: tuple[Tag, Tag] | None = None
    target: tuple[Tag, Tag] | None = None
    after: int = 0
    """Where a new target belongs: behind the source, or the segmented source."""

    @property
    def state(self) -> str:
        """The state of the target."""
        if self.unit is not None or self.target is None:
            return self.open.attributes.get("state", "")
        return self.target[0].attributes.get("state", "")


class _Xliff:
    """Finds the units of a document."""

    def __init__(self, document: DocumentText) -> None:
        self.xml = XmlDocument(document)
        self.version = 0
        self.root: Tag | None = None
        self.source_language: str | None = None
        self.target_language: str | None = None

    def units(self) -> Iterator[tuple[_Unit, Tag]]:
        """Yield each unit with its end tag, before anything behind it is read."""
        inside: list[Tag] = []
        translatable = [True]
        unit: _Unit | None = None
        for tag in self.xml.tags():
            if tag.opens:
                if not inside:
                    self._begin(tag)
                inside.append(tag)
                translatable.append(tag.attributes.get("translate", "yes" if translatable[-1] else "no") != "no")
                if tag.name == "file" and self.version == 1:
                    self.source_language = tag.attributes.get("source-language")
                    self.target_language = tag.attributes.get("target-language")
                if tag.name == _UNIT[self.version] and unit is None:
                    unit = _Unit(tag, len(inside), translatable[-1], inside[-2] if self.version == 2 else None)
                continue
            begun = inside.pop()
            translatable.pop()
            if unit is None:
                continue
            if len(inside) == unit.depth:
                if begun.name == "source":
                    unit.source, unit.after = (begun, tag), tag.end
                elif begun.name == "seg-source":
                    unit.segmented, unit.after = (begun, tag), tag.end
                elif begun.name == "target":
                    unit.target = (begun, tag)
            elif len(inside) < unit.depth:
                if unit.source is not None:
                    yield unit, tag
                unit = None

    def _begin(self, root: Tag) -> None:
        version = root.attributes.get("version", "")
        if root.name != "xliff" or version[:2] not in ("1.", "2."):
            found = f"XLIFF {version}" if root.name == "xliff" else f"<{root.name[:40]}>"
            raise DataError(f"{self.xml.name}:{root.line}: is {found}, not XLIFF 1.2 or 2.0; convert it")
        self.version, self.root = int(version[0]), root
        if self.version == 2:
            self.source_language = root.attributes.get("srcLang")
            self.target_language = root.attributes.get("trgLang")

    def inner(self, pair: tuple[Tag, Tag]) -> str:
        """Return what is between two tags."""
        return "" if pair[0].begin == pair[1].begin else self.xml.text(pair[0].end, pair[1].begin)


# Translation.


def read_xliff(document: DocumentText, options: DocumentOptions) -> Iterator[DocumentSegment]:
    """Yield the units."""
    found, first = _Xliff(document), True
    for unit, end in found.units():
        assert unit.source is not None and found.root is not None
        _check_languages(found, options, unit.open.line)
        if first and found.version == 2 and options.target_language and found.target_language is None:
            yield _with_language(found, options.target_language)
        first = False
        parts = _parts(found, unit, f"{document.name}:{unit.source[0].line}", options.retranslate)
        if unit.translatable and any(isinstance(part, InlineText) for part in parts):
            yield _translated(found, unit, end, parts)
        else:
            yield unchanged(found.xml.take(end.end))
    rest = found.xml.take()
    if rest:
        yield unchanged(rest)


def _parts(found: _Xliff, unit: _Unit, where: str, retranslate: bool) -> list[str | InlineText]:
    """Return the content of the target: what is kept of it, and the texts that are to be translated."""
    assert unit.source is not None
    target = "" if unit.target is None or retranslate else found.inner(unit.target)
    is_new = retranslate or unit.state in UNTRANSLATED
    segments = [] if unit.segmented is None else [*elements(found.inner(unit.segmented), "mrk")]
    if not any(tag and _is_segment(tag) for _, tag, _, _ in segments):
        text = inline_text(found.inner(unit.source), where)
        return [text] if text.has_words and (is_new or not plain_text(target, where)) else [target]
    done = {attributes(tag).get("mid"): inner for _, tag, inner, _ in elements(target, "mrk") if tag}
    if not any(plain_text(inner, where) for inner in done.values()) and plain_text(target, where) and not is_new:
        return [target]  # translated as a whole
    parts: list[str | InlineText] = []
    for before, tag, inner, closing in segments:
        kept = "" if is_new else done.get(attributes(tag).get("mid"), "")
        text = inline_text(inner, where)
        is_kept = not tag or not _is_segment(tag) or not text.has_words or bool(plain_text(kept, where))
        parts += [before + tag, (kept or inner) if is_kept else text, closing]
    return parts


def _is_segment(tag: str) -> bool:
    return attributes(tag).get("mtype") == "seg"


def _check_languages(found: _Xliff, options: DocumentOptions, line: int) -> None:
    """Reject a file in other languages: its targets would state a language that they are not in."""
    sides = {
        "from": (found.source_language, options.source_language),
        "into": (found.target_language, options.target_language),
    }
    for side, (stated, used) in sides.items():
        if stated and used and are_different(stated, used):
            raise DataError(
                f"{found.xml.name}:{line}: is a translation {side} '{stated[:40]}', but the model translates {side} "
                f"'{used}'; choose another model, or correct the language in the file"
            )


def _with_language(found: _Xliff, language: str) -> DocumentSegment:
    """Add the target language to the document, which must name it as soon as it has targets."""
    assert found.root is not None
    begin, end = found.root.begin, found.root.end
    before = found.xml.text(found.xml.taken, begin)
    tag = found.xml.text(begin, end)
    new = before + set_attribute(tag, "trgLang", language)
    return DocumentSegment((), lambda _: new, found.xml.take(end))


def _translated(found: _Xliff, unit: _Unit, end: Tag, parts: Sequence[str | InlineText]) -> DocumentSegment:
    """Write a target into an existing element, or into a new one behind the source, indented like it."""
    assert unit.source is not None
    xml, (source, _) = found.xml, unit.source
    opening = xml.text(unit.open.begin, unit.open.end)
    before = xml.text(xml.taken, unit.open.begin)
    before += opening if unit.unit is None else set_attribute(opening, "state", "translated")
    if unit.target is None:
        gap = xml.text(unit.open.end, source.begin)
        space = gap[len(gap.rstrip()) :]
        name = xml.text(source.begin, source.end)[1:].split("source")[0]
        state = ' state="needs-review-translation"' if unit.unit is None else ""
        head = xml.text(unit.open.end, unit.after) + f"{space}<{name}target{state}>"
        tail = f"</{name}target>{xml.text(unit.after, end.end)}"
    else:
        first, last = unit.target
        tag, closing = xml.text(first.begin, first.end), xml.text(last.begin, last.end)
        if first.begin == last.begin:
            tag, closing = opened(tag)
        tag = set_attribute(tag, "state", "needs-review-translation") if unit.unit is None else tag
        head = xml.text(unit.open.end, first.begin) + tag
        tail = closing + xml.text(last.end, end.end)

    def write(translations: Sequence[str]) -> str:
        rest = iter(translations)
        written = (part if isinstance(part, str) else part.write(next(rest)) for part in parts)
        return "".join([before, head, *written, tail])

    texts = tuple(part.text for part in parts if isinstance(part, InlineText))
    return DocumentSegment(texts, write, xml.take(end.end))


# Training.


def xliff_units(document: DocumentText, options: DocumentOptions) -> Iterator[Unit]:
    """Yield the units with their targets; untranslated ones and those for review with the reason."""
    found = _Xliff(document)
    for unit, end in found.units():
        assert unit.source is not None
        line, where = unit.source[0].line, f"{document.name}:{unit.source[0].line}"
        source = plain_text(found.inner(unit.source), where)
        target = "" if unit.target is None else plain_text(found.inner(unit.target), where)
        reason = None
        wanted = ((options.source_language, found.source_language), (options.target_language, found.target_language))
        if any(one and other and not same_language(one, other) for one, other in wanted):
            reason = "other_language"
        elif not target or unit.state in UNTRANSLATED:
            reason = "untranslated"
        elif unit.state in (*FOR_REVIEW, "initial") or unit.open.attributes.get("approved") == "no":
            reason = "fuzzy"
        found.xml.take(end.end)
        yield Unit(source, target, line, reason)


_SAME = {"nb": "no", "nn": "no", "iw": "he", "in": "id", "ji": "yi", "jw": "jv", "tl": "fil", "sh": "sr"}
"""Codes that tools use for one another."""


def same_language(one: str, other: str) -> bool:
    """Whether two tags name the same language; a tag without a region means any."""
    first, second = map(_subtags, (one, other))
    return first == second or (first[0] == second[0] and 1 in (len(first), len(second)))


def are_different(one: str, other: str) -> bool:
    """Whether two tags surely name different languages: codes of two and three letters are not compared."""
    first, second = (_subtags(tag)[0] for tag in (one, other))
    return len(first) == len(second) and _SAME.get(first, first) != _SAME.get(second, second)


def _subtags(tag: str) -> list[str]:
    return tag.lower().replace("_", "-").split("-")
