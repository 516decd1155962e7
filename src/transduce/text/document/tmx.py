"""TMX translation memories: units without a variant in the target language get one; everything else is kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from transduce.errors import DataError, SettingsError
from transduce.text.document.charset import DocumentText
from transduce.text.document.inline import InlineText
from transduce.text.document.segment import DocumentOptions, DocumentSegment, Unit, unchanged
from transduce.text.document.xliff import inline_text, plain_text, same_language
from transduce.text.document.xml_document import Tag, XmlDocument, opened

ALL_LANGUAGES = "*all*"
"""What a header states whose units have sources in any language."""


@dataclass
class _Variant:
    """A unit in one language."""

    open: Tag
    language: str
    after: int
    """Where the tag before it ends."""
    segment: tuple[Tag, Tag] | None = None
    end: int = 0


@dataclass
class _Memory:
    """Finds the units of a document."""

    xml: XmlDocument
    source_language: str | None = None
    variants: list[_Variant] = field(default_factory=list)

    def units(self) -> Iterator[Tag]:
        """Yield the end tag of each unit, whose variants are in `variants`, before anything behind it is read."""
        inside: list[Tag] = []
        last = 0
        for tag in self.xml.tags():
            if tag.opens:
                if not inside and tag.name != "tmx":
                    raise DataError(f"{self.xml.name}:{tag.line}: is <{tag.name[:40]}>, not TMX; check the file")
                self._open(tag, inside[-1].name if inside else "", last)
                inside.append(tag)
            else:
                begun = inside.pop()
                parent = inside[-1].name if inside else ""
                if begun.name == "seg" and parent == "tuv" and self.variants:
                    self.variants[-1].segment = (begun, tag)
                elif begun.name == "tuv" and parent == "tu" and self.variants:
                    self.variants[-1].end = tag.end
                elif begun.name == "tu":
                    yield tag
            last = tag.end

    def _open(self, tag: Tag, parent: str, last: int) -> None:
        if tag.name == "header":
            language = tag.attributes.get("srclang", ALL_LANGUAGES)
            self.source_language = None if language.lower() == ALL_LANGUAGES else language
        elif tag.name == "tu":
            self.variants = []
        elif tag.name == "tuv" and parent == "tu":
            language = tag.attributes.get("xml:lang") or tag.attributes.get("lang") or ""
            self.variants.append(_Variant(tag, language, last))

    def find(self, language: str | None) -> _Variant | None:
        """Return the first variant in a language that has a segment."""
        for variant in self.variants:
            if language and variant.segment and same_language(variant.language, language):
                return variant
        return None

    def inner(self, variant: _Variant) -> str:
        """Return the content of a variant's segment."""
        assert variant.segment is not None
        begin, end = variant.segment
        return "" if begin.begin == end.begin else self.xml.text(begin.end, end.begin)


# Translation.


def read_tmx(document: DocumentText, options: DocumentOptions) -> Iterator[DocumentSegment]:
    """Yield the units."""
    if not options.target_language:
        raise SettingsError(f"{document.name}: a TMX file needs the language to write; give --target-language")
    memory = _Memory(XmlDocument(document))
    for end in memory.units():
        language = options.source_language or memory.source_language
        if language is None:
            raise SettingsError(f"{document.name}: the header names no source language; give --source-language")
        source, target = memory.find(language), memory.find(options.target_language)
        done = target is not None and memory.inner(target).strip() and not options.retranslate
        if source is None or source is target or done:
            yield unchanged(memory.xml.take(end.end))
            continue
        assert source.segment is not None
        text = inline_text(memory.inner(source), f"{document.name}:{source.segment[0].line}")
        if not text.has_words:
            yield unchanged(memory.xml.take(end.end))
        else:
            yield _translated(memory, source, target, end, text, options.target_language)
    rest = memory.xml.take()
    if rest:
        yield unchanged(rest)


def _translated(
    memory: _Memory, source: _Variant, target: _Variant | None, end: Tag, text: InlineText, language: str
) -> DocumentSegment:
    """Write the target variant, or a new one behind the source's, with the same white space."""
    xml = memory.xml
    if target is not None:
        assert target.segment is not None
        first, last = target.segment
        tag, closing = xml.text(first.begin, first.end), xml.text(last.begin, last.end)
        if first.begin == last.begin:
            tag, closing = opened(tag)
        head, tail = xml.text(xml.taken, first.begin) + tag, closing + xml.text(last.end, end.end)
    else:
        assert source.segment is not None
        first, last = source.segment
        space, inner, outer = (
            _white(xml.text(*places))
            for places in (
                (source.after, source.open.begin),
                (source.open.end, first.begin),
                (last.end, source.end - len("</tuv>")),
            )
        )
        new = f'{space}<tuv xml:lang="{language}">{inner}<seg>'
        head = xml.text(xml.taken, source.end) + new
        tail = f"</seg>{outer}</tuv>{xml.text(source.end, end.end)}"

    def write(translations: Sequence[str]) -> str:
        return "".join([head, text.write(translations[0]), tail])

    return DocumentSegment((text.text,), write, xml.take(end.end))


def _white(text: str) -> str:
    """Return the white space at the end of a text."""
    return text[len(text.rstrip()) :]


# Training.


def tmx_units(document: DocumentText, options: DocumentOptions) -> Iterator[Unit]:
    """Yield the pairs in two languages; units that lack one with the reason.

    The source language is by default the header's, the target language that of the other variant if there are two.
    """
    memory = _Memory(XmlDocument(document))
    for end in memory.units():
        source = memory.find(options.source_language or memory.source_language)
        others = [one for one in memory.variants if one is not source and one.segment]
        target = memory.find(options.target_language)
        if options.target_language is None and source is not None and len(others) == 1:
            target = others[0]
        if source is None and options.source_language is None and memory.source_language is None:
            raise SettingsError(f"{document.name}: the header names no source language; set source_language")
        if target is None and options.target_language is None and len(others) > 1:
            names = ", ".join(sorted({one.language for one in others}))
            raise SettingsError(
                f"{document.name}:{end.line}: a unit has several languages ({names}); set target_language"
            )
        sides = [
            "" if side is None else plain_text(memory.inner(side), f"{document.name}:{side.open.line}")
            for side in (source, target)
        ]
        missing = source is None or target is None or source is target
        reason = "other_language" if missing else None if all(sides) else "untranslated"
        line = memory.variants[0].open.line if memory.variants else end.line
        memory.xml.take(end.end)
        yield Unit(sides[0], sides[1], line, reason)
