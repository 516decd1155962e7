"""What answers must begin with, must say and must not say: text turned into a model's tokens, or refused where it has
none."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from transduce.errors import DataError, SettingsError
from transduce.text.any_tokenizer import AnyTokenizer
from transduce.text.line import normalise
from transduce.text.placeholder import pattern
from transduce.text.script import any_word


class Constraints:
    """What a person asks of the answers to some lines, in terms of text."""

    def __init__(
        self,
        tokenizer: AnyTokenizer,
        prefixes: Iterable[str] = (),
        forbid: Sequence[str] = (),
        terms: Mapping[str, str] | None = None,
        keep: Sequence[str] = (),
        stop_at: Sequence[str] = (),
    ) -> None:
        """`prefixes` are one for each line, in their order; `terms` say how words of the source are translated;
        what fits `keep` is copied, see `placeholder`."""
        if any(isinstance(texts, str) for texts in (prefixes, forbid, keep, stop_at)):
            raise SettingsError("prefixes, forbidden words, placeholders and stop strings are lists, not one text")
        if forbid and tokenizer.kind in ("character", "byte"):
            raise SettingsError(
                "this model writes letter by letter, and a word that it may not write it could not write inside other "
                "words either; forbid words of models with larger pieces only"
            )
        self._tokenizer = tokenizer
        self._prefixes: Iterator[str] | None = None if prefixes == () else iter(prefixes)
        self._lines = 0
        words = [normalise(word).strip() for word in forbid]
        if not all(words):
            raise SettingsError("an empty word cannot be forbidden; leave it out")
        self.forbidden = [self._tokens(word, f"'{word}' cannot be forbidden") for word in words]
        """Each word as the tokens that it usually is."""
        self._broken = any_word(words) if words else None
        given = {normalise(source).strip(): normalise(target).strip() for source, target in (terms or {}).items()}
        if not all(given) or not all(given.values()):
            raise SettingsError("a term needs a word of the source and its translation; one of them is empty")
        self._phrases = {target: self._tokens(target, f"'{target}' cannot be asked for") for target in given.values()}
        self._terms = {_capital(source): target for source, target in given.items()} | given
        self._sources = any_word(self._terms)
        self.kept = pattern(keep) if keep else None
        """What a translation copies from its source letter by letter."""
        if not all(stop_at):
            raise SettingsError("an answer cannot stop at an empty text; leave it out")
        self._stops = re.compile("|".join(map(re.escape, stop_at))) if stop_at else None
        self._tail = max((len(text.encode()) for text in stop_at), default=0) + 8
        self.held_back = max((len(text) - 1 for text in stop_at), default=0)
        """Characters at the end of an unfinished answer that may turn out to begin a stop string."""

    @property
    def stops(self) -> bool:
        """Whether answers end at some text."""
        return self._stops is not None

    @property
    def has_terms(self) -> bool:
        """Whether some words have a translation that was asked for."""
        return bool(self._terms)

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

    def required(self, source: str) -> list[list[int]]:
        """What the translation of a text has to say, in tokens."""
        return [self._phrases[target] for target in self._targets(source)]

    def missing(self, source: str, answer: str) -> list[str]:
        """What a translation does not say although it had to: there was no room for it, or something forbade it."""
        spelled = {target: self._tokenizer.decode(self._phrases[target]) for target in self._targets(source)}
        return [target for target, said in spelled.items() if target not in answer and said not in answer]

    def are_broken(self, text: str) -> bool:
        """Whether an answer has a forbidden word after all: the model may spell it with other tokens."""
        return self._broken is not None and self._broken.search(text) is not None

    def is_over(self, tokens: Sequence[int]) -> bool:
        """Whether an answer has come to a stop string. Only its end is looked at: no token is less than a byte."""
        assert self._stops is not None
        return self._stops.search(self._tokenizer.decode(tokens[-self._tail :])) is not None

    def stopped(self, text: str) -> str:
        """An answer up to its first stop string."""
        return text if self._stops is None else self._stops.split(text, maxsplit=1)[0]

    def _targets(self, source: str) -> list[str]:
        """The translations that a text asks for, each once; of two words that overlap the longer one counts."""
        return list(dict.fromkeys(self._terms[match.group()] for match in self._sources.finditer(source)))

    def _tokens(self, text: str, complaint: str) -> list[int]:
        tokens = self._tokenizer.encode(text)
        if self._tokenizer.count_unknown(tokens):
            raise SettingsError(f"{complaint}: the model's vocabulary lacks it; choose another word")
        return tokens


def _capital(word: str) -> str:
    """A word as it stands at the beginning of a sentence."""
    return word[:1].upper() + word[1:]


def read_terms(given: Iterable[str], lines: Iterable[str], where: str) -> dict[str, str]:
    """Read terms: `word=translation` each, or a word alone, which stays as it is; of a file, with a tab between."""
    terms: dict[str, str] = {}
    for term in given:
        source, equals, target = term.partition("=")
        terms[source] = target if equals else source
    for number, line in enumerate(lines, start=1):
        source, *targets = line.split("\t")
        if not line.strip():
            continue
        if len(targets) != 1 or not source.strip() or not targets[0].strip():
            raise DataError(f"{where}:{number}: is not a word, a tab and its translation")
        terms[source] = targets[0]
    return terms
