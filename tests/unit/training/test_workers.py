"""Threads that share the weights: order, errors, and gradients of their own."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
import torch

from tests.unit.training.example import small_model
from transduce.data.prepared import Prepared
from transduce.models.interface import AnyTransducer
from transduce.training.workers import Workers


@pytest.fixture(params=[1, 2, 5])
def workers(request: pytest.FixtureRequest, prepared: Prepared) -> Iterator[Workers]:
    workers = Workers(small_model(prepared), request.param)
    yield workers
    workers.close()


def test_results_come_in_the_order_of_the_parts(workers: Workers) -> None:
    def work(_: AnyTransducer, part: int) -> int:
        time.sleep(0.001 * (7 - part))
        return part**2

    assert list(workers.each(work, 7)) == [0, 1, 4, 9, 16, 25, 36]
    assert list(workers.each(work, 0)) == []


def test_what_follows_a_part_happens_in_order_and_never_twice_at_once(workers: Workers) -> None:
    followed, busy = [], threading.Lock()

    def follow(_: AnyTransducer, part: int) -> None:
        assert busy.acquire(blocking=False)
        followed.append(part)
        busy.release()

    workers.each(lambda _, part: time.sleep(0.001 * (part % 3)), 13, follow)
    assert followed == list(range(13))


def test_the_first_part_that_fails_is_the_error_and_the_workers_go_on_afterwards(workers: Workers) -> None:
    followed = []

    def work(_: AnyTransducer, part: int) -> None:
        if part in (3, 4):
            raise MemoryError(f"part {part}")

    with pytest.raises(MemoryError, match="part 3"):
        workers.each(work, 11, lambda _, part: followed.append(part))
    assert followed == [0, 1, 2][: len(followed)]
    assert list(workers.each(lambda _, part: part, 3)) == [0, 1, 2]


def test_the_models_share_weights_but_not_gradients(workers: Workers, prepared: Prepared) -> None:
    own = workers.models[0]
    for other in workers.models[1:]:
        for mine, theirs in zip(own.parameters(), other.parameters(), strict=True):
            assert mine.data_ptr() == theirs.data_ptr()
            assert mine is not theirs
    with torch.no_grad():
        next(own.parameters()).fill_(0.5)
    assert all(
        float(next(model.parameters()).detach().sum()) == next(own.parameters()).numel() / 2 for model in workers.models
    )


def test_closing_ends_the_threads_and_may_be_repeated(prepared: Prepared) -> None:
    before = threading.active_count()
    workers = Workers(small_model(prepared), 3)
    assert threading.active_count() == before
    workers.each(lambda _, part: part, 2)
    assert threading.active_count() == before + 2
    workers.close()
    workers.close()
    assert threading.active_count() == before
