"""Constraints on translations: prefixes, forbidden words, terms, stop strings, and placeholders that are copied.

Text is turned into a model's tokens; text that the vocabulary lacks is an error.

Placeholders (variables, tags, addresses) have to be copied character by character. Where a model does not copy them
itself, they are taken out of the source, and put back where an alignment says the words around them went.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from transduce.errors import DataError, SettingsError
from transduce.text.corpus import read_lines
from transduce.text.lines import normalise
from transduce.text.sentence import any_word
from transduce.text.tokenizer import AnyTokenizer
from transduce.text.tokenizer.special import LETTERS


@dataclass(frozen=True)
class Constraints:
    """Constraints on the text of translations."""

    prefixes: Iterable[str] | str = ()
    """What translations begin with: one prefix for each line, empty for none, or one string for all lines."""
    forbid: Sequence[str] = ()
    """Words that are never generated."""
    terms: Mapping[str, str] = field(default_factory=dict)
    """Words of the source and how they are translated."""
    require: Sequence[str] = ()
    """Words that every translation has, whatever its source."""
    keep: Sequence[str] = ()
    """Regular expressions; what matches one is copied."""
    stop_at: Sequence[str] = ()
    """Translations end before any of these texts."""

    def __post_init__(self) -> None:
        if any(isinstance(texts, str) for texts in (self.forbid, self.require, self.keep, self.stop_at)):
            raise SettingsError("forbid, require, keep and stop_at must be lists, not one string")
        if not isinstance(self.terms, Mapping):
            raise TypeError(f"terms must be a dict of words and their translations, not {type(self.terms).__name__}")

    @property
    def has_prefixes(self) -> bool:
        """Whether translations may have to begin with a prefix."""
        return self.prefixes != ()


class TokenConstraints:
    """Constraints on the translations of some lines, in the tokens of a model; prefixes are used up line by line."""

    def __init__(self, tokenizer: AnyTokenizer, constraints: Constraints) -> None:
        forbid, stop_at = constraints.forbid, constraints.stop_at
        if forbid and tokenizer.kind in LETTERS:
            raise SettingsError(
                f"forbidden words need a subword tokenizer, but the model's is of kind {tokenizer.kind}, for which a "
                "forbidden word would be forbidden inside other words too"
            )
        self._tokenizer = tokenizer
        prefixes = constraints.prefixes
        self._is_repeated = isinstance(prefixes, str)
        every = itertools.repeat(prefixes) if isinstance(prefixes, str) else iter(prefixes)
        self._prefixes: Iterator[str] | None = every if constraints.has_prefixes else None
        self._lines = 0
        words = [normalise(word).strip() for word in forbid]
        if not all(words):
            raise SettingsError("a forbidden word is empty; leave it out")
        self.forbidden = [self._tokens(word, f"'{word}' cannot be forbidden") for word in words]
        """Tokens of each forbidden word."""
        self._forbidden_pattern = any_word(words) if words else None
        given = {normalise(source).strip(): normalise(target).strip() for source, target in constraints.terms.items()}
        if not all(given) or not all(given.values()):
            raise SettingsError("a term needs a source word and its translation, but one of them is empty")
        self._always = [normalise(word).strip() for word in constraints.require]
        if not all(self._always):
            raise SettingsError("a required word is empty; leave it out")
        required = [*given.values(), *self._always]
        self._phrases = {target: self._tokens(target, f"'{target}' cannot be required") for target in required}
        self._terms = {_capitalised(source): target for source, target in given.items()} | given
        self._sources = any_word(self._terms)
        self.kept = compile_patterns(constraints.keep) if constraints.keep else None
        """Matches what a translation copies from its source."""
        if not all(stop_at):
            raise SettingsError("a stop string is empty; leave it out")
        self._stops = re.compile("|".join(map(re.escape, stop_at))) if stop_at else None
        self._tail = max((len(text.encode()) for text in stop_at), default=0) + 8
        self.max_stop_prefix = max((len(text) - 1 for text in stop_at), default=0)
        """Characters at the end of an unfinished translation that may be the beginning of a stop string."""

    @property
    def stops(self) -> bool:
        """Whether there are stop strings."""
        return self._stops is not None

    @property
    def has_terms(self) -> bool:
        """Whether there are terms or required words."""
        return bool(self._phrases)

    def next_prefix(self) -> list[int]:
        """Return the tokens of the next line's prefix."""
        if self._prefixes is None:
            return []
        self._lines += 1
        prefix = next(self._prefixes, None)
        if prefix is None:
            raise DataError(
                f"there are more lines than prefixes ({self._lines - 1:,}); give one prefix per line, empty for none"
            )
        return self._tokens(prefix, f"line {self._lines:,}: the prefix '{prefix}' cannot be used") if prefix else []

    def skip(self, lines: int) -> None:
        """Skip the prefixes of lines that are already translated."""
        if self._prefixes is not None:
            self._lines += sum(1 for _ in itertools.islice(self._prefixes, lines))

    def check_all_used(self) -> None:
        """Raise an error if there are more prefixes than lines."""
        if self._prefixes is None or self._is_repeated:
            return
        if next(self._prefixes, None) is not None:
            raise DataError(f"there are more prefixes than lines ({self._lines:,}); give one prefix per line")

    def required(self, source: str) -> list[list[int]]:
        """Return the phrases that the translation of a text must contain, in tokens."""
        return [self._phrases[target] for target in self._targets(source)]

    def missing(self, source: str, translation: str) -> list[str]:
        """Return the required terms that a translation lacks: it was too short, or another constraint forbids them."""
        spelled = {target: self._tokenizer.decode(self._phrases[target]) for target in self._targets(source)}
        return [target for target, text in spelled.items() if target not in translation and text not in translation]

    def has_forbidden_word(self, text: str) -> bool:
        """Whether a translation has a forbidden word after all, spelled with other tokens."""
        return self._forbidden_pattern is not None and self._forbidden_pattern.search(text) is not None

    def reached_stop(self, tokens: Sequence[int]) -> bool:
        """Whether tokens end in a stop string. Only the last ones are decoded: no token is shorter than a byte."""
        assert self._stops is not None
        return self._stops.search(self._tokenizer.decode(tokens[-self._tail :])) is not None

    def cut_at_stop(self, text: str) -> str:
        """Return a text up to its first stop string."""
        return text if self._stops is None else self._stops.split(text, maxsplit=1)[0]

    def _targets(self, source: str) -> list[str]:
        """Return the required translations for a source, each once; of overlapping terms the longest counts."""
        terms = (self._terms[match.group()] for match in self._sources.finditer(source))
        return list(dict.fromkeys([*self._always, *terms]))

    def _tokens(self, text: str, error: str) -> list[int]:
        tokens = self._tokenizer.encode(text)
        if self._tokenizer.count_unknown(tokens):
            raise SettingsError(f"{error}: it is not in the model's vocabulary; choose another word")
        return tokens


def _capitalised(word: str) -> str:
    """Return a word as it is written at the beginning of a sentence."""
    return word[:1].upper() + word[1:]


def read_terms(given: Iterable[str], path: str | None = None) -> dict[str, str]:
    """Read terms: `word=translation`, or a word alone, which is copied; in a file, separated by a tab."""
    terms: dict[str, str] = {}
    for term in given:
        source, equals, target = term.partition("=")
        terms[source] = target if equals else source
    for number, line in enumerate(() if path is None else read_lines(path), start=1):
        source, *targets = line.split("\t")
        if not line.strip():
            continue
        if len(targets) != 1 or not source.strip() or not targets[0].strip():
            raise DataError(f"{path}:{number}: expected a word, a tab and its translation")
        terms[source] = targets[0]
    return terms


_BRACES = r"\{[^{}]{0,300}+\}"
for _ in range(3):  # a plural within a choice, with arguments
    _BRACES = r"\{(?:[^{}]{1,300}+|" + _BRACES + r"){0,20}+\}"
_BRANCH = r"\s*+[\w=:.-]++(?:\s*+" + _BRACES + r")?+"
DEFAULT_PLACEHOLDERS = (
    r"https?://[^\s<>\"']*[^\s<>\"'.,;:!?)\]}]",
    r"(?<![\w.+-])[\w.+-]++@[\w-]++(?:\.[\w-]++)+",
    r"</?(?:[A-Za-z][^<>]*+|\d++/?)>",
    r"\{\s*+\w++\s*+,\s*+(?:plural|select|selectordinal)\s*+,(?:" + _BRANCH + r"){1,20}+\s*+\}",
    r"\{\s*+\w++\s*+,\s*+(?:number|date|time|duration|ordinal|spellout)\b[^{}]{0,80}+\}",
    r"\{\{[^{}]{0,200}+\}\}|\{%[^{}%]{0,200}+%\}|<%[^<>%]{0,200}+%>|\$t\([^()\s]{1,200}+\)",
    r"[$%#]?\{[^{}\s]*+\}",
    r"%\([^()\s]++\)[-+ #0]*+\d*+(?:\.\d++)?[a-zA-Z]",
    r"%(?:\d+\$)?[-+#0]*+\d*+(?:\.\d++)?(?:l{1,2}|h{1,2})?(?:[sdifgxXeEucr]\b|@)",
    r"&(?:\w++|#\d++);",
)
"""Web and mail addresses, tags, messages of ICU as a whole ({n, plural, …}), {{ name }}, {% if x %}, {name}, ${name}
and %{name}, %(name)s, %s, %@ and %1$d, &amp;. Each matches in linear time."""


def compile_patterns(expressions: Sequence[str]) -> re.Pattern[str]:
    """Return one pattern for all regular expressions; where two match, the first wins."""
    try:
        each = [re.compile(expression) for expression in expressions]
        found = re.compile("|".join(f"(?:{expression})" for expression in expressions))
    except re.error as error:
        raise SettingsError(f"'{error.pattern!s}' is not a valid regular expression ({error.msg})") from None
    if any(one.match("") for one in each):
        raise SettingsError("a regular expression of `keep` matches the empty string; make it longer")
    if any(one.groups for one in each):
        raise SettingsError("a regular expression of `keep` has a capturing group; write (?:…) instead")
    return found


@dataclass(frozen=True)
class Placeholder:
    """A placeholder taken out of a text, and its position in the remaining text."""

    text: str
    word: int
    """Index of the neighbouring word in the remaining text."""
    before: bool
    """Whether it precedes that word or follows it."""
    spaced: bool
    """Whether there was a space between them."""


def keeps_placeholders(found: re.Pattern[str], source: str, translation: str) -> bool:
    """Whether a translation has each placeholder of the source as often as the source."""
    expected, there = (Counter(match.group() for match in found.finditer(text)) for text in (source, translation))
    lacking = {text: count for text, count in expected.items() if there[text] < count}
    return all(translation.count(text) >= count for text, count in lacking.items())


def extract_placeholders(found: re.Pattern[str], text: str) -> tuple[str, list[Placeholder]]:
    """Return a text without its placeholders, spaces adjusted, and the placeholders."""
    left, taken = _Growing(), list[Placeholder]()
    end = words = 0
    for match in found.finditer(text):
        more = text[end : match.start()]
        continues = bool(left.last and more) and not left.last.isspace() and not more[0].isspace()
        left.append(more)
        words += len(more.split()) - continues
        end = match.end()
        behind, space = text[end : end + 1], left.last.isspace()
        if behind.isalnum() and (space or not words):  # belongs to the next word: an opening tag, a currency sign
            taken.append(Placeholder(match.group(), words, True, False))
        elif not words:
            taken.append(Placeholder(match.group(), 0, True, behind.isspace()))
        else:
            taken.append(Placeholder(match.group(), words - 1, False, space))
        if (not left.last or space) and behind.isspace():
            end += 1
        elif space and not behind.isalnum():
            left.strip()
    left.append(text[end:])
    return "".join(left.parts), taken


class _Growing:
    """A text that grows at its end; joining it once takes linear time."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    @property
    def last(self) -> str:
        """Its last character, if it has one."""
        return self.parts[-1][-1] if self.parts else ""

    def append(self, text: str) -> None:
        """Add text."""
        if text:
            self.parts.append(text)

    def strip(self) -> None:
        """Remove white space at the end."""
        while self.parts:
            kept = self.parts.pop().rstrip()
            if kept:
                self.parts.append(kept)
                return


def restore_placeholders(translation: str, taken: Sequence[Placeholder], links: Sequence[tuple[int, int]]) -> str:
    """Insert placeholders into the translation of the remaining text; `links` are (source word, target word)."""
    words = [_Word(match.start(), match.end(), _core_end(match)) for match in re.finditer(r"\S+", translation)]
    linked: dict[int, list[int]] = {}
    for source, target in sorted(link for link in links if link[1] < len(words)):
        linked.setdefault(source, []).append(target)
    sources = [*linked]
    places = [(*_place(one, words, linked, sources), number) for number, one in enumerate(taken)]
    pieces, end = [], 0
    for at, _, number in sorted(places):
        one = taken[number]
        space = " " if one.spaced and words else ""
        pieces += [translation[end:at], f"{one.text}{space}" if one.before else f"{space}{one.text}"]
        end = at
    return "".join([*pieces, translation[end:]])


class _Word(NamedTuple):
    """Places in a translation: where a word begins and ends, and where the punctuation behind it begins."""

    start: int
    end: int
    core_end: int


def _core_end(word: re.Match[str]) -> int:
    core = re.search(r"\w[^\w]*$", word.group())
    return word.end() if core is None else word.start() + core.start() + 1


def _place(
    one: Placeholder, words: Sequence[_Word], linked: Mapping[int, Sequence[int]], sources: Sequence[int]
) -> tuple[int, int]:
    """Return (offset in the translation, order among those at that offset); `linked`: source word -> target words."""
    if not words:
        return 0, 0
    if not sources:
        return (0, 0) if one.before else (words[-1].end, 0)
    place = bisect_left(sources, one.word)
    nearest = min(sources[max(0, place - 1) : place + 1], key=lambda source: (abs(source - one.word), -source))
    close = linked[nearest]
    if one.before:
        return words[close[0]].start, 1
    return words[close[-1]].core_end, 0
