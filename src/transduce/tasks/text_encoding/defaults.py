"""The settings of a run of a reader: what is chosen for its task, and which do not go together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from transduce.config import Config
from transduce.data.config import DataConfig
from transduce.errors import SettingsError
from transduce.evaluation.labels import SCORES
from transduce.models import catalog
from transduce.tasks.text_encoding.config import TextEncodingConfig
from transduce.tasks.translation.defaults import Advice
from transduce.training.config import TrainingConfig

FOR_PAIRS = ("bpe_dropout", "source_vectors", "target_vectors")
"""Settings of [training] that mean nothing to a reader."""


def advise_reader(task: str) -> Advice:
    """Choose tokenizer, model and training for a reader: what BERT was trained with, at a laptop's size."""
    mask = task == "mask"
    training: dict[str, Any] = {
        "batch_tokens": 4096 if mask else 2048,
        "updates": 20_000 if mask else 2000,
        "optimizer": "adamw",
        "weight_decay": 0.01,
        "schedule": "linear",
        "learning_rate": 5e-4 if mask else 2e-4,
        "warmup": 1000 if mask else 200,
        "betas": [0.9, 0.999],
        "epsilon": 1e-6,
        "max_grad_norm": 1.0,
        "validate_every": 1000 if mask else 200,
    }
    reasons = [
        "a reader of 4 layers of 256 with WordPiece, as BERT is built",
        f"AdamW with a peak of {training['learning_rate']:g} that falls in a line, as BERT is trained",
    ]
    tokenizer = {"kind": "wordpiece", "vocab_size": 8000, "joint": True}
    model = {"name": "bert", "preset": "bert_mini"}
    return Advice({"tokenizer": tokenizer, "model": model, "training": training}, reasons)


def with_head(data: DataConfig, model: Config, given: Mapping[str, Any], where: str) -> Config:
    """Give a reader the head that its task needs; `given` is the [model] table, which may not ask for another."""
    if not isinstance(data, TextEncodingConfig) or not catalog.is_text_encoder(model):
        return model
    known = get_args(type(model).model_fields["head"].annotation)
    if data.head not in known:
        raise SettingsError(
            f"{where}: a {catalog.name_of(model)} has no head for the objective {data.objective}; use a bert"
        )
    head = given.get("head", data.head)
    if head not in (data.head, "none"):
        raise SettingsError(f"{where}: the objective {data.objective} needs model.head = '{data.head}', not '{head}'")
    return model.but(head=data.head, **({"next_sentence": data.next_sentence} if data.objective == "mask" else {}))


def refuse_misreading(data: DataConfig, model: Config, training: TrainingConfig, where: str) -> None:
    """Say no to a reader without a task, a task without a reader, and texts longer than a reader reads."""
    name = catalog.name_of(model)
    reason = None
    if not isinstance(data, TextEncodingConfig):
        if catalog.is_text_encoder(model):
            reason = (
                f"a {name} reads texts and writes none; say in data.objective what it should learn: mask, classify, "
            )
            reason += "tag or answer"
    elif not catalog.is_text_encoder(model):
        reason = (
            f"data.objective = '{data.objective}' is for readers, and a {name} is none; set model.preset = 'bert_mini'"
        )
    elif (stories := _stories(data)) and not catalog.reads_stories(model):
        reason = f"{stories} holds stories, and a {name} reads two texts; set model.preset = 'memn2n'"
    elif (limit := _learnt_positions(model)) is not None and data.max_length > limit:
        reason = (
            f"data.max_length = {data.max_length} is more than the {limit} positions that the model "
            "learns; set data.max_length or model.max_positions"
        )
    elif given := [setting for setting in FOR_PAIRS if getattr(training, setting)]:
        reason = f"training.{given[0]} is for pairs; leave it out for a reader"
    elif training.metric not in (known := ("loss", *SCORES[data.objective])):
        reason = (
            f"training.metric = '{training.metric}': the objective {data.objective} is measured by {', '.join(known)}"
        )
    if reason is not None:
        raise SettingsError(f"{where}: {reason}")


def _learnt_positions(model: Config) -> int | None:
    """How many positions a reader has a table for; None where it has none, and reads texts of any length."""
    return getattr(model, "max_positions", None) if getattr(model, "positions", "none") == "learned" else None


def _stories(data: TextEncodingConfig) -> str | None:
    """Name the first file of stories, if there is one."""
    every = [files for name in ("train", "validation", "test") for files in data.of_split(name)]
    return next((files.path for files in every if files.layout(data.objective) == "babi"), None)
