"""The studio's jobs for a translation model."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence

from transduce.config import Table
from transduce.errors import SettingsError
from transduce.inference.search.options import Hypothesis
from transduce.inference.subject import Subject
from transduce.inference.translator import Translator
from transduce.inspection.replay import ForcedDecoding, next_tokens
from transduce.inspection.tape import has_tape
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
from transduce.serving.studio.requests import BeamTreeRequest, ContinueRequest, PatchRequest
from transduce.serving.studio.transducer_inspection import ComputeView, TransducerInspector, piece_event, searched
from transduce.text.constraint import Constraints
from transduce.text.sentence import joint

MAX_SEGMENTS = 128
"""Sentences of one text."""


class TranslationInspector(TransducerInspector[Translator]):
    """Records translations."""

    def describe(self) -> Table:
        translator, model = self._loaded, self._loaded.model
        kinds = kinds_of(model)
        views = ["beam-tree", "continue"]
        if model.image_size is None and not has_tape(model):
            views += self._views_of_model(kinds)
        if "intervention" in views:
            views.append("patch")
        return {
            "kinds": kinds,
            "feed_forward": feed_forward_of(model),
            "views": views,
            "search": translator.defaults.to_table(),
            "settings": settings_of(model),
            "examples": [],
        }

    def stream(self, job: RecordJob) -> Generator[str, None, Result]:
        translator = self._loaded
        leading, segments = translator.cut(job.text, job.split)
        if len(segments) > MAX_SEGMENTS:
            raise SettingsError(f"the text has {len(segments):,} sentences; the studio takes {MAX_SEGMENTS} at a time")
        if job.require and len(segments) > 1:
            raise SettingsError("a forced word needs a text of one sentence; choose the sentence and force it there")
        listed = [{"text": sentence, "after": space} for sentence, space in segments]
        yield json.dumps({"event": "segments", "before": leading, "segments": listed})
        whole, before, space = leading, "", ""
        for number, (sentence, behind) in enumerate(segments):
            one = job.but(text=sentence, prefix=None if number else job.prefix, split=False)
            found = yield from self._stream_one(number, one)
            gap = joint(before, space, found) if number else ""
            whole, before, space = whole + gap + found, found or before, behind
        return self._counted({"text": whole + space})

    def _stream_one(self, number: int, job: RecordJob) -> Generator[str, None, str]:
        """Translate one segment: yield its text as it becomes certain, then the pass; returns the translation."""
        translator = self._loaded
        job, subject = self._prepared(translator, job)
        written = ""
        for tokens, found in translator.engine.stream(subject.request):
            if found is not None:
                recorded = self._pass(translator, job, subject, found)
                piece = _remaining(written, recorded["output"])
                if piece:
                    yield json.dumps(piece_event(number, piece))
                yield json.dumps({"event": "pass", "segment": number, "pass": recorded})
                return str(recorded["output"])
            text = translator.target.settled(translator.target.decode(tokens))
            if len(text) > len(written) and text.startswith(written):
                yield json.dumps(piece_event(number, text[len(written) :]))
                written = text
        raise AssertionError("a search ends with a hypothesis")

    def _source_length(self, text: str) -> int:
        return len(self._loaded.source.encode(text))

    def _prepared(self, translator: Translator, job: RecordJob) -> tuple[RecordJob, Subject]:
        job = job.but(search=with_seed(job.search, translator.options(**job.search)))
        subject = translator.prepare(job.text, **self._options(translator, job))
        check_length(max(len(subject.request.source) + 1, len(subject.request.prefix) + 1))
        return job, subject

    def _options(self, translator: Translator, job: RecordJob) -> Table:
        """The options of `Translator.prepare` for a job."""
        languages = translator.languages.prefix(job.target_language, job.source_language)
        prefix: str | list[int] = job.prefix or ""
        if job.prefix_tokens:
            own = list(languages.target)
            given = job.prefix_tokens
            prefix = given[len(own) :] if given[: len(own)] == own else given
        constraints = Constraints(forbid=job.forbid, terms=job.terms, require=job.require)
        return {"prefix": prefix, "constraints": constraints, "languages": languages, **job.search}

    def _pass(self, translator: Translator, job: RecordJob, subject: Subject, best: Hypothesis) -> Table:
        forced = subject.force(best)
        check_length(len(forced.read_tokens))
        with translator.engine.exclusive():
            steps = next_tokens(
                translator.model, forced.source_tokens, forced.target_tokens, TOP, translator.target.pieces
            )
        words = translator.target.words(best.tokens)
        links: Sequence[tuple[int, int]] | None = None
        if translator.model.attends:
            (links,) = translator.align_tokens([(subject.request.source, subject.words)], [(best.tokens, words)])
        constraints = translator.constraints(Constraints(terms=job.terms, require=job.require))
        decoder_rows = forced.produced_pieces
        return {
            **searched(job, subject, forced, best),
            "subject": "translation",
            "source": forced.source,
            "source_tokens": list(forced.source_tokens),
            "source_pieces": list(forced.source_pieces),
            "source_words": [*subject.words, None],
            "produced_words": [*words, *([None] if best.ended else [])],
            "steps": steps_json(steps),
            "links": [list(link) for link in links or ()],
            "forced": len(subject.request.prefix),
            "language_tokens": subject.language_tokens,
            "missing": constraints.missing(job.text, forced.output) if constraints.has_terms else [],
            "truncated": subject.text != job.text,
            "generated": 0,
            "attention": attention_json(
                translator.model,
                {
                    "encoder": (forced.source_pieces, forced.source_pieces),
                    "decoder": (decoder_rows, forced.read_pieces),
                    "cross": (decoder_rows, forced.source_pieces),
                },
            ),
        }

    def _force(self, loaded: Translator, job: InspectJob) -> ForcedDecoding:
        source, target = job.source_tokens, job.target_tokens
        pieces = loaded.target.pieces(target)
        return ForcedDecoding(
            source_tokens=tuple(source),
            read_tokens=tuple(target[:-1]),
            produced_tokens=tuple(target[1:]),
            source_pieces=tuple(loaded.source.pieces(source)),
            read_pieces=tuple(pieces[:-1]),
            produced_pieces=tuple(pieces[1:]),
            source=job.recorded.text,
            output=loaded.target.decode(target[1:-1] if target[-1] == loaded.target.end else target[1:]),
        )

    def _own_views(self) -> Mapping[str, ComputeView[Translator]]:
        return {"beam-tree": self._beam_tree, "continue": self._continue, "patch": self._patch}

    def _beam_tree(self, translator: Translator, job: InspectJob) -> Table:
        asked = BeamTreeRequest.model_validate(job.parameters)
        options = self._options(translator, job.recorded.but(**asked.changes(job.recorded)))
        return translator.beam_tree(job.recorded.text, **options).to_json()

    def _continue(self, translator: Translator, job: InspectJob) -> Table:
        asked = ContinueRequest.model_validate(job.parameters)
        recorded = job.recorded.but(prefix=None, prefix_tokens=asked.tokens)
        options = self._options(translator, recorded)
        found = translator.continue_from(job.recorded.text, **{**options, "n_best": asked.n_best})
        return {"hypotheses": [one.to_json() for one in found], "pass": self._record(translator, recorded)["pass"]}

    def _patch(self, translator: Translator, job: InspectJob) -> Table:
        asked = PatchRequest.model_validate(job.parameters)
        check_length(len(translator.source.encode(asked.other)))
        found = translator.patch(
            job.recorded.text,
            asked.other,
            asked.where,
            words=asked.words,
            tokens=asked.tokens,
            steps=asked.steps,
            **self._options(translator, job.recorded),
        )
        return found.to_json()


def _remaining(written: str, whole: str) -> str:
    """What is left to show of a translation."""
    return whole[len(written) :] if whole.startswith(written) else ""
