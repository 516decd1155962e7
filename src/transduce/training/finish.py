"""The end of a run: which weights become the model, and the model card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transduce import __version__
from transduce.data.prepared import Prepared
from transduce.errors import ModelFolderError
from transduce.evaluation.metrics import show_score
from transduce.model_folder import ModelFolder, load_weights, put_weights
from transduce.training.config import TrainingConfig
from transduce.training.reporter import EXTRA, Reporter, Validation
from transduce.training.task import CardText
from transduce.training.trainer import Trainer


def put_final_weights(trainer: Trainer, reporter: Reporter) -> tuple[list[int], Validation | None]:
    """Load the final weights into the trainer's model; return the updates they come from and their validation.

    They are the best checkpoint's, or an average if `training.average_checkpoints` is set and it is no worse: averaging
    helps once a run has converged and does harm before. A damaged checkpoint is left out, with a warning.
    """
    trainer.checkpoints.prune(trainer.config.keep_last, trainer.progress.best_update)  # one stopped before it could
    judged, now, size = [], trainer.progress.update, trainer.progress.micro_batch_tokens
    for updates in _candidates(trainer, _whole(trainer, reporter)):
        _put(trainer, updates)
        judged.append((updates, trainer.validator.validate(now, size) if trainer.validator else None))
    (updates, found), *others = judged
    for other, validation in others:
        if found is None or validation is None or not trainer.validator:
            updates = other  # no validation split to compare on: the average, as requested
        elif trainer.validator.better(validation, trainer.validator.better(found, None)[1], found.loss)[0]:
            updates, found = other, validation
    _put(trainer, updates)
    if found is not None and trainer.extra_validator is not None:
        found = replace(found, extra=trainer.extra_validator.validate(now, size))
    return updates, found


def _whole(trainer: Trainer, reporter: Reporter) -> list[int]:
    """The checkpoints that are intact."""
    kept = []
    for update in trainer.checkpoints.updates():
        try:
            trainer.checkpoints.fingerprint(update)
        except ModelFolderError as error:
            reporter.warn(f"{error}; the final model is made without update {update:,}")
        else:
            kept.append(update)
    if not kept:
        raise ModelFolderError(f"{trainer.checkpoints.folder}: no checkpoint is intact; restore the run from a backup")
    return kept


def _candidates(trainer: Trainer, kept: list[int]) -> list[list[int]]:
    """The best checkpoint, then the averages to try: of the last ones, or of every consecutive window, oldest first.

    If the best one is lost, all others are candidates, newest first.
    """
    count, best = trainer.config.average_checkpoints, trainer.progress.best_update
    single = [[best]] if best in kept else [[update] for update in reversed(kept)]
    if trainer.validator is None:  # no validation split to compare on
        single = [[kept[-1]]]
    if count < 2:
        return single
    windows = [kept[start : start + count] for start in range(max(1, len(kept) - count + 1))]
    return single + (windows[-1:] if trainer.config.average_window == "last" else windows)


def average_weights(files: Sequence[Path]) -> dict[str, Tensor]:
    """Return the mean of each weight over checkpoints (section 6.1), summed in float64, one in memory at a time."""
    assert files, "there is nothing to average"
    total: dict[str, Tensor] = {}
    for file in files:
        for name, weight in load_weights(file).items():
            total[name] = total[name] + weight.double() if name in total else weight.double()
    return {name: (weight / len(files)).to(torch.float32) for name, weight in total.items()}


def _put(trainer: Trainer, updates: Sequence[int]) -> None:
    files = [trainer.checkpoints.final_weights(update) for update in updates]
    weights = average_weights(files) if len(files) > 1 else load_weights(files[0])
    put_weights(trainer.model, weights, files[0])


def weights_from(updates: Sequence[int], training: TrainingConfig) -> str:
    """Say which checkpoints a model's weights come from."""
    weights = f"the average of the checkpoints of updates {', '.join(f'{update:,}' for update in updates)}"
    if len(updates) == 1:
        weights = f"the checkpoint of update {updates[0]:,}"
    return f"{weights}, exponential moving average" if training.ema_decay else weights


def model_card(
    contents: ModelFolder,
    text: CardText,
    corpus: Prepared,
    training: TrainingConfig,
    updates: Sequence[int],
    final: Validation | None,
    fingerprint: dict[str, Any],
    before: Mapping[str, float] | None = None,
) -> str:
    """Return the text of a model folder's README.md, with the header that model hubs read.

    `text` is the task's part; `before` are the measures of the initial checkpoint, if the model was fine-tuned.
    """
    parameters = sum(parameter.numel() for parameter in contents.model.parameters())
    lines = [
        "---",
        "library_name: transduce",
        f"tags: [{text.tags}]",
        f"language: [{', '.join(language for language in text.languages if language)}]",
        "---",
        "",
        f"# {text.title}",
        "",
        f"{parameters:,} parameters; {text.vocabulary}. Trained by transduce {__version__} on {len(corpus.train):,} "
        f"{text.rows}{_start(training)}; these weights are {weights_from(updates, training)}.",
        "",
        f"{text.use}, or in Python:",
        "",
        f"    {text.call}",
        "",
        *_scores(final, text, min(training.decode_examples, len(corpus.validation or ()))),
        *_extra_scores(final, before or {}, min(training.decode_examples, len(corpus.extra_validation or ()))),
        "## Data",
        "",
        *(f"    {line}" for line in corpus.report.lines()),
        "",
        f"SHA-256 of the prepared data's manifest: `{fingerprint['data']}`",
        f"SHA-256 of the recipe: `{fingerprint['recipe']}`",
        *(
            [f"SHA-256 of the manifest of {training.initial_checkpoint}: `{fingerprint['initial_checkpoint']}`"]
            if "initial_checkpoint" in fingerprint
            else []
        ),
        "",
    ]
    return "\n".join(lines)


def _extra_scores(final: Validation | None, before: Mapping[str, float], pairs: int) -> list[str]:
    """The extra validation, before and after fine-tuning."""
    if final is None or final.extra is None:
        return []
    rows = []
    for name, value in final.extra.measures().items():
        translated = name in final.extra.scores
        on = f"greedy, first {pairs:,} extra validation pairs" if translated else "all extra validation pairs"
        show = partial(show_score, name) if translated else "{:.4f}".format
        old = before.get(f"{EXTRA}{name}")
        rows.append(f"| {name} | {'' if old is None else show(old)} | {show(value)} | {on} |")
    return ["## Extra validation", "", "| measure | before | now | on |", "|---|---|---|---|", *rows, ""]


def _start(training: TrainingConfig) -> str:
    return "" if training.initial_checkpoint is None else f", starting from {training.initial_checkpoint}"


def _scores(final: Validation | None, text: CardText, decoded: int) -> list[str]:
    """The final validation; `decoded` is the number of pairs that were translated."""
    if final is None:
        return []
    every = f"all validation {text.units}"
    rows = [
        f"| perplexity per token | {final.perplexity:.3f} | {every} |",
        f"| token accuracy | {100 * final.accuracy:.2f} % | {every}{', teacher forcing' if text.decodes else ''} |",
    ]
    if final.bits_per_byte is not None:
        rows.append(f"| bits per byte | {final.bits_per_byte:.4f} | {every} |")
    on = f"greedy, first {decoded:,} validation {text.units}" if text.decodes else every
    rows += [f"| {name} | {show_score(name, value)} | {on} |" for name, value in final.scores.items()]
    return ["## Scores", "", "| measure | value | on |", "|---|---|---|", *rows, "", *final.signatures, ""]
