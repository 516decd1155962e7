"""BLEU and chrF, computed by sacreBLEU, always with its signature.

Nothing is counted here: sacreBLEU counts per sentence and makes a score of the sums (the two calls that its own
significance tests use), so these numbers are those that other people's papers can be compared with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from transduce.errors import SettingsError, suggestion
from transduce.evaluation.metric import Counts, Metric, References, Score, checked

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
