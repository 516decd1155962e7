"""How good a reader is on a file of examples: what it says of them beside what is true."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np
import torch

from transduce.config import Table
from transduce.data.batching import validation_batches
from transduce.data.store import ExampleStore
from transduce.errors import DataError, SettingsError
from transduce.evaluation.labels import JUDGEMENTS
from transduce.evaluation.metrics import finite, perplexity
from transduce.evaluation.significance import SAMPLES, intervals
from transduce.inference.text_encoder import TextEncoder
from transduce.inference.text_encoding import answers_to
from transduce.models.head import LanguageHead
from transduce.tasks.text_encoding.batches import collate_examples
from transduce.tasks.text_encoding.config import ExampleFiles, TextEncodingConfig
from transduce.tasks.text_encoding.corpus import Example, documents, read_examples, reference
from transduce.tasks.text_encoding.encoding import Row, encoder_for
from transduce.tasks.text_encoding.loss import encoder_loss
from transduce.tasks.text_encoding.masking import Masking

TOGETHER = 1024
MOST_NAMED = 3
"""Labels that are named."""
FIXED_SEED = 0
"""Of the masks, the same as a run's validation has."""


def assess_reader(reader: TextEncoder, path: str, columns: Table | None = None, samples: int = SAMPLES) -> Table:
    """Read a file as the reader's task has it and return the scores, with the lines left out by reason, and how many
    texts or words have labels that the model cannot say, with some of these.

    `columns` say where text and label stand; by default where they stood in training. Under `intervals` stands how sure
    each score is, by so many bootstrap samples; a loss has none.
    """
    if reader.task == "none":
        raise SettingsError("this reader has no head that could be right or wrong; train one for a task first")
    files = ExampleFiles.from_table({**(reader.notes.get("columns") or {}), **(columns or {}), "path": path}, path)
    settings = {
        name: reader.notes[name] for name in ("max_length", "stride", "allow_no_answer") if reader.notes.get(name)
    }
    data = TextEncodingConfig.from_table({"objective": reader.task, "train": files.to_table(), **settings}, path)
    examples = read_examples(files, data.objective)
    if data.objective == "mask":
        asks = isinstance(reader.model.head, LanguageHead) and reader.model.head.next_sentence is not None
        return _masked(reader, data.but(next_sentence=asks), examples)
    gold: list[Any] = []
    said: list[Any] = []
    left_out: dict[str, int] = {}
    while some := list(islice(examples, TOGETHER)):
        usable = [example for example in some if _reason(example, data, left_out) is None]
        said += answers_to(reader.engine, data.objective, [example.texts for example in usable])
        gold += [reference(example.record, data.objective) for example in usable]
    if not gold:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in left_out.items()) or "it is empty"
        raise DataError(f"{path}: has no example that can be used ({reasons}); check its columns")
    judgement = JUDGEMENTS[data.objective](gold, said)
    found = intervals(judgement.scores, judgement.examples, samples)
    scores = {name: middle.score for name, middle in found.items()}
    sure = {name: middle.to_json() for name, middle in found.items()}
    unknown = _unknown_labels(data.objective, gold, reader.engine.labels)
    return {"examples": len(gold), "left_out": left_out, "unknown_labels": unknown, **scores, "intervals": sure}


def _reason(example: Example, data: TextEncodingConfig, left_out: dict[str, int]) -> str | None:
    reason = example.fault
    if reason is None and data.objective == "answer" and not example.answers and not data.allow_no_answer:
        reason = "unanswered"
    if reason is not None:
        left_out[reason] = left_out.get(reason, 0) + 1
    return reason


def _unknown_labels(task: str, gold: Sequence[Any], known: Sequence[str]) -> Table:
    """Count labels that the model has never seen and so is always wrong about; the most frequent are named."""
    labels: dict[str, Iterable[str]] = {"classify": gold, "tag": chain.from_iterable(gold)}
    unknown = Counter(labels.get(task, ()))
    for label in known:
        del unknown[label]
    return {"count": unknown.total(), "examples": [label for label, _ in unknown.most_common(MOST_NAMED)]}


def _masked(reader: TextEncoder, data: TextEncodingConfig, lines: Iterator[Example]) -> Table:
    """Loss, perplexity and accuracy of hidden pieces, always the same ones."""
    tokenizer = reader.tokenizer
    encoder = encoder_for(data, tokenizer, ())
    rows, groups, left_out = list[Row](), list[int](), dict[str, int]()
    for number, document in enumerate(documents(lines)):
        some, notes = encoder.rows(document)
        rows += some
        groups += [number] * len(some)
        for _, reason in notes:
            left_out[reason] = left_out.get(reason, 0) + (not encoder.keeps(reason))
    if not rows:
        raise DataError("there is no text to hide anything in; give a file with sentences")
    store = ExampleStore.of([row.tokens for row in rows], [row.targets for row in rows], groups)
    store = ExampleStore.of(*Masking(data, tokenizer, FIXED_SEED).examples(store, range(len(rows)), 0))
    loss, asked, correct = 0.0, 0, 0
    with torch.inference_mode():
        for batch_rows in validation_batches(store, 4096):
            batch = collate_examples(store, np.asarray(batch_rows), tokenizer.specials, "mask")
            result = encoder_loss(reader.model, batch.to(reader.model.device), smoothing=0.0)
            loss += float(result.plain)
            asked += batch.num_target_tokens
            correct += int(result.correct)
    return {
        "rows": len(rows),
        "left_out": {reason: count for reason, count in left_out.items() if count},
        "hidden": asked,
        "loss": loss / asked,
        "perplexity": finite(perplexity(loss, asked)),
        "accuracy": correct / asked,
        "intervals": {},
    }
