"""The studio's jobs for a language model: a prompt and its continuation."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping

from transduce.config import Table
from transduce.inference.generator import EXAMPLE_PROMPTS
from transduce.inference.generator import Generator as TextGenerator
from transduce.inference.search.options import Hypothesis
from transduce.inference.subject import Subject
from transduce.inspection.replay import ForcedDecoding, decoding_steps, replay
from transduce.serving.job import InspectJob, RecordJob, Result
from transduce.serving.studio.inspector import (
    TOP,
    attention_json,
    check_length,
    feed_forward_of,
    kinds_of,
    settings_of,
    steps_json,
    with_seed,
)
from transduce.serving.studio.requests import ContinueRequest
from transduce.serving.studio.transducer_inspection import ComputeView, TransducerInspector, piece_event, searched

MAX_LENGTH = 20
"""Tokens to generate if a request does not say how many."""


class PromptInspector(TransducerInspector[TextGenerator]):
    """Records prompts with their continuations."""

    def describe(self) -> Table:
        kinds = kinds_of(self._loaded.model)
        return {
            "kinds": kinds,
            "feed_forward": feed_forward_of(self._loaded.model),
            "views": ["continue", *self._views_of_model(kinds)],
            "search": {"method": "greedy", "max_length": MAX_LENGTH},
            "settings": settings_of(self._loaded.model),
            "examples": list(EXAMPLE_PROMPTS),
        }

    def stream(self, job: RecordJob) -> Generator[str, None, Result]:
        generator = self._loaded
        job, subject = self._prepared(generator, job)
        yield json.dumps({"event": "segments", "before": "", "segments": [{"text": job.text, "after": ""}]})
        written = ""
        for tokens, found in generator.engine.stream(subject.request):
            if found is not None:
                recorded = self._pass(generator, job, subject, found)
                output = str(recorded["output"])
                if output.startswith(written) and len(output) > len(written):
                    yield json.dumps(piece_event(0, output[len(written) :]))
                yield json.dumps({"event": "pass", "segment": 0, "pass": recorded})
                return self._counted({"text": output})
            new = [*job.prefix_tokens, *tokens[len(subject.request.prefix) :]]
            text = generator.tokenizer.settled(generator.force(job.text, new).output) if new else ""
            if len(text) > len(written) and text.startswith(written):
                yield json.dumps(piece_event(0, text[len(written) :]))
                written = text
        raise AssertionError("a search ends with a hypothesis")

    def _source_length(self, text: str) -> int:
        return len(self._loaded.tokenizer.encode(text))

    def _prepared(self, generator: TextGenerator, job: RecordJob) -> tuple[RecordJob, Subject]:
        subject = generator.prepare(job.text, **self._options(generator, job))
        seeded = job.but(search=with_seed(job.search, subject.request.options))
        if seeded.search != job.search:
            subject = generator.prepare(job.text, **self._options(generator, seeded))
        check_length(len(subject.request.prefix) + (subject.request.options.max_length or 1) + 1)
        return seeded, subject

    def _options(self, loaded: TextGenerator, job: RecordJob) -> Table:
        return {"max_length": MAX_LENGTH, **job.search, "prefix": job.prefix_tokens, "forbid": job.forbid}

    def _pass(self, generator: TextGenerator, job: RecordJob, subject: Subject, best: Hypothesis) -> Table:
        new = best.tokens[len(subject.request.prefix) :]
        end = [generator.tokenizer.end] if best.ended else []
        written = [*job.prefix_tokens, *new, *end]
        forced = generator.force(job.text, written)
        with generator.engine.exclusive():
            hidden_TD = replay(generator.model, (), forced.read_tokens)
            steps = decoding_steps(generator.model, hidden_TD, forced.produced_tokens, TOP, generator.tokenizer.pieces)
        words = list(generator.tokenizer.words(list(forced.read_tokens)))
        return {
            **searched(job, subject, forced, best),
            "subject": "prompt",
            "source": job.text,
            "source_tokens": [],
            "source_pieces": list(forced.read_pieces),
            "source_words": words,
            "produced_words": words[1:],
            "steps": steps_json(steps),
            "links": [],
            "forced": len(job.prefix_tokens),
            "language_tokens": 0,
            "missing": [],
            "truncated": len(forced.read_tokens) < 1 + len(generator.tokenizer.encode(job.text)) + len(written) - 1,
            "generated": min(len(written), len(forced.read_tokens)),
            "attention": attention_json(generator.model, {"causal": (forced.read_pieces, forced.read_pieces)}),
        }

    def _force(self, loaded: TextGenerator, job: InspectJob) -> ForcedDecoding:
        read = tuple(job.target_tokens)
        pieces = tuple(loaded.tokenizer.pieces(read))
        return ForcedDecoding((), read, read[1:], (), pieces, pieces[1:], job.recorded.text)

    def _own_views(self) -> Mapping[str, ComputeView[TextGenerator]]:
        return {"continue": self._continue}

    def _continue(self, generator: TextGenerator, job: InspectJob) -> Table:
        asked = ContinueRequest.model_validate(job.parameters)
        recorded = self._record(generator, job.recorded.but(prefix_tokens=asked.tokens))["pass"]
        names = ("score", "log_probability", "ended")
        best = {"rank": 1, "text": recorded["output"], **{name: recorded[name] for name in names}}
        return {"hypotheses": [best], "pass": recorded}
