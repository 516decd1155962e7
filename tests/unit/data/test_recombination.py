"""New pairs from parts of others: what may be joined, and that it is a function of seed, epoch and place."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest

from transduce.data.recombination import Recombination
from transduce.data.store import PairStore
from transduce.rng import Rows

Linked = tuple[str, str, list[tuple[int, int]]]
"""Source, target, and links as (target place, source place)."""


def store_of(pairs: list[Linked]) -> PairStore:
    sources, targets, links = zip(*pairs, strict=True)
    return PairStore.of(
        [[*map(ord, source)] for source in sources],
        [[*map(ord, target)] for target in targets],
        [[place for link in row for place in link] for row in links],
    )


def in_order(source: str, target: str) -> Linked:
    return source, target, [(place, place) for place in range(len(source))]


def read(store: PairStore, row: int) -> Linked:
    assert store.alignments is not None
    source, target = ("".join(map(chr, side[row].tolist())) for side in store.pairs)
    links = store.alignments[row].reshape(-1, 2).tolist()
    return source, target, [(place, other) for place, other in links]


def made(pairs: list[Linked], row: int, epochs: int = 40) -> set[str]:
    """Source and target of what becomes of a row in some epochs."""
    recombination = Recombination(store_of(pairs), 1.0, seed=1)
    rows = [read(recombination(np.array([row]), epoch, 0), 0) for epoch in range(epochs)]
    return {f"{source} {target}" for source, target, _ in rows}


def test_pairs_with_the_same_tokens_around_a_cut_continue_as_each_other() -> None:
    pairs = [in_order("abcd", "ABCD"), in_order("xbcyz", "XBCYZ")]
    assert made(pairs, 0) == {"abcd ABCD", "abcyz ABCYZ"}
    assert made(pairs, 1) == {"xbcyz XBCYZ", "xbcd XBCD"}


def test_tokens_without_a_link_around_a_cut_are_compared_too() -> None:
    """The e is silent, and so is the u of the third word."""
    silent = [(0, 0), (1, 1), (2, 3), (3, 4)]
    pairs: list[Linked] = [("abecd", "ABCD", silent), ("xbecy", "XBCY", silent), ("zbucz", "ZBCZ", silent)]
    assert made(pairs, 0) == {"abecd ABCD", "abecy ABCY"}
    wide = [(0, 0), (1, 1), (2, 5), (3, 6)]
    assert made([("abeeeecd", "ABCD", wide), ("xbeeeecy", "XBCY", wide)], 0) == {"abeeeecd ABCD"}


@pytest.mark.parametrize(
    "other",
    [
        in_order("xbcy", "XBKY"),  # another target token after the cut
        in_order("xbby", "XBCY"),  # another source token
        ("xbcy", "XBCY", [(0, 0), (1, 1), (3, 3)]),  # a token at the cut has no link
        ("xbcy", "XCBY", [(0, 0), (1, 2), (2, 1), (3, 3)]),  # the links at the cut cross
        ("xbcy", "XBCY", [(3, 0), (1, 1), (2, 2), (0, 3)]),  # links cross the cut
        ("xbcy", "XBVCY", [(0, 0), (1, 1), (3, 2), (4, 3)]),  # a target token between
    ],
)
def test_nothing_is_joined_where_it_is_not_certain(other: Linked) -> None:
    assert made([in_order("abcd", "ABCD"), other], 0) == {"abcd ABCD"}


def test_words_into_different_languages_are_not_joined() -> None:
    """The first token of each source is its language."""
    shifted = [(place, place + 1) for place in range(4)]
    pairs: list[Linked] = [("1abcd", "ABCD", shifted), ("1xbcy", "XBCY", shifted), ("2xbcz", "XBCZ", shifted)]
    for tags, expected in (((0, 0), {"d", "y", "z"}), ((1, 0), {"d", "y"})):
        recombination = Recombination(store_of(pairs), 1.0, 1, tags)
        new = [read(recombination(np.array([0]), epoch, 0), 0) for epoch in range(40)]
        assert {source[-1] for source, *_ in new} == expected


def corpus(count: int = 211) -> list[Linked]:
    """Words of few letters. A letter is written by one or two sounds, the second without a link, or by none."""
    draw, pairs = random.Random(3), []
    for _ in range(count):
        source = "".join(draw.choice("abcde") for _ in range(draw.randint(2, 7)))
        target, links = "", []
        for place, letter in enumerate(source):
            sounds = {"a": "A", "b": "B", "c": "CH", "d": "D", "e": ""}[letter]
            links += [(len(target), place)] if sounds else []
            target += sounds
        pairs.append((source, target, links))
    return pairs


def test_neighbours_of_a_new_pair_are_neighbours_in_the_corpus_and_links_still_fit() -> None:
    pairs = corpus()
    store = store_of(pairs)
    made = Recombination(store, 0.5, seed=7)(np.arange(len(pairs)), 3, 0)
    new = [read(made, row) for row in range(len(pairs))]
    known = [{two for pair in pairs for two in pairwise(pair[side])} for side in (0, 1)]
    spelled = {"a": "A", "b": "B", "c": "CH", "d": "D", "e": ""}
    for source, target, links in new:
        assert target == "".join(spelled[letter] for letter in source)
        assert {*pairwise(source)} <= known[0] and {*pairwise(target)} <= known[1]
        assert all(spelled[source[place]].startswith(target[sound]) for sound, place in links)
        assert len(links) == sum(letter != "e" for letter in source)
    assert sum(one != other for one, other in zip(new, pairs, strict=True)) > len(pairs) / 3
    assert max(len(source) for source, *_ in new) <= 7 and max(len(target) for _, target, _ in new) <= 14


def test_a_pair_is_a_function_of_seed_epoch_and_place() -> None:
    store, rows = store_of(corpus()), np.arange(211)[::-1].astype(np.int64)

    def all_of(rows: Rows, seed: int = 7, epoch: int = 3, start: int = 0) -> list[Linked]:
        made = Recombination(store, 0.3, seed)(rows, epoch, start)
        return [read(made, place) for place in range(len(rows))]

    whole = all_of(rows)
    assert [*all_of(rows[:50]), *all_of(rows[50:], start=50)] == whole
    for other in (all_of(rows, seed=8), all_of(rows, epoch=4), all_of(rows, start=1)):
        assert other != whole


def test_a_corpus_without_links_stays_as_it_is() -> None:
    pairs: list[Linked] = [("ab", "AB", []), ("b", "B", [(0, 0)])]
    made = Recombination(store_of(pairs), 1.0, seed=1)(np.array([1, 0]), 0, 0)
    assert [read(made, 0), read(made, 1)] == pairs[::-1]
