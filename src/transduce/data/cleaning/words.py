"""Words of any script as numbers, for counting which words translate which.

A word is cut to its first characters, so that inflected forms count as one; text without spaces is read in pairs of
characters. Numbers are hashes: no dictionary grows with the corpus.
"""

from __future__ import annotations

import re
import zlib
from functools import lru_cache
from typing import NamedTuple

VOCABULARY = 2**18
"""Numbers that words are hashed to; two of a corpus's words rarely share one, and then only blur a count."""
STEM, HANGUL_STEM = 5, 2
"""Characters of a word that count; a Hangul character is a syllable."""
MAX_WORDS = 150
"""Words of a side that are read; a longer line is judged by its beginning."""

_CHINESE = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_UNSPACED = "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9d"
"""Thai, Lao, Tibetan, Burmese, Khmer and kana, which are written without spaces between words, as Chinese is."""
_MARKS = "\u0300-\u036f\u0483-\u0489\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0dff\u200c\u200d"
"""Accents, vowel signs and points, which the class of letters leaves out."""
_LETTER = rf"[^\W\d_{_CHINESE}{_UNSPACED}]"
_PART = re.compile(
    rf"(?P<chinese>[{_CHINESE}]+)|(?P<run>[{_UNSPACED}]+)|(?P<number>\d+)|{_LETTER}(?:{_LETTER}|[{_MARKS}])*"
)
_HANGUL = re.compile("[\uac00-\ud7a3]")
_PROCLITICS = re.compile(
    "(?:[\u0648\u0641]?(?:[\u0628\u0643\u0644]?\u0627\u0644|\u0644\u0644)|[\u05d5\u05e9]?[\u05d4\u05d1\u05dc\u05db\u05de])(?=\\w{3})"
)
"""Conjunctions, prepositions and articles that Arabic and Hebrew write as one with the next word."""
RUN_LETTERS = 3
"""Characters of the pieces of an unspaced run; Chinese characters count alone and in pairs."""


def words_of(text: str) -> list[str]:
    """Return the words of a text that are counted, cut to their stems."""
    found: list[str] = []
    for match in _PART.finditer(text.lower()):
        part = match[0]
        if match["chinese"]:
            found += [*part, *(part[at : at + 2] for at in range(len(part) - 1))]
        elif match["run"]:
            found += [part[at : at + RUN_LETTERS] for at in range(max(1, len(part) - RUN_LETTERS + 1))]
        elif match["number"]:
            found.append(part)
        elif _HANGUL.match(part):
            found.append(part[:HANGUL_STEM])
        else:
            found.append(_PROCLITICS.sub("", part, count=1)[:STEM] if part[0] >= "\u0590" else part[:STEM])
        if len(found) >= MAX_WORDS:
            break
    return found[:MAX_WORDS]


class Word(NamedTuple):
    """A word between spaces or punctuation, where it is, and its stem."""

    start: int
    end: int
    stem: str


def spaced_words(text: str) -> list[Word]:
    """Return the words of a text with their places, without numbers and what is written without spaces."""
    found = (match for match in _PART.finditer(text) if match.lastgroup is None)
    return [Word(match.start(), match.end(), match[0].lower()[:STEM]) for match in found]


@lru_cache(maxsize=2**17)
def number_of(word: str) -> int:
    """Return the number of a word."""
    return zlib.crc32(word.encode()) % VOCABULARY


def numbers_of(text: str) -> list[int]:
    """Return the words of a text as numbers."""
    return [number_of(word) for word in words_of(text)]
