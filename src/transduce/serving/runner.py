"""Carries out jobs with a loaded model: text in, plain values out. Many threads call a runner at a time."""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections.abc import Generator as Pieces
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from transduce.config import Table
from transduce.inference.ctranslate2.engine import CTranslate2Engine, nearest_options
from transduce.inference.generator import Continuation, Generator
from transduce.inference.search.options import Hypothesis, Request
from transduce.inference.search.search import Search
from transduce.inference.segment import Translation, TranslationCounts, TranslationOptions
from transduce.inference.text_encoder import Text, TextEncoder, as_json
from transduce.inference.translator import Translator
from transduce.serving.backend import Statistics
from transduce.serving.caller import CALLER, ScheduledEngine, WindowedEngine, results_of
from transduce.serving.job import (
    EmbedJob,
    GenerateJob,
    InspectJob,
    Job,
    JobError,
    PredictJob,
    RecordJob,
    Result,
    TranslateJob,
)
from transduce.serving.scheduler import Capacity, Scheduler
from transduce.serving.search_scheduler import SearchScheduler, reserved_tokens
from transduce.serving.studio.inspector import Inspector, LoadedCheckpoints
from transduce.serving.studio.prompt_inspection import PromptInspector
from transduce.serving.studio.text_inspection import TextInspector
from transduce.serving.studio.translation_inspection import TranslationInspector
from transduce.serving.window_scheduler import WindowScheduler
from transduce.text.constraint import DEFAULT_PLACEHOLDERS, Constraints


class Runner(ABC):
    """One model and its schedulers."""

    schedulers: list[Scheduler[Any]]
    inspector: Inspector[Any]
    """Carries out the jobs of the studio."""

    def run(self, job: Job) -> Result:
        """Carry out a job for the present caller; raises JobError and TransduceError."""
        if isinstance(job, RecordJob):
            return self.inspector.record(job)
        return self.inspector.inspect(job) if isinstance(job, InspectJob) else self._run(job)

    def stream(self, job: Job) -> Pieces[str, None, Result]:
        """Carry out a job of one text, yield the text piece by piece, and return the result."""
        return self.inspector.stream(job) if isinstance(job, RecordJob) else self._stream(job)

    @abstractmethod
    def _run(self, job: Job) -> Result:
        """Carry out a job of the model's task."""

    def _stream(self, job: Job) -> Pieces[str, None, Result]:
        raise JobError("invalid", f"the model cannot stream the job '{job.kind}'")
        yield  # makes it a generator

    def _inspect_with(self, inspector: Inspector[Any]) -> None:
        self.inspector = inspector
        self.schedulers.append(inspector.scheduler)

    def statistics(self) -> Statistics:
        """The counters of all schedulers together."""
        return Statistics.sum([scheduler.statistics() for scheduler in self.schedulers])

    def close(self) -> None:
        """Fail what is left."""
        for scheduler in self.schedulers:
            scheduler.close()


class TranslatorRunner(Runner):
    """Translations, with PyTorch's requests in shared steps and CTranslate2's in shared batches."""

    def __init__(
        self, translator: Translator, capacity: Capacity, checkpoints: LoadedCheckpoints | None = None
    ) -> None:
        self._translator = translator
        translator.images = None  # no path of a request reaches the file system
        search = Search(translator.model, translator.source.specials, translator.target.specials)
        scheduler = SearchScheduler(search, capacity)
        self.schedulers = [scheduler]
        translator.engine.schedule(ScheduledEngine(scheduler), lambda engine: self._windowed(engine, capacity))
        self._inspect_with(TranslationInspector(translator, capacity, checkpoints))

    def _windowed(self, engine: CTranslate2Engine, capacity: Capacity) -> WindowedEngine:
        def translate(requests: Sequence[Request]) -> list[list[Hypothesis]]:
            """Several jobs number their requests alike."""
            return engine.translate([replace(request, id=number) for number, request in enumerate(requests)])

        windows = WindowScheduler(
            translate, reserved_tokens, _kind_of_request, _tokens, capacity, workers=engine.parallelism.workers
        )
        self.schedulers.append(windows)
        return WindowedEngine(windows)

    def _run(self, job: Job) -> Result:
        assert isinstance(job, TranslateJob)
        translator, options = self._translator, self._options(job)
        languages = [translator.languages.prefix(job.target_language, job.source_language)] * len(job.texts)
        found = translator.translate_lines(job.texts, options, TranslationCounts(), languages)
        return self._result([[_translation(one) for one in several] for several in found])

    def _stream(self, job: Job) -> Pieces[str, None, Result]:
        assert isinstance(job, TranslateJob)
        if job.placeholders:
            raise JobError("invalid", "placeholders cannot be checked in a stream; leave out one of them")
        translator, options = self._translator, self._options(job)
        languages = translator.languages.prefix(job.target_language, job.source_language)
        (text,) = job.texts
        whole = yield from translator.stream(text, options.search, options.constraints, job.split, languages)
        if job.align:
            (links,) = translator.align([(text, whole.text)], languages)
            whole = replace(whole, links=tuple(links or ()))
        return self._result([[_translation(whole)]])

    def _options(self, job: TranslateJob) -> TranslationOptions:
        search = self._translator.options(**{"n_best": 1, **job.search})
        if self._translator.engine.has_ctranslate2:
            search = nearest_options(search, job.search)
        constraints = Constraints(
            prefixes=job.prefix or (),
            forbid=job.forbid,
            terms=job.terms,
            keep=DEFAULT_PLACEHOLDERS if job.placeholders else (),
            stop_at=job.stop,
        )
        return TranslationOptions(search, self._translator.constraints(constraints), job.split, job.align)

    def _result(self, translations: list[list[Table]]) -> Result:
        caller = CALLER.get()
        return {"translations": translations, "source_tokens": caller.read, "target_tokens": caller.written}


class GeneratorRunner(Runner):
    """Continuations of prompts."""

    def __init__(self, generator: Generator, capacity: Capacity, checkpoints: LoadedCheckpoints | None = None) -> None:
        self._generator = generator
        specials = generator.tokenizer.specials
        scheduler = SearchScheduler(Search(generator.model, specials, specials), capacity)
        self.schedulers = [scheduler]
        generator.engine = ScheduledEngine(scheduler)
        self._inspect_with(PromptInspector(generator, capacity, checkpoints))

    def _run(self, job: Job) -> Result:
        assert isinstance(job, GenerateJob)
        generator, search = self._generator, self._generator.options(**{"n_best": 1, **job.search})
        found = generator.continue_prompts(job.prompts, search, generator.constraints(job.forbid, job.stop))
        return self._result(job, found)

    def _stream(self, job: Job) -> Pieces[str, None, Result]:
        assert isinstance(job, GenerateJob)
        generator, (prompt,) = self._generator, job.prompts
        search = generator.options(**{"n_best": 1, **job.search})
        whole = yield from generator.stream(prompt, search, generator.constraints(job.forbid, job.stop))
        return self._result(job, [[whole]])

    def _result(self, job: GenerateJob, found: Sequence[Sequence[Continuation]]) -> Result:
        encode = self._generator.tokenizer.encode
        return {
            "continuations": [[vars(one) for one in several] for several in found],
            "prompt_tokens": sum(len(encode(prompt)) for prompt in job.prompts),
            "written_tokens": sum(one.tokens for several in found for one in several),
        }


@dataclass(frozen=True)
class EncoderWork:
    """One text for a text encoder."""

    text: Text
    tokens: int
    pool: str | None = None
    """How its vector is computed; None for the head's prediction."""
    normalize: bool = False


class EncoderRunner(Runner):
    """Predictions and vectors of texts."""

    def __init__(self, encoder: TextEncoder, capacity: Capacity, checkpoints: LoadedCheckpoints | None = None) -> None:
        self._encoder = encoder
        self._scheduler: WindowScheduler[EncoderWork] = WindowScheduler(
            self._compute,
            cost=lambda work: work.tokens,
            kind=lambda work: (work.pool, work.normalize),
            tokens=lambda work, _: (work.tokens, 0),
            capacity=capacity,
        )
        self.schedulers = [self._scheduler]
        self._inspect_with(TextInspector(encoder, capacity, checkpoints))

    def _run(self, job: Job) -> Result:
        assert isinstance(job, PredictJob | EmbedJob)
        pool, normalize = (job.pool, job.normalize) if isinstance(job, EmbedJob) else (None, False)
        works = [EncoderWork(text, self._tokens(text), pool, normalize) for text in job.texts]
        found, tokens = results_of(self._scheduler, works), sum(work.tokens for work in works)
        if isinstance(job, PredictJob):
            return {"predictions": found, "tokens": tokens}
        vectors = [base64.b64encode(np.asarray(vector, "<f4").tobytes()).decode() for vector in found]
        return {"vectors": vectors, "dimensions": len(found[0]), "tokens": tokens}

    def _tokens(self, text: Text) -> int:
        texts = [text] if isinstance(text, str) else text
        return 2 + sum(len(self._encoder.tokenizer.encode(one)) for one in texts)

    def _compute(self, works: Sequence[EncoderWork]) -> list[Any]:
        texts, first = [work.text for work in works], works[0]
        if first.pool is None:
            return [as_json(one) for one in self._encoder.predict(texts)]
        return list(self._encoder.embed(texts, first.pool, first.normalize))


def _tokens(request: Request, found: Sequence[Hypothesis]) -> tuple[int, int]:
    """Tokens that were read and written for a request."""
    return len(request.source), sum(len(one.tokens) for one in found)


def _kind_of_request(request: Request) -> Hashable:
    """CTranslate2 searches the requests of a batch with the same options."""
    return request.options, tuple(map(tuple, request.forbidden))


def _translation(one: Translation) -> Table:
    return {
        "text": one.text,
        "score": one.score,
        "ended": one.ended,
        "missing": list(one.missing),
        "links": [list(link) for link in one.links],
    }
