"""The card of a model: what it was trained on and how, and how good it is, written without being asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from transduce import __version__
from transduce.data.config import PlainTextConfig
from transduce.data.prepared import Prepared
from transduce.evaluation.metrics import show_score
from transduce.model_folder import ModelFolder
from transduce.models import catalog
from transduce.models.interface import EncoderModel
from transduce.training.config import TrainingConfig
from transduce.training.reporter import WATCHED, Validation


class _Face(NamedTuple):
    """What a card says by the kind of model it is of."""

    title: str
    tags: str
    languages: list[str | None]
    vocabulary: str
    rows: str
    """What it was trained on."""
    use: str
    call: str


def model_card(
    contents: ModelFolder,
    corpus: Prepared,
    training: TrainingConfig,
    updates: Sequence[int],
    final: Validation | None,
    fingerprint: dict[str, Any],
    before: Mapping[str, float] | None = None,
) -> str:
    """Return the text of a model folder's README.md, with the header that model hubs read.

    `before` is what the model was worth before it learned this, where it started from another.
    """
    parameters = sum(parameter.numel() for parameter in contents.model.parameters())
    reads = isinstance(contents.model, EncoderModel)
    face = _reader(contents) if reads else _writer(contents, corpus)
    weights = f"the average of the checkpoints of updates {', '.join(f'{u:,}' for u in updates)}"
    if len(updates) == 1:
        weights = f"the checkpoint of update {updates[0]:,}"
    if training.ema_decay:
        weights += ", of the running average of all updates"
    lines = [
        "---",
        "library_name: transduce",
        f"tags: [{face.tags}]",
        f"language: [{', '.join(language for language in face.languages if language)}]",
        "---",
        "",
        f"# {face.title}",
        "",
        f"{parameters:,} parameters; {face.vocabulary}. Trained by transduce {__version__} on {len(corpus.train):,} "
        f"{face.rows}{_start(training)}; these weights are {weights}.",
        "",
        f"{face.use}, or in Python:",
        "",
        f"    {face.call}",
        "",
        *_scores(final, None if reads else min(training.decode_examples, len(corpus.validation or ()))),
        *_forgetting(final, before or {}, min(training.decode_examples, len(corpus.extra_validation or ()))),
        "## Data",
        "",
        *(f"    {line}" for line in corpus.report.lines()),
        "",
        f"SHA-256 of the prepared data's manifest: `{fingerprint['data']}`",
        f"SHA-256 of the recipe: `{fingerprint['recipe']}`",
        *(
            [f"SHA-256 of the manifest of {training.initial_checkpoint}: `{fingerprint['start']}`"]
            if "start" in fingerprint
            else []
        ),
        "",
    ]
    return "\n".join(lines)


def _forgetting(final: Validation | None, before: Mapping[str, float], pairs: int) -> list[str]:
    """What is left of what the model could do before."""
    if final is None or final.watched is None:
        return []
    rows = []
    for name, value in final.watched.measures().items():
        translated = name in final.watched.scores
        on = f"greedy, first {pairs:,} watched pairs" if translated else "all watched pairs"
        show = partial(show_score, name) if translated else "{:.4f}".format
        old = before.get(f"{WATCHED}{name}")
        rows.append(f"| {name} | {'' if old is None else show(old)} | {show(value)} | {on} |")
    return ["## Watched beside", "", "| measure | before | now | on |", "|---|---|---|---|", *rows, ""]


def _start(training: TrainingConfig) -> str:
    return "" if training.initial_checkpoint is None else f", starting from {training.initial_checkpoint}"


def _writer(contents: ModelFolder, corpus: Prepared) -> _Face:
    source, target = contents.notes.get("source_language"), contents.notes.get("target_language")
    name, sizes = catalog.name_of(contents.config), contents.model.sizes
    continues = catalog.is_language_model(contents.config)
    verb, use = ("generate", "Let it go on with a text") if continues else ("translate", "Translate with it")
    is_text = isinstance(corpus.data, PlainTextConfig)
    return _Face(
        title=f"{name}, trained on text" if is_text else f"{name}, {source or 'source'} → {target or 'target'}",
        tags="text-generation" if is_text else "translation, sequence-to-sequence",
        languages=[source, target],
        vocabulary=f"{sizes.target:,} tokens"
        if is_text
        else f"{sizes.source:,} source and {sizes.target:,} target tokens",
        rows="blocks of text" if is_text else "pairs",
        use=f"{use}: `transduce {verb} THIS_FOLDER`",
        call='transduce.load("THIS_FOLDER")("some text")',
    )


def _reader(contents: ModelFolder) -> _Face:
    labels = contents.notes.get("labels") or ()
    said = f", {len(labels)} labels: {', '.join(labels)}" if labels else ""
    return _Face(
        title=f"{catalog.name_of(contents.config)}, for the task {contents.notes.get('task')}{said}",
        tags="feature-extraction",
        languages=[contents.notes.get("language")],
        vocabulary=f"{contents.model.sizes.source:,} tokens",
        rows="rows",
        use="Ask it about texts: `transduce predict THIS_FOLDER`, take their vectors: `transduce embed THIS_FOLDER`",
        call='transduce.load("THIS_FOLDER").embed(["some text"])',
    )


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
    if final.bits_per_byte is not None:
        rows = [row.replace("validation pairs", "validation text") for row in rows]
        rows.append(f"| bits per byte | {final.bits_per_byte:.4f} | all validation text |")
    on = "all validation examples" if pairs is None else f"greedy, first {pairs:,} validation pairs"
    rows += [f"| {name} | {show_score(name, value)} | {on} |" for name, value in final.scores.items()]
    signatures = [f"{signature}" for signature in final.signatures]
    return ["## Scores", "", "| measure | value | on |", "|---|---|---|", *rows, "", *signatures, ""]
