"""Texts, the segments that engines translate, and their translations.

A segment is a sentence, or a part of one that is longer than the model reads, as one request of an engine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from transduce.errors import SettingsError
from transduce.inference.search.options import Request, SearchOptions
from transduce.text.constraint import TokenConstraints
from transduce.text.picture import check_picture
from transduce.text.sentence import joint
from transduce.text.tokenizer import AnyTokenizer
from transduce.text.tokenizer.special import NO_PREFIX, LanguagePrefix
from transduce.text.tokenizer.tokenizer import SPACE_MARK


@dataclass(frozen=True)
class Translation:
    """One translation of one line."""

    text: str
    score: float
    """Log-probability divided by the length penalty; summed over the parts of a line that was split."""
    ended: bool = True
    """False if the maximum length cut it off."""
    missing: tuple[str, ...] = ()
    """Required terms that it lacks."""
    links: tuple[tuple[int, int], ...] = ()
    """Word alignment, (source word, target word), both from 0; only if requested."""

    def __repr__(self) -> str:
        further = {"ended": self.ended, "missing": self.missing, "links": self.links}
        usual = {"ended": True, "missing": (), "links": ()}
        shown = "".join(f", {name}={value!r}" for name, value in further.items() if value != usual[name])
        return f"Translation({self.text!r}, score={self.score:.4f}{shown})"


@dataclass(frozen=True)
class TranslationOptions:
    """How lines are translated."""

    search: SearchOptions
    constraints: TokenConstraints
    split: bool = False
    """Whether a line of several sentences is translated sentence by sentence."""
    align: bool = False
    """Whether translations come with their word alignment."""
    rerank: Callable[[list[Translation]], list[Translation]] = list
    """Reorders the translations of a line."""


@dataclass
class TranslationCounts:
    """Counts over all lines so far."""

    lines: int = 0
    several: int = 0
    """Lines of several sentences, translated one by one."""
    empty: int = 0
    """Lines without text, left empty."""
    unread: int = 0
    """Texts of which the tokenizer leaves nothing, left empty too."""
    split: int = 0
    """Lines longer than the model reads at once, translated in parts."""
    unknown: int = 0
    """Source tokens that the vocabulary lacks."""
    cut: int = 0
    """Translations that reached the maximum length before the model ended them."""
    forbidden: int = 0
    """Translations with a forbidden word nevertheless, spelled with other tokens."""
    missing: int = 0
    """Translations that lack a required term."""

    def plus(self, others: TranslationCounts) -> TranslationCounts:
        """Return the sum of these and others."""
        return TranslationCounts(**{name: value + getattr(others, name) for name, value in vars(self).items()})


LONGEST_ENDING = 64
"""Characters of a translation that decide what joins it to the next one."""


def join_translations(
    found: Sequence[Sequence[Translation]], sources: Sequence[str], joiner: Callable[[int, str, str], str]
) -> list[Translation]:
    """Join the translations of the parts of a text: all the best ones, all the second best, …

    `sources` are the parts with the white space behind them; `joiner` is the text before a part, by its number, the
    end of the translation before it and its own. Takes linear time.
    """
    before = _words_before_each(sources)
    return [_joined(parts, before, joiner) for parts in zip(*found, strict=False)]


def _joined(parts: Sequence[Translation], before: Sequence[int], joiner: Callable[[int, str, str], str]) -> Translation:
    """Join one translation of each part; `before` are the source words before each part."""
    pieces, last, score = [parts[0].text], parts[0].text, parts[0].score
    for number, part in enumerate(parts[1:], start=1):
        gap = joiner(number, last, part.text)
        pieces += [gap, part.text]
        last = (last + gap + part.text)[-LONGEST_ENDING:]
        score += part.score
    starts = _words_before_each(pieces)[::2]
    return Translation(
        "".join(pieces),
        score,
        all(part.ended for part in parts),
        tuple(term for part in parts for term in part.missing),
        tuple(
            (read + reads, written + writes)
            for part, reads, writes in zip(parts, before, starts, strict=True)
            for read, written in part.links
        ),
    )


_BREAKS = re.compile("[\x00-\x08\x0a-\x1f\x7f\x85\u2028\u2029]")
"""Control characters that break lines (for some programs) or that documents cannot have; tabs are none."""


def one_line(text: str, source: str = "") -> str:
    """Return a translation as one line of a file: control characters that its source lacks become spaces.

    A model of bytes may write any of them. Line feeds and carriage returns are never kept.
    """
    return _BREAKS.sub(lambda found: found[0] if found[0] in source and found[0] not in "\r\n" else " ", text)


def _words_before_each(parts: Sequence[str]) -> list[int]:
    """The number of the next word before each part of a text; without white space between, a word continues."""
    found, words, continues = list[int](), 0, False
    for part in parts:
        found.append(words - continues)
        if part:
            words += len(part.split()) - (continues and not part[0].isspace())
            continues = not part[-1].isspace()
    return found


MAX_SEGMENT_TOKENS = 256
"""Source tokens of a segment where the model itself has no limit; a longer sentence is translated in parts."""


@dataclass(frozen=True)
class Sentence:
    """A sentence of a line, with what its translation must begin with."""

    text: str
    space: str = ""
    """White space between it and the next sentence."""
    prefix: Sequence[int] = ()
    """Target tokens that its translation begins with."""
    languages: LanguagePrefix = NO_PREFIX
    """Language tokens before the source and the target."""


@dataclass(frozen=True)
class Segment:
    """What is translated as one piece."""

    text: str
    """Its text; terms are looked up in it."""
    tokens: list[int]
    """Source tokens, without the language tokens of `languages`."""
    joiner: str = ""
    """What stood between it and the segment before: a space or nothing."""
    begin: int = 0
    """Number of tokens of the sentence before it."""
    repeated: int = 0
    """Number of its tokens that every segment of the sentence begins with: language tags of the text itself."""
    prefix: Sequence[int] = ()
    languages: LanguagePrefix = NO_PREFIX

    @property
    def source(self) -> list[int]:
        """What the encoder reads; requested languages replace the text's own tags."""
        return [*self.languages.source, *self.tokens[self._replaced :]]

    def words(self, words_of_sentence: Sequence[int | None]) -> list[int | None]:
        """The word of the sentence that each token of `source` belongs to; None for a token outside of words."""
        end = self.begin + len(self.tokens) - self.repeated
        own = [*words_of_sentence[: self.repeated], *words_of_sentence[self.begin : end]]
        return [*[None] * len(self.languages.source), *own[self._replaced :]]

    def request(self, id: int, options: SearchOptions, constraints: TokenConstraints) -> Request:
        """Return the request for an engine."""
        required = constraints.required(self.text) if constraints.has_terms else []
        if required and options.method != "beam":
            raise SettingsError(f"terms need beam search, not the method '{options.method}'; leave out one of them")
        if required and options.beam_groups > 1:
            raise SettingsError("terms cannot be combined with beam_groups; leave out one of them")
        should_stop = constraints.reached_stop if constraints.stops else None
        prefix = [*self.languages.target, *self.prefix]
        return Request(id, self.source, options, prefix, constraints.forbidden, required, should_stop)

    @property
    def _replaced(self) -> int:
        return self.repeated if self.languages.source else 0


class Segmenter:
    """Encodes sentences and cuts those that are too long into segments.

    `limit` is the longest source that the model reads, with the end token; `language_tokens` is how many of them are
    language tokens. Where sources are pictures of `image_size` pixels a side, they are checked and never cut.
    """

    def __init__(
        self, tokenizer: AnyTokenizer, limit: int | None, language_tokens: int = 0, image_size: int | None = None
    ) -> None:
        self.tokenizer, self._side = tokenizer, image_size
        longest = min(MAX_SEGMENT_TOKENS, (limit or MAX_SEGMENT_TOKENS + 1) - 1)
        self._longest = max(1, longest - language_tokens)

    def segments(self, sentences: Sequence[Sentence]) -> list[list[Segment]]:
        """Return the segments of each sentence; none of one without text."""
        encoded = self.encode([sentence.text for sentence in sentences])
        return [
            self.cut(sentence, tokens) if sentence.text.strip() and tokens else []
            for sentence, tokens in zip(sentences, encoded, strict=True)
        ]

    def cut(self, sentence: Sentence, tokens: list[int], whole: bool = False) -> list[Segment]:
        """Cut the tokens of a sentence into segments; `whole` leaves them uncut."""
        parts = cut_tokens(self.tokenizer, tokens, len(tokens) if whole or self._side else self._longest)
        several = len(parts) > 1
        return [
            replace(
                part,
                text=self.tokenizer.decode(part.tokens) if several and part.tokens else sentence.text,
                prefix=() if number else sentence.prefix,
                languages=sentence.languages,
            )
            for number, part in enumerate(parts)
        ]

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each text; where texts must be pictures, others are rejected."""
        encoded = self.tokenizer.encode_batch(list(texts))
        for text, tokens in zip(texts, encoded, strict=True) if self._side else ():
            if text.strip():
                check_picture(text, tokens, self.tokenizer, self._side or 0)
        return encoded

    def text_read(self, text: str, segment: Segment) -> str:
        """Return the beginning of a text that its first segment covers: whole words, and the part of the last one."""
        words = self.tokenizer.words_of(text)
        end = segment.begin + len(segment.tokens) - segment.repeated
        last = max((word for word in words[:end] if word is not None), default=-1)
        read = text.split()[: last + 1]
        if read and end < len(words) and words[end] == last:
            pairs = zip(segment.tokens, replace(segment, languages=NO_PREFIX).words(words), strict=True)
            read[-1] = "".join(self.tokenizer.decode([token for token, word in pairs if word == last]).split())
        return " ".join(read)


def cut_tokens(tokenizer: AnyTokenizer, tokens: list[int], limit: int) -> list[Segment]:
    """Cut tokens into segments of at most `limit`, between words if possible, otherwise between characters.

    After a space at the end there may be an empty segment. Language tags at the start are repeated in every segment.
    """
    if leading := tokenizer.count_tags(tokens):
        rest = cut_tokens(tokenizer, tokens[leading:], max(1, limit - leading))
        return [
            replace(part, tokens=[*tokens[:leading], *part.tokens], begin=part.begin + leading, repeated=leading)
            if part.tokens
            else part
            for part in rest
        ]
    begins_word = _BEGINS_WORD.get(tokenizer.kind, _has_space)
    spaces = tokenizer.kind in ("character", "byte")  # a space is a token of its own, and is dropped at the cut
    parts: list[Segment] = []
    begin, joiner = 0, ""
    while len(tokens) - begin > limit:
        pieces = tokenizer.pieces(tokens[begin : begin + limit + 1])
        places = range(max(1, limit // 2), limit + 1)
        starts = [place for place in places if begins_word(pieces[place])]
        whole = [place for place in places if not _BROKEN_CHARACTER.match(pieces[place])]
        end = begin + max(starts or whole or [limit])
        parts.append(Segment("", tokens[begin:end], joiner, begin))
        begin, joiner = (end + spaces, " ") if starts else (end, "")
    return [*parts, Segment("", tokens[begin:], joiner, begin)]


_BROKEN_CHARACTER = re.compile("<0x[89AB]")
"""A piece that begins with a byte from within a character."""


def _has_space(piece: str) -> bool:
    return piece.startswith(SPACE_MARK)


_BEGINS_WORD: dict[str, Callable[[str], bool]] = {
    "word": lambda _: True,
    "wordpiece": lambda piece: piece[0].isalnum(),  # continuations begin with ##
}
"""Whether a piece is the first of a word; in all other tokenizers it then begins with a space."""


def join_segments(segments: Sequence[Segment], found: Sequence[list[Translation]]) -> list[Translation]:
    """Join the translations of the segments of a sentence."""
    if not segments:
        return [Translation("", 0.0)]
    nothing_before = [""] * len(segments)  # links count the words of the whole sentence already
    return join_translations(found, nothing_before, lambda number, *_: segments[number].joiner)


def join_sentences(
    sentences: Sequence[Sentence], found: Sequence[list[Translation]], constraints: TokenConstraints
) -> list[Translation]:
    """Join the translations of the sentences of a line, with the white space between them, up to a stop string."""
    sources = [sentence.text + sentence.space for sentence in sentences]
    joined = join_translations(
        found, sources, lambda number, one, other: joint(one, sentences[number - 1].space, other)
    )
    return [_stopped(one, constraints) for one in joined] if constraints.stops else joined


def _stopped(translation: Translation, constraints: TokenConstraints) -> Translation:
    """Cut a translation at its first stop string."""
    text = constraints.cut_at_stop(translation.text)
    words = len(text.split())
    return replace(translation, text=text, links=tuple(link for link in translation.links if link[1] < words))


def replace_broken(
    found: Sequence[Translation], intact: Sequence[bool], others: Sequence[Translation]
) -> list[Translation]:
    """Put others in the places of translations that are not intact, as far as they are not among them already."""
    known = {one.text for one, is_intact in zip(found, intact, strict=True) if is_intact}
    texts = [one.text for one in others]
    new = (one for place, one in enumerate(others) if one.text not in known and one.text not in texts[:place])
    replaced = [one if is_intact else next(new, None) for one, is_intact in zip(found, intact, strict=True)]
    return [one for one in replaced if one is not None]
