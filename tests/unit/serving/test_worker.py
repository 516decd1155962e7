"""The process of a model from inside: whatever a job does, it has exactly one last message."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Generator as Pieces
from typing import Any

import pytest

from transduce.serving import worker as worker_module
from transduce.serving.job import GenerateJob, Job, Result
from transduce.serving.runner import Runner
from transduce.serving.worker import Channel, Worker


class Panic(BaseException):
    """What a library in Rust raises."""


class Scripted(Runner):
    """Does what the prompt says."""

    def __init__(self) -> None:
        self.schedulers = []
        self.began: list[str] = []
        self.gate = threading.Event()

    def _run(self, job: Job) -> Result:
        assert isinstance(job, GenerateJob)
        (prompt,) = job.prompts
        self.began.append(prompt)
        assert self.gate.wait(30)
        kinds: dict[str, type[BaseException]] = {
            kind.__name__: kind for kind in (Panic, SystemExit, KeyboardInterrupt, MemoryError, AssertionError)
        }
        if prompt in kinds:
            raise kinds[prompt]("the client's text")
        return {"object": object(), "large": "x" * 1000}.get(prompt, prompt)  # type: ignore[return-value]

    def _stream(self, job: Job) -> Pieces[str, None, Result]:
        yield "a piece"
        return self.run(job)


class Rig:
    """A worker whose messages can be read."""

    def __init__(self, threads: int = 8) -> None:
        self.runner, self.file = Scripted(), io.BytesIO()
        self.worker = Worker(self.runner, Channel(self.file), threads)

    def send(self, number: int, prompt: str, timeout: float = 30.0, stream: bool = False) -> None:
        job = GenerateJob(prompts=[prompt]).model_dump()
        self.worker.receive({"id": number, "job": job, "client": "a test", "timeout": timeout, "stream": stream})

    def messages(self) -> list[dict[str, Any]]:
        self.worker._threads.shutdown()
        return [json.loads(line) for line in self.file.getvalue().splitlines()]


@pytest.mark.parametrize("stream", [False, True])
def test_every_job_has_one_last_message(stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "MAX_LINE", 500)
    prompts = ["fine", "Panic", "SystemExit", "KeyboardInterrupt", "MemoryError", "AssertionError", "object", "large"]
    rig = Rig()
    rig.runner.gate.set()
    for number, prompt in enumerate(prompts):
        rig.send(number, prompt, stream=stream)
    rig.worker.receive({"id": 99, "job": {"kind": "unknown"}, "client": "a", "timeout": 1.0, "stream": stream})
    messages = [message for message in rig.messages() if "piece" not in message]
    assert sorted(message["id"] for message in messages) == [*range(len(prompts)), 99]
    assert next(message for message in messages if message["id"] == 0) == {"id": 0, "result": "fine"}
    errors = {message["id"]: message["error"] for message in messages if message["id"]}
    assert [errors[number]["reason"] for number in range(1, 7)] == ["failed"] * 6
    assert errors[7]["reason"] == "invalid" and "bytes" in errors[7]["message"]
    assert "client's text" not in json.dumps(messages) and not rig.worker._callers


def test_a_job_that_is_cancelled_or_late_before_its_thread_is_free_does_not_begin() -> None:
    rig = Rig(threads=1)
    rig.send(0, "first")
    rig.send(1, "cancelled")
    rig.send(2, "late", timeout=0.01)
    rig.send(3, "last")
    rig.worker.receive({"id": 1, "cancel": True})
    rig.worker.receive({"id": 77, "cancel": True})  # has ended already
    time.sleep(0.05)
    rig.runner.gate.set()
    ends = {message.pop("id"): message for message in rig.messages()}
    assert ends[0] == {"result": "first"} and ends[3] == {"result": "last"}
    assert ends[1] == {"cancelled": True} and ends[2]["error"]["reason"] == "deadline"
    assert rig.runner.began == ["first", "last"]
