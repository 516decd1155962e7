"""What answers must begin with and must not say: text turned into a model's tokens, or refused where it has none."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

from transduce.errors import DataError, SettingsError
from transduce.text.tokenizer import Tokenizer


class Constraints:
    """The prefixes of some lines, in their order, and words that none of the answers may have."""

    def __init__(self, tokenizer: Tokenizer, prefixes: Iterable[str] = (), forbid: Sequence[str] = ()) -> None:
        if isinstance(prefixes, str) or isinstance(forbid, str):
            raise SettingsError("prefixes and forbidden words are lists of texts, not one text")
        if forbid and tokenizer.kind in ("character", "byte"):
            raise SettingsError(
                "this model writes letter by letter, and a word that it may not write it could not write inside other "
                "words either; forbid words of models with larger pieces only"
            )
        self._tokenizer = tokenizer
        self._prefixes: Iterator[str] | None = None if prefixes == () else iter(prefixes)
        self._lines = 0
        words = [word.strip() for word in forbid]
        if not all(words):
            raise SettingsError("an empty word cannot be forbidden; leave it out")
        self.forbidden = [self._tokens(word, f"'{word}' cannot be forbidden") for word in words]
        """Each word as the tokens that it usually is."""
        spelled = "|".join(map(re.escape, words))
        self._broken = re.compile(rf"(?<!\w)(?:{spelled})(?!\w)") if words else None

    def next_prefix(self) -> list[int]:
        """The tokens that the next line's answer begins with."""
        if self._prefixes is None:
            return []
        self._lines += 1
        prefix = next(self._prefixes, None)
        if prefix is None:
            raise DataError(
                f"there are prefixes for {self._lines - 1:,} lines only; give one for each, empty if need be"
            )
        return self._tokens(prefix, f"line {self._lines:,}: the prefix '{prefix}' cannot be written") if prefix else []

    def skip(self, lines: int) -> None:
        """Pass over the prefixes of lines that were answered before."""
        if self._prefixes is not None:
            self._lines += sum(1 for _ in itertools.islice(self._prefixes, lines))

    def refuse_leftovers(self) -> None:
        """Say so where there are more prefixes than lines."""
        if self._prefixes is not None and next(self._prefixes, None) is not None:
            raise DataError(f"there are more prefixes than the {self._lines:,} lines; give one for each")

    def are_broken(self, text: str) -> bool:
        """Whether an answer has a forbidden word after all: the model may spell it with other tokens."""
        return self._broken is not None and self._broken.search(text) is not None

    def _tokens(self, text: str, complaint: str) -> list[int]:
        tokens = self._tokenizer.encode(text)
        if self._tokenizer.count_unknown(tokens):
            raise SettingsError(f"{complaint}: the model's vocabulary lacks it; choose another word")
        return tokens
