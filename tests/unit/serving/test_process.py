"""A model in a process of its own: its answers, its death and its return."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from transduce.serving import process
from transduce.serving.job import GenerateJob, JobError, TranslateJob
from transduce.serving.process import EngineSettings, LoadError, ProcessBackend

STORED = Path(__file__).resolve().parents[1] / "stored"


@asynccontextmanager
async def running(task: str, **settings: int) -> AsyncIterator[ProcessBackend]:
    backend = ProcessBackend(EngineSettings(str(STORED / task), task, **settings))  # type: ignore[arg-type]
    await backend.start()
    try:
        yield backend
    finally:
        await backend.stop()


async def settled(backend: ProcessBackend) -> None:
    """Wait until the process reports that it has nothing to do."""
    async with asyncio.timeout(20):
        while backend.statistics().active or backend.statistics().waiting or not backend.statistics().steps:
            await asyncio.sleep(0.02)


def long_job(length: int = 1000) -> GenerateJob:
    """A job that takes a while: a language model whose window is small writes on and on."""
    return GenerateJob(
        prompts=["one"], search={"method": "sample", "seed": 1, "max_length": length, "min_length": length}
    )


def test_a_job_is_answered_streamed_and_cancelled() -> None:
    async def work() -> None:
        async with running("language_modeling") as backend:
            result = await backend.run(GenerateJob(prompts=["one two"], search={"seed": 1}), "a test", 30.0)
            pieces = [
                piece async for piece in backend.stream(GenerateJob(prompts=["one two"], search={"seed": 1}), "a", 30.0)
            ]
            assert "".join(map(str, pieces[:-1])) == result["continuations"][0][0]["text"]
            assert pieces[-1] == result
            cancelled = asyncio.create_task(backend.run(long_job(), "a test", 30.0))
            await asyncio.sleep(0.1)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            stream = backend.stream(long_job(), "a test", 30.0)
            assert await anext(stream)
            await stream.aclose()
            assert not backend._jobs
            await settled(backend)

    asyncio.run(work())


def test_errors_come_with_their_reasons() -> None:
    async def work() -> None:
        async with running("translation", max_requests=2) as backend:
            with pytest.raises(JobError, match="beam_size") as error:
                await backend.run(TranslateJob(texts=["one"], search={"method": "sample", "beam_size": 2}), "a", 30.0)
            assert error.value.reason == "invalid"
            with pytest.raises(JobError) as late:
                await backend.run(TranslateJob(texts=["one two three"] * 100), "a", 0.0)
            assert late.value.reason == "deadline"
            jobs = [asyncio.create_task(backend.run(TranslateJob(texts=["one two"]), "a", 30.0)) for _ in range(3)]
            found = await asyncio.gather(*jobs, return_exceptions=True)
            busy = [one for one in found if isinstance(one, JobError)]
            assert [one.reason for one in busy] == ["busy"] and busy[0].retry_after

    asyncio.run(work())


def test_a_process_that_is_killed_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "BACKOFF", (0.01, 0.1))

    async def work() -> None:
        async with running("language_modeling") as backend:
            jobs = [asyncio.create_task(backend.run(long_job(), "a test", 60.0)) for _ in range(3)]
            await asyncio.sleep(0.2)
            assert backend.pid is not None
            os.kill(backend.pid, signal.SIGKILL)
            for error in await asyncio.gather(*jobs, return_exceptions=True):
                assert isinstance(error, JobError) and error.reason == "failed"
            with pytest.raises(JobError) as absent:
                await backend.run(GenerateJob(prompts=["one"]), "a test", 30.0)
            assert (absent.value.reason, backend.state) == ("unavailable", "restarting")
            async with asyncio.timeout(30):
                while backend.state != "ready":
                    await asyncio.sleep(0.05)
            assert await backend.run(GenerateJob(prompts=["one"]), "a test", 30.0)
            assert backend.statistics().restarts == 1

    asyncio.run(work())


def test_the_more_are_rejected_the_later_they_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(process.time, "monotonic", lambda: now)
    backend = ProcessBackend(EngineSettings("nowhere", "a model"))
    first = backend._busy("full").retry_after
    many = [backend._busy("full").retry_after for _ in range(1000)][-1]
    now += 20.0
    assert (first, many, backend._busy("full").retry_after) == (1.0, process.MAX_RETRY_AFTER, 1.0)


def test_a_full_queue_is_told_without_the_process() -> None:
    async def work() -> None:
        async with running("language_modeling", max_active_rows=1, max_queue_tokens=4000) as backend:
            jobs = [asyncio.create_task(backend.run(long_job(), "a test", 60.0)) for _ in range(3)]
            async with asyncio.timeout(30):
                while backend.statistics().waiting < 2:
                    await asyncio.sleep(0.02)
            now = backend.statistics().queue_tokens
            backend._settings = replace(backend._settings, max_queue_tokens=now)  # as if it were full
            assert backend.pid is not None
            os.kill(backend.pid, signal.SIGSTOP)
            try:
                with pytest.raises(JobError, match="tokens are waiting") as error:
                    await backend.run(GenerateJob(prompts=["one"]), "a test", 30.0)
                assert error.value.reason == "busy" and error.value.retry_after
            finally:
                os.kill(backend.pid, signal.SIGCONT)
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)

    asyncio.run(work())


def test_a_process_that_does_not_answer_costs_no_more_than_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "GRACE", 0.1)

    async def work() -> None:
        async with running("language_modeling", max_requests=2) as backend:
            stream = backend.stream(long_job(), "a test", 0.5)
            assert await asyncio.create_task(anext(stream))  # type: ignore[arg-type]  # as the HTTP side does
            assert backend.pid is not None
            os.kill(backend.pid, signal.SIGSTOP)
            try:
                async with asyncio.timeout(10):
                    with pytest.raises(JobError) as error:
                        while True:
                            await anext(stream)
                assert error.value.reason == "deadline"
                with pytest.raises(JobError) as second:
                    await backend.run(long_job(), "a test", 0.1)
                assert second.value.reason == "deadline" and not backend._jobs
                with pytest.raises(JobError) as third:  # the process still has two jobs
                    await backend.run(long_job(), "a test", 0.1)
                assert third.value.reason == "busy"
            finally:
                os.kill(backend.pid, signal.SIGCONT)
            async with asyncio.timeout(10):
                while backend._unfinished:
                    await asyncio.sleep(0.02)
            assert await backend.run(GenerateJob(prompts=["one"]), "a test", 30.0)

    asyncio.run(work())


def test_a_process_whose_messages_cannot_be_read_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "BACKOFF", (0.01, 0.1))

    async def work() -> None:
        async with running("language_modeling") as backend:
            found = backend._process
            assert found is not None and found.stdout is not None
            job = asyncio.create_task(backend.run(long_job(), "a test", 60.0))
            await asyncio.sleep(0.1)
            found.stdout.feed_data(b"no message\n")
            with pytest.raises(JobError) as error:
                await job
            assert error.value.reason == "failed"
            async with asyncio.timeout(30):
                while backend.state != "ready":
                    await asyncio.sleep(0.05)
            assert found.returncode is not None and backend.pid != found.pid
            assert await backend.run(GenerateJob(prompts=["one"]), "a test", 30.0)

    asyncio.run(work())


def test_stopping_while_it_is_started_again_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "BACKOFF", (0.01, 0.1))

    async def work() -> None:
        for pause in (0.0, 0.02, 0.3):
            async with running("language_modeling") as backend:
                first = backend.pid
                assert first is not None
                os.kill(first, signal.SIGKILL)
                async with asyncio.timeout(30):
                    while backend.state != "restarting":
                        await asyncio.sleep(0.001)
                await asyncio.sleep(pause)
            assert backend.state == "stopped" and backend._process is not None
            assert backend._process.returncode is not None

    asyncio.run(work())


def test_a_folder_that_cannot_be_loaded_is_an_error_with_its_exit_code(tmp_path: Path) -> None:
    backend = ProcessBackend(EngineSettings(str(tmp_path), "nothing"))
    with pytest.raises(LoadError, match="neither a run nor a model folder") as error:
        asyncio.run(backend.start())
    assert error.value.exit_code == 65
