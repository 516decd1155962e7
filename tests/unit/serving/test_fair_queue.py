"""The queue of a server: bounded in tokens, all of a job or nothing, and fair between clients."""

from __future__ import annotations

import time

import pytest

from transduce.serving.fair_queue import FairQueue, Ticket
from transduce.serving.job import JobError

LATER = time.monotonic() + 1000


def ticket(client: str, cost: int = 10, deadline: float = LATER) -> Ticket[str]:
    return Ticket(client, client, cost, deadline)


def take_all(queue: FairQueue[str]) -> list[str]:
    """Take every ticket, one after the other, each finished with the tokens that it reserved."""
    order = []
    while (taken := queue.take(lambda _: True)) is not None:
        order.append(taken.client)
        queue.finish(taken, taken.cost)
    return order


def test_what_waits_is_bounded_in_tokens() -> None:
    queue: FairQueue[str] = FairQueue(100)
    queue.put([ticket("a", 60)])
    with pytest.raises(JobError, match="60 tokens") as error:
        queue.put([ticket("b", 30), ticket("b", 30)])
    assert (error.value.reason, error.value.retry_after, len(queue), queue.tokens) == ("busy", 1.0, 1, 60)
    queue.put([ticket("b", 40)])
    assert queue.tokens == 100


def test_a_job_larger_than_the_queue_is_rejected_for_good() -> None:
    with pytest.raises(JobError, match="reserves 101 tokens") as error:
        FairQueue[str](100).put([ticket("a", 50), ticket("a", 51)])
    assert error.value.reason == "invalid"


def test_a_client_with_much_work_does_not_delay_another() -> None:
    queue: FairQueue[str] = FairQueue(10_000)
    queue.put([ticket("many", 10) for _ in range(50)])
    queue.put([ticket("one", 10) for _ in range(3)])
    order = take_all(queue)
    assert [place for place, client in enumerate(order) if client == "one"][-1] <= 6


def test_tokens_count_and_not_requests() -> None:
    queue: FairQueue[str] = FairQueue(10_000)
    queue.put([ticket("long", 100) for _ in range(3)])
    queue.put([ticket("short", 10) for _ in range(20)])
    order = take_all(queue)
    assert order.index("long", order.index("long") + 1) >= 10, "ten short requests cost as much as a long one"


def test_those_who_arrive_do_not_overtake_one_that_waits_for_space() -> None:
    queue: FairQueue[str] = FairQueue(10_000)
    queue.put([ticket("large", 100), ticket("large", 100), ticket("small", 10)])
    assert [queue.take(lambda _: True).client for _ in range(2)] == ["large", "small"]  # type: ignore[union-attr]
    for number in range(5):  # others arrive while one with a smaller counter is being served
        queue.put([ticket(f"new {number}", 10)])
    taken = queue.take(lambda _: True)
    assert taken is not None and taken.client == "large"


def test_being_idle_earns_nothing() -> None:
    queue: FairQueue[str] = FairQueue(10_000)
    queue.put([ticket("busy", 10) for _ in range(100)])
    for _ in range(50):
        taken = queue.take(lambda _: True)
        assert taken is not None
        queue.finish(taken, 10)
    queue.put([ticket("late", 10) for _ in range(20)])
    first = take_all(queue)[:20]
    assert 8 <= first.count("busy") <= 12


def test_tokens_that_were_reserved_and_not_written_are_given_back() -> None:
    queue: FairQueue[str] = FairQueue(10_000)
    queue.put([ticket("brief", 100), ticket("brief", 100), ticket("other", 100)])
    taken = queue.take(lambda _: True)
    assert taken is not None and taken.client == "brief"
    queue.finish(taken, 5)
    queue.put([ticket("other", 100)])
    assert take_all(queue) == ["other", "brief", "other"]


def test_a_large_ticket_that_does_not_fit_is_not_overtaken() -> None:
    queue: FairQueue[str] = FairQueue(10_000)
    queue.put([ticket("a", 500)])
    queue.put([ticket("b", 1)])
    assert queue.take(lambda ticket: ticket.cost < 100) is None


def test_a_ticket_past_its_deadline_fails() -> None:
    queue: FairQueue[str] = FairQueue(100)
    late, early = ticket("a", deadline=time.monotonic() - 1), ticket("a")
    queue.put([late, early])
    queue.expire()
    assert isinstance(late.future.exception(timeout=0), JobError)
    assert list(queue) == [early] and queue.tokens == 10


def test_alike_tickets_are_taken_together() -> None:
    queue: FairQueue[str] = FairQueue(1000)
    queue.put([ticket("a", cost) for cost in (10, 90, 11, 12, 95)])
    taken = queue.take_alike(lambda one: one.cost < 50, 2)
    assert [one.cost for one in taken] == [10, 11]
    assert queue.tokens == 90 + 12 + 95


def test_clients_that_have_nothing_here_are_forgotten() -> None:
    queue: FairQueue[str] = FairQueue(1000)
    for number in range(50):
        queue.put([ticket(f"address:{number}")])
    removed = queue.remove(list(queue)[:25])
    take_all(queue)
    assert len(removed) == 25 and not queue._served and not queue._running and not queue._waiting
