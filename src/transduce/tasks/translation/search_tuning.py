"""Search options chosen on validation pairs after training: length penalty, beam size, minimum length.

What fits differs between corpora: a length penalty that is right for sentences ends single words early. Each step tries
a few values on the first validation pairs and keeps the best; where two are equal, the earlier one, first of all the
recipe's own. The number of pairs is fixed, so that the choice is a function of the recipe and the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from transduce.data.prepared import Prepared
from transduce.data.store import PairStore
from transduce.evaluation.metrics import METRICS
from transduce.inference.search.options import SearchOptions
from transduce.tasks.translation.evaluation import ValidationTranslations
from transduce.tasks.translation.survey import surveyed_metrics
from transduce.training.config import TrainingConfig
from transduce.training.workers import Workers

PAIRS = 500
"""Validation pairs that are translated with each candidate, …"""
PAIRS_WIDE, WIDE = 200, 512
"""… or fewer by a model of this width and above, which takes long."""
PENALTIES: tuple[dict[str, Any], ...] = (
    {"length_normalization": "power", "length_penalty": 0.0},
    {"length_normalization": "power", "length_penalty": 0.5},
    {"length_normalization": "power", "length_penalty": 1.0},
    {"length_normalization": "power", "length_penalty": 1.5},
)
BEAMS = (1, 8)
"""Beam sizes that are tried besides the recipe's; 1 is as good as greedy search, and faster."""


@dataclass(frozen=True)
class TunedSearch:
    """The options that were best, and what they gained."""

    options: SearchOptions
    metric: str
    before: float
    """Score of the recipe's own options."""
    after: float
    pairs: int

    def __str__(self) -> str:
        """Say what was chosen."""
        options, show = self.options, METRICS[self.metric].show
        penalty = f"length penalty {options.length_penalty:g} ({options.length_normalization})"
        shortest = f", minimum length {options.min_length}" if options.min_length else ""
        return (
            f"search chosen on {self.pairs:,} validation pair{'s' * (self.pairs > 1)}: "
            f"beam size {options.beam_size}, {penalty}{shortest}; "
            f"{self.metric} {show(self.after)}, with the default options {show(self.before)}"
        )


def tune_search(
    given: SearchOptions, prepared: Prepared, config: TrainingConfig, workers: Workers, width: int
) -> TunedSearch | None:
    """Return the best options for a trained model; None without validation pairs, or for another method than beam."""
    split = prepared.validation
    if given.method != "beam" or not isinstance(split, PairStore) or not len(split):
        return None
    metric = config.metric if config.metric in METRICS else surveyed_metrics(prepared)[0]
    translated = ValidationTranslations(prepared, split, PAIRS_WIDE if width >= WIDE else PAIRS)
    best, before = given, None
    after = 0.0
    for step in (_penalties, _beams, _lengths):
        for candidate in step(best, prepared):
            score = translated.score(workers, candidate, metric)
            if before is None:
                before = after = score
            elif score > after if METRICS[metric].higher_is_better else score < after:
                best, after = candidate, score
    assert before is not None
    return TunedSearch(best, metric, before, after, len(translated.rows))


def _penalties(given: SearchOptions, _: Prepared) -> Iterator[SearchOptions]:
    yield given
    yield from (given.but(**penalty) for penalty in PENALTIES)


def _beams(best: SearchOptions, _: Prepared) -> Iterator[SearchOptions]:
    yield from (best.but(beam_size=size) for size in BEAMS if size != best.beam_size and best.beam_groups == 1)


def _lengths(best: SearchOptions, prepared: Prepared) -> Iterator[SearchOptions]:
    """The length of the shortest target of the training corpus: nothing shorter is right."""
    shortest = int(prepared.train_as(PairStore).target_lengths[:].min())
    if (
        prepared.report.tags is None
        and not prepared.target_tokenizer.target_prefix
        and shortest > max(1, best.min_length)
        and shortest <= (best.max_length or shortest)
    ):
        yield best.but(min_length=shortest)
