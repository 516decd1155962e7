"""Pieces added to a vocabulary: what was there keeps its meaning, to the last token."""

from __future__ import annotations

import functools
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.errors import SettingsError
from transduce.text.tokenizer.extension import extend, made_of
from transduce.text.tokenizer.tokenizer import Tokenizer, TokenizerConfig
from transduce.text.tokenizer.training import train_tokenizer

OLD = ["the cat sat on the mat", "a dog and a cat ran", "the dog sat"] * 5
NEW = ["photosynthesis in chloroplasts", "chloroplasts make photosynthesis work", "クロロフィル and ルート"] * 7


@functools.cache
def before(kind: str = "bpe") -> Tokenizer:
    return train_tokenizer(kind, OLD, TokenizerConfig(kind=kind, vocab_size=300, min_frequency=2))


@functools.cache
def after(kind: str = "bpe", most: int = 37) -> Tokenizer:
    return extend(before(kind), NEW, most, min_frequency=2)


def taken_apart(old: Tokenizer, new: Tokenizer, tokens: list[int]) -> list[int]:
    parts = made_of(old, new)
    return [part for token in tokens for part in ([token] if token < old.size else parts[token - old.size])]


@pytest.mark.parametrize("kind", ["bpe", "word", "character"])
def test_old_tokens_keep_their_pieces_and_new_ones_follow(kind: str) -> None:
    old, new = before(kind), after(kind)
    assert new.vocabulary[: old.size] == old.vocabulary
    assert old.size < new.size <= old.size + 37
    assert (new.pad, new.start, new.end, new.unknown) == (old.pad, old.start, old.end, old.unknown)
    assert Tokenizer.from_json(new.to_json(), "it").to_json() == new.to_json()


@pytest.mark.parametrize("kind", ["bpe", "word", "character"])
def test_the_new_text_takes_fewer_or_better_tokens(kind: str) -> None:
    old, new = before(kind), after(kind)
    count = old.count_unknown if kind == "word" else len
    assert sum(count(new.encode(text)) for text in NEW) < sum(count(old.encode(text)) for text in NEW)
    assert all(new.decode(new.encode(text)) == text for text in NEW)


WORDS = st.sampled_from([word for text in OLD + NEW for word in text.split()])
TEXTS = st.one_of(st.text(max_size=30), st.lists(WORDS, max_size=6).map(" ".join), st.text(alphabet="chlorpast o"))


@given(TEXTS)
def test_text_is_cut_as_before_and_then_some_neighbours_are_joined(text: str) -> None:
    old, new = before(), after()
    assert taken_apart(old, new, new.encode(text)) == old.encode(text)


@pytest.mark.parametrize("kind", ["bpe", "word", "character"])
@given(text=TEXTS)
def test_a_text_without_new_pieces_has_the_tokens_it_had(kind: str, text: str) -> None:
    tokens = after(kind).encode(text)
    if all(token < before(kind).size for token in tokens):
        assert tokens == before(kind).encode(text)


def test_merges_are_those_that_plain_counting_finds() -> None:
    """Once more, without any cleverness: count all pairs, join the most frequent, begin again."""
    old, new = before(), after(most=9)
    rows = [[old.vocabulary[token] for token in old.encode(word)] for text in NEW for word in text.split()]
    found: list[str] = []
    while len(found) < 9:
        counts: dict[tuple[str, str], int] = {}
        for row in rows:
            for pair in pairwise(row):
                counts[pair] = counts.get(pair, 0) + 1
        pair = min((p for p in counts if "".join(p) not in {*old.vocabulary, *found}), key=lambda p: (-counts[p], p))
        found.append("".join(pair))
        for row in rows:
            place = 0
            while place + 1 < len(row):
                if (row[place], row[place + 1]) == pair:
                    row[place : place + 2] = [found[-1]]
                place += 1
    assert new.vocabulary[old.size :] == found


def test_a_new_character_stands_for_its_bytes_and_a_new_word_for_the_unknown() -> None:
    old, new = before("character"), after("character")
    places = {piece: number for number, piece in enumerate(new.vocabulary[old.size :])}
    assert made_of(old, new)[places["ク"]] == [old.vocabulary.index(f"<0x{byte:02X}>") for byte in "ク".encode()]
    assert {tuple(parts) for parts in made_of(before("word"), after("word"))} == {(before("word").unknown,)}


@pytest.mark.parametrize("kind", ["unigram", "wordpiece", "byte"])
def test_other_kinds_are_rejected_in_one_sentence(kind: str) -> None:
    with pytest.raises(SettingsError, match=f"cannot be added to a tokenizer of kind {kind}"):
        extend(before(kind), NEW, 5, 2)


def test_a_stranger_is_not_an_extension() -> None:
    other = train_tokenizer("bpe", NEW, TokenizerConfig(vocab_size=300))
    with pytest.raises(ValueError, match="first tokens differ"):
        made_of(before(), other)
