"""Models without a model: what the HTTP side is tested with."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
from collections.abc import AsyncIterator

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
    TranslateJob,
)

TRANSLATOR = ModelInfo(
    name="de-en",
    task="translation",
    engine="torch",
    precision="float32",
    parameters=1_000,
    source_languages=("de",),
    target_languages=("en",),
    default_source="de",
    default_target="en",
    architecture="transformer",
    max_source=512,
    max_target=512,
    inspection={"kinds": {"cross": {"layers": 1, "heads": 2}}, "views": ["attention", "head-summary"]},
)
GENERATOR = ModelInfo(name="gpt", task="language_modeling", engine="torch", precision="float32", parameters=2_000)
ENCODER = ModelInfo(
    name="bert", task="text_encoding", engine="torch", precision="float32", parameters=3_000, head="labels"
)


class FakeBackend:
    """Translates to upper case, continues a prompt with "and so on", predicts "good", embeds as (1, 2, 3).

    `gate`: jobs wait for this event. `error`: every job raises it; with `error_after`, a stream after so many pieces.
    `jobs`, `clients` and `cancelled` record what happened; without `keeps_jobs` the first two stay empty.
    """

    def __init__(self, info: ModelInfo = TRANSLATOR) -> None:
        self.info = info
        self.state: BackendState = "ready"
        self.full: str | None = None
        self.gate: asyncio.Event | None = None
        self.error: BaseException | None = None
        self.error_after = 0
        self.delay = 0.0
        self.keeps_jobs = True
        self.jobs: list[Job] = []
        self.clients: list[str] = []
        self.cancelled = 0
        self.running = 0
        self.counters = Statistics()

    async def run(self, job: Job, client: str, timeout: float) -> Result:
        self._note(job, client)
        try:
            await self._wait()
        finally:
            self.running -= 1
        if self.error is not None:
            raise self.error
        return self._result(job)

    async def stream(self, job: Job, client: str, timeout: float) -> AsyncIterator[str | Result]:
        self._note(job, client)
        try:
            await self._wait()
            if self.error is not None and not self.error_after:
                raise self.error
            result = self._result(job)
            if isinstance(job, RecordJob):
                for event in _events(job, result["pass"]):
                    yield json.dumps(event)
                yield {"text": result["pass"]["output"], **result}
                return
            best = (result.get("translations") or result["continuations"])[0][0]["text"]
            for number, word in enumerate(best.split(" ")):
                if self.error is not None and number == self.error_after:
                    raise self.error
                yield word if number == 0 else f" {word}"
                await self._wait()
            yield result
        except GeneratorExit:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1

    def statistics(self) -> Statistics:
        return self.counters

    def _note(self, job: Job, client: str) -> None:
        self.running += 1
        if self.keeps_jobs:
            self.jobs.append(job)
            self.clients.append(client)

    async def _wait(self) -> None:
        try:
            await asyncio.sleep(self.delay)
            if self.gate is not None:
                await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    def _result(self, job: Job) -> Result:
        n_best = getattr(job, "search", {}).get("n_best", 1)
        match job:
            case TranslateJob():
                return {
                    "translations": [
                        [_translation(text, rank, job.align) for rank in range(n_best)] for text in job.texts
                    ],
                    "source_tokens": sum(len(text.split()) for text in job.texts),
                    "target_tokens": sum(len(text.split()) for text in job.texts) * n_best,
                }
            case GenerateJob():
                one = {"text": " and so on", "score": -0.5, "log_probability": -1.5, "tokens": 3, "ended": True}
                return {
                    "continuations": [[one] * n_best for _ in job.prompts],
                    "prompt_tokens": sum(len(prompt.split()) for prompt in job.prompts),
                    "written_tokens": 3 * n_best * len(job.prompts),
                }
            case PredictJob():
                return {"predictions": [{"label": "good", "probability": 0.75} for _ in job.texts], "tokens": 5}
            case EmbedJob():
                vector = base64.b64encode(struct.pack("<3f", 1.0, 2.0, 3.0)).decode()
                return {"vectors": [vector for _ in job.texts], "dimensions": 3, "tokens": 7}
            case RecordJob():
                return {"pass": _pass(job), "source_tokens": 3, "target_tokens": 3}
            case InspectJob(view="attention"):
                zeros = base64.b64encode(bytes(2 * 2 * 2 * 3)).decode()
                return {"value": {"shape": [2, 2, 3], "shares16": zeros}, "tokens": 6}
            case InspectJob(view="continue"):
                return {"value": {"hypotheses": [], "pass": _pass(job.recorded)}, "tokens": 6}
            case InspectJob():
                return {"value": {"view": job.view, "parameters": job.parameters}, "tokens": 6}
        raise JobError("invalid", f"unknown job {job}")


def _pass(job: RecordJob) -> Result:
    """A recorded pass of two source and two target tokens."""
    return {
        "subject": "translation",
        "source": job.text,
        "output": job.text.upper(),
        "source_tokens": [5, 6, 2],
        "read_tokens": [1, 7],
        "produced_tokens": [7, 2],
        "attention": {"cross": {"layers": 1, "heads": 2}},
    }


def _events(job: RecordJob, recorded: Result) -> list[Result]:
    """What is streamed: one segment, one piece, its pass."""
    return [
        {"event": "segments", "before": "", "segments": [{"text": job.text, "after": ""}]},
        {"event": "piece", "segment": 0, "text": recorded["output"], "certain": True},
        {"event": "pass", "segment": 0, "pass": recorded},
    ]


def _translation(text: str, rank: int, align: bool) -> dict[str, object]:
    links = [[place, place] for place in range(len(text.split()))] if align else None
    return {"text": text.upper() + "'" * rank, "score": -0.25 - rank, "ended": True, "missing": [], "links": links}
