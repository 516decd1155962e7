"""What answers must begin with, must say and must not say: text turned into a model's tokens, or refused where it has
none."""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from transduce.errors import DataError, SettingsError
from transduce.text.lines import normalise
from transduce.text.sentence import any_word
from transduce.text.tokenizer import AnyTokenizer


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
        self._phrases = {target: self._tokens(target, f"'{target}' cannot be required") for target in given.values()}
        self._terms = {_capital(source): target for source, target in given.items()} | given
        self._sources = any_word(self._terms)
        self.kept = compile_patterns(keep) if keep else None
        """What a translation copies from its source letter by letter."""
        if not all(stop_at):
            raise SettingsError("generation cannot stop at an empty text; leave it out")
        self._stops = re.compile("|".join(map(re.escape, stop_at))) if stop_at else None
        self._tail = max((len(text.encode()) for text in stop_at), default=0) + 8
        self.max_stop_prefix = max((len(text) - 1 for text in stop_at), default=0)
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

    def check_all_used(self) -> None:
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

    def has_forbidden_word(self, text: str) -> bool:
        """Whether an answer has a forbidden word after all: the model may spell it with other tokens."""
        return self._broken is not None and self._broken.search(text) is not None

    def reached_stop(self, tokens: Sequence[int]) -> bool:
        """Whether an answer has come to a stop string. Only its end is looked at: no token is less than a byte."""
        assert self._stops is not None
        return self._stops.search(self._tokenizer.decode(tokens[-self._tail :])) is not None

    def cut_at_stop(self, text: str) -> str:
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


# What a translation has to copy letter by letter: variables, tags, addresses.
#
# A model that has learnt to copy them does so. For any other they are taken out of the source, and put back where the
# words around them went, which an alignment says.

DEFAULT_PLACEHOLDERS = (
    r"https?://[^\s<>\"']*[^\s<>\"'.,;:!?)\]}]",
    r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+",
    r"</?[A-Za-z][^<>]*>",
    r"\$?\{\{?[^{}\s]*\}?\}",
    r"%\([^()\s]+\)[-+ #0]*\d*(?:\.\d+)?[a-zA-Z]",
    r"%(?:\d+\$)?[-+#0]*\d*(?:\.\d+)?(?:l{1,2}|h{1,2})?(?:[sdifgxXeEucr]\b|@)",
    r"&(?:\w+|#\d+);",
)
"""Web and mail addresses, tags, {name} and ${name}, %(name)s, %s, %@ and %1$d, &amp;."""


def compile_patterns(expressions: Sequence[str]) -> re.Pattern[str]:
    """One pattern for all of them; what comes first wins where two could begin."""
    try:
        each = [re.compile(expression) for expression in expressions]
        found = re.compile("|".join(f"(?:{expression})" for expression in expressions))
    except re.error as error:
        raise SettingsError(f"'{error.pattern!s}' is not a regular expression ({error.msg}); fix it") from None
    if any(one.match("") for one in each):
        raise SettingsError("a regular expression for what is kept must not fit an empty text; make it longer")
    if any(one.groups for one in each):
        raise SettingsError("in a regular expression for what is kept, write groups as (?:…); fix it")
    return found


@dataclass(frozen=True)
class Placeholder:
    """One piece that was taken out, and where it stood in what is left."""

    text: str
    word: int
    """The word that it stands by, counted from 0 in what is left."""
    before: bool
    """Whether it stands before that word, or after it."""
    spaced: bool
    """Whether there was a space between them."""


def keeps_placeholders(found: re.Pattern[str], source: str, answer: str) -> bool:
    """Whether an answer has each placeholder of the source as often as the source."""
    wanted = Counter(match.group() for match in found.finditer(source))
    return all(answer.count(text) >= count for text, count in wanted.items())


def extract_placeholders(found: re.Pattern[str], text: str) -> tuple[str, list[Placeholder]]:
    """Return a text without its placeholders, which goes on as if they had never been there, and the placeholders."""
    left, taken = "", []
    end = words = 0
    for match in found.finditer(text):
        more = text[end : match.start()]
        goes_on = bool(left and more) and not left[-1].isspace() and not more[0].isspace()
        left, words = left + more, words + len(more.split()) - goes_on
        end = match.end()
        behind, space = text[end : end + 1], left[-1:].isspace()
        if behind.isalnum() and (space or not words):  # it belongs to what follows: an opening tag, a currency sign
            taken.append(Placeholder(match.group(), words, True, False))
        elif not words:
            taken.append(Placeholder(match.group(), 0, True, behind.isspace()))
        else:
            taken.append(Placeholder(match.group(), words - 1, False, space))
        if (not left or space) and behind.isspace():
            end += 1
        elif space and not behind.isalnum():
            left = left.rstrip()
    return left + text[end:], taken


def restore_placeholders(answer: str, taken: Sequence[Placeholder], links: Sequence[tuple[int, int]]) -> str:
    """Put placeholders into the translation of what was left; `links` are (source word, target word)."""
    words = list(re.finditer(r"\S+", answer))
    linked: dict[int, list[int]] = {}
    for source, target in sorted(link for link in links if link[1] < len(words)):
        linked.setdefault(source, []).append(target)
    sources = [*linked]
    places = [(*_place(one, words, linked, sources), number) for number, one in enumerate(taken)]
    pieces, end = [], 0
    for at, _, number in sorted(places):
        one = taken[number]
        space = " " if one.spaced and words else ""
        pieces += [answer[end:at], f"{one.text}{space}" if one.before else f"{space}{one.text}"]
        end = at
    return "".join([*pieces, answer[end:]])


def _place(
    one: Placeholder, words: Sequence[re.Match[str]], linked: Mapping[int, Sequence[int]], sources: Sequence[int]
) -> tuple[int, int]:
    """(where in the answer, how late among those that go there); `linked` is by source word, `sources` are those."""
    if not words:
        return 0, 0
    if not sources:
        return (0, 0) if one.before else (words[-1].end(), 0)
    place = bisect_left(sources, one.word)
    nearest = min(sources[max(0, place - 1) : place + 1], key=lambda source: (abs(source - one.word), -source))
    close = linked[nearest]
    if one.before:
        return words[min(close)].start(), 1
    word = words[max(close)]
    core = re.search(r"\w[^\w]*$", word.group())  # before the signs that close the word
    return (word.end() if core is None else word.start() + core.start() + 1), 0
