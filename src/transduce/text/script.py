"""Scripts that are written without spaces between words: where a word begins in them, nothing shows."""

from __future__ import annotations

import re
from collections.abc import Iterable

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
    """How many characters of a text are of such a script."""
    return 0 if text.isascii() else len(_IS_UNSPACED.findall(text))


def any_word(words: Iterable[str]) -> re.Pattern[str]:
    """Any of these words, not within longer ones as far as the script shows it, the longest that fits."""
    return re.compile("|".join(map(_alone, sorted(words, key=len, reverse=True))) or r"(?!)")


def _alone(word: str) -> str:
    before = "" if is_unspaced(word[0]) else rf"(?<!{_SPACED_LETTER})"
    behind = "" if is_unspaced(word[-1]) else rf"(?!{_SPACED_LETTER})"
    return before + re.escape(word) + behind
