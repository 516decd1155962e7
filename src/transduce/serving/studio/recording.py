"""From a request of the studio to the job that records a pass, and from an engine's pass to the client's."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

from transduce.config import Table
from transduce.inference.search.options import SearchOptions
from transduce.serving.api.requests import check_words
from transduce.serving.api.search_parameters import check_search
from transduce.serving.api.translate import own_language
from transduce.serving.backend import Backend
from transduce.serving.http import RequestError, check_texts, close
from transduce.serving.job import JobError, RecordJob, Result, Task
from transduce.serving.limits import Limits
from transduce.serving.operations import error_body
from transduce.serving.studio.passes import PassCache, RecordedPass
from transduce.serving.studio.requests import PassRequest, RecordRequest, StudioTranslateRequest

WITHOUT_EFFECT: dict[Task, tuple[str, ...]] = {
    "translation": ("second",),
    "language_modeling": ("second", "terms", "force", "prefix", "source_language", "target_language"),
    "text_encoding": ("terms", "force", "prefix", "forbid", "search", "source_language", "target_language"),
}
"""Parameters that are rejected because a model of the task would ignore them."""


def record_job(asked: RecordRequest, backend: Backend, limits: Limits, checkpoint: int | None = None) -> RecordJob:
    """Check a request and return its job; raises RequestError (413, 422)."""
    info = backend.info
    for name in WITHOUT_EFFECT[info.task]:
        if getattr(asked, name):
            raise RequestError(422, f"{name} has no effect on the model '{info.name}'; leave it out", name)
    check_texts([asked.text + (asked.second or "")], limits, "text")
    if not asked.text.strip():
        raise RequestError(422, "text is empty; give some words", "text")
    search = _search(asked, limits, info.task)
    for parameter in ("terms", "force", "forbid"):
        check_words(parameter, getattr(asked, parameter), limits)
    if asked.prefix is not None:
        check_words("prefix", [asked.prefix], limits)
    return RecordJob(
        text=asked.text,
        second=asked.second,
        source_language=own_language(info, "source", asked.source_language),
        target_language=own_language(info, "target", asked.target_language),
        search=search,
        prefix=asked.prefix,
        prefix_tokens=asked.prefix_tokens if isinstance(asked, PassRequest) else [],
        forbid=asked.forbid,
        terms=asked.terms,
        require=asked.force,
        split=asked.split if isinstance(asked, StudioTranslateRequest) else False,
        checkpoint=checkpoint,
    )


def _search(asked: RecordRequest, limits: Limits, task: Task) -> Table:
    """The search options of a request, within the limits; a recorded pass has one hypothesis."""
    search = {} if asked.search is None else asked.search.given()
    if search.get("n_best", 1) > 1:
        raise RequestError(
            422, "one hypothesis is recorded at a time; leave out n_best (the beam tree has all hypotheses)", "search"
        )
    base = SearchOptions() if task == "translation" else SearchOptions(method="greedy")
    options = check_search(search, limits, base)
    if (asked.terms or asked.force) and options.method != "beam":
        raise RequestError(422, f"required words need beam search, but the method is '{options.method}'", "search")
    return search


def keep_pass(
    passes: PassCache, model: tuple[int, Backend], job: RecordJob, recorded: Table, checkpoint: int | None
) -> RecordedPass:
    """Keep what an engine recorded."""
    index, backend = model
    return passes.add(backend.info.name, job, {"model": index, "checkpoint": checkpoint, **recorded})


async def events(
    pieces: AsyncGenerator[str | Result, None], passes: PassCache, model: tuple[int, Backend], job: RecordJob
) -> AsyncGenerator[str, None]:
    """Turn the pieces of a streamed job into events; passes get their ids here."""
    sentences: list[str] = []
    try:
        async for piece in pieces:
            if not isinstance(piece, str):
                yield json.dumps({"event": "done", "text": piece["text"]}, ensure_ascii=False)
                continue
            event: dict[str, Any] = json.loads(piece)
            if event["event"] == "segments":
                sentences = [segment["text"] for segment in event["segments"]]
            if event["event"] != "pass":
                yield json.dumps(event, ensure_ascii=False)
                continue
            number = event["segment"]
            own = job.but(text=sentences[number], prefix=None if number else job.prefix, split=False)
            kept = keep_pass(passes, model, own, event["pass"], None)
            yield f'{{"event": "pass", "segment": {number}, "pass": {kept.body.decode()}}}'
    except JobError as error:
        yield json.dumps({"event": "error", **error_body(error.status, str(error), None)}, ensure_ascii=False)
    finally:
        await close(pieces)
