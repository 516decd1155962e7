"""Items made ahead by a thread: the same ones, in order, no more than wanted, errors where they belong."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
import torch

from tests.unit.training.example import small_model
from transduce.data.order import START
from transduce.data.prepared import Prepared
from transduce.tasks.catalog import task_for
from transduce.training.config import TrainingConfig
from transduce.training.prefetch import prefetched
from transduce.training.task import BatchSource


def names() -> list[str]:
    return [thread.name for thread in threading.enumerate()]


@pytest.mark.parametrize("depth", [1, 3, 50])
def test_items_come_in_order_and_the_thread_ends(depth: int) -> None:
    assert list(prefetched(range(17), depth)) == list(range(17))
    assert "prefetch" not in names()


def test_no_more_than_depth_items_are_made_ahead() -> None:
    made = []

    def items() -> Iterator[int]:
        for number in range(100):
            made.append(number)
            yield number

    ahead = prefetched(items(), 4)
    assert next(ahead) == 0
    time.sleep(0.1)
    assert len(made) <= 6
    ahead.close()
    assert "prefetch" not in names()


def test_an_error_is_raised_where_the_item_would_be() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise OSError("the disk is gone")

    ahead = prefetched(items())
    assert next(ahead) == 1
    with pytest.raises(OSError, match="disk"):
        next(ahead)


def test_batches_made_ahead_are_the_batches_from_any_position(prepared: Prepared) -> None:
    """`meta` stands for a device that is not the CPU: tensors have shapes there, and rows are on the host."""
    task, model = task_for(prepared.data), small_model(prepared)
    config = TrainingConfig(batch_tokens=101)
    plain = task.batch_source(prepared, config, model)
    ahead = BatchSource(plain.split, plain._collate, config, torch.device("meta"))
    position = START
    for _ in range(3):
        there, here = ahead.starting(position), plain.starting(position)
        for _ in range(5):
            (after, batch), (expected, own) = next(there), next(here)
            assert after == expected
            assert batch.rows.tolist() == own.rows.tolist()
            assert batch.source.is_meta  # type: ignore[attr-defined]
        position = expected
        there.close()  # type: ignore[attr-defined]
    assert "prefetch" not in names()
