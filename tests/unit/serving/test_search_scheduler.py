"""Continuous batching: each request gets what it would get alone, whenever it arrives and whatever else fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from tests.unit.inference.search.toy import SPECIALS, VOCABULARY, Toy, ToyState, random_table, translate
from transduce.inference.search.options import Request, Result, SearchOptions
from transduce.inference.search.search import Search
from transduce.serving.fair_queue import Ticket
from transduce.serving.job import JobError
from transduce.serving.scheduler import Capacity
from transduce.serving.search_scheduler import SearchScheduler

SOURCES: list[tuple[int, ...]] = [(4, 1, 5), (1,), (5, 5, 4, 1), (4,), (1, 4), ()]
OPTIONS: list[dict[str, object]] = [
    {"method": "greedy", "max_length": 9},
    {"beam_size": 3, "n_best": 2, "max_length": 7},
    {"method": "sample", "seed": 5, "max_length": 9},
]
PATIENCE = 30.0


class Panic(BaseException):
    """What a library in Rust raises."""


def request(source: Sequence[int], id: int = 0, **options: object) -> Request:
    return Request(id, source, SearchOptions.from_table(options, "a test"))


@contextmanager
def scheduling(model: Toy, **capacity: int) -> Iterator[SearchScheduler]:
    scheduler = SearchScheduler(Search(model, SPECIALS, SPECIALS), Capacity(**capacity))
    try:
        yield scheduler
    finally:
        scheduler.close()


def submit(
    scheduler: SearchScheduler, work: Request, client: str = "somebody", seconds: float = 60.0
) -> Ticket[Request]:
    (ticket,) = scheduler.submit([work], client, time.monotonic() + seconds)
    return ticket


def result(ticket: Ticket[Request]) -> Result:
    found = ticket.future.result(PATIENCE)
    assert isinstance(found, Result)
    return found


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

    def let(self, steps: int = 1) -> None:
        """Let it take some steps, and wait until it has."""
        self.gate.release(steps)
        for _ in range(steps):
            assert self.stepped.acquire(timeout=PATIENCE)


def test_several_threads_get_what_each_would_get_alone() -> None:
    jobs = [(source, options) for source in SOURCES for options in OPTIONS] * 3
    with scheduling(Toy(random_table(3)), max_rows=7) as scheduler:

        def ask(number: int) -> list[object]:
            source, options = jobs[number]
            found = result(submit(scheduler, request(source, id=number, **options), f"client {number % 4}"))
            assert found.id == number
            return list(found.checked())

        with ThreadPoolExecutor(7) as pool:
            found = list(pool.map(ask, range(len(jobs))))
    for (source, options), hypotheses in zip(jobs, found, strict=True):
        assert hypotheses == translate(Toy(random_table(3)), source, **options)


def test_cancelling_frees_rows_and_changes_nothing_for_others() -> None:
    model = Gated()
    with scheduling(model) as scheduler:
        first = submit(scheduler, request((4,), beam_size=3, max_length=5))
        model.let()
        second = submit(scheduler, request((5,), beam_size=2, max_length=4))
        model.let(3)  # a single arrival waits a few steps for others
        scheduler.cancel([first])
        model.gate.release(20)
        assert len(result(second).checked()[0].tokens) == 4
        with pytest.raises(CancelledError):
            first.future.result(PATIENCE)
        assert scheduler.statistics().active == 0
    assert model.steps[-1] == 2, "the rows of the first are gone"


def test_what_waits_is_bounded_and_can_be_cancelled() -> None:
    model = Gated()
    with scheduling(model, max_rows=1, max_queue_tokens=7) as scheduler:
        active = submit(scheduler, request((4,), method="greedy", max_length=2))
        model.let()
        waiting = [submit(scheduler, request((5,), method="greedy", max_length=1)) for _ in range(2)]
        with pytest.raises(JobError, match="6 tokens") as error:
            submit(scheduler, request((1,), method="greedy", max_length=1))
        assert error.value.reason == "busy"
        scheduler.cancel(waiting[:1])
        assert waiting[0].future.cancelled() and scheduler.statistics().queue_tokens == 3
        model.gate.release(10)
        assert len(result(active).checked()[0].tokens) == 2
        assert len(result(waiting[1]).checked()[0].tokens) == 1


def test_rows_never_exceed_the_capacity() -> None:
    model = Toy(random_table(2))
    with scheduling(model, max_rows=6) as scheduler:
        works = [request((4, 1), id=number, beam_size=1 + number % 3, max_length=6) for number in range(30)]
        tickets = scheduler.submit(works, "somebody", time.monotonic() + 60)
        for ticket in tickets:
            result(ticket)
        counters = scheduler.statistics()
    assert max(model.steps) <= 6
    assert counters.steps and counters.stepped_rows >= len(works)


def test_a_request_too_large_for_the_capacity_is_searched_alone() -> None:
    with scheduling(Toy(random_table(2)), max_rows=2) as scheduler:
        assert result(submit(scheduler, request((4, 1), beam_size=5, max_length=4))).checked()


def test_tokens_come_as_they_become_certain() -> None:
    seen: list[list[int]] = []
    with scheduling(Toy(random_table(7))) as scheduler:
        (ticket,) = scheduler.submit(
            [request((4, 1), beam_size=3, max_length=8)], "somebody", time.monotonic() + 60, seen.append
        )
        best = result(ticket).checked()[0].tokens
    assert all(best[: len(tokens)] == tokens for tokens in seen)
    assert [len(tokens) for tokens in seen] == sorted({len(tokens) for tokens in seen}), "each update adds tokens"


@pytest.mark.parametrize("kind", [ValueError, MemoryError, AssertionError, Panic])
def test_a_request_that_fails_does_not_affect_its_neighbours(kind: type[BaseException]) -> None:
    def fail(tokens: Sequence[int]) -> bool:
        raise kind("poison")

    options = SearchOptions(method="greedy", min_length=2, max_length=6)
    with scheduling(Toy(random_table(1))) as scheduler:
        works = [Request(number, SOURCES[number % 6], options) for number in range(24)]
        poison = {3, 11, 20}
        works = [
            Request(work.id, work.source, options, should_stop=fail) if work.id in poison else work for work in works
        ]
        tickets = [submit(scheduler, work) for work in works]
        for work, ticket in zip(works, tickets, strict=True):
            found = result(ticket)
            if work.id in poison:
                assert found.error is not None and "poison" in str(found.error)
            else:
                alone = translate(Toy(random_table(1)), work.source, method="greedy", min_length=2, max_length=6)
                assert found.checked() == alone


@pytest.mark.parametrize("kind", [RuntimeError, Panic])
def test_a_model_that_fails_on_one_source_fails_that_request_only(kind: type[BaseException]) -> None:
    table = random_table(4)

    def row(source: tuple[int, ...], prefix: tuple[int, ...]) -> Tensor:
        if source[0] == 5 and len(prefix) == 2:
            raise kind("poison")
        return table(source, prefix)

    with scheduling(Toy(row)) as scheduler:
        tickets = [submit(scheduler, request(source, method="greedy", max_length=5)) for source in SOURCES[:5] * 4]
        for source, ticket in zip(SOURCES[:5] * 4, tickets, strict=True):
            found = result(ticket)
            if source[0] == 5 and found.error is not None:
                assert "poison" in str(found.error)
            else:
                assert found.checked() == translate(Toy(row), source, method="greedy", max_length=5)
        assert any(ticket.future.result().error for ticket in tickets)


def test_a_request_past_its_deadline_is_dropped_while_it_is_searched() -> None:
    model = Gated()
    with scheduling(model) as scheduler:
        late = submit(scheduler, request((4,), method="greedy", max_length=50), seconds=0.05)
        model.let()
        time.sleep(0.1)
        model.gate.release(3)
        with pytest.raises(JobError, match="in time"):
            result(late)
        assert scheduler.statistics().active == 0


def test_exclusive_use_waits_for_a_step_and_stops_the_next() -> None:
    model = Gated()
    with scheduling(model) as scheduler:
        ticket = submit(scheduler, request((4,), method="greedy", max_length=4))
        model.let()
        model.gate.release(1)  # the step that the thread may already be waiting for
        with scheduler.exclusive():
            before = len(model.steps)
            model.gate.release(5)
            time.sleep(0.05)
            assert len(model.steps) <= before
        assert len(result(ticket).checked()[0].tokens) == 4


def test_a_closed_scheduler_takes_nothing_and_fails_what_it_has() -> None:
    model = Gated()
    scheduler = SearchScheduler(Search(model, SPECIALS, SPECIALS), Capacity(max_rows=1))
    tickets = [submit(scheduler, request((4,), method="greedy", max_length=9)) for _ in range(2)]
    model.let()
    threading.Timer(0.05, lambda: model.gate.release(1)).start()
    scheduler.close()
    for ticket in tickets:
        with pytest.raises(JobError, match="stopped"):
            result(ticket)
    with pytest.raises(JobError, match="stopped"):
        submit(scheduler, request((4,)))


def test_a_stream_that_is_restarted_for_a_neighbour_continues_the_same_sample() -> None:
    """Without a seed a sample is drawn anew for each request, but not in the middle of one."""

    class Failing(Toy):
        def step_groups(self, tokens: Sequence[Tensor], states: Sequence[ToyState]) -> list[tuple[Tensor, ToyState]]:
            if len(self.steps) == 6:
                self.steps.append(0)
                raise RuntimeError("poison")
            return super().step_groups(tokens, states)

    for _ in range(4):
        seen: list[list[int]] = []
        options = {"method": "sample", "min_length": 12, "max_length": 12}
        with scheduling(Failing(random_table(7))) as scheduler:
            (other,) = scheduler.submit([request((5,), **options)], "somebody", time.monotonic() + 60)
            (ticket,) = scheduler.submit([request((4, 1), **options)], "somebody", time.monotonic() + 60, seen.append)
            best = result(ticket).checked()[0].tokens
            assert result(other).checked()
        assert len(seen) > 6 and all(best[: len(tokens)] == tokens for tokens in seen)
