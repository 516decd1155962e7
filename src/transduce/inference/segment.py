"""A text that is longer than a model reads, cut where that does the least harm."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from transduce.text.tokenizer import AnyTokenizer
from transduce.text.tokenizer.tokenizer import SPACE_MARK

T = TypeVar("T")


class Part(NamedTuple):
    """Some tokens of a text."""

    tokens: list[int]
    glue: str
    """What stood before them: a space or nothing."""
    begin: int
    """How many tokens of the text stand before them."""
    repeated: int = 0
    """How many of them stand before every part: the language of a source."""

    def of(self, all_tokens: Sequence[T]) -> list[T]:
        """Return what belongs to these tokens, of what belongs to all tokens of the text."""
        own = all_tokens[self.begin : self.begin + len(self.tokens) - self.repeated]
        return [*all_tokens[: self.repeated], *own]

    def after(self, lead: Sequence[int]) -> list[int]:
        """Return the tokens behind languages that were asked for, which stand in the place of the text's own."""
        return [*lead, *self.tokens[self.repeated if lead else 0 :]]


def cut_tokens(tokenizer: AnyTokenizer, tokens: list[int], limit: int) -> list[Part]:
    """Cut tokens into parts of at most `limit`, where words begin, or at least characters.

    Behind the last space there may be an empty part. Languages at the beginning are put before every part.
    """
    if leading := tokenizer.leading(tokens):
        rest = cut_tokens(tokenizer, tokens[leading:], max(1, limit - leading))
        return [
            Part([*tokens[:leading], *part.tokens], part.glue, part.begin + leading, leading) if part.tokens else part
            for part in rest
        ]
    begins_word = _BEGINS_WORD.get(tokenizer.kind, _has_space)
    spaces = tokenizer.kind in ("character", "byte")  # a space is a token of its own, and stands for the cut
    parts: list[Part] = []
    begin, glue = 0, ""
    while len(tokens) - begin > limit:
        pieces = tokenizer.pieces(tokens[begin : begin + limit + 1])
        places = range(max(1, limit // 2), limit + 1)
        starts = [place for place in places if begins_word(pieces[place])]
        whole = [place for place in places if not _BROKEN_CHARACTER.match(pieces[place])]
        end = begin + max(starts or whole or [limit])
        parts.append(Part(tokens[begin:end], glue, begin))
        begin, glue = (end + spaces, " ") if starts else (end, "")
    return [*parts, Part(tokens[begin:], glue, begin)]


_BROKEN_CHARACTER = re.compile("<0x[89AB]")
"""A piece that begins with a byte from within a character."""


def _has_space(piece: str) -> bool:
    return piece.startswith(SPACE_MARK)


_BEGINS_WORD: dict[str, Callable[[str], bool]] = {
    "word": lambda _: True,
    "wordpiece": lambda piece: piece[0].isalnum(),  # the rest of a word begins with ##
}
"""Whether a piece, as a person sees it, is the first of a word; in all other kinds it then has a space."""
