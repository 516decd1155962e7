"""Tokenizers of strangers: what may grow or take for ever is rejected, what people use is not."""

from __future__ import annotations

from typing import Any

import pytest

from transduce.text.tokenizer.safety import check_components, check_regex, check_time

IN_USE = [
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{M}]*[\p{Ll}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|\s+",
    r" ?[^(\s|[.,!?…。，、।۔،])]+",
    r"\d{1,3}(?=(?:\d{3})*\b)",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+| ?[\p{P}\p{S}]+[\r\n]*",
    r" {2,}",
    "",
]
EXPLOSIVE = [
    "(a+)+$",
    "(a|a)*",
    "(a?)*",
    "((a+)b)*",
    "(?:(?:a)*)*",
    "(a{1,5}){2,}",
    "(x+x+)+y",
    "(?i:(a|b)+)+",
    r"(a*)\1b",
    r"(?<n>a)\k<n>",
    "((x{1000}){1000})",
    "x{100}{200}",
    "x" * 5000,
]


def test_patterns_in_use_are_accepted_and_explosive_ones_are_not() -> None:
    for pattern in IN_USE:
        check_regex(pattern)
    for pattern in EXPLOSIVE:
        with pytest.raises(ValueError, match="regular expression"):
            check_regex(pattern)


def replaced(content: str, **pattern: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def grown(*parts: dict[str, Any]) -> int:
    return check_components({"normalizer": {"type": "Sequence", "normalizers": [*parts]}})


def test_growth_is_what_replacements_insert() -> None:
    assert grown({"type": "NFKC"}, replaced("▁", String=" ")) == 1
    assert grown(replaced("abcdef", String="xy")) == 3
    assert grown(replaced("▁", Regex=" {2,}")) == 2  # a pattern may match nothing, between all characters
    assert grown(replaced("ab", String="a"), replaced("cdc", String="b")) == 6
    with pytest.raises(ValueError, match=r"1,000 times longer"):
        grown(*[replaced("x" * 11, String="x")] * 3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"normalizer": {"type": "Exec"}}, "'Exec'"),
        ({"normalizer": "NFC"}, "not valid"),
        ({"normalizer": {"type": "Prepend", "prepend": "x" * 65}}, "64 characters"),
        ({"decoder": {"type": "Sequence", "decoders": [{"type": "Fuse"}] * 65}}, "64 components"),
        ({"post_processor": {"type": "TemplateProcessing", "single": [{}] * 65}}, "64 tokens"),
        ({"model": {"max_input_chars_per_word": 10**6}}, "max_input_chars_per_word"),
        ({"model": {"end_of_word_suffix": "x" * 65}}, "end_of_word_suffix"),
    ],
    ids=str,
)
def test_other_components_are_rejected(content: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_components(content)


def test_what_takes_long_for_short_texts_is_rejected() -> None:
    def cubic(text: str) -> int:
        return sum(1 for _ in text for _ in text for _ in text)

    check_time(len, ["x"])
    with pytest.raises(ValueError, match="takes more than"):
        check_time(cubic, ["x"])
