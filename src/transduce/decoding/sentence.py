"""One request on its way through a search: what has ended so far, and when enough has."""

from __future__ import annotations

import secrets
import zlib
from dataclasses import dataclass, field

import numpy as np

from transduce.decoding.adjustment import Adjustment, adjustments_of
from transduce.decoding.options import Hypothesis, Request, Result, SearchOptions
from transduce.decoding.penalty import LENGTH_PENALTIES
from transduce.text.specials import Specials


@dataclass
class Sentence:
    """One request on its way."""

    request: Request
    max_length: int
    adjustments: list[Adjustment]
    seed: int
    """Of what is drawn for this sentence."""
    draws: int = 0
    """How often tokens were drawn for it."""
    finished: list[Hypothesis] = field(default_factory=list)

    @classmethod
    def of(cls, request: Request, specials: Specials, limit: int | None) -> Sentence:
        """Begin with a request; `limit` is what the model can read of a target, its start token included."""
        wanted = longest_wanted(request)
        longest = max(1, wanted if limit is None else min(wanted, limit - 1))
        return cls(request, longest, adjustments_of(request, specials.end), _seed(request))

    @property
    def options(self) -> SearchOptions:
        return self.request.options

    def penalty(self, length: int) -> float:
        """What the log-probability of so many tokens is divided by, the end token counted where there is one."""
        return LENGTH_PENALTIES[self.options.length_penalty](length, self.options.alpha)

    def finish(self, tokens: list[int], log_probability: float, ended: bool) -> None:
        """Note down one hypothesis."""
        score = log_probability / self.penalty(len(tokens) + ended)
        self.finished.append(Hypothesis(tokens, score, log_probability, ended))

    def is_over(self, width: int, best_alive: float, length: int) -> bool:
        """Whether the search for this sentence may end, by the stop rule that was asked for.

        Counting endings alone (`beam_finished`) gives up too early where a model is sure of itself: the few endings
        that nobody wants fill the beam while the answer, far better than all of them, is still being written.
        """
        ended, stop = len(self.finished), self.options.stop
        if stop == "exact":
            # A log-probability only falls; the best an opening can still get is its own over the largest penalty.
            return ended >= self.options.nbest and best_alive / self.penalty(self.max_length) <= self._last_score()
        if stop == "beam_finished" or ended < width or width == 1:
            return ended >= width
        return best_alive / self.penalty(length) <= self._last_score()

    def result(self) -> Result:
        """The best hypotheses, best first; one that was cut off comes after all that ended."""
        ranked = sorted(self.finished, key=lambda hypothesis: (not hypothesis.ended, -hypothesis.score))
        return Result(self.request.id, ranked[: self.options.nbest])

    def _last_score(self) -> float:
        return self.result().hypotheses[-1].score


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
