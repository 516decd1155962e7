"""JSON from clients."""

from __future__ import annotations

import json

import pytest

from transduce.serving.strict_json import JsonError, load_json


def test_ordinary_json_is_read() -> None:
    assert load_json('{"a": [1, 2.5, null, true, "ü😀"]}'.encode(), 16, 1000) == {"a": [1, 2.5, None, True, "ü😀"]}
    assert load_json(rb'"\ud83d\ude00"', 16, 1000) == "😀"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"{", "not valid JSON"),
        (b"", "not valid JSON"),
        (b'{"a": 1} x', "not valid JSON"),
        (b'{"a": 1, "b": 2, "a": 3}', "'a' is given twice"),
        (b'[{"x": {"b": 1, "b": 2}}]', "'b' is given twice"),
        (b"NaN", "NaN"),
        (b"[-Infinity]", "Infinity"),
        (b"1e999", "too large"),
        (b"1" * 5000, "too many digits"),
        (b'"\xff"', "not UTF-8"),
        (rb'"\ud800"', "surrogate"),
        (rb'{"\udfff": 1}', "surrogate"),
        (b"[" * 100_000, "nested"),
        (b'{"a":' * 100_000, "nested"),
        (b"[" * 17 + b"1" + b"]" * 17, "nested"),
        (b"[" + b"1," * 1001 + b"1]", "1,000 values"),
        (b"[" + b"[]," * 1001 + b"1]", "1,000 values"),
        (b'"",' * 1001, "1,000 values"),
        (b'"' * 3000, "1,000 values"),
    ],
)
def test_what_parsers_disagree_about_is_rejected(data: bytes, words: str) -> None:
    with pytest.raises(JsonError, match=words):
        load_json(data, 16, 1000)


def test_the_greatest_depth_is_still_read() -> None:
    assert load_json(b"[" * 16 + b"]" * 16, 16, 1000) is not None


def test_brackets_and_commas_inside_of_strings_are_text() -> None:
    text = r'[{,"' + "\\" + "]}" * 5000 + "😀"
    assert load_json(json.dumps({"text": text}).encode(), 2, 5) == {"text": text}
