"""Words in texts whose script shows where they begin, and in those whose script does not."""

from __future__ import annotations

import sys
import unicodedata

import pytest

from transduce.text.sentence import any_word, is_unspaced

UNSPACED = ("CJK UNIFIED", "CJK COMPATIBILITY IDEOGRAPH", "HIRAGANA", "KATAKANA", "HALFWIDTH KATAKANA", "BOPOMOFO")
UNSPACED += ("THAI", "LAO", "KHMER LETTER", "MYANMAR", "TAI LE", "NEW TAI LUE", "TAI THAM", "TAI VIET", "YI SYLLABLE")
UNSPACED += ("IDEOGRAPHIC ITERATION", "IDEOGRAPHIC NUMBER", "HANGZHOU NUMERAL", "VERTICAL IDEOGRAPHIC", "VERTICAL KANA")
SPACED = (
    "LATIN",
    "GREEK",
    "CYRILLIC",
    "ARABIC",
    "HEBREW",
    "DEVANAGARI",
    "BENGALI",
    "TAMIL",
    "HANGUL SYLLABLE",
    "DIGIT",
)
SPACED += (
    "ARMENIAN",
    "GEORGIAN",
    "ETHIOPIC",
    "MONGOLIAN",
    "SINHALA",
    "GURMUKHI",
    "FULLWIDTH LATIN",
    "HANGUL JUNGSEONG",
)


def test_scripts_are_those_that_the_names_of_characters_say() -> None:
    """Unicode's own names, which come with Python."""
    seen: dict[bool, int] = {True: 0, False: 0}
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        name = unicodedata.name(character, "") if character.isalnum() else ""
        if name.startswith(UNSPACED + SPACED):
            expected = name.startswith(UNSPACED)
            assert is_unspaced(character) == expected, name
            seen[expected] += 1
    assert seen[True] > 90_000 and seen[False] > 10_000


@pytest.mark.parametrize(
    ("words", "text", "found"),
    [
        (["fox"], "the fox, foxes and firefox: fox_1 fox", ["fox", "fox"]),
        (["東京"], "私は東京都に住む", ["東京"]),
        (["东京", "东京大学"], "他在东京大学。", ["东京大学"]),
        (["バス"], "次のバスに乗る", ["バス"]),
        (["ธนาคาร"], "ฉันไปธนาคารกรุงเทพ", ["ธนาคาร"]),
        (["ធនាគារ"], "ខ្ញុំទៅធនាគារជាតិ", ["ធនាគារ"]),
        (["Bank"], "我去Bank取钱, nicht zur Banken", ["Bank"]),
        (["T恤"], "买T恤吧, aT恤", ["T恤"]),
        (["은행"], "은행 은행에", ["은행"]),
        (["Hund"], "der Hund und die Hunde", ["Hund"]),
        (["a.b"], "a.b axb", ["a.b"]),
        ([], "anything", []),
    ],
)
def test_words_are_found_where_their_script_lets_them_stand(words: list[str], text: str, found: list[str]) -> None:
    assert any_word(words).findall(text) == found
