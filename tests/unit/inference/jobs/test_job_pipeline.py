"""Several at a time, out in order, never more on their way than was said, and nobody waits after an interruption."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from transduce.inference.jobs.job import in_order

PATIENCE = 30.0


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_come_in_the_order_of_the_items(threads: int) -> None:
    assert list(in_order(lambda item: item * item, iter(range(1, 100)), threads)) == [n * n for n in range(1, 100)]
    assert list(in_order(str, iter([]), threads)) == []


def test_a_slow_first_one_does_not_keep_others_from_being_worked_on_nor_from_their_place() -> None:
    second = threading.Event()

    def work(item: int) -> int:
        if item == 1:
            assert second.wait(PATIENCE)
        if item == 2:
            second.set()
        return item

    assert list(in_order(work, iter([1, 2, 3]), threads=2)) == [1, 2, 3]


@pytest.mark.parametrize("threads", [1, 2])
def test_no_more_is_read_than_is_needed_to_stay_busy(threads: int) -> None:
    """However slow the reader of the results is: those that are worked on, one that waits, one that is read."""
    read: list[int] = []

    def items() -> Iterator[int]:
        for number in range(1, 1000):
            read.append(number)
            yield number

    with closing(in_order(lambda item: item, items(), threads)) as results:
        for taken in range(1, 50):
            assert next(results) == taken
            assert len(read) <= taken + threads + 1


def test_an_error_of_reading_comes_after_what_was_read_before_it() -> None:
    def items() -> Iterator[int]:
        yield from (1, 2, 3)
        raise ValueError("line 4")

    found = []
    with pytest.raises(ValueError, match="line 4"):
        for result in in_order(lambda item: item, items(), threads=2):
            found.append(result)
    assert found == [1, 2, 3]


def test_an_error_of_working_comes_in_its_place() -> None:
    found = []
    with pytest.raises(ZeroDivisionError):
        for result in in_order(lambda item: 10 // (3 - item), iter([1, 2, 3, 4]), threads=2):
            found.append(result)
    assert found == [5, 10]


def test_whoever_closes_it_does_not_wait_for_what_is_being_worked_on() -> None:
    go, begun = threading.Event(), []

    def work(item: int) -> int:
        begun.append(item)
        if item > 1:
            assert go.wait(PATIENCE)
        return item

    results = in_order(work, iter(range(1, 100)), threads=2)
    assert next(results) == 1
    results.close()
    go.set()
    for thread in threading.enumerate():
        if thread.name.startswith(("answering", "reading")):
            thread.join(PATIENCE)
            assert not thread.is_alive()
    assert len(begun) <= 4
