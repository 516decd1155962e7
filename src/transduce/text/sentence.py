"""Split text into sentences with the white space between them, lossless: models are trained on single sentences.

A sentence ends at sentence-final punctuation of some script, with the quotes and brackets that close after it. In
scripts with spaces between sentences, a space must follow, and then something that may begin a sentence. A full stop
after an abbreviation, an initial or an ordinal number ends no sentence. In doubt the text is not split: two sentences
at once are translated better than half of one.

Also: scripts without spaces between words, in which word boundaries are not visible.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


SPACED = ".!?…؟۔।॥።։།"
"""Ends a sentence where white space follows: Latin, Cyrillic, Greek, Arabic, Urdu, Devanagari, Ethiopic, Armenian,
Tibetan."""
UNSPACED = "。！？｡។៕။"
"""Ends a sentence whatever follows: Chinese, Japanese, Khmer, Burmese."""
CLOSING = "\"'”’»›)]}」』）】〉》"
CLOSING_TOO = "“‘«‹"
"""Quotes that open in one language and close in another: after punctuation and before a space, they close."""
OPENING = "\"'“‘„‚«‹»›([{¿¡「『（【〈《-–—"

ABBREVIATIONS: dict[str, frozenset[str]] = {
    "": _set("cf vs etc approx tel al ca eds st"),
    "en": _set(
        "mr mrs ms dr prof rev hon gen col capt lt sgt sen rep gov pres jr sr inc ltd co corp dept est e.g i.e a.m p.m "
        "u.s u.k jan feb mar apr jun jul aug sep sept oct nov dec mt ave blvd"
    ),
    "de": _set(
        "z.b d.h u.a u.ä o.ä i.d.r z.t s.o s.u v.a bzw usw evtl ggf inkl exkl sog hr fr dr prof dipl ing str bd hrsg "
        "jh mio mrd st vgl zzgl geb gest allg bes dt engl franz jan feb mär apr jun jul aug sep sept okt nov dez"
    ),
    "fr": _set("mm mme mlle dr pr st ste av bd p.ex c.-à-d env éd janv févr avr juil sept oct nov déc"),
    "es": _set("sr sra srta dr dra dña ud uds p.ej ee.uu av avda ene feb abr ago sept oct nov dic"),
    "it": _set("sig sig.ra dott dott.ssa prof ing avv p.es ecc gen feb mar apr mag giu lug ago set ott nov dic"),
    "pt": _set("sr sra dr dra prof exmo p.ex av fev abr mai jun jul ago out dez"),
    "nl": _set("dhr mevr dr drs prof mr ir ing bijv d.w.z enz o.a t.a.v m.b.t jan feb mrt apr jun jul aug sep okt"),
    "pl": _set("np m.in tzn tj ul prof dr inż mgr godz tys mln mld św pt"),
    "cs": _set("např tzv tj atd apod str prof dr ing mgr st sv"),
    "ru": _set("гг вв т.е т.д т.п т.к др им ул стр см проф акад тыс млн млрд руб"),
}
"""Abbreviations before a full stop that ends no sentence, in lower case; those under "" apply to every language."""

ANY_LANGUAGE = frozenset().union(*ABBREVIATIONS.values())
"""For a text of unknown language, or one without a list."""

LANGUAGES = ABBREVIATIONS.keys() - {""}

NUMBERED = _set("no nos nr fig vol pp abs art kap pág pag núm рис č")
"""Abbreviations that are followed by a number."""

ORDINALS = {"de", "da", "nb", "nn", "no", "fi", "cs", "sk", "pl", "hu", "hr", "sr", "sl", "et", "lv", "is", "tr"}
"""Languages that write "3. Oktober": a number with a full stop need not end a sentence."""

LONGEST_WORD, LONGEST_OPENING = 24, 8
"""Characters examined on both sides of punctuation, so that very long words cost no extra time."""

_END = re.compile(
    rf"(?<![{re.escape(SPACED)}])[{re.escape(SPACED)}]++[{re.escape(CLOSING + CLOSING_TOO)}]*+"
    r"(?:[ \u00a0\u202f][»›])?+(?=\s)\s*+"
    rf"|[{re.escape(UNSPACED)}]++[{re.escape(CLOSING)}]*+\s*+"
)
_WORD = re.compile(r"[\w.\-’']*$")
_INITIALS = re.compile(r"(?:\w{1,2}\.)+\w")
"""J.K, U.S, Ph.D"""
_HIRAGANA = re.compile("[\u3041-\u309f]")


class SplitSentence(NamedTuple):
    """One sentence and the white space behind it."""

    sentence: str
    space: str


def split_sentences(text: str, language: str = "") -> list[SplitSentence]:
    """Split a text into sentences; joined with their white space they are the text."""
    language = re.split("[-_]", language.lower())[0]
    edges = [end.end() for end in _END.finditer(text) if end.end() < len(text) and _ends(text, end, language)]
    pieces = []
    for begin, end in pairwise([0, *edges, len(text)]):
        sentence = text[begin:end].rstrip()
        pieces.append(SplitSentence(sentence, text[begin + len(sentence) : end]))
    return pieces


def joint(before: str, space: str, after: str) -> str:
    """Return the white space between two translated sentences: the source's, unless the target's script differs."""
    if before.rstrip(CLOSING)[-1:] and before.rstrip(CLOSING)[-1] in UNSPACED:
        return "" if space in ("", " ") else space
    return space or (" " if before and after else "")


def _ends(text: str, end: re.Match[str], language: str) -> bool:
    """Whether a sentence really ends at this punctuation."""
    if end.group()[0] in UNSPACED:
        quoted = end.group().rstrip()[-1] not in UNSPACED
        return not (quoted and _HIRAGANA.match(text, end.end()))  # 「はい。」と: the sentence continues
    first = text[end.end() : end.end() + LONGEST_OPENING].lstrip(OPENING + " \u00a0\u202f")[:1]
    if not first.isalnum() or first.islower():
        return False
    if end.group()[0] != "." or end.group()[1] in SPACED:
        return True
    found = _WORD.search(text[max(0, end.start() - LONGEST_WORD) : end.start()])
    last = found.group() if found else ""
    if last.isdecimal():
        at_the_start = not text[: end.start()].strip(last + " ") if end.start() < LONGEST_WORD else False
        return not at_the_start and (language not in ORDINALS or len(last) > 2)
    if last.lower() in NUMBERED:
        return not first.isdecimal()
    if (len(last) == 1 and last.isalpha() and last != "I") or _INITIALS.fullmatch(last):
        return False
    return last.lower() not in (ABBREVIATIONS[""] | ABBREVIATIONS[language] if language in LANGUAGES else ANY_LANGUAGE)


_UNSPACED = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f"  # Myanmar
    "\u1780-\u17ff"  # Khmer
    "\u1950-\u19df\u1a20-\u1aaf\uaa80-\uaadf"  # Tai Le, New Tai Lue, Tai Tham, Tai Viet
    "\u3005-\u3007\u3021-\u3029\u3031-\u303c"  # marks and numerals of Chinese and Japanese
    "\u3040-\u312f\u31a0-\u31bf\u31f0-\u31ff\uff66-\uff9f\U0001aff0-\U0001b16f"  # Hiragana, Katakana, Bopomofo
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
    "\ua000-\ua4cf"  # Yi
)
_SPACED_LETTER = rf"[^\W{_UNSPACED}]"
_IS_UNSPACED = re.compile(f"[{_UNSPACED}]")


def is_unspaced(character: str) -> bool:
    """Whether a character is of a script without spaces between words."""
    return _IS_UNSPACED.match(character) is not None


def count_unspaced(text: str) -> int:
    """Return the number of characters of such scripts."""
    return 0 if text.isascii() else len(_IS_UNSPACED.findall(text))


def any_word(words: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern for any of these words, whole words if the script has spaces, longest first."""
    return re.compile("|".join(map(_alone, sorted(words, key=len, reverse=True))) or r"(?!)")


def _alone(word: str) -> str:
    before = "" if is_unspaced(word[0]) else rf"(?<!{_SPACED_LETTER})"
    behind = "" if is_unspaced(word[-1]) else rf"(?!{_SPACED_LETTER})"
    return before + re.escape(word) + behind
