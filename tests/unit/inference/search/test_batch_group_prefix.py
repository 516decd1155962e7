"""Answers that begin as a person wants."""

from __future__ import annotations

import pytest
import torch

from tests.unit.inference.search.toy import SPECIALS, Toy, random_table, search_all
from transduce.inference.scoring import score_targets
from transduce.inference.search.options import Hypothesis, Request, SearchOptions
from transduce.inference.search.search import Search
from transduce.models.interface import AnyTransducer, VocabularySizes
from transduce.models.rnn import Rnn, RnnConfig
from transduce.models.transformer import Transformer, TransformerConfig


def answers(model: AnyTransducer, prefixes: list[list[int]], **options: object) -> list[list[Hypothesis]]:
    search = Search(model, SPECIALS, SPECIALS)
    given = SearchOptions.from_table(options, "a test")
    search.admit([Request(place, [4, 5, 1], given, prefix) for place, prefix in enumerate(prefixes)])
    found = search_all(search)
    return [found[place] for place in range(len(prefixes))]


@pytest.mark.parametrize("method", ["greedy", "beam", "sample"])
def test_every_hypothesis_begins_with_its_prefix_and_is_scored_as_a_whole(method: str) -> None:
    row = random_table(11)
    settings = {"method": method, "max_length": 6} | ({"seed": 1} if method == "sample" else {})
    prefixes: list[list[int]] = [[], [4], [5, 5, 1], [1, 4]]
    for prefix, found in zip(prefixes, answers(Toy(row), prefixes, **settings), strict=True):
        for answer in found:
            assert answer.tokens[: len(prefix)] == prefix
            tokens = [*answer.tokens, *([SPECIALS.end] if answer.ended else [])]
            read = (4, 5, 1, SPECIALS.end)
            total = sum(float(row(read, tuple(tokens[:place]))[token]) for place, token in enumerate(tokens))
            assert answer.log_probability == pytest.approx(total, abs=1e-4)


def test_the_best_hypothesis_as_its_own_prefix_changes_nothing() -> None:
    toy = Toy(random_table(5))
    ((best, *_),) = answers(toy, [[]], beam_size=27, stop_rule="exact", max_length=5)
    for length in range(1, len(best.tokens) + 1):
        ((again, *_),) = answers(toy, [best.tokens[:length]], beam_size=27, stop_rule="exact", max_length=5)
        assert again.tokens == best.tokens
        assert again.score == pytest.approx(best.score, abs=1e-5)


def models() -> list[AnyTransducer]:
    torch.manual_seed(1)
    sizes = VocabularySizes(11, 11)
    transformer = TransformerConfig(model_dim=14, num_heads=2, ffn_dim=19, num_layers=2)
    recurrent = RnnConfig(embedding_dim=7, hidden_dim=13)
    built: list[AnyTransducer] = [Transformer(transformer, sizes), Rnn(recurrent, sizes)]
    for model in built:
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.5)
        model.eval()
    return built


@pytest.mark.parametrize("model", models(), ids=["transformer", "rnn"])
def test_real_models_read_prefixes_of_different_lengths_at_once(model: AnyTransducer) -> None:
    prefixes: list[list[int]] = [[7, 8, 9], [], [10]]
    together = answers(model, prefixes, beam_size=3, n_best=3, max_length=9)
    for prefix, found in zip(prefixes, together, strict=True):
        (alone,) = answers(model, [prefix], beam_size=3, n_best=3, max_length=9)
        assert [answer.tokens for answer in found] == [answer.tokens for answer in alone]
        scored = score_targets(model, [[4, 5, 1]] * len(found), [a.tokens for a in found], SPECIALS, SPECIALS)
        for answer, score in zip(found, scored, strict=True):
            of_all = sum(score.token_scores[: len(answer.tokens) + answer.ended])
            assert answer.log_probability == pytest.approx(of_all, abs=1e-4)
