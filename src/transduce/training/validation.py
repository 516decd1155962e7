"""Validation on held-out data: loss, perplexity and accuracy under teacher forcing, and the task's own scores."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from transduce.data.batching import Batch, validation_batches
from transduce.data.store import Split
from transduce.errors import SettingsError
from transduce.evaluation.metrics import METRICS, bits_per_byte, perplexity
from transduce.models.interface import Model
from transduce.rng import Rows
from transduce.training.config import TrainingConfig
from transduce.training.reporter import Sample, Validation
from transduce.training.step import Loss
from transduce.training.workers import Workers

NUM_SAMPLES = 3
"""Predictions that a validation shows."""


@dataclass(frozen=True)
class Predictions:
    """Scores and samples of a task's own part of a validation."""

    scores: dict[str, float] = field(default_factory=dict)
    samples: tuple[Sample, ...] = ()
    signatures: tuple[str, ...] = ()
    """How each score was computed."""


class Validator:
    """Validates one model on one split, always the same rows in the same order."""

    def __init__(
        self,
        split: Split,
        collate: Callable[[Split, Rows], Batch],
        loss: Loss,
        config: TrainingConfig,
        workers: Workers,
        predict: Callable[[Workers], Predictions] | None = None,
        text_bytes: int = 0,
    ) -> None:
        """`predict` scores what the model predicts; `text_bytes` is the size of plain text, for bits per byte."""
        self.split, self.config, self.workers = split, config, workers
        self._collate, self._loss, self._predict, self._text_bytes = collate, loss, predict, text_bytes
        self.device = workers.models[0].device

    def validate(self, update: int, micro_batch_tokens: int | None = None) -> Validation:
        """Validate on every row once, in batches of `micro_batch_tokens`."""
        loss, tokens, correct = self._teacher_forced(micro_batch_tokens or self.config.micro_batch_size)
        found = Predictions() if self._predict is None else self._predict(self.workers)
        return Validation(
            update=update,
            loss=loss / tokens,
            perplexity=perplexity(loss, tokens),
            accuracy=correct / tokens,
            scores=found.scores,
            samples=found.samples,
            signatures=found.signatures,
            bits_per_byte=bits_per_byte(loss, self._text_bytes) if self._text_bytes else None,
        )

    def cost(self) -> tuple[float, float]:
        """Return the seconds that a validation takes: under teacher forcing, and for its predictions."""
        began = time.perf_counter()
        self._teacher_forced(self.config.micro_batch_size)
        middle = time.perf_counter()
        if self._predict is not None:
            self._predict(self.workers)
        return middle - began, time.perf_counter() - middle

    def better(self, new: Validation, best: float | None, best_loss: float | None = None) -> tuple[bool, float]:
        """Return whether this is the best so far by `training.metric`, and the score it was judged by.

        The loss decides between equal scores: at first there is often no exact match at all.
        """
        name = self.config.metric
        if name != "loss" and name not in new.scores:
            raise SettingsError(
                f"training.metric = '{name}' cannot be computed on this validation split (span_f1 needs B-, I- and O "
                f"labels); choose one of {', '.join(('loss', *new.scores))}"
            )
        score = new.loss if name == "loss" else new.scores[name]
        higher = name != "loss" and (name not in METRICS or METRICS[name].higher_is_better)
        if score == best and best_loss is not None:
            return new.loss < best_loss, score
        return best is None or math.isnan(best) or (score > best if higher else score < best), score

    def _teacher_forced(self, micro_batch_tokens: int) -> tuple[float, int, int]:
        """Return (summed loss, target tokens, correct ones)."""
        batches = validation_batches(self.split, micro_batch_tokens)

        def evaluate(model: Model, part: int) -> tuple[Tensor, int]:
            batch = self._collate(self.split, batches[part]).to(self.device)
            with torch.inference_mode():
                result = self._loss(model, batch, 0.0, 0.0)
                return torch.stack([result.plain, result.correct]), batch.num_target_tokens

        sums, tokens = zip(*self.workers.each(evaluate, len(batches)), strict=True)
        losses, correct = torch.stack(sums).t().tolist()  # read once: a GPU is waited for
        return math.fsum(losses), sum(tokens), round(sum(correct))
