"""Evaluation of a translation model on a test set, with confidence intervals and comparisons; validation."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from transduce.config import Table
from transduce.data.prepared import Prepared
from transduce.data.report import REASONS
from transduce.data.store import PairStore
from transduce.errors import DataError, SettingsError, suggestion
from transduce.evaluation.metrics import METRICS, Metric, Score, finite, perplexity
from transduce.evaluation.significance import SAMPLES, Comparison, Interval, compare, interval
from transduce.inference.search.options import Request, SearchOptions
from transduce.inference.segment import one_line
from transduce.inference.torch_engine import TorchEngine
from transduce.inference.translator import Translator
from transduce.models.interface import AnyTransducer
from transduce.storage.atomic import atomic_file
from transduce.tasks.translation.survey import surveyed_metrics
from transduce.text.corpus import CorpusFiles, Languages, read_lines, read_pairs
from transduce.text.lines import shown
from transduce.training.config import TrainingConfig
from transduce.training.reporter import Sample
from transduce.training.validation import NUM_SAMPLES, Predictions
from transduce.training.workers import Workers


@dataclass(frozen=True)
class TestSet:
    """Sources, each with one or several references."""

    __test__ = False  # not a test class for pytest

    sources: list[str]
    references: list[list[str]]
    places: list[str] = field(default_factory=list, compare=False)
    """File and line of each source, for errors; empty if they are not known."""
    unused: Mapping[str, int] = field(default_factory=dict)
    """Units of a TMX, XLIFF or PO file that are not pairs, by the reason."""


@dataclass(frozen=True)
class TranslationScores:
    """The scores of one translation model."""

    translations: list[str]
    perplexity: float
    """Per token, of all references."""
    accuracy: float
    """Fraction of reference tokens that the model predicts, given the reference tokens before them."""
    scores: dict[str, Score]
    intervals: dict[str, Interval]
    unscored: int = 0
    """Pairs too long for the model to read at once: translated in parts, but not in perplexity and accuracy."""

    def to_json(self) -> Table:
        """Return plain values; the translations have a file of their own."""
        return {
            "sentences": len(self.translations),
            "perplexity": finite(self.perplexity),
            "token_accuracy": self.accuracy,
            "unscored_pairs": self.unscored,
            "scores": {name: score.to_json() for name, score in self.scores.items()},
            "intervals": {name: found.to_json() for name, found in self.intervals.items()},
        }

    def lines(self, metrics: Mapping[str, Metric]) -> list[str]:
        """Return the lines to print."""
        found = [f"perplexity {self.perplexity:.3f}, token accuracy {100 * self.accuracy:.2f} %"]
        if self.unscored:
            found.append(
                f"  note: {self.unscored:,} pairs are too long for the model and count only in the other scores"
            )
        for name, score in self.scores.items():
            show, middle = metrics[name].show, self.intervals[name]
            found.append(f"{score}  (95 % confidence interval {show(middle.low)} to {show(middle.high)})")
            if score.warning:
                found.append(f"  note: {score.warning}")
        return found


def read_test_set(
    source: str | None,
    targets: Sequence[str],
    path: str | None,
    settings: Table | None = None,
    languages: Languages = (None, None),
) -> TestSet:
    """Read a test set from line-aligned files, or from one file whose lines with the same source belong together.

    `settings` are those of `CorpusFiles` for one file (format, columns), `languages` select those of a TMX file.
    """
    if settings and path is None:
        raise SettingsError("formats and columns are for a file with both sides; name it with --path")
    if path is not None:
        if source is not None or targets:
            raise SettingsError("give --path alone, or --source with --target")
        together: dict[str, list[str]] = {}
        places: list[str] = []
        unused: Counter[str] = Counter()
        files = CorpusFiles.from_table({**(settings or {}), "path": path}, path)
        for pair in read_pairs(files, languages, lambda _, reason: unused.update([reason])):
            if pair.source not in together:
                places.append(f"{shown(path)}:{pair.line}")
            together.setdefault(pair.source, []).append(pair.target)
        test = TestSet(list(together), list(together.values()), places, unused)
    else:
        if source is None or not targets:
            raise SettingsError(
                "no test set: give source and references (--source and --target), or one file with both (--path)"
            )
        first, *others = targets  # every file is read once: it may be a pipe
        pairs = list(read_pairs(CorpusFiles.from_table({"source": source, "target": first}, "the command line")))
        columns = [[pair.target for pair in pairs], *(list(read_lines(other)) for other in others)]
        for other, column in zip(others, columns[1:], strict=True):
            if len(column) != len(pairs):
                raise DataError(f"{other}: has {len(column):,} lines, {source} has {len(pairs):,}; they must agree")
        references = [list(several) for several in zip(*columns, strict=True)]
        test = TestSet([pair.source for pair in pairs], references, [f"{shown(source)}:{pair.line}" for pair in pairs])
    if not test.sources:
        reasons = ", ".join(f"{count:,} units: {REASONS[reason]}" for reason, count in test.unused.items())
        raise DataError(f"{path or source}: has no pairs ({reasons or 'it is empty'}); there is nothing to evaluate")
    return test


def default_metrics(notes: Table) -> tuple[str, ...]:
    """Return the metrics that a model is evaluated by, from the notes of its folder; older ones have none."""
    noted = notes.get("metrics")
    metrics: tuple[str, ...] = ("bleu", "chrf")
    if isinstance(noted, list) and noted and all(isinstance(name, str) and name in METRICS for name in noted):
        metrics = tuple(noted)
    return metrics if {"exact_match", "word_error_rate"} & {*metrics} else (*metrics, "exact_match")


def score_translator(
    translator: Translator,
    test: TestSet,
    metrics: Mapping[str, Metric],
    samples: int = SAMPLES,
    options: Mapping[str, Any] | None = None,
) -> TranslationScores:
    """Translate a test set and score the translations."""
    test = replace(test, sources=translator.read_images(test.sources, test.places))
    loss, hits, tokens, unscored = _teacher_forced(translator, test)
    translations = translator.translate(test.sources, split=False, **(options or {}))
    return TranslationScores(
        translations=translations,
        perplexity=perplexity(loss, tokens),
        accuracy=hits / tokens,
        scores={name: metric.score(translations, test.references) for name, metric in metrics.items()},
        intervals={name: interval(metric, translations, test.references, samples) for name, metric in metrics.items()},
        unscored=unscored,
    )


def compare_scores(
    first: TranslationScores,
    second: TranslationScores,
    test: TestSet,
    metrics: Mapping[str, Metric],
    samples: int = SAMPLES,
) -> dict[str, Comparison]:
    """Test for each metric whether the difference between two models is significant."""
    return {
        name: compare(metric, first.translations, second.translations, test.references, samples)
        for name, metric in metrics.items()
    }


@dataclass(frozen=True, repr=False)
class TranslationEvaluation:
    """The scores of a translation model, and its comparisons with others: `found["bleu"]` is a number."""

    name: str
    metrics: Mapping[str, Metric]
    scores: TranslationScores
    comparisons: Mapping[str, Mapping[str, Comparison]]
    """By the name of the other model, then by metric."""
    unused: Mapping[str, int] = field(default_factory=dict)
    """Units of the test set that are not pairs, by the reason."""

    def __getitem__(self, metric: str) -> float:
        """Return the score by a metric, as a number."""
        if metric not in self.scores.scores:
            raise KeyError(f"{metric} was not computed{suggestion(metric, self.scores.scores)}")
        return self.scores.scores[metric].value

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    @property
    def translations(self) -> list[str]:
        """The translations of the test set."""
        return self.scores.translations

    def to_json(self) -> Table:
        """Return plain values."""
        against = {
            name: {metric: found.to_json() for metric, found in several.items()}
            for name, several in self.comparisons.items()
        }
        unused = {"unused_units": dict(self.unused)} if self.unused else {}
        return {**self.scores.to_json(), **unused, "against": against}

    def lines(self) -> list[str]:
        """Return the lines to print."""
        compared = [
            self._line(name, metric, found)
            for name, several in self.comparisons.items()
            for metric, found in several.items()
        ]
        sentences = len(self.scores.translations)
        unused = [f"  note: {count:,} units not used: {REASONS[reason]}" for reason, count in self.unused.items()]
        return [f"{self.name}: {sentences:,} sentences", *unused, *self.scores.lines(self.metrics), *compared]

    def _line(self, name: str, metric: str, found: Comparison) -> str:
        show = self.metrics[metric].show
        better = {"first": f"{self.name} is better", "second": f"{name} is better"}
        return (
            f"{metric}: {show(found.first)} vs {show(found.second)} of {name}, difference {show(found.delta)} "
            f"({show(found.low)} to {show(found.high)}), p = {found.p_value:.3f}: "
            f"{better.get(found.better, 'no significant difference')}"
        )


def evaluate_translators(
    models: Sequence[tuple[str, Translator]],
    test: TestSet,
    metrics: Mapping[str, Metric],
    samples: int = SAMPLES,
    options: Mapping[str, Any] | None = None,
) -> TranslationEvaluation:
    """Evaluate the first of some models, and compare it with each of the others by a paired bootstrap test."""
    (name, first), *others = (
        (name, score_translator(translator, test, metrics, samples, options)) for name, translator in models
    )
    comparisons = {other: compare_scores(first, scores, test, metrics, samples) for other, scores in others}
    return TranslationEvaluation(name, metrics, first, comparisons, test.unused)


def _teacher_forced(translator: Translator, test: TestSet) -> tuple[float, int, int, int]:
    """Return (negative log-likelihood, hits, tokens, pairs left out) over every source with each of its references."""
    pairs = [
        (source, reference)
        for source, several in zip(test.sources, test.references, strict=True)
        for reference in several
    ]
    scored = [found for found in translator.score(pairs) if found is not None]
    if not scored:
        raise DataError("every pair of the test set is too long for the model; split them into lines")
    loss = -math.fsum(target.log_probability for target in scored)
    hits, tokens = (sum(of(target.hits) for target in scored) for of in (sum, len))
    return loss, hits, tokens, len(pairs) - len(scored)


def write_lines(path: Path, lines: Sequence[str]) -> None:
    """Write lines to a file atomically."""
    with atomic_file(path) as temporary:
        temporary.write_text("".join(f"{one_line(line)}\n" for line in lines), encoding="utf-8")


# Validation during training.

DECODED_TOGETHER = 64
"""Pairs that one thread translates at a time."""


class ValidationTranslations:
    """Translates the first pairs of a split."""

    def __init__(self, prepared: Prepared, split: PairStore, most: int) -> None:
        self.split = split
        self.source, self.target = prepared.source_tokenizer, prepared.target_tokenizer
        tags = prepared.report.tags
        self.prefix_length = len(prepared.target_tokenizer.target_prefix) if tags is None else tags.lengths[1]
        """Tokens that every target begins with."""
        self.rows = range(min(len(split), most))

    def translate(self, workers: Workers, options: SearchOptions) -> list[str]:
        """Return the translations, in order."""
        requests = [
            Request(
                row, self.split.source(row).tolist(), options, self.split.target(row)[: self.prefix_length].tolist()
            )
            for row in self.rows
        ]
        parts = -(-len(requests) // DECODED_TOGETHER)

        def translate(model: AnyTransducer, part: int) -> list[str]:
            engine = TorchEngine(model, self.source.specials, self.target.specials)
            return [self.target.decode(found[0].tokens) for found in engine.translate(requests[part::parts])]

        translations = [""] * len(requests)
        for part, found in enumerate(workers.each(translate, parts)):
            translations[part::parts] = found
        return translations

    def score(self, workers: Workers, options: SearchOptions, metric: str) -> float:
        """Translate and return the score."""
        references = [[self.split.text(row)[1]] for row in self.rows]
        return METRICS[metric].score(self.translate(workers, options), references).value


class GreedyTranslations(ValidationTranslations):
    """Translates greedily and scores the translations, at every validation."""

    def __init__(self, prepared: Prepared, split: PairStore, config: TrainingConfig) -> None:
        super().__init__(prepared, split, config.decode_examples)
        fitting = surveyed_metrics(prepared)
        self.metrics = (config.metric, *(name for name in fitting if name != config.metric))
        if config.metric == "loss":
            self.metrics = fitting

    def __call__(self, workers: Workers) -> Predictions:
        """Translate and score."""
        if not self.rows:
            return Predictions()
        translations = self.translate(workers, SearchOptions(method="greedy"))
        texts = [self.split.text(row) for row in self.rows]
        references = [[target] for _, target in texts]
        scores = {name: METRICS[name].score(translations, references) for name in self.metrics}
        samples = zip(texts[:NUM_SAMPLES], translations[:NUM_SAMPLES], strict=True)
        return Predictions(
            scores={name: score.value for name, score in scores.items()},
            samples=tuple(Sample(source, reference, translation) for (source, reference), translation in samples),
            signatures=tuple(str(score) for score in scores.values()),
        )
