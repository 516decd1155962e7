"""The model card: what a model was trained on and how, and its scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from transduce import __version__
from transduce.data.prepared import Prepared
from transduce.evaluation.metrics import show_score
from transduce.model_folder import ModelFolder
from transduce.training.config import TrainingConfig
from transduce.training.reporter import EXTRA, Validation
from transduce.training.task import CardText


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
    weights = f"the average of the checkpoints of updates {', '.join(f'{u:,}' for u in updates)}"
    if len(updates) == 1:
        weights = f"the checkpoint of update {updates[0]:,}"
    if training.ema_decay:
        weights += ", exponential moving average"
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
        f"{text.rows}{_start(training)}; these weights are {weights}.",
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
