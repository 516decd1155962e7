"""Reranking given translations: by the score of another model, or by their consensus (minimum Bayes risk)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from transduce.config import counted
from transduce.errors import DataError
from transduce.evaluation.metrics import chrf_metric
from transduce.inference.search.penalty import normalize
from transduce.inference.translation import Translation
from transduce.inference.translator import Translator


@dataclass(frozen=True)
class NBestList:
    """Given translations of one line."""

    line: int
    """From 0."""
    texts: list[str]


def read_nbest(lines: Iterable[str], where: str) -> Iterator[NBestList]:
    """Read n-best lists in Moses's format, `line ||| text ||| …`, grouped by line."""

    def parse() -> Iterator[tuple[int, str]]:
        for number, line in enumerate(lines, start=1):
            first, *fields = [field.strip() for field in line.split("|||")]
            place = counted(first)
            if not fields or place is None:
                raise DataError(f"{where}:{number}: is not of the form `line ||| text ||| …`")
            yield place, fields[0]

    before = -1
    for line, several in groupby(parse(), key=lambda found: found[0]):
        if line <= before:
            raise DataError(
                f"{where}: the translations of line {line} are not next to each other, in the order of the lines"
            )
        before = line
        yield NBestList(line, [text for _, text in several])


def rerank(translator: Translator, source: str, candidates: Sequence[str]) -> list[Translation]:
    """Score each candidate by the model and its length penalty, and sort them, best first.

    One that is too long to be read at once comes last, with a score of minus infinity.
    """
    options = translator.defaults
    found = []
    for text, scored in zip(candidates, translator.score([(source, text) for text in candidates]), strict=True):
        score = -float("inf")
        if scored is not None:
            score = normalize(scored.log_probability, len(scored.token_scores), options)
        found.append(Translation(text, score))
    return sorted(found, key=lambda one: -one.score)


def consensus(candidates: Sequence[Translation]) -> list[Translation]:
    """Sort candidates by how much they agree with all of them, best first: minimum Bayes risk with chrF.

    The score is the mean chrF against the candidates, itself among them (Eikema and Aziz 2020): a translation
    that most samples resemble wins over an outlier.
    """
    metric = chrf_metric()
    weight = Counter(candidate.text for candidate in candidates)
    first = {candidate.text: candidate for candidate in reversed(candidates)}
    found = []
    others = [[other] for other in weight]
    for text in weight:
        shared = metric.statistics([text] * len(others), others)
        gain = sum(count * metric.value(one) for one, count in zip(shared, weight.values(), strict=True))
        found.append(replace(first[text], score=gain / len(candidates)))
    return sorted(found, key=lambda one: -one.score)
