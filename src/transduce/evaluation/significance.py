"""Bootstrap confidence intervals, a paired test between two systems (Koehn 2004), rank correlation, noise of seeds.

The test set is resampled with replacement, and scored each time. For BLEU and chrF the resamples, scores and intervals
equal sacreBLEU's to the last digit for the same seed and number of samples.

The p-value differs from sacreBLEU's. Its definition: if both systems were equally good, how often would a test set like
this one show a difference of at least this size, in either direction? The bootstrapped differences are shifted to a
mean of zero, and those at least as large as the observed one are counted (Efron and Tibshirani 1993, section 16.4).
sacreBLEU counts absolute differences above their own mean, strictly, which calls a system significantly different
from itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from transduce.errors import SettingsError
from transduce.evaluation.metrics import Counts, Metric, References
from transduce.rng import numpy_generator

SAMPLES = 1000
SEED = 12345
"""sacreBLEU's defaults."""


@dataclass(frozen=True)
class Interval:
    """A score with its 95 % bootstrap interval."""

    score: float
    """Score of the test set itself."""
    mean: float
    low: float
    high: float
    samples: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Comparison:
    """Two systems on one test set."""

    first: float
    second: float
    delta: float
    """first − second."""
    low: float
    high: float
    """The 95 % interval of the difference."""
    p_value: float
    """Probability of a difference of this size or more between equally good systems."""
    samples: int
    better: str
    """ "first" or "second" if the p-value is below 0.05, otherwise "neither"."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def interval(
    metric: Metric, hypotheses: Sequence[str], references: References, samples: int = SAMPLES, seed: int = SEED
) -> Interval:
    """Return the score with its bootstrap interval; the same seed gives the same numbers."""
    counts = metric.statistics(hypotheses, references)
    return intervals(lambda weights: {"": metric.value(weights @ counts)}, len(counts), samples, seed)[""]


def intervals(
    scores: Callable[[Counts], Mapping[str, float]], examples: int, samples: int = SAMPLES, seed: int = SEED
) -> dict[str, Interval]:
    """Return several scores of the same examples, each with its interval.

    `scores` computes them for a test set in which each example occurs with these weights.  (N) -> by name.
    """
    observed = scores(np.ones(examples))
    drawn = [scores(weight) for weight in _resamples(examples, samples, seed)]
    found = {}
    for name, score in observed.items():
        values = np.array([several[name] for several in drawn])
        found[name] = Interval(score, float(values.mean()), *_middle(values), samples)
    return found


def compare(
    metric: Metric,
    first: Sequence[str],
    second: Sequence[str],
    references: References,
    samples: int = SAMPLES,
    seed: int = SEED,
) -> Comparison:
    """Test whether the outputs of two systems for the same sources differ significantly."""
    counts_a, counts_b = metric.statistics(first, references), metric.statistics(second, references)
    a, b = metric.value(counts_a.sum(axis=0)), metric.value(counts_b.sum(axis=0))
    deltas = np.array(
        [
            metric.value(weight @ counts_a) - metric.value(weight @ counts_b)
            for weight in _resamples(len(counts_a), samples, seed)
        ]
    )
    low, high = _middle(deltas)
    by_chance = np.abs(deltas - deltas.mean()) >= abs(a - b)
    p_value = (int(by_chance.sum()) + 1) / (samples + 1)  # never 0: the observed test set is one sample too
    better = "neither"
    if p_value < 0.05:
        better = "first" if (a > b) == metric.higher_is_better else "second"
    return Comparison(a, b, a - b, low, high, p_value, samples, better)


def kendall_tau(first: ArrayLike, second: ArrayLike) -> float:
    """Return Kendall's rank correlation (τ-b) of two scores of the same systems.

    It is 1 for the same order and -1 for the reverse. Pairs that are tied in one of the two count for neither order
    (Kendall 1945). NaN if all of one are tied.
    """
    one, other = (np.asarray(values, dtype=np.float64) for values in (first, second))
    if len(one) != len(other):
        raise SettingsError(f"{len(one)} and {len(other)} values have no rank correlation; give as many of each")
    upper = np.triu_indices(len(one), k=1)
    signs, other_signs = (np.sign(values[upper[0]] - values[upper[1]]) for values in (one, other))
    pairs = np.sqrt(np.abs(signs).sum() * np.abs(other_signs).sum())
    return float((signs * other_signs).sum() / pairs) if pairs else float("nan")


T_QUANTILES = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
"""97.5 % quantiles of Student's t, by degrees of freedom from 1."""


@dataclass(frozen=True)
class SeedNoise:
    """How much one score varies between seeds, pooled over all systems that were trained with several."""

    deviation: float
    """Standard deviation of one run."""
    freedom: int
    """Degrees of freedom of the estimate."""

    @classmethod
    def of(cls, groups: Sequence[Sequence[float]]) -> SeedNoise:
        """Estimate it from the scores of each system by seed; systems with one seed say nothing."""
        several = [np.asarray(scores, dtype=np.float64) for scores in groups if len(scores) > 1]
        freedom = sum(len(scores) - 1 for scores in several)
        if not freedom:
            raise SettingsError("the noise of seeds needs a system with at least two seeds")
        squares = sum(float(((scores - scores.mean()) ** 2).sum()) for scores in several)
        return cls(float(np.sqrt(squares / freedom)), freedom)

    def half_width(self, first: int, second: int) -> float:
        """Half of the 95 % interval (Student's t) of a difference between two means, by their numbers of seeds."""
        quantile = T_QUANTILES[self.freedom - 1] if self.freedom <= len(T_QUANTILES) else 1.96 + 2.5 / self.freedom
        return float(quantile * self.deviation * np.sqrt(1 / first + 1 / second))


def tau_interval(
    groups: Sequence[Sequence[float]],
    published: Sequence[float],
    noise: SeedNoise,
    samples: int = SAMPLES,
    seed: int = SEED,
) -> Interval:
    """Return Kendall's τ between mean scores and published ones, with its interval under the noise of seeds.

    Each sample adds normal noise to the mean score of every system, less to those with several seeds.
    """
    means = np.array([np.mean(scores) for scores in groups])
    scale = noise.deviation / np.sqrt([len(scores) for scores in groups])
    generator = numpy_generator(seed)
    drawn = np.array(
        [kendall_tau(means + scale * generator.standard_normal(len(means)), published) for _ in range(samples)]
    )
    return Interval(kendall_tau(means, published), float(drawn.mean()), *_middle(drawn), samples)


def _resamples(sentences: int, samples: int, seed: int) -> Iterator[Counts]:
    """Yield, per resample, how often each sentence was drawn.  -> (N), `samples` times.

    One at a time: an array of all indices would be gigabytes for a large test set.
    """
    if samples < 1:
        raise SettingsError(f"{samples} bootstrap samples are too few; give at least 1, better {SAMPLES}")
    if seed < 0:
        raise SettingsError(f"seed = {seed} is invalid; give an integer of at least 0")
    generator = numpy_generator(seed)
    for _ in range(samples):
        drawn = generator.choice(sentences, size=sentences, replace=True)
        yield np.bincount(drawn, minlength=sentences).astype(np.float64)


def _middle(scores: NDArray[np.float64]) -> tuple[float, float]:
    """Return the bounds of the middle 95 %, as sacreBLEU takes them: 1/40 of the samples cut off at each end."""
    ordered = np.sort(scores)
    cut = len(ordered) // 40
    return float(ordered[cut]), float(ordered[len(ordered) - cut - 1])
