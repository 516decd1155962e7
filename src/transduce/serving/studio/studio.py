"""What the routes of the studio share: the models by index, recorded passes, runs."""

from __future__ import annotations

import base64
import json

from starlette.requests import Request

from transduce import __version__
from transduce.config import Table
from transduce.serving.backend import Backend
from transduce.serving.http import RequestError, check_texts, parse, run_job
from transduce.serving.job import InspectJob, RecordJob
from transduce.serving.service import Service
from transduce.serving.studio.passes import PassCache, RecordedPass, ShareArray
from transduce.serving.studio.recording import keep_pass
from transduce.serving.studio.requests import AttentionRequest, HeadSummaryTexts
from transduce.serving.studio.runs import Runs, demo_json

MAX_SAMPLE = 32
"""Examples on which heads are measured unless a request has texts."""


class Studio:
    """What all routes share."""

    def __init__(self, service: Service) -> None:
        self.service, self.limits = service, service.limits
        self.passes = PassCache(service.limits.max_pass_bytes)
        self.runs = Runs(service.folders)

    @property
    def backends(self) -> list[Backend]:
        """The models, in the order in which the server was given them."""
        return list(self.service.backends.values())

    def backend(self, index: int) -> Backend:
        """Return a model by its index; raises RequestError (422)."""
        if index >= len(self.backends):
            raise RequestError(422, f"no model {index}; there are models 0 to {len(self.backends) - 1}", "model")
        return self.backends[index]

    def models(self) -> Table:
        """What the page is told of the models."""
        return {
            "version": __version__,
            "models": [self._model(index, backend) for index, backend in enumerate(self.backends)],
        }

    def _model(self, index: int, backend: Backend) -> Table:
        info = backend.info
        return {
            "index": index,
            "name": info.name,
            "task": info.task,
            "architecture": info.architecture,
            "parameters": info.parameters,
            "engine": info.engine,
            "head": info.head,
            "kinds": info.inspection.get("kinds", {}),
            "feed_forward": info.inspection.get("feed_forward", {}),
            "views": info.inspection.get("views", []),
            "search": info.inspection.get("search", {}),
            "settings": info.inspection.get("settings", {}),
            "source_languages": list(info.source_languages),
            "target_languages": list(info.target_languages),
            "default_source": info.default_source,
            "default_target": info.default_target,
            "max_source": info.max_source,
            "max_target": info.max_target,
            "examples": self.runs.examples(info.name) or info.inspection.get("examples", []),
            "run": self.runs.of_model(info.name),
        }

    async def record(self, request: Request, job: RecordJob, index: int, checkpoint: int | None) -> RecordedPass:
        """Record a pass and keep it."""
        backend = self.backend(index)
        result = await run_job(request, self.service, backend, job)
        return keep_pass(self.passes, (index, backend), job, result["pass"], checkpoint)

    def derive(self, parent: RecordedPass, job: RecordJob, recorded: Table) -> Table:
        """Keep a pass that a view of another one gave, and return it as the client gets it."""
        given = json.loads(parent.body)
        model = given["model"], self.service.backends[parent.model]
        kept: Table = json.loads(keep_pass(self.passes, model, job, recorded, given["checkpoint"]).body)
        return kept

    def head_summary(self, backend: Backend, texts: list[str] | None) -> InspectJob:
        """The job for a sample of texts, by default the examples of the model."""
        info = backend.info
        if "head-summary" not in info.inspection.get("views", ()):
            raise RequestError(
                422, f"the model '{info.name}' has no head summary; it is for models with heads", "model"
            )
        sample = texts or self.runs.examples(info.name) or info.inspection.get("examples", [])
        if not sample:
            raise RequestError(422, f"the model '{info.name}' has no examples; give some texts", "texts")
        check_texts(sample, self.limits, "texts")
        checked = parse(HeadSummaryTexts, {"texts": sample[:MAX_SAMPLE] if texts is None else sample}, self.limits)
        return InspectJob(view="head-summary", recorded=RecordJob(text=""), parameters=checked.model_dump())

    def demo(self) -> Table:
        """The pronoun demo."""
        found = self.runs.demo()
        names = list(self.service.backends)
        if found is None or found[0] not in names:
            return {"available": False}
        return demo_json(names.index(found[0]), found[1])

    async def inspect(self, request: Request, recorded: RecordedPass, job: InspectJob) -> Table:
        """Compute a view of a pass."""
        backend = self.service.backends[recorded.model]
        found: Table = (await run_job(request, self.service, backend, job))["value"]
        return found

    async def layer(self, request: Request, recorded: RecordedPass, asked: AttentionRequest) -> ShareArray:
        """Return the attention of one layer, from the cache or from an engine."""
        place = asked.kind, asked.layer
        if place not in recorded.layers:
            job = recorded.inspect("attention", asked.model_dump())
            found = await self.inspect(request, recorded, job)
            array = ShareArray(tuple(found["shape"]), base64.b64decode(found["shares16"]))
            recorded.layers[place] = array
            self.passes.measure(recorded)
            return array
        return recorded.layers[place]
