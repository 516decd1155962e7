"""The translation part of a validation: greedy translations of the first pairs, and their scores."""

from __future__ import annotations

from transduce.data.prepared import Prepared
from transduce.data.store import PairStore
from transduce.evaluation.metrics import METRICS
from transduce.inference.search.options import Request, SearchOptions
from transduce.inference.torch_engine import TorchEngine
from transduce.models.interface import AnyTransducer
from transduce.training.config import TrainingConfig
from transduce.training.reporter import Sample
from transduce.training.validation import NUM_SAMPLES, Predictions
from transduce.training.workers import Workers

DECODED_TOGETHER = 64
"""Pairs that one thread translates at a time."""
REPORTED = {
    "loss": ("bleu", "chrf"),
    "bleu": ("bleu", "chrf"),
    "exact_match": ("exact_match",),
    "chrf": ("chrf", "bleu"),
}
"""Metrics that are reported, by `training.metric`; any other is reported with exact match."""


class GreedyTranslations:
    """Translates the first pairs of a split and scores the translations."""

    def __init__(self, prepared: Prepared, split: PairStore, config: TrainingConfig) -> None:
        self.split, self.metric = split, config.metric
        self.source, self.target = prepared.source_tokenizer, prepared.target_tokenizer
        tags = prepared.report.tags
        self.prefix_length = len(prepared.target_tokenizer.target_prefix) if tags is None else tags.lengths[1]
        """Tokens that every target begins with."""
        self.decoded = range(min(len(split), config.decode_examples))

    def __call__(self, workers: Workers) -> Predictions:
        """Translate and score."""
        if not self.decoded:
            return Predictions()
        translations = self._translate(workers)
        texts = [self.split.text(row) for row in self.decoded]
        references = [[target] for _, target in texts]
        names = REPORTED.get(self.metric, (self.metric, "exact_match"))
        scores = {name: METRICS[name].score(translations, references) for name in names}
        samples = zip(texts[:NUM_SAMPLES], translations[:NUM_SAMPLES], strict=True)
        return Predictions(
            scores={name: score.value for name, score in scores.items()},
            samples=tuple(Sample(source, reference, translation) for (source, reference), translation in samples),
            signatures=tuple(str(score) for score in scores.values()),
        )

    def _prefix(self, row: int) -> list[int]:
        prefix: list[int] = self.split.target(row)[: self.prefix_length].tolist()
        return prefix

    def _translate(self, workers: Workers) -> list[str]:
        options = SearchOptions(method="greedy")
        requests = [
            Request(
                row, self.split.source(row).tolist(), options, self.split.target(row)[: self.prefix_length].tolist()
            )
            for row in self.decoded
        ]
        parts = -(-len(requests) // DECODED_TOGETHER)

        def translate(model: AnyTransducer, part: int) -> list[str]:
            engine = TorchEngine(model, self.source.specials, self.target.specials)
            return [self.target.decode(found[0].tokens) for found in engine.translate(requests[part::parts])]

        translations = [""] * len(requests)
        for part, found in enumerate(workers.each(translate, parts)):
            translations[part::parts] = found
        return translations
