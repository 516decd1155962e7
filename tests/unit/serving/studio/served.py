"""The application over real models in this process: jobs and results go through JSON, as through the engine's pipe."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from starlette.testclient import TestClient

from transduce.serving.app import create_app
from transduce.serving.backend import BackendState, Statistics
from transduce.serving.caller import CALLER, Caller
from transduce.serving.job import JOB, Job, ModelInfo, Result
from transduce.serving.limits import Limits
from transduce.serving.loading import load_runner
from transduce.serving.process import EngineSettings
from transduce.serving.runner import Runner
from transduce.serving.security import ServerSettings
from transduce.serving.service import Service
from transduce.serving.worker import as_job_error

STORED = Path(__file__).resolve().parents[2] / "stored"


class RunnerBackend:
    """A model in this process."""

    def __init__(self, runner: Runner, info: ModelInfo) -> None:
        self.runner, self.info = runner, info
        self.state: BackendState = "ready"
        self.jobs: list[Job] = []

    async def run(self, job: Job, client: str, timeout: float) -> Result:
        return await asyncio.to_thread(self._run, job, client, timeout)

    async def stream(self, job: Job, client: str, timeout: float) -> AsyncIterator[str | Result]:
        for piece in await asyncio.to_thread(self._stream, job, client, timeout):
            yield piece

    def statistics(self) -> Statistics:
        return self.runner.statistics()

    def _run(self, job: Job, client: str, timeout: float) -> Result:
        CALLER.set(Caller(client, time.monotonic() + timeout))
        self.jobs.append(job)
        try:
            result = self.runner.run(JOB.validate_python(json.loads(json.dumps(job.model_dump()))))
        except Exception as error:
            raise as_job_error(error) from None
        found: Result = json.loads(json.dumps(result, allow_nan=False))
        return found

    def _stream(self, job: Job, client: str, timeout: float) -> list[str | Result]:
        CALLER.set(Caller(client, time.monotonic() + timeout))
        found: list[str | Result] = []
        pieces = self.runner.stream(job)
        while True:
            try:
                found.append(next(pieces))
            except StopIteration as end:
                return [*found, json.loads(json.dumps(end.value))]
            except Exception as error:
                raise as_job_error(error) from None


class Served:
    """A studio over some models."""

    def __init__(self, backends: Sequence[RunnerBackend], folders: dict[str, str] | None = None) -> None:
        self.backends = backends
        limits = Limits()
        app = create_app(Service(backends, limits, folders), ServerSettings(limits=limits))
        self.client = TestClient(app, base_url="http://localhost")

    def post(self, path: str, body: dict[str, Any], status: int = 200) -> dict[str, Any]:
        """Send a request and return the JSON of the response."""
        response = self.client.post(f"/studio/api/{path}", json=body)
        assert response.status_code == status, response.text
        found: dict[str, Any] = response.json()
        return found

    def get(self, path: str, status: int = 200) -> dict[str, Any]:
        response = self.client.get(f"/studio/api/{path}")
        assert response.status_code == status, response.text
        found: dict[str, Any] = response.json()
        return found

    def record(self, text: str, model: int = 0, **options: Any) -> dict[str, Any]:
        return self.post("passes", {"model": model, "text": text, **options})

    def view(self, recorded: dict[str, Any], view: str, **parameters: Any) -> dict[str, Any]:
        return self.post(f"passes/{recorded['id']}/{view}", parameters)

    def close(self) -> None:
        for backend in self.backends:
            backend.runner.close()


def of_folder(folder: Path, name: str) -> RunnerBackend:
    return RunnerBackend(*load_runner(EngineSettings(str(folder), name)))


def shares(content: bytes, shape: Sequence[int]) -> Any:
    """Return the attention of a response."""
    return np.frombuffer(content, "<u2").reshape(shape) / 65520


def events(text: str) -> list[dict[str, Any]]:
    """The events of a stream."""
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]
