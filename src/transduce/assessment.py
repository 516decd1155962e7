"""A test set, a translator's answers to it, and what they are worth: scores, intervals, and one run against another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transduce.config import Table
from transduce.decoding.scoring import score_targets
from transduce.errors import DataError, SettingsError
from transduce.evaluation.metric import Metric, Score
from transduce.evaluation.perplexity import perplexity
from transduce.evaluation.significance import SAMPLES, Comparison, Interval, compare, interval
from transduce.text.corpus import CorpusFiles, read_lines, read_pairs
from transduce.translator import Translator

SCORED_TOGETHER = 4096
"""Target tokens, padding included, that are scored as one batch."""


@dataclass(frozen=True)
class TestSet:
    """Sources, each with one or several right answers."""

    __test__ = False  # pytest takes every Test… for its own

    sources: list[str]
    references: list[list[str]]


@dataclass(frozen=True)
class Assessment:
    """How one translator did."""

    translations: list[str]
    perplexity: float
    """Per token, of all references."""
    accuracy: float
    """Share of the references' tokens that the model finds likeliest, given the true ones before."""
    scores: dict[str, Score]
    intervals: dict[str, Interval]

    def to_json(self) -> Table:
        """Return plain values; the translations have a file of their own."""
        return {
            "sentences": len(self.translations),
            "perplexity": self.perplexity,
            "token_accuracy": self.accuracy,
            "scores": {name: score.to_json() for name, score in self.scores.items()},
            "intervals": {name: found.to_json() for name, found in self.intervals.items()},
        }

    def lines(self, metrics: Mapping[str, Metric]) -> list[str]:
        """Return what a person reads."""
        found = [f"perplexity {self.perplexity:.3f}, token accuracy {100 * self.accuracy:.2f} %"]
        for name, score in self.scores.items():
            show, middle = metrics[name].show, self.intervals[name]
            found.append(f"{score}  (95 % interval {show(middle.low)} to {show(middle.high)})")
            if score.warning:
                found.append(f"  note: {score.warning}")
        return found


def read_test_set(source: str | None, targets: Sequence[str], path: str | None) -> TestSet:
    """Read a test set from line-aligned files, or from one file whose lines with the same source belong together."""
    if path is not None:
        if source is not None or targets:
            raise SettingsError("give --path alone, or --source with --target")
        together: dict[str, list[str]] = {}
        for pair in read_pairs(CorpusFiles.from_table({"path": path}, path)):
            together.setdefault(pair.source, []).append(pair.target)
        test = TestSet(list(together), list(together.values()))
    else:
        if source is None or not targets:
            raise SettingsError("name the test set: --source and --target, or --path")
        first, *others = targets  # every file is read once: it may be a pipe
        pairs = list(read_pairs(CorpusFiles(source=source, target=first)))
        columns = [[pair.target for pair in pairs], *(list(read_lines(other)) for other in others)]
        for other, column in zip(others, columns[1:], strict=True):
            if len(column) != len(pairs):
                raise DataError(f"{other}: has {len(column):,} lines, {source} has {len(pairs):,}; they must agree")
        test = TestSet([pair.source for pair in pairs], [list(several) for several in zip(*columns, strict=True)])
    if not test.sources:
        raise DataError(f"{path or source}: is empty; there is nothing to evaluate")
    return test


def assess(
    translator: Translator,
    test: TestSet,
    metrics: Mapping[str, Metric],
    samples: int = SAMPLES,
    options: Mapping[str, Any] | None = None,
) -> Assessment:
    """Translate a test set and score the answers."""
    translations = translator.translate(test.sources, **(options or {}))
    loss, hits, tokens = _teacher_forced(translator, test)
    return Assessment(
        translations=translations,
        perplexity=perplexity(loss, tokens),
        accuracy=hits / tokens,
        scores={name: metric.score(translations, test.references) for name, metric in metrics.items()},
        intervals={name: interval(metric, translations, test.references, samples) for name, metric in metrics.items()},
    )


def compare_assessments(
    first: Assessment, second: Assessment, test: TestSet, metrics: Mapping[str, Metric], samples: int = SAMPLES
) -> dict[str, Comparison]:
    """Test for each metric whether two translators differ by more than chance."""
    return {
        name: compare(metric, first.translations, second.translations, test.references, samples)
        for name, metric in metrics.items()
    }


def _teacher_forced(translator: Translator, test: TestSet) -> tuple[float, int, int]:
    """Return (negative log-likelihood, hits, tokens) over every source with each of its references."""
    pairs = [
        (source, reference)
        for source, several in zip(test.sources, test.references, strict=True)
        for reference in several
    ]
    limit_source, limit_target = translator.model.max_source, translator.model.max_target
    sources = translator.source.encode_batch([source for source, _ in pairs])
    targets = translator.target.encode_batch([target for _, target in pairs])
    order = sorted(range(len(pairs)), key=lambda row: (len(targets[row]), len(sources[row])))
    order = [
        row
        for row in order
        if len(sources[row]) < (limit_source or 10**9) and len(targets[row]) < (limit_target or 10**9)
    ]
    loss, hits, tokens = 0.0, 0, 0
    while order:
        count = max(1, SCORED_TOGETHER // (max(len(targets[order[-1]]), len(sources[order[-1]])) + 1))
        batch, order = order[-count:], order[:-count]
        scored = score_targets(
            translator.model,
            [sources[row] for row in batch],
            [targets[row] for row in batch],
            translator.source.specials,
            translator.target.specials,
        )
        loss -= sum(target.log_probability for target in scored)
        hits += sum(sum(target.hits) for target in scored)
        tokens += sum(len(target.hits) for target in scored)
    return loss, hits, tokens


def write_lines(path: Path, lines: Sequence[str]) -> None:
    """Write lines to a file, whole or not at all."""
    from transduce.storage import file_aside

    with file_aside(path) as aside:
        aside.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
