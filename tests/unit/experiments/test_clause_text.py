"""Generated sentences of the long-clause study: what decides, how far back, and what is in between."""

from __future__ import annotations

import torch

from transduce.experiments.clause_text import CAPITALS, WORDS, as_text, sample_sentences


def test_every_word_has_one_token() -> None:
    assert len(set(WORDS)) == len(WORDS)


def test_the_capital_follows_after_as_many_words_as_requested() -> None:
    for distance in (1, 2, 3, 4, 17):
        batch = sample_sentences(distance, 50, 11, torch.Generator().manual_seed(1))
        assert batch.distance == distance
        for tokens, answer in zip(batch.tokens.tolist(), batch.answers.tolist(), strict=True):
            words = as_text(tokens).split()
            assert words[:3] == ["the", "capital", "of"] and words[-1] == "is" and len(words) == 4 + distance
            country, clause = words[batch.decided_at], words[4:-1]
            assert CAPITALS[country] == WORDS[answer] and country not in clause
            assert distance < 4 or (clause[:2] == [",", "which"] and clause[-1] == ",")


def test_clauses_have_other_countries_and_never_the_own() -> None:
    batch = sample_sentences(100, 40, 32, torch.Generator().manual_seed(2), other_countries=0.5)
    clauses = [as_text(tokens).split()[6:-2] for tokens in batch.tokens.tolist()]
    named = [word in CAPITALS for clause in clauses for word in clause]
    assert 0.45 < sum(named) / len(named) < 0.55
