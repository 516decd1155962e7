"""The text-encoding part of a validation: predictions for every example, and their scores."""

from __future__ import annotations

from typing import Any

from transduce.data.prepared import Prepared
from transduce.data.store import ExampleStore
from transduce.evaluation.labels import judge_answers
from transduce.inference.text_encoding import ReadingEngine, answers_to
from transduce.models.interface import EncoderModel
from transduce.tasks.text_encoding.config import TextEncodingConfig
from transduce.tasks.text_encoding.corpus import reference
from transduce.training.reporter import Sample
from transduce.training.validation import SAMPLES, Predictions
from transduce.training.workers import Workers

PREDICTED_TOGETHER = 256
"""Examples that one thread predicts at a time."""


class ExamplePredictions:
    """Predicts the labels, tags or answers of a split's examples and scores them."""

    def __init__(self, data: TextEncodingConfig, prepared: Prepared, split: ExampleStore) -> None:
        self.data, self.tokenizer, self.labels = data, prepared.source_tokenizer, prepared.report.labels or ()
        self.examples = [(record.texts, reference(record, data.objective)) for record in split.examples()]

    def __call__(self, workers: Workers) -> Predictions:
        """Predict and score."""
        predictions = self._predict(workers)
        if not predictions:
            return Predictions()
        references = [expected for _, expected in self.examples]
        shown = zip(self.examples[:SAMPLES], predictions[:SAMPLES], strict=False)
        return Predictions(
            scores=judge_answers(self.data.objective, references, predictions),
            samples=tuple(
                Sample(_one_line(text), _one_line(expected), _one_line(prediction))
                for (text, expected), prediction in shown
            ),
        )

    def _predict(self, workers: Workers) -> list[Any]:
        data, texts = self.data, [text for text, _ in self.examples]

        def predict(model: EncoderModel, part: int) -> list[Any]:
            some = texts[part * PREDICTED_TOGETHER : (part + 1) * PREDICTED_TOGETHER]
            labels, limits = self.labels, (data.max_length, data.stride, data.allow_no_answer)
            return answers_to(ReadingEngine(model, self.tokenizer, labels, *limits), data.objective, some)

        parts = -(-len(texts) // PREDICTED_TOGETHER)
        return [one for some in workers.each(predict, parts) for one in some] if parts else []


def _one_line(value: Any) -> str:
    return value if isinstance(value, str) else " ".join(value)
