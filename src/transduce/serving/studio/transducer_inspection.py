"""Views of a pass that translation models and language models share: they replay its tokens on a twin."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import TypeVar

from transduce.config import Table
from transduce.errors import SettingsError
from transduce.inference.generator import Generator as TextGenerator
from transduce.inference.translator import Translator
from transduce.inspection.arrays import share_array
from transduce.inspection.component import all_heads
from transduce.inspection.embeddings import input_embeddings
from transduce.inspection.record import layer_attention
from transduce.inspection.replay import ForcedDecoding
from transduce.models.gpt import Gpt
from transduce.models.transformer import Transformer
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
    """Computes views of a model that writes text."""

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
