"""A worker serves several threads with one search: each gets what it would get alone."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from tests.unit.inference.search.toy import SPECIALS, VOCABULARY, Toy, ToyState, random_table, translate
from transduce.errors import Busy, TransduceError
from transduce.inference.search.options import Request, SearchOptions
from transduce.inference.search.search import Search
from transduce.inference.worker import SearchWorker

SOURCES: list[tuple[int, ...]] = [(4, 1, 5), (1,), (5, 5, 4, 1), (4,), (1, 4), ()]
OPTIONS: list[dict[str, object]] = [
    {"method": "greedy", "max_length": 9},
    {"beam_size": 3, "n_best": 2, "max_length": 7},
    {"method": "sample", "seed": 5, "max_length": 9},
]
PATIENCE = 30.0


def request(source: Sequence[int], id: int = 0, **options: object) -> Request:
    return Request(id, source, SearchOptions.from_table(options, "a test"))


class Gated(Toy):
    """Takes a step only when the test lets it."""

    def __init__(self) -> None:
        super().__init__(lambda source, prefix: torch.zeros(VOCABULARY).index_fill(0, torch.tensor([4]), 9.0))
        self.gate, self.stepped = threading.Semaphore(0), threading.Semaphore(0)

    def step_groups(self, tokens: Sequence[Tensor], states: Sequence[ToyState]) -> list[tuple[Tensor, ToyState]]:
        assert self.gate.acquire(timeout=PATIENCE)
        found = super().step_groups(tokens, states)
        self.stepped.release()
        return found


def test_several_threads_get_what_each_would_get_alone() -> None:
    jobs = [(source, options) for source in SOURCES for options in OPTIONS] * 3
    with SearchWorker(Search(Toy(random_table(3)), SPECIALS, SPECIALS), max_active=5) as worker:

        def ask(number: int) -> list[object]:
            source, options = jobs[number]
            result = worker.submit(request(source, id=number, **options)).result(PATIENCE)
            assert result.id == number
            return list(result.checked())

        with ThreadPoolExecutor(7) as pool:
            found = list(pool.map(ask, range(len(jobs))))
    for (source, options), hypotheses in zip(jobs, found, strict=True):
        assert hypotheses == translate(Toy(random_table(3)), source, **options)


def test_cancelling_frees_rows_and_changes_nothing_for_others() -> None:
    model = Gated()
    with SearchWorker(Search(model, SPECIALS, SPECIALS)) as worker:
        first = worker.submit(request((4,), beam_size=3, max_length=5))
        model.gate.release()
        assert model.stepped.acquire(timeout=PATIENCE)
        second = worker.submit(request((5,), beam_size=2, max_length=4))
        model.gate.release()
        assert model.stepped.acquire(timeout=PATIENCE)
        worker.cancel(first)
        for _ in range(20):
            model.gate.release()
        assert len(second.result(PATIENCE).checked()[0].tokens) == 4
        with pytest.raises(CancelledError):
            first.result(PATIENCE)
        assert worker.load == 0
    assert 2 in model.steps and model.steps[-1] == 2, "the rows of the first are gone"


def test_what_waits_is_bounded_and_can_be_cancelled() -> None:
    model = Gated()
    with SearchWorker(Search(model, SPECIALS, SPECIALS), max_active=1, max_waiting=2) as worker:
        active = worker.submit(request((4,), method="greedy", max_length=2))
        model.gate.release()
        assert model.stepped.acquire(timeout=PATIENCE)
        waiting = [worker.submit(request((5,), method="greedy", max_length=1)) for _ in range(2)]
        with pytest.raises(Busy, match="2 requests"):
            worker.submit(request((1,)))
        worker.cancel(waiting[0])
        assert waiting[0].future.cancelled()
        for _ in range(10):
            model.gate.release()
        assert len(active.result(PATIENCE).checked()[0].tokens) == 2
        assert len(waiting[1].result(PATIENCE).checked()[0].tokens) == 1


def test_tokens_come_as_they_become_certain() -> None:
    seen: list[list[int]] = []
    with SearchWorker(Search(Toy(random_table(7)), SPECIALS, SPECIALS)) as worker:
        ticket = worker.submit(request((4, 1), beam_size=3, max_length=8), lambda tokens: seen.append(list(tokens)))
        best = ticket.result(PATIENCE).checked()[0].tokens
    assert seen[-1] == best
    assert all(best[: len(tokens)] == tokens for tokens in seen)


def test_a_request_that_fails_is_a_result_and_the_worker_goes_on() -> None:
    def fail(tokens: Sequence[int]) -> bool:
        raise ValueError("no")

    options = SearchOptions(method="greedy", max_length=3)
    with SearchWorker(Search(Toy(random_table(1)), SPECIALS, SPECIALS)) as worker:
        bad = worker.submit(Request(0, (4,), options, should_stop=fail))
        assert isinstance(bad.result(PATIENCE).error, ValueError)
        assert worker.submit(Request(0, (4,), options)).result(PATIENCE).error is None


def test_a_closed_worker_takes_nothing() -> None:
    worker = SearchWorker(Search(Gated(), SPECIALS, SPECIALS))
    worker.close()
    with pytest.raises(TransduceError, match="closed"):
        worker.submit(request((4,)))
