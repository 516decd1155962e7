"""BLEU and chrF, computed by sacreBLEU, always with its signature.

Nothing is counted here: sacreBLEU counts per sentence and makes a score of the sums (the two calls that its own
significance tests use), so these numbers are those that other people's papers can be compared with.
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

# What a corpus metric is: numbers counted per sentence, added up, and one score made of the sums.
#
# Every metric here has that form (BLEU's n-gram matches, an error rate's edits and lengths), so scoring, bootstrap
# intervals and paired tests are written once, over an array of counts with one row per sentence.

References = Sequence[Sequence[str]]
"""One or several right answers per sentence; a plain string where a sentence has one is taken as that one."""

Counts = NDArray[np.float64]
"""(N, k) per sentence, or (k) summed; whole numbers, exact in float64."""


@dataclass(frozen=True)
class Score:
    """One number, with all that is needed to compare it with somebody else's."""

    name: str
    value: float
    """BLEU and chrF from 0 to 100, as everywhere; rates from 0 to 1."""
    signature: str
    """How it was computed; scores with different signatures do not compare."""
    shown: str
    """The value as a person reads it."""
    detail: str = ""
    """What the metric says besides: BLEU's precisions and lengths."""
    warning: str = ""
    """Why the number may not mean what it seems to; empty when there is no doubt."""

    def __str__(self) -> str:
        return f"{self.name}|{self.signature} = {self.shown} {self.detail}".rstrip()

    def to_json(self) -> dict[str, Any]:
        """Return plain values, the empty ones left out."""
        return {key: value for key, value in asdict(self).items() if value != ""}


class Metric(ABC):
    """A corpus metric: a leaf says what to count per sentence and what the sums amount to."""

    name: str
    higher_is_better: bool

    @abstractmethod
    def statistics(self, hypotheses: Sequence[str], references: References) -> Counts:
        """Count per sentence.  N sentences -> (N, k)."""

    @abstractmethod
    def value(self, total: Counts) -> float:
        """Return the corpus's score from the summed counts.  (k) -> a number."""

    @abstractmethod
    def show(self, value: float) -> str:
        """Write a value, or a difference of two, as a person reads it."""

    @abstractmethod
    def score(self, hypotheses: Sequence[str], references: References) -> Score:
        """Score a corpus."""


@dataclass(frozen=True)
class Rate(Metric):
    """A ratio of two sums: wrong words of all words, edits of all symbols. From 0 to 1 (an error rate may pass 1)."""

    name: str
    count: Callable[[str, Sequence[str]], tuple[int, int]]
    """One sentence and its references -> what is counted, and out of how many."""
    rule: str
    """What is compared with what, for the signature."""
    higher_is_better: bool = False

    def statistics(self, hypotheses: Sequence[str], references: References) -> Counts:
        answers = checked(hypotheses, references)
        pairs = [self.count(hypothesis, several) for hypothesis, several in zip(hypotheses, answers, strict=True)]
        counts = np.array(pairs, dtype=np.float64)
        if not counts[:, 1].any():
            raise DataError(f"{self.name}: every reference is empty, so there is nothing to be right or wrong about")
        return counts

    def value(self, total: Counts) -> float:
        counted, possible = total.tolist()
        return float(counted / max(possible, 1.0))  # a resample may hold empty references only

    def show(self, value: float) -> str:
        return f"{100 * value:.2f} %"

    def score(self, hypotheses: Sequence[str], references: References) -> Score:
        value = self.value(self.statistics(hypotheses, references).sum(axis=0))
        signature = f"nrefs:{reference_count(references)}|rule:{self.rule}|version:{__version__}"
        return Score(self.name, value, signature, self.show(value))


def checked(hypotheses: Sequence[str], references: References) -> list[tuple[str, ...]]:
    """Return the references as one tuple per sentence, or say which sentence lacks its partner."""
    if len(hypotheses) != len(references):
        raise DataError(
            f"{len(hypotheses):,} hypotheses stand against {len(references):,} sets of references; "
            "give both one line per sentence, in the same order"
        )
    if not hypotheses:
        raise DataError("there is nothing to score: no hypotheses and no references; give at least one line of each")
    answers = [(several,) if isinstance(several, str) else tuple(several) for several in references]
    for number, several in enumerate(answers, start=1):
        if not several:
            raise DataError(f"sentence {number:,} has no reference; give it at least one, or leave it out")
    return answers


def reference_count(references: References) -> str:
    """Return how many references each sentence has, in sacreBLEU's words: a number, or "var" when it varies."""
    sizes = {1 if isinstance(several, str) else len(several) for several in references}
    return str(sizes.pop()) if len(sizes) == 1 else "var"


# Right or wrong: exact match, and the error rates of pronunciation-like tasks.
#
# A word may have several right pronunciations; any of them counts. The rules, since others differ:
#
# - *exact match*: the text equals a reference, spaces at its ends aside. - *word error rate*: the share of lines
# whose symbols are not those of any reference. This is what the grapheme-to-phoneme literature calls so, where one
# line is one word. (Speech recognition means another thing: edits over the words of a sentence; that is
# `phoneme_error_rate` with words as symbols.) - *phoneme error rate*: edits to the nearest reference over whitespace-
# separated symbols, summed over the corpus, divided by the summed lengths of those references. Nearest is the fewest
# edits; among equals the longest reference, so that the order in which references are listed does not matter.


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
    answers = [reference.split() for reference in references]
    edits, shortfall = min((edit_distance(symbols, answer), -len(answer)) for answer in answers)
    return edits, -shortfall


EXACT_MATCH = Rate("exact_match", _count_match, "text-equals-any", higher_is_better=True)
WORD_ERROR_RATE = Rate("word_error_rate", _count_wrong, "line-equals-none")
PHONEME_ERROR_RATE = Rate("phoneme_error_rate", _count_edits, "edits-to-nearest")


# How surprised a model is by the right answer, per token.


def perplexity(loss_sum: float, tokens: int) -> float:
    """Return exp(loss per token), the loss in nats and without label smoothing.

    An untrained or broken model may have a loss whose exponential no float can hold: that is infinity, not a crash.
    """
    if tokens <= 0:
        raise DataError("perplexity needs at least one token; the corpus has none")
    try:
        return math.exp(loss_sum / tokens)
    except OverflowError:
        return math.inf


def finite(value: float) -> float | None:
    """Return a number that JSON has, or None for infinity, which it has not."""
    return value if math.isfinite(value) else None


def bits_per_byte(loss_sum: float, size: int) -> float:
    """Return what a text would take if it were packed by the model, in bits for each byte of its UTF-8.

    Unlike perplexity, this compares models with different tokens.
    """
    if size <= 0:
        raise DataError("bits per byte need at least one byte; the text has none")
    return loss_sum / math.log(2) / size


TOKENIZED_LINES = 100
"""sacreBLEU's threshold: so many lines that end in " ." look tokenised already."""


@dataclass(frozen=True)
class SacreMetric(Metric):
    """One of sacreBLEU's metrics with its settings."""

    name: str
    build: Callable[[], Any]
    """Makes sacreBLEU's object; a new one each time, for it remembers the last references it saw."""
    detokenized: bool = False
    """Whether the score means something on text with its spaces as written only."""
    higher_is_better: bool = True

    def statistics(self, hypotheses: Sequence[str], references: References) -> Counts:
        return self._count(self.build(), hypotheses, references)

    def value(self, total: Counts) -> float:
        return float(self._of_totals._compute_score_from_stats(total.tolist()).score)

    @cached_property
    def _of_totals(self) -> Any:
        """One that never sees a reference, for all totals: some load a model of their own."""
        return self.build()

    def show(self, value: float) -> str:
        return f"{value:.2f}"

    def score(self, hypotheses: Sequence[str], references: References) -> Score:
        judge = self.build()
        total = self._count(judge, hypotheses, references).sum(axis=0)
        result = judge._compute_score_from_stats(total.tolist())
        value = float(result.score)
        warning = _doubt(hypotheses) if self.detokenized else ""
        return Score(result.name, value, judge.get_signature().format(), self.show(value), result._verbose, warning)

    def _count(self, judge: Any, hypotheses: Sequence[str], references: References) -> Counts:
        answers = checked(hypotheses, references)
        rows = judge._extract_corpus_statistics(list(hypotheses), _streams(answers))
        return np.array(rows, dtype=np.float64)


def bleu_metric(tokenize: str = "13a", lowercase: bool = False) -> SacreMetric:
    """Return corpus BLEU (Papineni et al. 2002) with sacreBLEU's tokenizer of that name."""
    if tokenize not in BLEU.TOKENIZERS:
        raise SettingsError(f"sacreBLEU has no tokenizer '{tokenize}'{suggestion(tokenize, BLEU.TOKENIZERS)}")

    def build() -> Any:
        try:  # force=True: the doubt about tokenised text is ours to word, not a log line in somebody's output
            return BLEU(tokenize=tokenize, lowercase=lowercase, force=True)
        except OSError as error:
            raise SettingsError(
                f"sacreBLEU's tokenizer '{tokenize}' is a model that has to be downloaded once, which failed "
                f"({str(error).splitlines()[0]}); try again with a network, or choose another tokenizer"
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
        raise SettingsError(f"chrF's word order {word_order} is not possible; give 0 for chrF or 2 for chrF++")
    return SacreMetric("chrF2" + "+" * word_order, lambda: CHRF(word_order=word_order, lowercase=lowercase))


def bleu(hypotheses: Sequence[str], references: References, tokenize: str = "13a", lowercase: bool = False) -> Score:
    """Score a corpus by BLEU; each sentence has one or several references."""
    return bleu_metric(tokenize, lowercase).score(hypotheses, references)


def chrf(hypotheses: Sequence[str], references: References, word_order: int = 0, lowercase: bool = False) -> Score:
    """Score a corpus by chrF; with several references the best one counts for each sentence."""
    return chrf_metric(word_order, lowercase).score(hypotheses, references)


def _streams(answers: Sequence[tuple[str, ...]]) -> list[list[str | None]]:
    """Turn references per sentence into sacreBLEU's streams: the i-th of every sentence, None where there is none."""
    most = max(map(len, answers))
    return [[several[i] if i < len(several) else None for several in answers] for i in range(most)]


def _doubt(hypotheses: Sequence[str]) -> str:
    tokenized = sum(line.endswith(" .") for line in hypotheses)
    if tokenized < TOKENIZED_LINES:
        return ""
    return (
        f"{tokenized:,} lines end in a full stop with a space before it, as tokenised text does; "
        "score text with its spaces as written, or choose the tokenizer 'none' and say so"
    )


# The metrics by name.

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
