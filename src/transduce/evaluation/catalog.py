"""The metrics by name."""

from __future__ import annotations

from collections.abc import Collection

from transduce.errors import SettingsError, suggestion
from transduce.evaluation.accuracy import EXACT_MATCH, PHONEME_ERROR_RATE, WORD_ERROR_RATE
from transduce.evaluation.bleu import bleu_metric, chrf_metric
from transduce.evaluation.metric import Metric

METRICS: dict[str, Metric] = {
    "bleu": bleu_metric(),
    "chrf": chrf_metric(),
    "exact_match": EXACT_MATCH,
    "word_error_rate": WORD_ERROR_RATE,
    "phoneme_error_rate": PHONEME_ERROR_RATE,
}
"""What a person can ask for by name; variants (another tokenizer, lowercase, chrF++) come from `bleu_metric` and
`chrf_metric`."""


def show_score(name: str, value: float) -> str:
    """Write a score as a person reads it; those of readers are shares."""
    return METRICS[name].show(value) if name in METRICS else f"{100 * value:.2f} %"


def choose(names: Collection[str], tokenize: str = "13a", lowercase: bool = False) -> dict[str, Metric]:
    """Return the metrics of these names, in this order; BLEU with this tokenizer, BLEU and chrF in this case."""
    bleu = bleu_metric(tokenize, lowercase)
    known = {**METRICS, "bleu": bleu, "chrf": chrf_metric(lowercase=lowercase)}
    for name in names:
        if name not in known:
            raise SettingsError(f"there is no metric '{name}'{suggestion(name, known)}")
    if "bleu" in names:
        bleu.build()  # a tokenizer that cannot be had is said now, not after everything was translated
    return {name: known[name] for name in names}
