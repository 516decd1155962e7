"""What a translation has to copy letter by letter: variables, tags, addresses.

A model that has learnt to copy them does so. For any other they are taken out of the source, and put back where the
words around them went, which an alignment says.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from transduce.errors import SettingsError

USUAL = (
    r"https?://[^\s<>\"']*[^\s<>\"'.,;:!?)\]}]",
    r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+",
    r"</?[A-Za-z][^<>]*>",
    r"\$?\{\{?[^{}\s]*\}?\}",
    r"%\([^()\s]+\)[-+ #0]*\d*(?:\.\d+)?[a-zA-Z]",
    r"%(?:\d+\$)?[-+#0]*\d*(?:\.\d+)?(?:l{1,2}|h{1,2})?(?:[sdifgxXeEucr]\b|@)",
    r"&(?:\w+|#\d+);",
)
"""Web and mail addresses, tags, {name} and ${name}, %(name)s, %s, %@ and %1$d, &amp;."""


def pattern(expressions: Sequence[str]) -> re.Pattern[str]:
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


def are_kept(found: re.Pattern[str], source: str, answer: str) -> bool:
    """Whether an answer has each placeholder of the source as often as the source."""
    wanted = Counter(match.group() for match in found.finditer(source))
    return all(answer.count(text) >= count for text, count in wanted.items())


def take_out(found: re.Pattern[str], text: str) -> tuple[str, list[Placeholder]]:
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


def put_back(answer: str, taken: Sequence[Placeholder], links: Sequence[tuple[int, int]]) -> str:
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
