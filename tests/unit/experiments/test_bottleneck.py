"""One vector against attention: the language, the models, and the verdict."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import torch

from transduce.experiments.bottleneck import DEFAULT, checks, configs, measure, random_sentences, sentences, translate

SMALL = replace(DEFAULT, hidden=8, embedding=8, words=10, trained=6, lengths=(4, 6, 8), batch=2, updates=2, tested=2)


def test_neighbours_change_places_and_every_word_has_its_own_translation() -> None:
    assert translate([1, 2, 3], 40) == [(7 * 2 + 3) % 40, (7 * 1 + 3) % 40, (7 * 3 + 3) % 40]
    assert sorted(translate(list(range(40)), 40)) == list(range(40))


def test_a_word_is_followed_by_one_of_two() -> None:
    (row,) = random_sentences(1, 300, 10, torch.Generator().manual_seed(1))
    followers = {word: {after for before, after in pairwise(row) if before == word} for word in set(row)}
    assert len(row) == 300 and all(len(words) == 2 for words in followers.values())


def test_models_have_the_same_cells_and_widths() -> None:
    assert {(config.cell, config.hidden_dim, config.embedding_dim) for config in configs(SMALL).values()} == {
        ("gru", 8, 8)
    }


def test_sentences_have_the_lengths_of_training() -> None:
    lengths = (sentences(replace(SMALL, batch=100), torch.Generator().manual_seed(1)).source > 2).sum(dim=1)
    assert set(lengths.tolist()) == {4, 5, 6}


def test_every_length_is_scored() -> None:
    finding = measure(setting=SMALL)
    assert finding.columns == ("source", "4 words", "6 words", "8 words")
    assert len(finding.rows) == 3


def test_the_verdict_follows_bleu() -> None:
    names = list(configs(SMALL))
    good = {4: 100.0, 6: 95.0, 8: 95.0}
    bad = {4: 100.0, 6: 40.0, 8: 10.0}
    assert all(check.passed for check in checks(SMALL, dict(zip(names, (bad, bad, good), strict=True))))
    passed = [check.passed for check in checks(SMALL, dict(zip(names, (bad, good, bad), strict=True)))]
    assert passed == [True, False, False, False]
