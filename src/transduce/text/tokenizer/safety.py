"""Limits for `tokenizer.json` files that a stranger may have made, checked before the library sees them.

The library executes what the file describes. A few replacements can multiply a text a million times, a regular
expression can take exponential time, and where the library gives up, it panics. So the types of components are known
ones, the growth of a text is bounded by what the replacements insert, regular expressions whose time explodes are
rejected by their form, and the others are timed on short texts.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from transduce.config import Table
from transduce.errors import brief
from transduce.text.tokenizer.feature import SEPARATORS, split_pattern
from transduce.text.tokenizer.special import NAME

COMPONENTS: dict[str, frozenset[str]] = {
    "normalizer": frozenset(
        [
            "Sequence",
            "NFC",
            "NFD",
            "NFKC",
            "NFKD",
            "Nmt",
            "Lowercase",
            "Strip",
            "StripAccents",
            "Replace",
            "Prepend",
            "Precompiled",
            "BertNormalizer",
            "ByteLevel",
        ]
    ),
    "pre_tokenizer": frozenset(
        [
            "Sequence",
            "BertPreTokenizer",
            "ByteLevel",
            "CharDelimiterSplit",
            "Metaspace",
            "Whitespace",
            "WhitespaceSplit",
            "Split",
            "Punctuation",
            "Digits",
            "UnicodeScripts",
            "FixedLength",
        ]
    ),
    "post_processor": frozenset(("Sequence", "BertProcessing", "RobertaProcessing", "TemplateProcessing", "ByteLevel")),
    "decoder": frozenset(
        [
            "Sequence",
            "BPEDecoder",
            "ByteLevel",
            "WordPiece",
            "Metaspace",
            "CTC",
            "Replace",
            "Fuse",
            "Strip",
            "ByteFallback",
        ]
    ),
}
"""Types of components of a `tokenizer.json` that may be imported."""

MAX_PARTS = 64
"""Components of one kind, nested ones included."""
MAX_DEPTH = 4
MAX_OPTION = 64
"""Longest option, such as the suffix of a word, in characters."""
MAX_FRAME = 64
"""Special tokens that may be added to a text."""
MAX_WORD = 1000
"""Longest word of WordPiece in characters: its time is quadratic in it. The default is 100."""
MAX_GROWTH = 1000
"""How many times longer replacements may make a text."""
MAX_CHARACTERS = 2**26
"""Longest text, in characters, after replacements."""
MAX_PATTERN = 4000
"""Longest regular expression in characters."""
MAX_REPETITIONS = 10_000
"""Largest product of the counts of nested repetitions such as `(x{10}){10}`."""
MAX_PROBE_SECONDS = 0.2
"""Processor time that encoding up to a thousand characters may take; it takes some milliseconds."""


def check_components(content: Mapping[str, Any]) -> int:
    """Raise ValueError for components that could take any amount of memory or time.

    Returns how many times longer a text can become.
    """
    growth = 1
    for name, known in COMPONENTS.items():
        parts = [*_parts(content.get(name), name, 0)]
        if len(parts) > MAX_PARTS:
            raise ValueError(f"its {name} has more than {MAX_PARTS} components")
        grown = 1
        for part in parts:
            if part.get("type") not in known:
                raise ValueError(f"its {name} has a component of type {brief(part.get('type'))}, which is unknown")
            grown *= _check_part(part, name)
        if grown > MAX_GROWTH:
            raise ValueError(f"its {name} can make a text more than {MAX_GROWTH:,} times longer")
        growth = max(growth, grown)
    model = content.get("model")
    for option, value in model.items() if isinstance(model, dict) else ():
        if option not in ("vocab", "merges") and isinstance(value, str) and len(value) > MAX_OPTION:
            raise ValueError(f"its {option} has more than {MAX_OPTION} characters")
        if option == "max_input_chars_per_word" and (type(value) is not int or value > MAX_WORD):
            raise ValueError(f"its {option} is more than {MAX_WORD:,}")
    return growth


def _parts(part: Any, name: str, depth: int) -> Iterator[Table]:
    """Yield a component, and those of a sequence in order."""
    if part is None:
        return
    if not isinstance(part, dict) or depth > MAX_DEPTH:
        raise ValueError(f"its {name} is not valid, or nested more than {MAX_DEPTH} deep")
    yield part
    inner = [value for key, value in part.items() if part.get("type") == "Sequence" and isinstance(value, list)]
    for one in inner[0] if inner else ():
        yield from _parts(one, name, depth + 1)


def _check_part(part: Table, name: str) -> int:
    """Check one component, and return how many times longer it can make a text."""
    for option, value in part.items():
        if option != "precompiled_charsmap" and isinstance(value, str) and len(value) > MAX_OPTION * MAX_OPTION:
            raise ValueError(f"the {option} of its {name} has more than {MAX_OPTION * MAX_OPTION:,} characters")
    for side in ("single", "pair"):
        if isinstance(part.get(side), list) and len(part[side]) > MAX_FRAME:
            raise ValueError(f"it adds more than {MAX_FRAME} tokens to a text")
    if part.get("type") in ("Prepend", "Metaspace", "WordPiece", "BPEDecoder"):
        texts = [value for option, value in part.items() if option != "type" and isinstance(value, str)]
        if any(len(text) > MAX_OPTION for text in texts):
            raise ValueError(f"an option of its {name} has more than {MAX_OPTION} characters")
    pattern = part.get("pattern")
    if not isinstance(pattern, dict):
        return 1
    regex, text = pattern.get("Regex"), pattern.get("String")
    if isinstance(regex, str):
        check_regex(regex)
    inserted = len(part["content"]) if isinstance(part.get("content"), str) else 0
    if not isinstance(text, str) or not text:  # it may match between any two characters
        return 1 + inserted
    return max(1, -(-inserted // len(text)))


# Regular expressions. Backtracking takes exponential time where an unbounded repetition contains a choice: another
# unbounded repetition, an option or alternatives, as in `(a+)+` and `(a|a)*`.

_TOKEN = re.compile(
    r"""(?P<escape>\\(?:[pPx]\{[^}]*\}|[kg]<[^>]*>|.))
    | (?P<class>\[\^?\]?(?:[^\]\[\\]|\\.|\[:[^\]]*\]|\[[^\]]*\])*\])
    | (?P<group>\((?:\?(?:<[=!]|<[^>]*>|[a-zA-Z-]*:|[=!>#~|]|[a-zA-Z-]+(?=\))|[^)])?)?)
    | (?P<end>\))
    | (?P<count>(?:[*+?]|\{\d*,?\d*\})[+?]?)
    | (?P<or>\|)
    | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)


def check_regex(pattern: str) -> None:
    """Raise ValueError for a regular expression that refers to itself, or whose form allows exponential time."""
    if len(pattern) > MAX_PATTERN:
        raise ValueError(f"a regular expression has more than {MAX_PATTERN:,} characters")
    choices, repetitions = [False], [1]
    closed: tuple[bool, int] | None = None
    """Of the group that has just ended: whether it has a choice, and the counts inside multiplied."""
    before = None
    for found in _TOKEN.finditer(pattern):
        kind, text = found.lastgroup, found.group()
        if kind == before == "count":
            raise ValueError(f"the regular expression {brief(pattern)} repeats a repetition, which is not supported")
        before = kind
        if (kind == "escape" and re.match(r"\\(?:[1-9kg]|X)", text)) or text.startswith(("(?~", "(?|", "(?R", "(?&")):
            raise ValueError(f"the regular expression {brief(pattern)} refers to itself, which is not supported")
        if kind == "group":
            choices.append(False)
            repetitions.append(1)
        elif kind == "end" and len(choices) > 1:
            closed = choices.pop(), repetitions.pop()
            choices[-1] |= closed[0]
            repetitions[-1] = max(repetitions[-1], closed[1])
            continue
        elif kind == "count":
            _check_count(pattern, text, choices, repetitions, closed)
        elif kind == "or":
            choices[-1] = True
        closed = None


def _check_count(
    pattern: str, text: str, choices: list[bool], repetitions: list[int], closed: tuple[bool, int] | None
) -> None:
    """Check one quantifier; `closed` describes the group that it repeats, if it repeats one."""
    numbers = [int(number) for number in re.findall(r"\d{1,9}", text)]
    unbounded = text[0] in "*+" or (text[0] == "{" and text.rstrip("+?").endswith(",}"))
    if unbounded and closed is not None and closed[0]:
        raise ValueError(f"the regular expression {brief(pattern)} can take exponential time")
    total = max([1, *numbers]) * (closed[1] if closed is not None else 1)
    if total > MAX_REPETITIONS:
        raise ValueError(f"the regular expression {brief(pattern)} repeats more than {MAX_REPETITIONS:,} times")
    repetitions[-1] = max(repetitions[-1], total)
    if len(set(numbers)) != 1 or unbounded or text[0] in "*+?":
        choices[-1] = True


def patterns_of(content: Mapping[str, Any]) -> list[str]:
    """Return the regular expressions of a `tokenizer.json`."""
    found = [part.get("pattern") for name in COMPONENTS for part in _parts(content.get(name), name, 0)]
    return [pattern["Regex"] for pattern in found if isinstance(pattern, dict) and "Regex" in pattern]


def check_time(encode: Callable[[str], object], patterns: list[str]) -> None:
    """Raise ValueError if encoding short texts of repeated characters takes long: polynomial time of a high degree.

    The characters are those of the patterns. Lengths double, so that the first one that is slow is not very slow.
    """
    letters = sorted({letter for pattern in patterns for letter in re.sub(r"\\[pP]\{[^}]*\}", "", pattern)})
    probes = [*"a 0\n!", *[letter for letter in letters if letter.isalnum()][:16]] if patterns else []
    for letter in dict.fromkeys(probes):
        for length in (8, 16, 32, 64, 128, 256, 512, 1024):
            began = time.process_time()
            encode(letter * length + "\x01")
            if time.process_time() - began > MAX_PROBE_SECONDS:
                raise ValueError(f"encoding {length:,} characters takes more than {MAX_PROBE_SECONDS} s")


# Tokenizers trained here: exactly the components that training writes.

WORDS = r" ?[\p{L}\p{M}]+| ?\p{N}+| ?[^\s\p{L}\p{M}\p{N}]+|\s+(?!\S)|\s+"
"""Pre-tokenization of byte-level kinds: letters, digits, punctuation, each with the space before it.

GPT-2's pattern without its English endings, and with marks (\\p{M}) as part of a word: without them every vowel sign
of Hindi or Thai would end one.
"""
SPACES = r"\s+"
"""Separates the words of kind word."""
SPELLED = rf"(?:<(?:pad|s|/s|unk|mask|extra_id_\d+)>|>>{NAME}<<)"
"""Pattern of special tokens, language tags included."""
SPELLED_WORD, ESCAPED_WORD = rf"(?<!\S)(?=\\*{SPELLED}(?!\S))", rf"^\\(?=\\*{SPELLED}$)"
"""A word that is spelled like a special token is escaped with a backslash, which the decoder removes."""

OWN_COMPONENTS: dict[str, frozenset[str]] = {
    "normalizer": frozenset(("Sequence", "NFC", "Lowercase", "Prepend", "Replace", "BertNormalizer")),
    "pre_tokenizer": frozenset(("Sequence", "Split", "ByteLevel", "BertPreTokenizer")),
    "post_processor": frozenset(),
    "decoder": frozenset(("Sequence", "ByteLevel", "Strip", "Replace", "WordPiece", "ByteFallback", "Fuse")),
}
OWN_PATTERNS = (WORDS, SPACES, SPELLED_WORD, ESCAPED_WORD, *map(split_pattern, (" ", *SEPARATORS)))
OWN_TEXTS = ("", " ", "\\", "##", "Isolated", "Removed")
"""What components insert, remove and do."""
OWN_PARTS = 8
MAX_OWN_ADDED = 12_000
"""Special tokens of a tokenizer trained here: 10,000 sentinels, and a tag for each language."""


def check_own_components(content: Mapping[str, Any]) -> None:
    """Raise ValueError unless a `tokenizer.json` has only components that training writes."""
    for name, known in OWN_COMPONENTS.items():
        parts = [*_parts(content.get(name), name, 0)]
        for part in parts:
            texts = [value for option, value in part.items() if option != "type" and isinstance(value, str)]
            pattern = part.get("pattern")
            is_known = part.get("type") in known and all(text in OWN_TEXTS for text in texts)
            if not is_known or (pattern is not None and pattern not in [{"Regex": regex} for regex in OWN_PATTERNS]):
                raise ValueError(f"its {name} is not one that training writes")
        if len(parts) > OWN_PARTS:
            raise ValueError(f"its {name} has more than {OWN_PARTS} components")
    added = content.get("added_tokens")
    if isinstance(added, list) and len(added) > MAX_OWN_ADDED:
        raise ValueError(f"it has more than {MAX_OWN_ADDED:,} special tokens")
