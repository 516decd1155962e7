"""What translation models and language models share: recording a pass, and views that replay its tokens on a twin."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import TypeVar

from transduce.config import Table
from transduce.errors import SettingsError
from transduce.inference.generator import Generator as TextGenerator
from transduce.inference.search.options import Hypothesis
from transduce.inference.subject import Subject
from transduce.inference.translator import Translator
from transduce.inspection.arrays import share_array
from transduce.inspection.component import all_heads
from transduce.inspection.embeddings import input_embeddings
from transduce.inspection.record import layer_attention
from transduce.inspection.replay import ForcedDecoding
from transduce.models.gpt import Gpt
from transduce.models.transformer import Transformer
from transduce.serving.caller import CALLER
from transduce.serving.job import InspectJob, RecordJob, Result
from transduce.serving.studio.inspector import (
    Inspector,
    check_array,
    check_length,
    kinds_of,
)
from transduce.serving.studio.requests import (
    AttentionRequest,
    AttributionRequest,
    HeadSummaryTexts,
    InterventionRequest,
    LensRequest,
    NeuronRequest,
)

WriterT = TypeVar("WriterT", bound=Translator | TextGenerator)
ComputeView = Callable[[WriterT, InspectJob], Table]


SEARCHING = ("beam-tree", "continue", "intervention", "patch")
"""Views that search again, with two models or a wide beam, and cost accordingly."""


class TransducerInspector(Inspector[WriterT]):
    """Records passes of a model that generates text, and computes views of them."""

    @abstractmethod
    def _source_length(self, text: str) -> int:
        """Return the number of tokens of a text to translate or continue."""

    @abstractmethod
    def _prepared(self, loaded: WriterT, job: RecordJob) -> tuple[RecordJob, Subject]:
        """Return the job with a seed where it samples, and what is searched for it."""

    @abstractmethod
    def _pass(self, loaded: WriterT, job: RecordJob, subject: Subject, best: Hypothesis) -> Table:
        """Return the pass of a finished search."""

    @abstractmethod
    def _force(self, loaded: WriterT, job: InspectJob) -> ForcedDecoding:
        """Return what is replayed of a recorded pass."""

    @abstractmethod
    def _options(self, loaded: WriterT, job: RecordJob) -> Table:
        """Return the options with which a pass was recorded, as the methods of the model take them."""

    @abstractmethod
    def _own_views(self) -> Mapping[str, ComputeView[WriterT]]:
        """Views that only this task has."""

    def _views_of_model(self, kinds: Table) -> list[str]:
        """The views that a model has besides those of its task; `kinds` are its kinds of attention."""
        model = self._loaded.model
        views = ["attribution"]
        views += ["attention", "head-summary"] if kinds else []
        if all_heads(model):
            views += ["neuron", "intervention"]
        return [*views, "lens", "embeddings"] if isinstance(model, Transformer | Gpt) else views

    def record(self, job: RecordJob) -> Result:
        if job.checkpoint is None:
            return self._record(self._loaded, job)
        tokens = self._source_length(job.text)
        check_length(tokens)
        return self._admitted(2 * tokens, lambda: self._record(self._model(job), job))

    def _record(self, loaded: WriterT, job: RecordJob) -> Result:
        job, subject = self._prepared(loaded, job)
        *_, (_, best) = loaded.engine.stream(subject.request)
        assert best is not None
        return self._counted({"pass": self._pass(loaded, job, subject, best)})

    def _counted(self, result: Result) -> Result:
        """Add the tokens that were read and generated for this caller."""
        caller = CALLER.get()
        return {**result, "source_tokens": caller.read, "target_tokens": caller.written}

    def inspect(self, job: InspectJob) -> Result:
        views: dict[str, ComputeView[WriterT]] = {
            "attention": self._attention,
            "neuron": self._neuron,
            "lens": self._lens,
            "attribution": self._attribution,
            "intervention": self._intervention,
            "embeddings": self._embeddings,
            "head-summary": self._head_summary,
            **self._own_views(),
        }
        if job.view not in views:
            raise SettingsError(f"this model has no view '{job.view}'; its views are in the list of models")
        check_length(max(len(job.source_tokens), len(job.target_tokens)))
        tokens = 1 + len(job.source_tokens) + len(job.target_tokens)
        tokens += sum(map(len, job.parameters.get("texts", ()))) // 2
        rows = 2 * int(job.recorded.search.get("beam_size", 4)) if job.view in SEARCHING else 1
        value = self._admitted(rows * tokens, lambda: views[job.view](self._model(job.recorded), job))
        return {"value": value, "tokens": tokens}

    def _attention(self, loaded: WriterT, job: InspectJob) -> Table:
        asked = AttentionRequest.model_validate(job.parameters)
        forced = self._force(loaded, job)
        rows, columns = len(forced.read_tokens), len(forced.source_tokens)
        rows = columns if asked.kind == "encoder" else rows
        columns = rows if asked.kind in ("decoder", "causal") else columns
        check_array(kinds_of(loaded.model).get(asked.kind, {"heads": 1})["heads"], rows, columns)
        return share_array(layer_attention(loaded.model, forced, asked.kind, asked.layer))

    def _neuron(self, loaded: WriterT, job: InspectJob) -> Table:
        asked = NeuronRequest.model_validate(job.parameters)
        forced = self._force(loaded, job)
        return loaded.neuron_view(forced, asked.kind, asked.layer, asked.head, asked.row).to_json()

    def _lens(self, loaded: WriterT, job: InspectJob) -> Table:
        asked = LensRequest.model_validate(job.parameters)
        return loaded.logit_lens(self._force(loaded, job), asked.top).to_json()

    def _attribution(self, loaded: WriterT, job: InspectJob) -> Table:
        asked = AttributionRequest.model_validate(job.parameters)
        found = loaded.attribute(
            self._force(loaded, job), asked.position, asked.instead_of, token=asked.token, method=asked.method
        )
        return found.to_json()

    def _intervention(self, loaded: WriterT, job: InspectJob) -> Table:
        asked = InterventionRequest.model_validate(job.parameters)
        options = self._options(loaded, job.recorded)
        return loaded.ablate(job.recorded.text, **asked.parts(), **options).to_json()

    def _embeddings(self, loaded: WriterT, job: InspectJob) -> Table:
        return input_embeddings(loaded.model, self._force(loaded, job)).to_json()

    def _head_summary(self, loaded: WriterT, job: InspectJob) -> Table:
        asked = HeadSummaryTexts.model_validate(job.parameters)
        return loaded.head_summary(asked.texts).to_json()


def piece_event(segment: int, text: str) -> Table:
    """Return the event of text that was generated and will not change."""
    return {"event": "piece", "segment": segment, "text": text, "certain": True}


def searched(job: RecordJob, subject: Subject, forced: ForcedDecoding, best: Hypothesis) -> Table:
    """Return what every pass of a search has: the tokens that were read and produced, and how they were found."""
    return {
        "output": forced.output,
        "read_tokens": list(forced.read_tokens),
        "read_pieces": list(forced.read_pieces),
        "produced_tokens": list(forced.produced_tokens),
        "produced_pieces": list(forced.produced_pieces),
        "score": best.score,
        "log_probability": best.log_probability,
        "ended": best.ended,
        "search": subject.request.options.to_table(),
        "seed": job.search.get("seed"),
    }
