"""Evaluation of a text encoder: on a file of labelled examples, and on a validation split during training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np
import torch

from transduce.config import Table
from transduce.data.batching import validation_batches
from transduce.data.prepared import Prepared
from transduce.data.store import ExampleStore
from transduce.errors import DataError, SettingsError, brief, suggestion
from transduce.evaluation.labels import SCORERS, score_predictions
from transduce.evaluation.metrics import finite, perplexity, show_score
from transduce.evaluation.significance import SAMPLES, intervals
from transduce.inference.encoder_engine import EncoderEngine, predict_examples
from transduce.inference.text_encoder import TextEncoder
from transduce.models.head import LanguageHead
from transduce.models.interface import EncoderModel
from transduce.tasks.text_encoding.batches import collate_examples, encoder_loss
from transduce.tasks.text_encoding.config import ExampleFiles, TextEncodingConfig, loaded_column
from transduce.tasks.text_encoding.corpus import Example, documents, read_examples, reference
from transduce.tasks.text_encoding.encoding import Row, encoder_for
from transduce.tasks.text_encoding.masking import Masking
from transduce.training.reporter import Sample
from transduce.training.validation import NUM_SAMPLES, Predictions
from transduce.training.workers import Workers

TOGETHER = 1024
MAX_NAMED = 3
"""Unknown labels that are named."""
MASK_SEED = 0
"""Seed of the masks, as in validation."""
NOT_SCORES = ("left_out", "unknown_labels", "intervals")
"""Entries of a table of scores that are no scores."""


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
        shown = zip(self.examples[:NUM_SAMPLES], predictions[:NUM_SAMPLES], strict=False)
        return Predictions(
            scores=score_predictions(self.data.objective, references, predictions),
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
            return predict_examples(EncoderEngine(model, self.tokenizer, labels, *limits), data.objective, some)

        parts = -(-len(texts) // PREDICTED_TOGETHER)
        return [one for some in workers.each(predict, parts) for one in some] if parts else []


def _one_line(value: Any) -> str:
    return value if isinstance(value, str) else " ".join(value)


@dataclass(frozen=True, repr=False)
class EncoderEvaluation:
    """The scores of a text encoder: `found["accuracy"]` is a number."""

    objective: str
    table: Table
    """Scores by name, with counts of the lines left out by reason, of unknown labels, and confidence intervals."""
    metrics: tuple[str, ...] = ()
    """The scores to print; all if empty."""

    def __getitem__(self, metric: str) -> float:
        """Return a score by its name, as a number."""
        scores = {name: value for name, value in self.table.items() if name not in NOT_SCORES}
        if metric not in scores:
            raise KeyError(f"{metric} was not computed{suggestion(metric, scores)}")
        return float(scores[metric])

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    @property
    def translations(self) -> list[str]:
        """A text encoder translates nothing."""
        return []

    def to_json(self) -> Table:
        """Return plain values."""
        return self.table

    def lines(self) -> list[str]:
        """Return the lines to print."""
        lines = [f"  filtered {count:,}: {reason}" for reason, count in self.table["left_out"].items()]
        if (unknown := self.table.get("unknown_labels")) and unknown["count"]:
            what = "words" if self.objective == "tag" else "texts"
            named = ", ".join(map(brief, unknown["examples"]))
            lines.append(f"  {unknown['count']:,} {what} have labels unknown to the model and count as wrong: {named}")
        scores = {name: value for name, value in self.table.items() if name not in NOT_SCORES}
        return lines + [self._line(name, value) for name, value in scores.items() if name in (self.metrics or scores)]

    def _line(self, name: str, value: float | None) -> str:
        value = float("inf") if value is None else value  # an infinite perplexity, which JSON has no number for
        plain = name in ("loss", "perplexity") or isinstance(value, int)
        line = f"{name} {value:,.4g}" if plain else f"{name} {show_score(name, value)}"
        if name not in self.table["intervals"]:
            return line
        low, high = (show_score(name, self.table["intervals"][name][end]) for end in ("low", "high"))
        return f"{line}  (95 % confidence interval {low} to {high})"


def evaluate_encoder(
    encoder: TextEncoder,
    path: str,
    columns: Table | None = None,
    metrics: Sequence[str] = (),
    samples: int = SAMPLES,
) -> EncoderEvaluation:
    """Evaluate a text encoder on a file of examples; `columns` are those of `ExampleFiles`, by default as in training.

    Confidence intervals come from `samples` bootstrap samples; a loss has none.
    """
    table = score_encoder(encoder, path, columns, samples)
    scores = [name for name in table if name not in NOT_SCORES]
    for name in metrics:
        if name not in scores:
            raise SettingsError(f"the model has no metric '{name}'{suggestion(name, scores)}")
    return EncoderEvaluation(encoder.task, table, tuple(metrics))


def score_encoder(encoder: TextEncoder, path: str, columns: Table | None = None, samples: int = SAMPLES) -> Table:
    """Return the table of an `EncoderEvaluation`."""
    if encoder.task == "none":
        raise SettingsError("this text encoder has no head to evaluate; fine-tune it on labelled examples first")
    trained = {name: loaded_column(column) for name, column in (encoder.notes.get("columns") or {}).items()}
    files = ExampleFiles.from_table({**trained, **(columns or {}), "path": path}, path)
    settings = {
        name: encoder.notes[name] for name in ("max_length", "stride", "allow_no_answer") if encoder.notes.get(name)
    }
    data = TextEncodingConfig.from_table({"objective": encoder.task, "train": files.to_table(), **settings}, path)
    examples = read_examples(files, data.objective)
    if data.objective == "mask":
        asks = isinstance(encoder.model.head, LanguageHead) and encoder.model.head.next_sentence is not None
        return _masked(encoder, data.but(next_sentence=asks), examples)
    references: list[Any] = []
    predictions: list[Any] = []
    left_out: dict[str, int] = {}
    while some := list(islice(examples, TOGETHER)):
        usable = [example for example in some if _reason(example, data, left_out) is None]
        predictions += predict_examples(encoder.engine, data.objective, [example.texts for example in usable])
        references += [reference(example.record, data.objective) for example in usable]
    if not references:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in left_out.items()) or "it is empty"
        raise DataError(f"{path}: has no usable example ({reasons}); check its columns")
    judgement = SCORERS[data.objective](references, predictions)
    found = intervals(judgement.scores, judgement.examples, samples)
    return {
        "examples": len(references),
        "left_out": left_out,
        "unknown_labels": _unknown_labels(data.objective, references, encoder.engine.labels),
        **{name: middle.score for name, middle in found.items()},
        "intervals": {name: middle.to_json() for name, middle in found.items()},
    }


def _reason(example: Example, data: TextEncodingConfig, left_out: dict[str, int]) -> str | None:
    reason = example.fault
    if reason is None and data.objective == "answer" and not example.answers and not data.allow_no_answer:
        reason = "unanswered"
    if reason is not None:
        left_out[reason] = left_out.get(reason, 0) + 1
    return reason


def _unknown_labels(task: str, gold: Sequence[Any], known: Sequence[str]) -> Table:
    """Count labels that the model does not know and so always gets wrong; the most frequent are named."""
    labels: dict[str, Iterable[str]] = {"classify": gold, "tag": chain.from_iterable(gold)}
    unknown = Counter(labels.get(task, ()))
    for label in known:
        del unknown[label]
    return {"count": unknown.total(), "examples": [label for label, _ in unknown.most_common(MAX_NAMED)]}


def _masked(encoder: TextEncoder, data: TextEncodingConfig, lines: Iterator[Example]) -> Table:
    """Return loss, perplexity and accuracy of masked tokens, always the same ones."""
    tokenizer = encoder.tokenizer
    row_encoder = encoder_for(data, tokenizer, ())
    rows, groups, left_out = list[Row](), list[int](), dict[str, int]()
    for number, document in enumerate(documents(lines)):
        some, notes = row_encoder.rows(document)
        rows += some
        groups += [number] * len(some)
        for _, reason in notes:
            left_out[reason] = left_out.get(reason, 0) + (not row_encoder.keeps(reason))
    if not rows:
        raise DataError("there is no text to mask; give a file with sentences")
    store = ExampleStore.of([row.tokens for row in rows], [row.targets for row in rows], groups)
    store = ExampleStore.of(*Masking(data, tokenizer, MASK_SEED).examples(store, range(len(rows)), 0))
    loss, num_masked, correct = 0.0, 0, 0
    with torch.inference_mode():
        for batch_rows in validation_batches(store, 4096):
            batch = collate_examples(store, np.asarray(batch_rows), tokenizer.specials, "mask")
            result = encoder_loss(encoder.model, batch.to(encoder.model.device), smoothing=0.0)
            loss += float(result.plain)
            num_masked += batch.num_target_tokens
            correct += int(result.correct)
    return {
        "rows": len(rows),
        "left_out": {reason: count for reason, count in left_out.items() if count},
        "hidden": num_masked,
        "loss": loss / num_masked,
        "perplexity": finite(perplexity(loss, num_masked)),
        "accuracy": correct / num_masked,
        "intervals": {},
    }
