"""Several processes of one model as one backend: each job goes to the process that has the least to do.

PyTorch's search is one thread and much of it is Python, so that a second process, not a second thread, uses a second
core. Each process has its own copy of the weights and its own queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager

from transduce.serving.backend import BackendState, Statistics
from transduce.serving.job import (
    EmbedJob,
    GenerateJob,
    InspectJob,
    Job,
    JobError,
    ModelInfo,
    PredictJob,
    RecordJob,
    Result,
)
from transduce.serving.process import ProcessBackend

OVERHEAD = 20
"""Characters that the work on a text costs besides those that it has."""
STATES: Sequence[BackendState] = ("ready", "loading", "restarting", "stopped")
"""The state of the pool is the first of these that one of its processes has."""


class ProcessPool:
    """Processes with the same settings."""

    def __init__(self, processes: Sequence[ProcessBackend]) -> None:
        self.processes = processes
        self._load = dict.fromkeys(processes, 0)
        """Work that each process has, in characters times rows."""

    @property
    def info(self) -> ModelInfo:
        """What the processes serve."""
        return self.processes[0].info

    @property
    def state(self) -> BackendState:
        """Whether one of the processes takes jobs."""
        return min((process.state for process in self.processes), key=STATES.index)

    async def start(self) -> None:
        """Load the model in all processes; raises LoadError."""
        await asyncio.gather(*(process.start() for process in self.processes))

    async def stop(self) -> None:
        """End all processes."""
        await asyncio.gather(*(process.stop() for process in self.processes))

    async def run(self, job: Job, client: str, timeout: float) -> Result:
        """Carry out a job; raises JobError."""
        with self._chosen(job) as process:
            return await process.run(job, client, timeout)

    async def stream(self, job: Job, client: str, timeout: float) -> AsyncGenerator[str | Result, None]:
        """Carry out a job of one text and yield its text piece by piece, then the result; raises JobError."""
        with self._chosen(job) as process:
            pieces = process.stream(job, client, timeout)
            try:
                async for piece in pieces:
                    yield piece
            finally:
                await pieces.aclose()

    def statistics(self) -> Statistics:
        """The counters of all processes together."""
        return Statistics.sum([process.statistics() for process in self.processes])

    @contextmanager
    def _chosen(self, job: Job) -> Iterator[ProcessBackend]:
        """The process with the least to do of those that are ready."""
        ready = [process for process in self.processes if process.state == "ready"]
        if not ready:
            raise JobError("unavailable", f"the model '{self.info.name}' is {self.state}", retry_after=2.0)
        process, work = min(ready, key=lambda process: (process.full is not None, self._load[process])), _work(job)
        self._load[process] += work
        try:
            yield process
        finally:
            self._load[process] -= work


def _work(job: Job) -> int:
    """About how much a job costs."""
    if isinstance(job, InspectJob):
        return OVERHEAD + 4 * (len(job.source_tokens) + len(job.target_tokens))
    if isinstance(job, GenerateJob):
        texts: Sequence[str | Sequence[str]] = job.prompts
        length = int(job.search.get("max_length", 200))
    else:
        texts, length = [job.text] if isinstance(job, RecordJob) else job.texts, 0
    characters = sum(sum(map(len, text)) if isinstance(text, list) else len(text) for text in texts)
    if isinstance(job, PredictJob | EmbedJob):
        return characters + OVERHEAD * len(texts)
    rows = max(int(job.search.get("beam_size", 1)), int(job.search.get("n_best", 1)))
    return (characters + (OVERHEAD + length) * len(texts)) * rows
