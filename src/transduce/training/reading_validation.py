"""Checking a reader on held-out examples: its loss, and how good its answers are."""

from __future__ import annotations

import json
import math
from typing import Any

import torch

from transduce.data.batches import validation_batches
from transduce.data.prepared import Prepared
from transduce.data.store import PairStore
from transduce.errors import SettingsError
from transduce.evaluation.labels import judge_answers
from transduce.evaluation.metrics import perplexity
from transduce.inference.text_encoding import ReadingEngine, answers_to
from transduce.models.interface import EncoderModel
from transduce.tasks.text_encoding.batches import collate_reading
from transduce.tasks.text_encoding.config import TextEncodingConfig
from transduce.tasks.text_encoding.masking import Masking
from transduce.training.config import TrainingConfig
from transduce.training.reading_objective import reading_loss
from transduce.training.reporter import Sample, Validation
from transduce.training.workers import Workers

SAMPLES = 3
ASKED_TOGETHER = 256
"""Examples that one thread answers at a time."""
FIXED_SEED = 0
"""Of the masks that validation has, the same at every validation of every run."""


class ReadingValidator:
    """Validates one reader on one split, always the same examples in the same order."""

    def __init__(self, workers: Workers, prepared: Prepared, store: PairStore, config: TrainingConfig) -> None:
        assert isinstance(prepared.data, TextEncodingConfig)
        self.workers, self.config, self.data = workers, config, prepared.data
        self.tokenizer, self.labels = prepared.source_tokenizer, prepared.report.labels or ()
        self.texts = [text for text in store.texts() if text[0]]
        if self.data.objective == "mask":
            masking = Masking(self.data, self.tokenizer, FIXED_SEED)
            store = PairStore.of(*masking.examples(store, range(len(store)), 0))
        self.store = store
        self.device = workers.models[0].device

    def validate(self, update: int, micro_batch_tokens: int | None = None) -> Validation:
        """Look at every example once, so many tokens at a time."""
        loss, asked, correct = self._judge(micro_batch_tokens or self.config.micro_batch_size)
        gold, said = self._answers()
        scores = judge_answers(self.data.objective, gold, said) if said else {}
        shown = zip(self.texts[:SAMPLES], said[:SAMPLES], strict=False)
        return Validation(
            update=update,
            loss=loss / asked,
            perplexity=perplexity(loss, asked),
            accuracy=correct / asked,
            scores=scores,
            samples=tuple(Sample(_plain(text), _plain(true), _plain_answer(answer)) for (text, true), answer in shown),
        )

    def better(self, new: Validation, best: float | None) -> tuple[bool, float]:
        """Return whether this is the best so far by the recipe's metric, and the score it was judged by."""
        name = self.config.metric
        if name != "loss" and name not in new.scores:
            raise SettingsError(
                f"training.metric = '{name}': these labels do not say where spans begin (B-, I-, O); choose one of "
                f"{', '.join(('loss', *new.scores))}"
            )
        score = new.loss if name == "loss" else new.scores[name]
        return best is None or math.isnan(best) or (score < best if name == "loss" else score > best), score

    def _judge(self, micro_batch_tokens: int) -> tuple[float, int, int]:
        batches = validation_batches(self.store, micro_batch_tokens)

        def judge(model: EncoderModel, part: int) -> tuple[float, int, int]:
            batch = collate_reading(self.store, batches[part], self.tokenizer.specials, self.data.objective)
            with torch.inference_mode():
                result = reading_loss(model, batch.to(self.device), smoothing=0.0)
            return float(result.plain), batch.num_target_tokens, int(result.correct)

        losses, asked, correct = zip(*self.workers.each(judge, len(batches)), strict=True)
        return math.fsum(losses), sum(asked), sum(correct)

    def _answers(self) -> tuple[list[Any], list[Any]]:
        """What is true and what the reader says of every example that has a text."""
        parts = -(-len(self.texts) // ASKED_TOGETHER)
        questions = [json.loads(text) for text, _ in self.texts]

        def ask(model: EncoderModel, part: int) -> list[Any]:
            some = questions[part * ASKED_TOGETHER : (part + 1) * ASKED_TOGETHER]
            engine = ReadingEngine(
                model, self.tokenizer, self.labels, self.data.max_length, self.data.stride, self.data.allow_no_answer
            )
            return answers_to(engine, self.data.objective, some)

        said = [answer for some in self.workers.each(ask, parts) for answer in some] if parts else []
        return [json.loads(gold) for _, gold in self.texts], said


def _plain(text: str) -> str:
    """One line of what a row keeps of its example."""
    return _plain_answer(json.loads(text))


def _plain_answer(answer: Any) -> str:
    return answer if isinstance(answer, str) else " ".join(answer)
