"""Texts that a program passes: what is none is a TypeError that says what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from transduce.text.argument import checked_texts, one_or_several

WRONG: list[tuple[Any, str]] = [
    (None, "None"),
    (3, "int"),
    (b"text", r"bytes .*decode"),
    (Path("a.txt"), "read_text"),
    ({"a": "b"}, "list"),
    ({"a"}, "order"),
]


@pytest.mark.parametrize(("value", "words"), WRONG)
def test_what_is_no_text_is_a_type_error(value: Any, words: str) -> None:
    for call in (one_or_several, checked_texts):
        with pytest.raises(TypeError, match=words):
            call(value)
    with pytest.raises(TypeError, match=rf"texts\[1\] must be a string, not .*{words}"):
        list(checked_texts(["a", value]))


def test_texts_are_any_iterable_of_strings() -> None:
    for given in (["a", "b"], ("a", "b"), iter("ab"), np.array(["a", "b"]), {"a": 0, "b": 0}.keys()):
        assert list(checked_texts(given)) == ["a", "b"]
    assert one_or_several("a b") == "a b"
    with pytest.raises(TypeError, match=r"\[text\]"):
        checked_texts("ab")
