"""Text with markup inside: what a model reads of it, and how its translation is written with all markup in place.

Each format splits the raw text into tokens: text (as it is, or escaped), codes (tags, links and whatever is copied),
gaps (white space that means one space: an indented line break) and joins (where a string is merely continued on the
next line). The model reads text with short tags for the codes: `<g1>bold</g1> and <g2/>`.

Writing restores everything: a code replaces its tag, in an order in which they nest; a character is escaped as it was
in the source, occurrence by occurrence; gaps and joins return to the nearest word boundary at the same share of the
text. So a text that comes back unchanged is written as it was, byte for byte. All of it takes linear time.
"""

from __future__ import annotations

import functools
import re
import string
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Literal, NamedTuple

from transduce.text.lines import normalise

Role = Literal["open", "close", "single"]


class Token(NamedTuple):
    """A piece of raw text."""

    kind: Literal["text", "code", "gap", "join"]
    raw: str
    text: str = ""
    """What a text token means; differs from `raw` for one escaped character."""
    role: Role = "single"
    """Of a code; an opening and a closing one with the same name may be a pair."""
    name: str = ""


def plain(text: str) -> Token:
    """Return a token of text that is not escaped."""
    return Token("text", text, text)


class InlineText:
    """One text of a document."""

    def __init__(
        self,
        tokens: Iterable[Token],
        escapes: Mapping[str, str],
        where: str,
        not_first: re.Pattern[str] | None = None,
        never: str = "",
    ) -> None:
        """Read tokens; `escapes` has the characters that must be escaped, with their default spelling.

        No line break is put before a text that matches `not_first`; a space is put into `never`, which cannot be
        escaped.
        """
        self._never = never
        every = _split_spaces(_merge_joins(tokens))
        pairs = _pairs(every)
        begin, end = _inner(every, pairs)
        self._before = "".join(token.raw for token in every[:begin])
        self._after = "".join(token.raw for token in every[end:])
        tokens = every[begin:end]
        self._codes = [place for place, token in enumerate(tokens) if token.kind == "code"]
        """Places of the codes among the tokens."""
        self._tokens = tokens
        self._escapes = escapes
        self._spellings = _spellings(tokens, escapes)
        content = "".join(" " if token.kind == "gap" else token.text for token in tokens)
        self._letter = next(letter for letter in _letters() if _tag_pattern(letter).search(content) is None)
        self._tag = _tag_pattern(self._letter)
        self._names, self._pairs = self._numbered({place - begin: other - begin for place, other in pairs.items()})
        self._places = list(accumulate((len(_shown(token)) for token in tokens), initial=0))
        """Offset of each token in the text without codes."""
        starts = [place + 1 for place, token in zip(self._places, tokens, strict=False) if token.kind == "gap"]
        given = not_first is not None and any(not_first.match(content, place) for place in starts)
        self._not_first = None if given else not_first
        self.has_words = any(map(str.isalnum, content))
        """Whether there is a letter or a digit to translate."""
        names = iter(self._names)
        shown = (next(names) if token.kind == "code" else _shown(token) for token in tokens)
        self.text = normalise("".join(shown), where)
        """What the model reads; empty if there is nothing to translate."""

    def write(self, translation: str) -> str:
        """Return the raw text with a translation."""
        if self._never:
            translation = translation.replace(self._never, f"{self._never[:-1]} {self._never[-1]}")
        parts, codes = self._read(translation)
        if not self._nests(codes):
            parts, codes = self._reordered(parts, codes)
        content = "".join(parts)
        changes = self._changes(content)
        spell = _Speller(self._spellings, self._escapes)
        written, offset = [self._before], 0
        for part, code in zip(parts, [*codes, None], strict=True):
            end = offset + len(part)
            place = offset
            while changes and changes[-1][0] < end + (code is None):
                at, consumed, raw = changes.pop()
                written += [spell(content[place:at]), raw]
                place = at + consumed
            written.append(spell(content[place:end]))
            offset = end
            if code is not None:
                written.append(self._tokens[self._codes[code]].raw)
        return "".join([*written, self._after])

    def _numbered(self, partner: Mapping[int, int]) -> tuple[list[str], dict[int, int]]:
        """Return the tag of each code, and the pairs by the numbers of the codes."""
        number = {place: count for count, place in enumerate(self._codes)}
        pairs = {
            number[place]: number[other] for place, other in partner.items() if place in number and other in number
        }
        letter = self._letter
        names = []
        for code in range(len(self._codes)):
            if code not in pairs:
                names.append(f"<{letter}{code + 1}/>")
            elif pairs[code] > code:
                names.append(f"<{letter}{code + 1}>")
            else:
                names.append(f"</{letter}{pairs[code] + 1}>")
        return names, pairs

    def _read(self, translation: str) -> tuple[list[str], list[int]]:
        """Split a translation at the tags of known codes, each of which counts once; others are left out."""
        if not self._codes:
            return [translation], []
        known = {name: code for code, name in enumerate(self._names)}
        texts, codes = [[""]], list[int]()
        for number, piece in enumerate(self._tag.split(translation)):
            code = known.pop("".join(piece.split()).lower(), None) if number % 2 else None
            if code is not None:
                codes.append(code)
                texts.append([])
            elif number % 2 == 0:
                texts[-1].append(piece)
        return ["".join(several) for several in texts], codes

    def _nests(self, codes: Sequence[int]) -> bool:
        """Whether all codes are there, and pairs contain each other or are apart."""
        inside: list[int] = []
        for code in codes:
            other = self._pairs.get(code)
            if other is not None and other > code:
                inside.append(other)
            elif other is not None and (not inside or inside.pop() != code):
                return False
        return len(codes) == len(self._codes)

    def _reordered(self, parts: Sequence[str], codes: Sequence[int]) -> tuple[list[str], list[int]]:
        """Put the codes into their order in the source, at the places where codes are; add those that are missing."""
        content = "".join(parts)
        places = list(accumulate(map(len, parts)))[: len(codes)]
        missing = set(range(len(self._codes))) - set(codes)
        ends = [0, *(found.start() for found in re.finditer(r"\b(?=\W)|$", content))]
        total = max(1, self._places[-1])
        for code in missing:
            places.append(_nearest(ends, self._places[self._codes[code]] * len(content) / total))
        edges = [0, *sorted(places), len(content)]
        return [content[edges[n] : edges[n + 1]] for n in range(len(edges) - 1)], list(range(len(self._codes)))

    def _changes(self, content: str) -> list[tuple[int, int, str]]:
        """Return where gaps and joins are in a translation: (offset, characters that it replaces, raw), last first."""
        layout = [place for place, token in enumerate(self._tokens) if token.kind in ("gap", "join")]
        if not layout:
            return []
        spaces = [found.start() for found in re.finditer(r"[ \n]", content)]
        if self._not_first is not None:
            spaces = [place for place in spaces if self._not_first.match(content, place + 1) is None]
        total, used, found = max(1, self._places[-1]), -1, list[tuple[int, int, str]]()
        source = "".join(map(_shown, self._tokens))
        for place in layout:
            token, at = self._tokens[place], self._places[place]
            wanted = at * len(content) / total
            if token.kind == "join" and source[at - 1 : at] not in (" ", "\n"):
                spot = max(used + 1, round(wanted))
            elif token.kind == "join":
                spot = _nearest(spaces, wanted - 1, used) + 1
            else:
                spot = _nearest(spaces, wanted, used)
            if used < spot <= len(content) and (token.kind == "join" or spot < len(content)):
                found.append((spot, int(token.kind == "gap"), token.raw))
                used = spot
        return found[::-1]


def _shown(token: Token) -> str:
    """Return what a token is in the text without codes."""
    return token.text if token.kind == "text" else " " if token.kind == "gap" else ""


def _letters() -> Iterator[str]:
    """Yield names for tags."""
    start = string.ascii_lowercase.index("g")
    letters = string.ascii_lowercase[start:] + string.ascii_lowercase[:start]
    yield from letters
    count = 1
    while True:
        count += 1
        yield "g" * count + "x"


@functools.lru_cache(maxsize=64)
def _tag_pattern(letter: str) -> re.Pattern[str]:
    """Return a pattern for the tags of codes; a model may write them with capitals or spaces."""
    return re.compile(rf"(< ?/? ?{letter} ?\d+ ?/? ?>)", re.IGNORECASE)


def _nearest(places: Sequence[int], wanted: float, after: int = -1) -> int:
    """Return the nearest of some sorted places that is greater than `after`; -1 if there is none."""
    first = bisect_left(places, after + 1)
    at = bisect_left(places, wanted, lo=first)
    near = places[max(first, at - 1) : at + 1]
    return min(near, key=lambda place: abs(place - wanted), default=-1)


def _merge_joins(tokens: Iterable[Token]) -> list[Token]:
    """Make a join part of the join or code that follows it at the same place, so that their order is kept."""
    found: list[Token] = []
    for token in tokens:
        if found and found[-1].kind == "join" and token.kind in ("join", "code"):
            token = token._replace(raw=found.pop().raw + token.raw)
        found.append(token)
    return found


def _split_spaces(tokens: list[Token]) -> list[Token]:
    """Make white space at both ends tokens of their own, so that it is not translated."""
    texts = [place for place, token in enumerate(tokens) if token.kind == "text" and token.text.strip()]
    if not texts:
        return tokens
    for place, strip in ((texts[-1], str.rstrip), (texts[0], str.lstrip)):
        token = tokens[place]
        kept = strip(token.text)
        if kept != token.text and token.raw == token.text:
            size = len(token.text) - len(kept)
            if strip is str.lstrip:
                tokens[place : place + 1] = [plain(token.text[:size]), plain(kept)]
            else:
                tokens[place : place + 1] = [plain(kept), plain(token.text[-size:])]
    return tokens


def _pairs(tokens: Sequence[Token]) -> dict[int, int]:
    """Return the pairs of opening and closing codes that nest, by their places, in both directions."""
    waiting: list[int] = []
    pairs: dict[int, int] = {}
    for place, token in enumerate(tokens):
        if token.kind != "code" or token.role == "single":
            continue
        if token.role == "open":
            waiting.append(place)
        elif waiting and tokens[waiting[-1]].name == token.name:
            begin = waiting.pop()
            pairs |= {begin: place, place: begin}
    return pairs


def _inner(tokens: Sequence[Token], pairs: Mapping[int, int]) -> tuple[int, int]:
    """Return the range of tokens between the markup around the text; pairs that begin or end inside are inside."""
    texts = [place for place, token in enumerate(tokens) if token.kind == "text" and token.text.strip()]
    if not texts:
        return len(tokens), len(tokens)
    first, last = texts[0], texts[-1]
    begin = next((place for place in range(first) if first <= pairs.get(place, -1) <= last), first)
    ends = range(len(tokens) - 1, last, -1)
    end = next((place for place in ends if begin <= pairs.get(place, -1) <= last), last)
    return begin, end + 1


def _spellings(tokens: Sequence[Token], escapes: Mapping[str, str]) -> dict[str, list[str]]:
    """Return how each character that is escaped anywhere is written, occurrence by occurrence."""
    texts = [token for token in tokens if token.kind == "text"]
    special = {token.text for token in texts if token.raw != token.text} | escapes.keys()
    if not special:
        return {}
    pattern = _any_of(frozenset(special))
    found: dict[str, list[str]] = {}
    for token in texts:
        if token.raw != token.text:
            found.setdefault(token.text, []).append(token.raw)
            continue
        for match in pattern.finditer(token.text):
            found.setdefault(match.group(), []).append(match.group())
    return found


@functools.lru_cache(maxsize=256)
def _any_of(characters: frozenset[str]) -> re.Pattern[str]:
    return re.compile(f"[{re.escape(''.join(sorted(characters)))}]")


class _Speller:
    """Writes text with the spellings of the source, used up one after the other, then with the defaults."""

    def __init__(self, spellings: Mapping[str, list[str]], escapes: Mapping[str, str]) -> None:
        self._left = {character: iter(several) for character, several in spellings.items()}
        single = {character: several[0] for character, several in spellings.items() if len(set(several)) == 1}
        self._default = {**single, **escapes}
        special = self._left.keys() | escapes.keys()
        self._pattern = _any_of(frozenset(special)) if special else None

    def __call__(self, text: str) -> str:
        return text if self._pattern is None else self._pattern.sub(self._spell, text)

    def _spell(self, found: re.Match[str]) -> str:
        character = found.group()
        spelling = next(self._left.get(character, iter(())), None)
        return self._default.get(character, character) if spelling is None else spelling
