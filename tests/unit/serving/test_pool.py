"""Several processes of a model: jobs go to the one with the least to do, and to none that is away."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from tests.unit.serving.fake_backend import FakeBackend
from transduce.serving.backend import Statistics
from transduce.serving.job import EmbedJob, GenerateJob, JobError, TranslateJob
from transduce.serving.pool import ProcessPool, _work
from transduce.serving.process import ProcessBackend


def pool_of(count: int) -> tuple[ProcessPool, list[FakeBackend]]:
    fakes = [FakeBackend() for _ in range(count)]
    return ProcessPool(cast("list[ProcessBackend]", fakes)), fakes


def test_jobs_go_to_the_process_with_the_least_to_do() -> None:
    async def work() -> None:
        pool, fakes = pool_of(2)
        for fake in fakes:
            fake.gate = asyncio.Event()
        long, short = TranslateJob(texts=["x" * 400]), TranslateJob(texts=["x"])
        tasks = [asyncio.create_task(pool.run(job, "a", 9.0)) for job in (long, short, short, short)]
        await asyncio.sleep(0.01)
        assert [len(fake.jobs) for fake in fakes] == [1, 3]
        for fake in fakes:
            assert fake.gate is not None
            fake.gate.set()
        await asyncio.gather(*tasks)
        assert set(pool._load.values()) == {0}

    asyncio.run(work())


def test_a_process_that_is_away_gets_nothing() -> None:
    async def work() -> None:
        pool, fakes = pool_of(2)
        fakes[0].state = "restarting"
        assert pool.state == "ready"
        for _ in range(3):
            await pool.run(TranslateJob(texts=["x"]), "a", 9.0)
        assert [len(fake.jobs) for fake in fakes] == [0, 3]
        fakes[1].state = "restarting"
        with pytest.raises(JobError) as error:
            await pool.run(TranslateJob(texts=["x"]), "a", 9.0)
        assert (pool.state, error.value.reason) == ("restarting", "unavailable")

    asyncio.run(work())


def test_a_process_that_is_full_is_passed_over() -> None:
    async def work() -> None:
        pool, fakes = pool_of(2)
        fakes[0].full = "full"
        for _ in range(3):
            await pool.run(TranslateJob(texts=["x"]), "a", 9.0)
        assert [len(fake.jobs) for fake in fakes] == [0, 3]

    asyncio.run(work())


def test_a_stream_that_is_closed_is_no_longer_counted() -> None:
    async def work() -> None:
        pool, fakes = pool_of(1)
        pieces = pool.stream(TranslateJob(texts=["one two three"]), "a", 9.0)
        assert await anext(pieces) == "ONE"
        await pieces.aclose()
        assert (fakes[0].cancelled, set(pool._load.values())) == (1, {0})

    asyncio.run(work())


def test_counters_are_added_up() -> None:
    pool, fakes = pool_of(2)
    fakes[0].counters, fakes[1].counters = Statistics(rows=3, extra={"a": 1.0}), Statistics(rows=4, extra={"a": 2.0})
    assert (pool.statistics().rows, pool.statistics().extra) == (7, {"a": 3.0})


def test_wider_and_longer_jobs_cost_more() -> None:
    one = _work(TranslateJob(texts=["word"]))
    assert _work(TranslateJob(texts=["word"], search={"beam_size": 5})) == 5 * one
    assert _work(TranslateJob(texts=["word", "word"])) == 2 * one
    assert _work(GenerateJob(prompts=["word"], search={"max_length": 500})) > _work(GenerateJob(prompts=["word"]))
    assert _work(EmbedJob(texts=[["a", "pair"], "text"])) > 0
