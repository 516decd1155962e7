"""The card of a model: what it was trained on and how, and how good it is, written without being asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from transduce import __version__
from transduce.checkpoint import ModelFolder
from transduce.data.store import Prepared
from transduce.evaluation.catalog import METRICS
from transduce.models import catalog
from transduce.training.config import TrainingConfig
from transduce.training.reporter import WATCHED, Validation


def model_card(
    contents: ModelFolder,
    corpus: Prepared,
    training: TrainingConfig,
    updates: Sequence[int],
    final: Validation | None,
    facts: dict[str, Any],
    before: Mapping[str, float] | None = None,
) -> str:
    """Return the text of a model folder's README.md, with the header that model hubs read.

    `before` is what the model was worth before it learned this, where it started from another.
    """
    source, target = contents.notes.get("source_language"), contents.notes.get("target_language")
    parameters = sum(parameter.numel() for parameter in contents.model.parameters())
    name = catalog.name_of(contents.config)
    weights = f"the average of the checkpoints of updates {', '.join(f'{u:,}' for u in updates)}"
    if len(updates) == 1:
        weights = f"the checkpoint of update {updates[0]:,}"
    title, tags, sizes = f"{name}, {source or 'source'} → {target or 'target'}", "translation, sequence-to-sequence", ""
    rows, verb, use = "pairs", "translate", "Translate with it"
    if corpus.data.is_text:
        title, tags, rows = f"{name}, trained on text", "text-generation", "blocks of text"
        sizes = f"{contents.model.sizes.target:,} tokens"
    if catalog.is_language_model(contents.config):
        verb, use = "generate", "Let it go on with a text"
    lines = [
        "---",
        "library_name: transduce",
        f"tags: [{tags}]",
        f"language: [{', '.join(language for language in (source, target) if language)}]",
        "---",
        "",
        f"# {title}",
        "",
        f"{parameters:,} parameters; "
        + (sizes or f"{contents.model.sizes.source:,} source and {contents.model.sizes.target:,} target tokens")
        + f". Trained by transduce {__version__} on {len(corpus.train):,} {rows}{_start(training)}; these weights are "
        + f"{weights}.",
        "",
        f"{use}: `transduce {verb} THIS_FOLDER`, or in Python:",
        "",
        '    transduce.load("THIS_FOLDER")("some text")',
        "",
        *_scores(final, min(training.decode_pairs, len(corpus.validation or ()))),
        *_forgetting(final, before or {}, min(training.decode_pairs, len(corpus.watch or ()))),
        "## Data",
        "",
        *(f"    {line}" for line in corpus.report.lines()),
        "",
        f"SHA-256 of the prepared data's manifest: `{facts['data']}`",
        f"SHA-256 of the recipe: `{facts['recipe']}`",
        *([f"SHA-256 of the manifest of {training.start_from}: `{facts['start']}`"] if "start" in facts else []),
        "",
    ]
    return "\n".join(lines)


def _forgetting(final: Validation | None, before: Mapping[str, float], pairs: int) -> list[str]:
    """What is left of what the model could do before."""
    if final is None or final.watched is None:
        return []
    rows = []
    for name, value in final.watched.measures().items():
        show = METRICS[name].show if name in METRICS else "{:.4f}".format
        old, on = before.get(f"{WATCHED}{name}"), "all watched pairs"
        if name in METRICS:
            on = f"greedy, first {pairs:,} watched pairs"
        rows.append(f"| {name} | {'' if old is None else show(old)} | {show(value)} | {on} |")
    return ["## Watched beside", "", "| measure | before | now | on |", "|---|---|---|---|", *rows, ""]


def _start(training: TrainingConfig) -> str:
    return "" if training.start_from is None else f", starting from {training.start_from}"


def _scores(final: Validation | None, pairs: int) -> list[str]:
    if final is None:
        return []
    rows = [
        f"| perplexity per token | {final.perplexity:.3f} | all validation pairs |",
        f"| token accuracy | {100 * final.accuracy:.2f} % | all validation pairs, true tokens before |",
    ]
    if final.bits_per_byte is not None:
        rows = [row.replace("validation pairs", "validation text") for row in rows]
        rows.append(f"| bits per byte | {final.bits_per_byte:.4f} | all validation text |")
    rows += [
        f"| {name} | {METRICS[name].show(value)} | greedy, first {pairs:,} validation pairs |"
        for name, value in final.scores.items()
    ]
    signatures = [f"{signature}" for signature in final.signatures]
    return ["## Scores", "", "| measure | value | on |", "|---|---|---|", *rows, "", *signatures, ""]
