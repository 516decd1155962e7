"""Checking a model on held-out pairs: loss, perplexity, accuracy, and the score of real translations; of plain text,
bits per byte, and how the model goes on.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from transduce.data.batches import collate, validation_batches
from transduce.data.blocks import Blocks
from transduce.data.config import PlainTextConfig
from transduce.data.prepared import Prepared
from transduce.data.store import PairStore
from transduce.evaluation.metrics import METRICS, bits_per_byte, perplexity
from transduce.inference.search.options import Request, SearchOptions
from transduce.inference.torch_engine import TorchEngine
from transduce.models.interface import AnyTransducer
from transduce.training.config import TrainingConfig
from transduce.training.continuation import continuations
from transduce.training.feed import corruption_of
from transduce.training.objective import batch_loss
from transduce.training.reporter import Sample, Validation
from transduce.training.workers import Workers

SAMPLES = 3
DECODED_TOGETHER = 64
"""Pairs that one thread translates at a time."""
DECODED = {"bleu": ("bleu", "chrf"), "exact_match": ("exact_match",), "chrf": ("chrf", "bleu")}
"""Which metrics to report beside the one that chooses; the others stand alone with exact match."""


class Validator:
    """Validates one model on one split, always the same pairs in the same order."""

    def __init__(self, workers: Workers, prepared: Prepared, store: PairStore, config: TrainingConfig) -> None:
        corruption = corruption_of(prepared, config.seed)
        if corruption is not None:  # the same spans every time
            rows = np.arange(len(store), dtype=np.int64)
            store = PairStore.of(*corruption.pairs(store.blocks, rows, "validation", 0))
        self.workers, self.store, self.config = workers, store, config
        self.source, self.target = prepared.source_tokenizer, prepared.target_tokenizer
        tags = prepared.report.tags
        self.lead = len(prepared.target_tokenizer.opening) if tags is None else tags.lengths[1]
        """Tokens that every answer begins with."""
        self.decoded = range(min(len(store), config.decode_examples) if not isinstance(prepared.data, PlainTextConfig) else 0)
        self.device = workers.models[0].device
        report = prepared.report.validation if store is prepared.validation else prepared.report.extra_validation
        counted = None if report is None or not isinstance(store.targets, Blocks) else report.text
        self._text_bytes = 0 if counted is None else counted.bytes

    def validate(self, update: int, micro_batch_tokens: int | None = None) -> Validation:
        """Look at every validation pair once, so many tokens at a time, and translate the first few."""
        loss, tokens, correct = self._teacher_forced(micro_batch_tokens or self.config.micro_batch_size)
        translations = self._translate()
        texts = [self.store.text(row) for row in self.decoded]
        references = [[target] for _, target in texts]
        samples = zip(texts[:SAMPLES], translations[:SAMPLES], strict=True)
        scores = {name: METRICS[name].score(translations, references) for name in self._metrics()}
        return Validation(
            update=update,
            loss=loss / tokens,
            perplexity=perplexity(loss, tokens),
            accuracy=correct / tokens,
            scores={name: score.value for name, score in scores.items()},
            samples=(
                *(Sample(source, reference, translation) for (source, reference), translation in samples),
                *self._continuations(),
            ),
            signatures=tuple(str(score) for score in scores.values()),
            bits_per_byte=bits_per_byte(loss, self._text_bytes) if self._text_bytes else None,
        )

    def _continuations(self) -> tuple[Sample, ...]:
        blocks = self.store.targets
        if not isinstance(blocks, Blocks) or not self.config.decode_examples:
            return ()

        def go_on(model: AnyTransducer, _: int) -> tuple[Sample, ...]:
            return continuations(model, blocks, self.target, SAMPLES)

        samples: tuple[Sample, ...] = self.workers.each(go_on, 1)[0]
        return samples

    def better(self, new: Validation, best: float | None) -> tuple[bool, float]:
        """Return whether this is the best so far by the recipe's metric, and the score it was judged by."""
        name = self.config.metric
        score = new.loss if name == "loss" else new.scores[name]
        higher = name != "loss" and METRICS[name].higher_is_better
        return best is None or math.isnan(best) or (score > best if higher else score < best), score

    def _metrics(self) -> tuple[str, ...]:
        if not self.decoded:
            return ()
        name = self.config.metric
        return ("bleu", "chrf") if name == "loss" else DECODED.get(name, (name, "exact_match"))

    def _teacher_forced(self, micro_batch_tokens: int) -> tuple[float, int, int]:
        batches = validation_batches(self.store, micro_batch_tokens)

        def judge(model: AnyTransducer, part: int) -> tuple[float, int, int]:
            batch = collate(self.store, batches[part], self.source.specials, self.target.specials).to(self.device)
            with torch.inference_mode():
                result = batch_loss(model, batch, smoothing=0.0)
            return float(result.plain), batch.num_target_tokens, int(result.correct)

        losses, tokens, correct = zip(*self.workers.each(judge, len(batches)), strict=True)
        return math.fsum(losses), sum(tokens), sum(correct)

    def _translate(self) -> list[str]:
        options = SearchOptions(method="greedy")
        requests = [
            Request(row, self.store.source(row).tolist(), options, self.store.target(row)[: self.lead].tolist())
            for row in self.decoded
        ]
        parts = -(-len(requests) // DECODED_TOGETHER)

        def translate(model: AnyTransducer, part: int) -> list[str]:
            engine = TorchEngine(model, self.source.specials, self.target.specials)
            return [self.target.decode(found[0].tokens) for found in engine.translate(requests[part::parts])]

        translations = [""] * len(requests)
        for part, found in enumerate(self.workers.each(translate, parts)):
            translations[part::parts] = found
        return translations
