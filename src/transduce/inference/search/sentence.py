"""One request on its way through a search: what has ended so far, and when enough has."""

from __future__ import annotations

import secrets
import zlib
from dataclasses import dataclass
from functools import reduce
from itertools import zip_longest

import numpy as np

from transduce.inference.search.logits import Adjustment, adjustments_of
from transduce.inference.search.options import Hypothesis, Request, Result, SearchOptions
from transduce.inference.search.penalty import LENGTH_PENALTIES
from transduce.inference.search.required import Progress
from transduce.text.tokenizer.special import Specials


@dataclass
class Sentence:
    """One request on its way."""

    request: Request
    max_length: int
    adjustments: list[Adjustment]
    seed: int
    """Of what is drawn for this sentence."""
    finished: list[list[Hypothesis]]
    """What has ended, by the group of openings that it came from."""
    progress: list[Progress]
    """How far each opening has come with what it has to say."""
    draws: int = 0
    """How often tokens were drawn for it."""

    @classmethod
    def of(cls, request: Request, specials: Specials, limit: int | None) -> Sentence:
        """Begin with a request; `limit` is what the model can read of a target, its start token included."""
        wanted = longest_wanted(request)
        longest = max(1, wanted if limit is None else min(wanted, limit - 1))
        options = request.options
        finished: list[list[Hypothesis]] = [[] for _ in range(options.beam_groups)]
        begun = reduce(Progress.after, request.prefix, Progress.none(request.required))
        return cls(
            request, longest, adjustments_of(request, specials.end), _seed(request), finished, [begun] * options.width
        )

    @property
    def options(self) -> SearchOptions:
        return self.request.options

    def penalty(self, length: int) -> float:
        """What the log-probability of so many tokens is divided by, the end token counted where there is one."""
        return LENGTH_PENALTIES[self.options.length_normalization](length, self.options.length_penalty)

    def finish(self, opening: int, tokens: list[int], log_probability: float, scored: int, ended: bool = True) -> None:
        """Note down one hypothesis; `scored` is how many tokens it has, the end token among them."""
        score = log_probability / self.penalty(scored - self.request.unscored)
        group = opening * self.options.beam_groups // self.options.width
        self.finished[group].append(Hypothesis(tokens, score, log_probability, ended))

    @property
    def found(self) -> list[Hypothesis]:
        """All that has ended, in no order."""
        return [hypothesis for group in self.finished for hypothesis in group]

    def ranked(self) -> list[Hypothesis]:
        """All that has ended, best first; one that was cut off comes after all that ended.

        Of several groups the best of each come first, then the second best; what two of them say alike counts once.
        """
        if len(self.finished) == 1:
            return sorted(self.finished[0], key=_rank)
        once: dict[tuple[int, ...], Hypothesis] = {}
        for several in zip_longest(*(sorted(group, key=_rank) for group in self.finished)):
            for hypothesis in sorted(filter(None, several), key=_rank):
                once.setdefault(tuple(hypothesis.tokens), hypothesis)
        return sorted(once.values(), key=lambda hypothesis: not hypothesis.ended)

    def is_over(self, best_alive: float, length: int) -> bool:
        """Whether the search for this sentence may end, by the stop rule that was asked for.

        Counting endings alone (`beam_finished`) gives up too early where a model is sure of itself: the few endings
        that nobody wants fill the beam while the answer, far better than all of them, is still being written.
        """
        width, stop = self.options.width, self.options.stop_rule
        if stop == "exact":
            # A log-probability only falls; the best an opening can still get is its own over the largest penalty.
            return (
                len(self.found) >= self.options.n_best
                and best_alive / self.penalty(self.max_length - self.request.unscored) <= self._last_score()
            )
        enough = all(len(group) >= width // self.options.beam_groups for group in self.finished)
        if stop == "beam_finished" or not enough or width == 1:
            return enough
        return best_alive / self.penalty(length - self.request.unscored) <= self._last_score()

    def result(self) -> Result:
        """The best hypotheses, best first."""
        return Result(self.request.id, self.ranked()[: self.options.n_best])

    def _last_score(self) -> float:
        return self.ranked()[: self.options.n_best][-1].score


def _rank(hypothesis: Hypothesis) -> tuple[bool, float]:
    return not hypothesis.ended, -hypothesis.score


def longest_wanted(request: Request) -> int:
    """The most tokens that a request may be answered with, its prefix included, if the model can write so many."""
    options = request.options
    usual = max(options.min_length, len(request.source) + options.max_extra)
    return len(request.prefix) + (options.max_length or usual)


def _seed(request: Request) -> int:
    """The same for the same source and seed, another for another source; without a seed, a new one each time."""
    if request.options.method != "sample":
        return 0
    wished = secrets.randbits(63) if request.options.seed is None else request.options.seed
    tokens = np.array([*request.source, -1, *request.prefix], dtype=np.int64).tobytes()
    return wished ^ zlib.crc32(tokens) << 31
