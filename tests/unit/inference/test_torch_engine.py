"""Many requests at once: batches of similar length, answers in the order of the questions."""

from __future__ import annotations

import random

import pytest
import torch

from tests.unit.inference.search.toy import SPECIALS, WORDS, Prefix, Toy, random_table, translate
from transduce.inference.search.options import Hypothesis, Request, SearchOptions
from transduce.inference.torch_engine import MAX_GROWTH, TorchEngine

OPTIONS = [
    SearchOptions(),
    SearchOptions(method="greedy"),
    SearchOptions(beam_size=7, n_best=3),
    SearchOptions(beam_size=2),
]


def requests(count: int = 23) -> list[Request]:
    """Sources of 0 to 11 tokens in no order, with ids that are not their places, and mixed wishes."""
    draw = random.Random(3)
    sources = [tuple(draw.choice(WORDS) for _ in range(draw.randint(0, 11))) for _ in range(count)]
    return [Request(1000 - 7 * place, source, OPTIONS[place % 4]) for place, source in enumerate(sources)]


@pytest.mark.parametrize("budget", [1, 37, 4096])
def test_hypotheses_come_in_the_order_of_the_requests_whatever_the_batches(budget: int) -> None:
    row = random_table(seed=1)
    found = TorchEngine(Toy(row), SPECIALS, SPECIALS, tokens_per_batch=budget).translate(requests())
    expected = [translate(Toy(row), request.source, **request.options.model_dump()) for request in requests()]
    assert found == expected


def test_no_requests_give_no_hypotheses() -> None:
    assert TorchEngine(Toy(random_table(1)), SPECIALS, SPECIALS).translate([]) == []


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_batches_fit_the_budget_and_one_too_large_stands_alone(threads: int) -> None:
    asked = [Request(number, [4] * number, SearchOptions(beam_size=3, max_length=2)) for number in range(13)]
    engine = TorchEngine(Toy(random_table(seed=2)), SPECIALS, SPECIALS, tokens_per_batch=29)
    batches = list(engine._batches(asked, threads))
    assert [request.id for batch in batches for request in batch] == list(range(12, -1, -1))
    costs = [[3 * (len(request.source) + 1) for request in batch] for batch in batches]
    assert all(sum(several) <= 29 or len(several) == 1 for several in costs)
    assert max(map(len, batches)) > 1


def test_prefixes_count_for_the_token_budget() -> None:
    asked = [Request(number, [4], SearchOptions(method="greedy", max_length=2), prefix=[5] * 8) for number in range(6)]
    engine = TorchEngine(Toy(random_table(seed=2)), SPECIALS, SPECIALS, tokens_per_batch=20)
    assert [len(batch) for batch in engine._batches(asked, threads=1)] == [2, 2, 2]


def test_a_long_text_behind_a_short_one_does_not_fill_a_batch_a_thousand_times() -> None:
    wished = SearchOptions(method="sample", n_best=16, max_length=200)
    asked = [Request(number, (), wished, prefix=[5] * 3, first=1) for number in range(64)]
    engine = TorchEngine(Toy(random_table(seed=2)), SPECIALS, SPECIALS)
    batches = list(engine._batches(asked, threads=1))
    assert max(16 * len(batch) * (4 + 200) for batch in batches) <= MAX_GROWTH * engine.tokens_per_batch
    assert sum(map(len, batches)) == 64 and len(batches) < 10


def test_threads_get_batches_of_about_equal_cost_and_the_same_hypotheses() -> None:
    asked = [Request(number, [4] * (number % 7), SearchOptions(beam_size=3, max_length=4)) for number in range(40)]
    engine = TorchEngine(Toy(random_table(seed=2)), SPECIALS, SPECIALS)
    sizes = [sum(len(request.source) + 1 for request in batch) for batch in engine._batches(asked, 4)]
    assert len(sizes) == 4 and max(sizes) - min(sizes) <= 14
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = engine.translate(asked)
        torch.set_num_threads(3)
        assert engine.translate(asked) == alone
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_left_in_the_mode_it_was_in_even_after_an_error(training: bool) -> None:
    model = Toy(random_table(seed=1))
    model.train(training)
    TorchEngine(model, SPECIALS, SPECIALS).translate(requests(3))
    assert model.training == training

    def broken(source: Prefix, prefix: Prefix) -> torch.Tensor:
        assert not model.training
        raise KeyboardInterrupt

    model.row = broken
    with pytest.raises(KeyboardInterrupt):
        TorchEngine(model, SPECIALS, SPECIALS).translate(requests(3))
    assert model.training == training


def test_two_requests_with_one_id_are_our_mistake() -> None:
    twice = [Request(1, [4], SearchOptions()), Request(1, [5], SearchOptions())]
    with pytest.raises(AssertionError, match="id of its own"):
        TorchEngine(Toy(random_table(1)), SPECIALS, SPECIALS).translate(twice)


def test_hypotheses_do_not_depend_on_other_requests() -> None:
    row = random_table(seed=9)
    engine = TorchEngine(Toy(row), SPECIALS, SPECIALS)
    everybody = dict(zip((request.id for request in requests()), engine.translate(requests()), strict=True))
    some = [request for request in requests() if request.id % 2]
    found: list[list[Hypothesis]] = engine.translate(some)
    assert found == [everybody[request.id] for request in some]
