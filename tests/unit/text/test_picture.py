from __future__ import annotations

import pytest

from transduce.errors import DataError
from transduce.text.picture import PALETTE, UNNAMED, check_picture, colours
from transduce.text.tokenizer.tokenizer import Tokenizer, TokenizerConfig
from transduce.text.tokenizer.training import train_tokenizer


@pytest.fixture(scope="module")
def letters() -> Tokenizer:
    return train_tokenizer("character", ["wwrb"], TokenizerConfig(kind="character", min_frequency=1))


def test_a_picture_is_drawn_row_by_row_and_strangers_are_grey() -> None:
    assert colours("rb?w", 2) == [["#d62728", PALETTE["b"][1]], [UNNAMED, "#ffffff"]]
    assert len({drawn for _, drawn in PALETTE.values()} | {UNNAMED}) == len(PALETTE) + 1


def test_a_picture_of_known_colours_and_the_right_size_is_read(letters: Tokenizer) -> None:
    check_picture("wrbwwwwwbbbbrrrr", letters.encode("wrbwwwwwbbbbrrrr"), letters, side=4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("wrb", r"^'wrb': has 3 pixels"),
        ("wrbrw", r"has 5 pixels"),
        ("wrxb", r"pixel 3 \(row 2, column 1\) .*b, r, w$"),
        ("wéb", r"pixel 2 \(row 1, column 2\)"),
        ("wr\nrw", r"pixel 3"),
    ],
)
def test_what_is_no_picture_is_rejected_with_one_sentence(letters: Tokenizer, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message) as refusal:
        check_picture(text, letters.encode(text), letters, side=2)
    assert "\n" not in str(refusal.value)
