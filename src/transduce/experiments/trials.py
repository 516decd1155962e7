"""Trials: the models that a study compares, trained as ordinary runs on one corpus, evaluated once, and kept.

Every trial has a run folder, named after its settings and its data. A finished trial is not trained again, an
interrupted one is resumed, and one whose settings or data changed is another trial with another folder.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from transduce.config import Config, Table
from transduce.data.order import BatchSampler
from transduce.data.prepared import Prepared
from transduce.data.store import PairStore
from transduce.errors import ModelFolderError
from transduce.evaluation.metrics import Metric, bleu_metric
from transduce.evaluation.significance import Interval, intervals
from transduce.experiments.finding import Conditions, Report
from transduce.experiments.study_corpus import StudyCorpus
from transduce.inference.load import load_translator
from transduce.inspection.cost import training_flops
from transduce.models import catalog
from transduce.models.interface import AnyTransducer, VocabularySizes
from transduce.recipe import Recipe, resume_recipe
from transduce.run import train
from transduce.storage.atomic import atomic_file, read_json, write_json
from transduce.storage.journal import read_journal
from transduce.storage.layout import JOURNAL, MODEL, RECIPE, TIMING
from transduce.tasks.catalog import load_prepared, prepare
from transduce.tasks.translation.evaluation import score_translator
from transduce.text.tokenizer.tokenizer import TokenizerConfig
from transduce.training.interruption import Interrupted
from transduce.training.reporter import Silent, Step, Validation

RESULT = "result.json"
COUNTED_PAIRS = 8
"""Pairs of the corpus, evenly spaced by length, whose operations are counted."""


@dataclass(frozen=True)
class Trial:
    """One model of a study."""

    name: str
    """Short, for its folder and for progress."""
    model: Table
    """The table [model]."""
    training: Table
    """The table [training]."""

    def with_seed(self, seed: int) -> Trial:
        """The same with another seed."""
        return replace(self, training={**self.training, "seed": seed})


@dataclass(frozen=True)
class TrialResult:
    """What was measured of one trial."""

    parameters: int
    updates: int
    flops: float
    """Counted operations of training: matrix products, forward and backward, without padding."""
    seconds: float
    """Processor time of training, without validation."""
    perplexity: float
    """Per token of the evaluated references."""
    curve: tuple[tuple[int, float], ...]
    """(update, BLEU of the first validation pairs) while training; empty if none was measured."""
    translations: tuple[str, ...]
    """Of the evaluated sources, in order."""

    @classmethod
    def from_json(cls, table: Table, where: Path) -> TrialResult:
        """Read what `to_json` gave."""
        try:
            curve = tuple((int(update), float(score)) for update, score in table["curve"])
            return cls(**{**table, "curve": curve, "translations": tuple(table["translations"])})
        except (KeyError, TypeError, ValueError):
            raise ModelFolderError(f"{where}: is not the result of a trial; delete it to evaluate again") from None

    def to_json(self) -> Table:
        return asdict(self)


@dataclass(frozen=True)
class Measured:
    """One model of a study with all its seeds."""

    results: tuple[TrialResult, ...]
    score: Interval
    """Mean score of the seeds, with its interval over resampled sentences."""
    scores: tuple[float, ...]
    """Score of each seed."""

    @property
    def losses(self) -> list[float]:
        """Logarithm of each seed's perplexity."""
        return [math.log(result.perplexity) for result in self.results]

    @property
    def loss(self) -> float:
        """Their mean."""
        return math.fsum(self.losses) / len(self.losses)


class Trials:
    """Carries out the trials of a study in its folder."""

    def __init__(
        self,
        corpus: StudyCorpus,
        tokenizer: Table,
        conditions: Conditions,
        evaluated: str = "test",
        metric: Metric | None = None,
    ) -> None:
        """`evaluated` is the split whose translations are scored, by BLEU unless another metric is given."""
        self.folder, self.conditions = conditions.folder, conditions
        self.metric = metric or bleu_metric()
        self.evaluated = corpus.test_set(evaluated)
        self._split = evaluated
        self._flops: dict[Config, float] = {}
        self._digest = _digest(corpus.fingerprint(), tokenizer)
        self.prepared = self._prepare(corpus, tokenizer)

    def _prepare(self, corpus: StudyCorpus, tokenizer: Table) -> Prepared:
        """Prepare the corpus once for all trials."""
        place = self.folder / f"corpus-{self._digest}"
        if not place.exists():
            settings = TokenizerConfig.from_table(tokenizer, "the study's tokenizer")
            prepare(corpus.settings(), settings, place, self.conditions.report)
        return load_prepared(place)

    def result(self, trial: Trial) -> TrialResult:
        """Train, evaluate and keep a trial, as far as that has not been done."""
        recipe = self._recipe(trial)
        folder = self._folder(trial.name, recipe)
        kept = folder / RESULT
        if kept.is_file():
            return TrialResult.from_json(read_json(kept, ModelFolderError, "delete it to evaluate again"), kept)
        clock = _Clock(trial.name, self.conditions.report)
        self._train(recipe, folder, clock)
        self.conditions.report(f"{trial.name}: evaluation", len(self.evaluated.sources))
        scores = score_translator(load_translator(folder), self.evaluated, {}, samples=1)
        found = TrialResult(
            parameters=sum(weight.numel() for weight in _on_meta(recipe.model, self.sizes).parameters()),
            updates=recipe.training.updates,
            flops=recipe.training.updates * self.flops_per_update(trial),
            seconds=clock.per_update * recipe.training.updates if clock.updates else _wall_seconds(folder),
            perplexity=scores.perplexity,
            curve=_curve(folder),
            translations=tuple(scores.translations),
        )
        with atomic_file(kept) as temporary:
            write_json(temporary, found.to_json())
        return found

    def validation_perplexity(self, trial: Trial) -> float:
        """Return the lowest validation perplexity of a trial, to choose settings by; the test set is not read."""
        self.result(trial)
        lines = read_journal(self._folder(trial.name, self._recipe(trial)) / JOURNAL)
        return min(float(line["perplexity"]) for line in lines if line["event"] == "validation")

    def _folder(self, name: str, recipe: Recipe) -> Path:
        return self.folder / f"{name}-{_digest(self._digest, self._split, self.metric.name, _settings(recipe))}"

    def _recipe(self, trial: Trial) -> Recipe:
        training = {"threads": self.conditions.threads, **trial.training}
        tables = {"data": self.prepared.data.to_table(), "tokenizer": self.prepared.tokenizer.to_table()}
        tables |= {"model": trial.model, "training": training, "search": {"method": "greedy"}}
        return Recipe.from_tables(tables, f"the trial {trial.name}")

    def _train(self, recipe: Recipe, folder: Path, clock: _Clock) -> None:
        if (folder / MODEL).exists():
            return
        begun = (folder / RECIPE).exists()
        try:
            train(
                resume_recipe(folder) if begun else recipe,
                folder,
                resume=begun,
                prepared=self.prepared.folder,
                reporter=clock,
            )
        except Interrupted as stopped:
            stopped.args = (f"stopped in {folder}, everything is saved; the same command resumes the study",)
            raise

    @property
    def sizes(self) -> VocabularySizes:
        """Sizes of the vocabularies."""
        return VocabularySizes(self.prepared.source_tokenizer.size, self.prepared.target_tokenizer.size)

    def flops_per_update(self, trial: Trial) -> float:
        """Return the mean operations of one update: matrix products of the forward pass and twice as many backward."""
        recipe = self._recipe(trial)
        store: PairStore = self.prepared.train  # type: ignore[assignment]
        sampler = BatchSampler.of(store, recipe.training.tokens_per_batch, recipe.training.seed)
        known = self._flops.get(recipe.model)
        if known is None:
            known = self._flops[recipe.model] = mean_flops(recipe.model, self.sizes, store)
        return known * len(store) / sampler.batches_in_epoch(0)

    def measure(self, trial: Trial, seeds: int = 1) -> Measured:
        """Carry out a trial with several seeds, the first of which is the study's."""
        first = self.conditions.seed
        results = tuple(self.result(trial.with_seed(first + turn)) for turn in range(seeds))
        return Measured(results, self._interval(results), tuple(self._scores(results)))

    def _interval(self, results: Sequence[TrialResult]) -> Interval:
        """Return the mean score of several seeds of one trial, with its interval over resampled sentences."""
        references = self.evaluated.references
        counts = [self.metric.statistics(result.translations, references) for result in results]

        def mean(weight: Any) -> dict[str, float]:
            return {"score": float(np.mean([self.metric.value(weight @ count) for count in counts]))}

        return intervals(mean, len(references))["score"]

    def _scores(self, results: Iterable[TrialResult]) -> list[float]:
        return [self.metric.score(result.translations, self.evaluated.references).value for result in results]


def mean_flops(model: Config, sizes: VocabularySizes, store: PairStore) -> float:
    """Return the operations of training on one pair: the mean over pairs evenly spaced by their length.

    It is corrected by the ratio of all pairs' mean length to theirs, since most of the cost is proportional to that.
    """
    lengths = np.stack([store.source_lengths[:], store.target_lengths[:]], axis=1) + 1  # the end token
    lengths = lengths[np.argsort(lengths.sum(axis=1), kind="stable")]
    count = min(COUNTED_PAIRS, len(lengths))
    places = ((np.arange(count) + 0.5) * len(lengths) / count).astype(int)
    outline = _on_meta(model, sizes)
    counted = [training_flops(outline, int(source), int(target)) for source, target in lengths[places]]
    return float(np.mean(counted) * lengths.mean() / lengths[places].mean())


def _on_meta(model: Config, sizes: VocabularySizes) -> AnyTransducer:
    with torch.device("meta"):
        built: AnyTransducer = catalog.build(model, sizes)  # type: ignore[assignment]
    return built


def _settings(recipe: Recipe) -> Table:
    """Everything that the weights and the score depend on, but the data."""
    tables = recipe.to_tables()
    del tables["training"]["threads"], tables["data"]
    return tables


def _digest(*values: object) -> str:
    text = json.dumps(values, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _wall_seconds(folder: Path) -> float:
    """Seconds of the last process, if it ended before it could be evaluated."""
    return float(read_journal(folder / TIMING)[-1]["seconds"])


def _curve(folder: Path) -> tuple[tuple[int, float], ...]:
    lines = read_journal(folder / JOURNAL)
    return tuple((line["update"], line["bleu"]) for line in lines if line["event"] == "validation" and "bleu" in line)


class _Clock(Silent):
    """Reports progress, and measures the processor time of an update: on a busy machine less noisy than the clock."""

    def __init__(self, name: str, report: Report) -> None:
        self._name, self._report = name, report
        self._mark: float | None = None
        self.updates, self._seconds = 0, 0.0

    def step(self, step: Step) -> None:
        now = time.process_time()
        if self._mark is not None:
            self.updates, self._seconds = self.updates + 1, self._seconds + now - self._mark
        self._mark = now
        self._report(self._name, step.update)

    def validation(self, validation: Validation) -> None:
        self._mark = None

    @property
    def per_update(self) -> float:
        """Seconds of an update, on average."""
        return self._seconds / max(self.updates, 1)
