"""The card of a model: what it was trained on and how, and how good it is, written without being asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transduce import __version__
from transduce.checkpoint import ModelFolder
from transduce.data.store import Prepared
from transduce.evaluation.catalog import show_score
from transduce.models import catalog
from transduce.models.interface import Reader
from transduce.training.config import TrainingConfig
from transduce.training.reporter import Validation

TRANSLATE = (
    "Translate with it: `transduce translate THIS_FOLDER`, or in Python:",
    "",
    '    transduce.load("THIS_FOLDER")("some text")',
)
READ = (
    "Ask it about texts: `transduce read THIS_FOLDER`, take their vectors: `transduce embed THIS_FOLDER`; in Python:",
    "",
    '    transduce.load("THIS_FOLDER").read(["some text"])',
)


def model_card(
    contents: ModelFolder,
    corpus: Prepared,
    training: TrainingConfig,
    updates: Sequence[int],
    final: Validation | None,
    facts: dict[str, Any],
) -> str:
    """Return the text of a model folder's README.md, with the header that model hubs read."""
    source, target = contents.notes.get("source_language"), contents.notes.get("target_language")
    parameters = sum(parameter.numel() for parameter in contents.model.parameters())
    name = catalog.name_of(contents.config)
    reads = isinstance(contents.model, Reader)
    weights = f"the average of the checkpoints of updates {', '.join(f'{u:,}' for u in updates)}"
    if len(updates) == 1:
        weights = f"the checkpoint of update {updates[0]:,}"
    lines = [
        "---",
        "library_name: transduce",
        *(_reader_head(contents, name) if reads else _translator_head(name, source, target)),
        "",
        f"{parameters:,} parameters; {contents.model.sizes.source:,} source and {contents.model.sizes.target:,} target "
        f"tokens. Trained by transduce {__version__} on {len(corpus.train):,} {'rows' if reads else 'pairs'}; these "
        f"weights are {weights}.",
        "",
        *(READ if reads else TRANSLATE),
        "",
        *_scores(final, None if reads else min(training.decode_pairs, len(corpus.validation or ()))),
        "## Data",
        "",
        *(f"    {line}" for line in corpus.report.lines()),
        "",
        f"SHA-256 of the prepared data's manifest: `{facts['data']}`",
        f"SHA-256 of the recipe: `{facts['recipe']}`",
        "",
    ]
    return "\n".join(lines)


def _translator_head(name: str, source: str | None, target: str | None) -> list[str]:
    return [
        "tags: [translation, sequence-to-sequence]",
        f"language: [{', '.join(language for language in (source, target) if language)}]",
        "---",
        "",
        f"# {name}, {source or 'source'} → {target or 'target'}",
    ]


def _reader_head(contents: ModelFolder, name: str) -> list[str]:
    language, labels = contents.notes.get("language"), contents.notes.get("labels") or ()
    said = f", {len(labels)} labels: {', '.join(labels)}" if labels else ""
    return [f"language: [{language or ''}]", "---", "", f"# {name}, for the task {contents.notes.get('task')}{said}"]


def _scores(final: Validation | None, pairs: int | None) -> list[str]:
    """`pairs` is how many were translated; None for a reader, which is asked about all examples."""
    if final is None:
        return []
    noun = "examples" if pairs is None else "pairs"
    given = "all validation examples" if pairs is None else "all validation pairs, true tokens before"
    rows = [
        f"| perplexity per token | {final.perplexity:.3f} | all validation {noun} |",
        f"| token accuracy | {100 * final.accuracy:.2f} % | {given} |",
    ]
    on = "all validation examples" if pairs is None else f"greedy, first {pairs:,} validation pairs"
    rows += [f"| {name} | {show_score(name, value)} | {on} |" for name, value in final.scores.items()]
    signatures = [f"{signature}" for signature in final.signatures]
    return ["## Scores", "", "| measure | value | on |", "|---|---|---|", *rows, "", *signatures, ""]
