from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.data import split as word_cache
from transduce.data.ragged import take_rows
from transduce.data.split import WordCache
from transduce.text.tokenizer.special import KINDS
from transduce.text.tokenizer.tokenizer import Tokenizer, TokenizerConfig
from transduce.text.tokenizer.training import train_tokenizer

TRAINING = [
    "the quick brown fox jumps over the lazy dog, doesn't it? 12 345",
    "Ein Käse-Brötchen für 3,50 €; ὁ ΛΌΓΟΣ हिन्दी में ไทย 東京都 <s> \\<unk>",
    "the fox and the dog",
] * 3
SPACES = ["\t", "\u3000", "\u00a0", "\x1c", "\x85", "\u2028", "  "]
SPELLED = ["ab", "</s>", "<unk>", "\\<s>", "\u093f", "e\u0301", "\u0301"]
ALPHABET = st.sampled_from([*"ab ABΣς'.,-1२9é東京 ", *SPACES, *SPELLED])
TEXTS = st.lists(st.lists(ALPHABET, max_size=12).map("".join), max_size=9)


@cache
def tokenizer(kind: Any, lowercase: bool) -> Tokenizer:
    config = TokenizerConfig(kind=kind, vocab_size=400, min_frequency=1, lowercase=lowercase)
    return train_tokenizer(kind, TRAINING, config)


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("kind", sorted(KINDS))
@given(first=TEXTS, second=TEXTS)
@settings(max_examples=40, deadline=None)
def test_tokens_are_those_of_the_tokenizer(kind: str, lowercase: bool, first: list[str], second: list[str]) -> None:
    cache_ = WordCache(tokenizer(kind, lowercase))
    for texts in (first, second, first + TRAINING):  # the last ones from what it remembers
        tokens, lengths = cache_.encode(texts)
        expected = [tokenizer(kind, lowercase).encode(text) for text in texts]
        assert lengths.tolist() == [len(row) for row in expected]
        assert tokens.tolist() == [token for row in expected for token in row]


def test_it_forgets_rather_than_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_cache, "MAX_WORDS", 50)
    cache_ = WordCache(tokenizer("bpe", False))
    for start in range(0, 1000, 7):
        texts = [f"w{row} the w{row % 3}" for row in range(start, start + 7)]
        tokens, _ = cache_.encode(texts)
        assert tokens.tolist() == [token for text in texts for token in tokenizer("bpe", False).encode(text)]
        assert len(cache_._places) <= 50 + 7 + 4


def test_rows_are_taken_in_any_order() -> None:
    values = np.arange(11)
    starts, ends = np.array([5, 0, 3, 9]), np.array([8, 0, 4, 11])
    taken, lengths = take_rows(values, starts, ends)
    assert taken.tolist() == [5, 6, 7, 3, 9, 10] and lengths.tolist() == [3, 0, 1, 2]
