"""JSON from clients."""

from __future__ import annotations

import pytest

from transduce.serving.strict_json import JsonError, load_json


def test_ordinary_json_is_read() -> None:
    assert load_json('{"a": [1, 2.5, null, true, "ü😀"]}'.encode(), 16) == {"a": [1, 2.5, None, True, "ü😀"]}
    assert load_json(rb'"\ud83d\ude00"', 16) == "😀"


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
    ],
)
def test_what_parsers_disagree_about_is_rejected(data: bytes, words: str) -> None:
    with pytest.raises(JsonError, match=words):
        load_json(data, 16)


def test_the_greatest_depth_is_still_read() -> None:
    assert load_json(b"[" * 16 + b"]" * 16, 16) is not None
