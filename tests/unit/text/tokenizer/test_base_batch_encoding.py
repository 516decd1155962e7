"""Framing beside `transformers`' own BERT tokenizer with the same vocabulary."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from transduce.errors import SettingsError
from transduce.text.tokenizer.base import truncate_pair
from transduce.text.tokenizer.special import END, MASK, PAD, START, UNKNOWN
from transduce.text.tokenizer.tokenizer import Tokenizer, TokenizerConfig
from transduce.text.tokenizer.training import train_encoder_tokenizer

transformers = pytest.importorskip("transformers", reason="compares with transformers; install the extra dev")

LINES = [
    "Der Hund bellt, die Katze schläft.",
    "Ein zweiter Satz (mit Klammern) und 12 Zahlen!",
    "short",
    "",
    "漢字 and Ünïcödé in one line; don't stop",
    "the the the the the the the the the the the the",
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_encoder_tokenizer(TokenizerConfig(kind="wordpiece", vocab_size=150, min_frequency=1), LINES * 3)


@pytest.fixture(scope="module")
def theirs(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Any:
    place = Path(tmp_path_factory.mktemp("bert")) / "vocab.txt"
    place.write_text("\n".join(tokenizer.vocabulary) + "\n", encoding="utf-8")
    return transformers.BertTokenizerFast(
        str(place),
        do_lower_case=False,
        strip_accents=False,
        tokenize_chinese_chars=True,
        pad_token=PAD,
        cls_token=START,
        sep_token=END,
        unk_token=UNKNOWN,
        mask_token=MASK,
    )


def same(mine: dict[str, Any], theirs: Any) -> None:
    assert mine.keys() == set(theirs.keys())
    for name, values in mine.items():
        assert values == theirs[name], name


@pytest.mark.parametrize("padding", [False, True, "longest", "max_length"])
@pytest.mark.parametrize("max_length", [5, 8, 13, 64])
def test_texts_are_framed_as_by_transformers(tokenizer: Tokenizer, theirs: Any, padding: Any, max_length: int) -> None:
    ways = {"padding": padding, "truncation": True, "max_length": max_length}
    same(tokenizer(LINES, **ways), theirs(LINES, **ways))
    same(tokenizer(LINES, LINES[::-1], **ways), theirs(LINES, LINES[::-1], **ways))
    same(tokenizer(LINES[0], **ways), theirs(LINES[0], **ways))
    same(tokenizer(LINES[0], LINES[2], **ways), theirs(LINES[0], LINES[2], **ways))


@pytest.mark.parametrize("cut", ["only_first", "only_second"])
def test_one_side_alone_may_be_cut(tokenizer: Tokenizer, theirs: Any, cut: str) -> None:
    long, short = LINES[5], LINES[2]
    pair = (long, short) if cut == "only_first" else (short, long)
    same(tokenizer(*pair, truncation=cut, max_length=15), theirs(*pair, truncation=cut, max_length=15))


def test_longest_first_keeps_as_much_as_the_library_does(tokenizer: Tokenizer, theirs: Any) -> None:
    draw = random.Random(3)
    for _ in range(200):
        a, b = (" ".join(["the"] * draw.randrange(12)) for _ in range(2))
        same(
            tokenizer([a], [b], truncation=True, max_length=(most := draw.randrange(3, 20))),
            theirs([a], [b], truncation=True, max_length=most),  # alone, an empty partner counts as none there
        )


def test_tensors_are_those_of_torch_or_arrays(tokenizer: Tokenizer, theirs: Any) -> None:
    found = tokenizer(LINES, padding=True, return_tensors="pt")
    for name, expected in theirs(LINES, padding=True, return_tensors="pt").items():
        assert torch.equal(found[name], expected)
    assert isinstance(tokenizer("one", return_tensors="np")["input_ids"], np.ndarray)
    assert tokenizer("one", return_tensors="np")["input_ids"].ndim == 2


@pytest.mark.parametrize(
    ("ways", "message"),
    [
        ({"truncation": "longest"}, "did you mean 'longest_first'"),
        ({"padding": "max_lenght", "max_length": 5}, "did you mean 'max_length'"),
        ({"padding": "max_length"}, "need max_length"),
        ({"return_tensors": "tf"}, "'pt' or 'np'"),
        ({"truncation": True, "max_length": 1}, "max_length = 1"),
    ],
)
def test_what_makes_no_sense_is_rejected_in_a_sentence(
    tokenizer: Tokenizer, ways: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        tokenizer("one text", **ways)


def test_unequal_texts_and_lonely_partners_are_rejected(tokenizer: Tokenizer) -> None:
    with pytest.raises(SettingsError, match="padding = True"):
        tokenizer(LINES, return_tensors="pt")
    with pytest.raises(SettingsError, match="must have the same length"):
        tokenizer(LINES, LINES[1:])
    with pytest.raises(SettingsError, match="only_first"):
        truncate_pair([1] * 3, [1] * 9, 8, "only_first")


def test_the_mask_is_the_last_token_and_text_cannot_spell_it(tokenizer: Tokenizer) -> None:
    for kind in ("bpe", "wordpiece", "word", "character", "byte", "unigram"):
        config = TokenizerConfig(kind=kind, vocab_size=320, min_frequency=1)
        made = train_encoder_tokenizer(config, [*LINES, "a <mask> b <mask> c"])
        assert made.mask == made.size - 1
        assert made.size <= 320
        assert made.mask not in made.encode("a <mask> b")
        assert Tokenizer.from_json(made.to_json(), "it").mask == made.mask
        assert made.pieces([made.mask]) == [MASK]
    assert tokenizer.size <= 150


def test_places_are_where_a_token_was_made_from(tokenizer: Tokenizer) -> None:
    tokens, places = tokenizer.encode_with_offsets(LINES[1])
    assert tokens == tokenizer.encode(LINES[1])
    message = [LINES[1][start:end] for start, end in places]
    assert "".join(message) == LINES[1].replace(" ", "")
