"""Generated text of the long-clause study: what decides, how far back, and what stands between."""

from __future__ import annotations

import torch

from transduce.experiments.clause_text import CAPITALS, NAMES, WORDS, AskedCountry, MarkedCountry, as_text


def generator(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_every_word_has_one_token() -> None:
    assert len(set(WORDS)) == len(WORDS) and len(CAPITALS) == len(NAMES) == 32


def test_the_capital_of_the_marked_country_follows_after_as_many_words_as_asked_for() -> None:
    for length in (1, 2, 3, 4, 17):
        batch = MarkedCountry(11).sample(length, 50, generator())
        assert (batch.distances == length).all()
        for tokens, (answer,) in zip(batch.tokens.tolist(), batch.answers.tolist(), strict=True):
            words = as_text(tokens).split()
            assert words[:3] == ["the", "capital", "of"] and words[-1] == "is" and len(words) == 4 + length
            country, clause = words[3], words[4:-1]
            assert CAPITALS[country] == WORDS[answer] and country not in clause
            assert length < 4 or (clause[:2] == [",", "which"] and clause[-1] == ",")


def test_clauses_name_other_countries() -> None:
    batch = MarkedCountry(32, other_countries=0.5).sample(100, 40, generator())
    named = [word for tokens in batch.tokens.tolist() for word in as_text(tokens).split()[6:-2]]
    assert 0.4 < sum(word in CAPITALS for word in named) / len(named) < 0.6


def test_each_question_is_decided_by_the_country_behind_its_name() -> None:
    for length, facts in ((4, 1), (8, 1), (57, 7), (200, 25)):
        batch = AskedCountry(32).sample(length, 30, generator())
        questions = min(8, facts)
        assert batch.tokens.shape == (30, length + 3 * questions - 1) and batch.answers.shape == (30, questions)
        for row, tokens in enumerate(batch.tokens.tolist()):
            words = as_text(tokens).split()
            text = words[:length]
            assert sum(word in CAPITALS for word in text) == sum(word in NAMES for word in text) == facts
            for number, at in enumerate(batch.asked_at.tolist()):
                (place,) = [index for index, word in enumerate(text) if word == words[at]]
                assert words[at - 1] == ":" and batch.decided_at[row, number] == place + 1
                assert CAPITALS[text[place + 1]] == WORDS[batch.answers[row, number]]
                assert batch.distances[row, number] == at - place - 1
                if at + 1 < len(words):
                    assert words[at + 1] == WORDS[batch.answers[row, number]]
