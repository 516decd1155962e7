"""Android's strings.xml: what is no text is kept, and no translation breaks the file."""

from __future__ import annotations

import pytest

from tests.unit.text.document.example import translated

STRING = '<resources><string name="a">{}</string></resources>'


def string(value: str, words: str | None = None) -> str:
    before, after = STRING.split("{}")
    written = translated("android", STRING.format(value), str.upper if words is None else lambda _: words)
    return written.removeprefix(before).removesuffix(after)


@pytest.mark.parametrize(
    "reference", ["@string/app_name", "@android:string/ok", "@+id/x", "@null", "?attr/color", "?android:attr/color"]
)
def test_a_reference_is_kept(reference: str) -> None:
    assert string(reference) == reference


def test_quotes_that_are_not_escaped_keep_white_space_and_are_kept() -> None:
    assert string('"  two  words "', 'a "b"') == '"  a  \\"b\\" "'


def test_a_translation_does_not_become_a_reference() -> None:
    assert string("mail", "@home") == "\\@home"
    assert string("why?", "?por") == "\\?por"
    assert string("\\@home and") == "\\@HOME AND"
