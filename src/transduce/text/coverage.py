"""How well a vocabulary fits a text: tokens per word, and how much of the text it cannot name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from transduce.text.any_tokenizer import AnyTokenizer

_BYTE = re.compile("<0x[0-9A-F]{2}>")


@dataclass(frozen=True)
class Coverage:
    """Counts over some text."""

    words: int
    tokens: int
    unknown: int
    """Tokens that stand for what the vocabulary lacks."""
    broken: int
    """Tokens that are bytes of a character, not characters: how lossless kinds spell what they lack."""

    @property
    def tokens_per_word(self) -> float:
        """The more, the worse the pieces fit; for words of one's own language 1.1 to 1.5 are usual."""
        return self.tokens / max(1, self.words)

    def __str__(self) -> str:
        """Say it in a few words."""
        said = f"{self.tokens_per_word:.2f} tokens per word"
        for count, what in ((self.unknown, "unknown"), (self.broken, "single bytes of a character")):
            if count:
                said += f", {count / max(1, self.tokens):.2%} of them {what}"
        return said


def coverage(tokenizer: AnyTokenizer, texts: Iterable[str]) -> Coverage:
    """Count what a tokenizer makes of texts; words are what stands between spaces."""
    lines = list(texts)
    rows = tokenizer.encode_batch(lines)
    shown = tokenizer.pieces(range(tokenizer.size))
    bytes_ = {token for token, piece in enumerate(shown) if _BYTE.search(piece)}
    return Coverage(
        words=sum(len(line.split()) for line in lines),
        tokens=sum(map(len, rows)),
        unknown=sum(map(tokenizer.count_unknown, rows)),
        broken=sum(token in bytes_ for row in rows for token in row),
    )
