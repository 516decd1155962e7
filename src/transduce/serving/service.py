"""The models of a server, by name and by language: what every API uses to carry out its jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from transduce.serving.backend import Backend
from transduce.serving.job import JOBS_OF_TASK, Job, JobError, Result, Task
from transduce.serving.limits import Limits


class Service:
    """Finds the model for a job and carries the job out."""

    def __init__(self, backends: Sequence[Backend], limits: Limits, folders: Mapping[str, str] | None = None) -> None:
        """`folders` are those of the models and of runs without a model, by name: the studio shows their training."""
        self.backends = {backend.info.name: backend for backend in backends}
        self.limits = limits
        self.folders = dict(folders or {})

    def of_task(self, task: Task) -> list[Backend]:
        """The models of a task, in the order in which the server was given them."""
        return [backend for backend in self.backends.values() if backend.info.task == task]

    def find(self, task: Task, model: str | None = None) -> Backend:
        """The model of this name, or the first of the task; raises JobError (invalid) if there is none."""
        if model is not None:
            found = self.backends.get(model)
            if found is None or found.info.task != task:
                names = ", ".join(backend.info.name for backend in self.of_task(task)) or "none"
                raise JobError("invalid", f"no model '{model}' for this request; available: {names}")
            return found
        several = self.of_task(task)
        if not several:
            raise JobError("invalid", f"this server has no model for {task.replace('_', ' ')}")
        return several[0]

    async def run(self, backend: Backend, job: Job, client: str) -> Result:
        """Carry out a job; raises JobError."""
        self._check(backend, job)
        return await backend.run(job, client, self.limits.timeout)

    def stream(self, backend: Backend, job: Job, client: str) -> AsyncIterator[str | Result]:
        """Carry out a job of one text and yield its text piece by piece, then the result."""
        self._check(backend, job)
        return backend.stream(job, client, self.limits.timeout)

    def _check(self, backend: Backend, job: Job) -> None:
        if job.kind not in JOBS_OF_TASK[backend.info.task]:
            raise JobError("invalid", f"the model '{backend.info.name}' cannot {job.kind}")
        if backend.state != "ready":
            raise JobError("unavailable", f"the model '{backend.info.name}' is {backend.state}", retry_after=2.0)
