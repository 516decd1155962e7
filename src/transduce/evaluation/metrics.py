"""Corpus metrics: BLEU and chrF (by sacreBLEU), exact match, error rates, and measures of a model's loss.

Every corpus metric counts per sentence, sums the counts and computes one score from the sums (BLEU's n-gram matches, an
error rate's edits and lengths). So scoring, bootstrap intervals and paired tests are written once, over an array of
counts with one row per sentence.

BLEU and chrF are sacreBLEU's own, always with its signature: it counts per sentence and scores the sums (the two calls
that its significance tests use), so these numbers compare with those of published papers.

The rules of the other metrics, where any of several references counts (a word may have several pronunciations):

- *exact match*: the text equals a reference, apart from leading and trailing spaces.
- *word error rate*: the share of lines whose symbols equal those of no reference. The grapheme-to-phoneme literature
  uses the name in this sense, where one line is one word. (In speech recognition it means edits over the words of a
  sentence; that is `phoneme_error_rate` with words as symbols.)
- *phoneme error rate*: edits to the nearest reference over whitespace-separated symbols, summed over the corpus and
  divided by the summed lengths of those references. Nearest means fewest edits; among equals the longest reference, so
  that the order of the references does not matter.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from transduce import __version__
from transduce.errors import DataError, SettingsError, suggestion

References = Sequence[Sequence[str]]
"""One or several references per sentence; a plain string counts as one reference."""

Counts = NDArray[np.float64]
"""(N, k) per sentence, or (k) summed; integers, exact in float64."""


@dataclass(frozen=True)
class Score:
    """A score, with everything needed to compare it with published ones."""

    name: str
    value: float
    """BLEU and chrF from 0 to 100, rates from 0 to 1."""
    signature: str
    """How it was computed; scores with different signatures do not compare."""
    shown: str
    """The formatted value."""
    detail: str = ""
    """Further output of the metric: BLEU's precisions and lengths."""
    warning: str = ""
    """Why the score may be misleading; empty if there is no doubt."""

    def __str__(self) -> str:
        return f"{self.name}|{self.signature} = {self.shown} {self.detail}".rstrip()

    def to_json(self) -> dict[str, Any]:
        """Return JSON values without empty fields."""
        return {key: value for key, value in asdict(self).items() if value != ""}


class Metric(ABC):
    """A corpus metric: subclasses count per sentence and compute the score of the sums."""

    name: str
    higher_is_better: bool

    @abstractmethod
    def statistics(self, hypotheses: Sequence[str], references: References) -> Counts:
        """Count per sentence.  N sentences -> (N, k)."""

    @abstractmethod
    def value(self, total: Counts) -> float:
        """Return the corpus score of the summed counts.  (k) -> a number."""

    @abstractmethod
    def show(self, value: float) -> str:
        """Format a value, or a difference of two."""

    @abstractmethod
    def score(self, hypotheses: Sequence[str], references: References) -> Score:
        """Score a corpus."""


@dataclass(frozen=True)
class RateMetric(Metric):
    """A ratio of two sums: wrong words / words, edits / symbols. From 0 to 1 (an error rate may exceed 1)."""

    name: str
    count: Callable[[str, Sequence[str]], tuple[int, int]]
    """(hypothesis, references) -> (count, total)."""
    rule: str
    """The comparison rule, for the signature."""
    higher_is_better: bool = False

    def statistics(self, hypotheses: Sequence[str], references: References) -> Counts:
        checked = check_references(hypotheses, references)
        pairs = [self.count(hypothesis, several) for hypothesis, several in zip(hypotheses, checked, strict=True)]
        counts = np.array(pairs, dtype=np.float64)
        if not counts[:, 1].any():
            raise DataError(f"{self.name}: every reference is empty; give references with text")
        return counts

    def value(self, total: Counts) -> float:
        counted, possible = total.tolist()
        return float(counted / max(possible, 1.0))  # a resample may hold only empty references

    def show(self, value: float) -> str:
        return f"{100 * value:.2f} %"

    def score(self, hypotheses: Sequence[str], references: References) -> Score:
        value = self.value(self.statistics(hypotheses, references).sum(axis=0))
        signature = f"nrefs:{reference_count(references)}|rule:{self.rule}|version:{__version__}"
        return Score(self.name, value, signature, self.show(value))


def check_references(hypotheses: Sequence[str], references: References) -> list[tuple[str, ...]]:
    """Return the references as one tuple per sentence; raise an error where a sentence has none."""
    if len(hypotheses) != len(references):
        raise DataError(
            f"{len(hypotheses):,} hypotheses but {len(references):,} sets of references; "
            "give one line per sentence in both, in the same order"
        )
    if not hypotheses:
        raise DataError("no hypotheses to score; give at least one line")
    checked = [(several,) if isinstance(several, str) else tuple(several) for several in references]
    for number, several in enumerate(checked, start=1):
        if not several:
            raise DataError(f"sentence {number:,} has no reference; give it at least one, or leave it out")
    return checked


def reference_count(references: References) -> str:
    """Return the number of references per sentence as sacreBLEU writes it: a number, or "var" if it varies."""
    sizes = {1 if isinstance(several, str) else len(several) for several in references}
    return str(sizes.pop()) if len(sizes) == 1 else "var"


def edit_distance(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the fewest insertions, deletions and substitutions that make one sequence the other (Levenshtein)."""
    if len(one) < len(other):
        one, other = other, one
    row = list(range(len(other) + 1))
    for i, left in enumerate(one, start=1):
        diagonal, row[0] = row[0], i
        for j, right in enumerate(other, start=1):
            kept = diagonal if left == right else diagonal + 1
            diagonal = row[j]
            row[j] = min(kept, row[j] + 1, row[j - 1] + 1)
    return row[-1]


def _count_match(hypothesis: str, references: Sequence[str]) -> tuple[int, int]:
    return int(hypothesis.strip() in {reference.strip() for reference in references}), 1


def _count_wrong(hypothesis: str, references: Sequence[str]) -> tuple[int, int]:
    symbols = hypothesis.split()
    return int(all(reference.split() != symbols for reference in references)), 1


def _count_edits(hypothesis: str, references: Sequence[str]) -> tuple[int, int]:
    symbols = hypothesis.split()
    candidates = [reference.split() for reference in references]
    edits, negative_length = min((edit_distance(symbols, one), -len(one)) for one in candidates)
    return edits, -negative_length


EXACT_MATCH = RateMetric("exact_match", _count_match, "text-equals-any", higher_is_better=True)
WORD_ERROR_RATE = RateMetric("word_error_rate", _count_wrong, "line-equals-none")
PHONEME_ERROR_RATE = RateMetric("phoneme_error_rate", _count_edits, "edits-to-nearest")


def perplexity(loss_sum: float, tokens: int) -> float:
    """Return exp(loss per token), the loss in nats and without label smoothing; infinity where that overflows."""
    if tokens <= 0:
        raise DataError("perplexity needs at least one token, but the corpus has none")
    try:
        return math.exp(loss_sum / tokens)
    except OverflowError:
        return math.inf


def finite(value: float) -> float | None:
    """Return a number, or None for infinity and NaN, which JSON lacks."""
    return value if math.isfinite(value) else None


def bits_per_byte(loss_sum: float, size: int) -> float:
    """Return the cross-entropy in bits per byte of UTF-8, which unlike perplexity compares different tokenizers."""
    if size <= 0:
        raise DataError("bits per byte need at least one byte, but the text has none")
    return loss_sum / math.log(2) / size


TOKENIZED_LINES = 100
"""sacreBLEU's threshold: as many lines ending in " ." look tokenized already."""


@dataclass(frozen=True)
class SacreMetric(Metric):
    """One of sacreBLEU's metrics with its settings."""

    name: str
    build: Callable[[], Any]
    """Builds sacreBLEU's object; a new one each time, because it caches the last references."""
    detokenized: bool = False
    """Whether the score is meaningful only on detokenized text."""
    higher_is_better: bool = True

    def statistics(self, hypotheses: Sequence[str], references: References) -> Counts:
        return self._count(self.build(), hypotheses, references)

    def value(self, total: Counts) -> float:
        return float(self._of_totals._compute_score_from_stats(total.tolist()).score)

    @cached_property
    def _of_totals(self) -> Any:
        """An object that never sees references, shared by all totals: some tokenizers load a model."""
        return self.build()

    def show(self, value: float) -> str:
        return f"{value:.2f}"

    def score(self, hypotheses: Sequence[str], references: References) -> Score:
        scorer = self.build()
        total = self._count(scorer, hypotheses, references).sum(axis=0)
        result = scorer._compute_score_from_stats(total.tolist())
        value = float(result.score)
        warning = _tokenized_warning(hypotheses) if self.detokenized else ""
        return Score(result.name, value, scorer.get_signature().format(), self.show(value), result._verbose, warning)

    def _count(self, scorer: Any, hypotheses: Sequence[str], references: References) -> Counts:
        checked = check_references(hypotheses, references)
        rows = scorer._extract_corpus_statistics(list(hypotheses), _streams(checked))
        return np.array(rows, dtype=np.float64)


def bleu_metric(tokenize: str = "13a", lowercase: bool = False) -> SacreMetric:
    """Return corpus BLEU (Papineni et al. 2002) with sacreBLEU's tokenizer of that name."""
    if tokenize not in BLEU.TOKENIZERS:
        raise SettingsError(f"unknown sacreBLEU tokenizer '{tokenize}'{suggestion(tokenize, BLEU.TOKENIZERS)}")

    def build() -> Any:
        try:  # force=True: we warn about tokenized text ourselves, instead of a log line
            return BLEU(tokenize=tokenize, lowercase=lowercase, force=True)
        except OSError as error:
            raise SettingsError(
                f"sacreBLEU's tokenizer '{tokenize}' could not be downloaded "
                f"({str(error).splitlines()[0]}); try again online, or choose another tokenizer"
            ) from None
        except (ImportError, RuntimeError) as error:
            reason = str(error).strip().splitlines()[0]
            raise SettingsError(
                f"sacreBLEU's tokenizer '{tokenize}' needs a package that is missing: {reason}"
            ) from None

    return SacreMetric("BLEU", build, detokenized=tokenize != "none")


def chrf_metric(word_order: int = 0, lowercase: bool = False) -> SacreMetric:
    """Return chrF (Popović 2015), or chrF++ with a `word_order` of 2."""
    if word_order < 0:
        raise SettingsError(f"chrF's word_order cannot be {word_order}; give 0 for chrF or 2 for chrF++")
    return SacreMetric("chrF2" + "+" * word_order, lambda: CHRF(word_order=word_order, lowercase=lowercase))


def _streams(references: Sequence[tuple[str, ...]]) -> list[list[str | None]]:
    """Turn references per sentence into sacreBLEU's streams: the i-th of every sentence, None where there is none."""
    most = max(map(len, references))
    return [[several[i] if i < len(several) else None for several in references] for i in range(most)]


def _tokenized_warning(hypotheses: Sequence[str]) -> str:
    tokenized = sum(line.endswith(" .") for line in hypotheses)
    if tokenized < TOKENIZED_LINES:
        return ""
    return (
        f"{tokenized:,} lines end in ' .', as tokenized text does; "
        "score detokenized text, or use the tokenizer 'none' and report it"
    )


METRICS: dict[str, Metric] = {
    "bleu": bleu_metric(),
    "chrf": chrf_metric(),
    "exact_match": EXACT_MATCH,
    "word_error_rate": WORD_ERROR_RATE,
    "phoneme_error_rate": PHONEME_ERROR_RATE,
}
"""Metrics by name; variants (another tokenizer, lowercase, chrF++) come from `bleu_metric` and `chrf_metric`."""


def show_score(name: str, value: float) -> str:
    """Format a score by the name of its metric; those of text encoders are percentages."""
    return METRICS[name].show(value) if name in METRICS else f"{100 * value:.2f} %"


def select_metrics(names: Collection[str], tokenize: str = "13a", lowercase: bool = False) -> dict[str, Metric]:
    """Return the metrics of these names, in this order; BLEU with this tokenizer, BLEU and chrF in this case."""
    bleu = bleu_metric(tokenize, lowercase)
    known = {**METRICS, "bleu": bleu, "chrf": chrf_metric(lowercase=lowercase)}
    for name in names:
        if name not in known:
            raise SettingsError(f"unknown metric '{name}'{suggestion(name, known)}")
    if "bleu" in names:
        bleu.build()  # fail now, not after translating, if its tokenizer is unavailable
    return {name: known[name] for name in names}
