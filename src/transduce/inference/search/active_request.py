"""One request while it is searched: its finished hypotheses, stop rule, ranking and logits processors.

Letters: W beams of one request, V vocabulary, L tokens written so far.
"""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import zip_longest

import numpy as np
import torch
from torch import Tensor

from transduce.inference.search.constraint import ConstraintProgress
from transduce.inference.search.options import Hypothesis, Request, Result, SearchOptions
from transduce.inference.search.penalty import normalize
from transduce.inference.search.trace import TraceStep
from transduce.text.tokenizer.special import Specials


@dataclass
class ActiveRequest:
    """A request, its finished hypotheses and its progress."""

    request: Request
    max_length: int
    processors: list[LogitsProcessor]
    seed: int
    """Seed of the samples of this request."""
    finished: list[list[Hypothesis]]
    """Finished hypotheses of each beam group."""
    progress: list[ConstraintProgress]
    """Progress of each beam through the required phrases."""
    draws: int = 0
    """Number of times that tokens were drawn for it."""
    trace: list[TraceStep] = field(default_factory=list)

    @classmethod
    def of(cls, request: Request, specials: Specials, limit: int | None) -> ActiveRequest:
        """Start a request; `limit` is the longest target that the model can read, its start token included."""
        wanted = request.max_total_length
        longest = max(1, wanted if limit is None else min(wanted, limit - 1))
        options = request.options
        finished: list[list[Hypothesis]] = [[] for _ in range(options.beam_groups)]
        begun = reduce(ConstraintProgress.after, request.prefix, ConstraintProgress.none(request.required))
        return cls(
            request,
            longest,
            logits_processors(request, specials.end),
            _seed(request),
            finished,
            [begun] * options.width,
        )

    @property
    def options(self) -> SearchOptions:
        return self.request.options

    def score(self, log_probability: float, length: int) -> float:
        """Normalise a log-probability of `length` tokens, prompt included, by the length penalty."""
        return normalize(log_probability, length - self.request.unscored, self.options)

    def finish(self, beam: int, tokens: list[int], log_probability: float, scored: int, ended: bool = True) -> None:
        """Add a finished hypothesis; `scored` is its number of tokens, with the end token where it has one."""
        group = beam * self.options.beam_groups // self.options.width
        hypothesis = Hypothesis(tokens, self.score(log_probability, scored), log_probability, ended)
        self.finished[group].append(hypothesis)

    @property
    def hypotheses(self) -> list[Hypothesis]:
        """All finished hypotheses, in no order."""
        return [hypothesis for group in self.finished for hypothesis in group]

    def ranked(self) -> list[Hypothesis]:
        """All finished hypotheses, best first; one that was cut off comes after all that ended.

        With several groups the best of each come first, then the second best; duplicates are left out.
        """
        if len(self.finished) == 1:
            return sorted(self.finished[0], key=_rank)
        once: dict[tuple[int, ...], Hypothesis] = {}
        for several in zip_longest(*(sorted(group, key=_rank) for group in self.finished)):
            for hypothesis in sorted(filter(None, several), key=_rank):
                once.setdefault(tuple(hypothesis.tokens), hypothesis)
        return sorted(once.values(), key=lambda hypothesis: not hypothesis.ended)

    def is_over(self, best_alive: float, length: int) -> bool:
        """Whether the search may stop, by the stop rule of its options.

        Counting finished hypotheses alone (`beam_finished`) stops too early where a model is confident: unlikely early
        endings fill the beam while the best hypothesis, far better than all of them, is unfinished.
        """
        if not any(self.finished):  # at most steps; no rule stops a search without any
            return False
        width, stop = self.options.width, self.options.stop_rule
        if stop == "exact":
            # A log-probability only falls; the best score that a beam can reach is its own over the largest penalty.
            return (
                len(self.hypotheses) >= self.options.n_best
                and self.score(best_alive, self.max_length) <= self._last_score()
            )
        enough = all(len(group) >= width // self.options.beam_groups for group in self.finished)
        if stop == "beam_finished" or not enough or width == 1:
            return enough
        return self.score(best_alive, length) <= self._last_score()

    def result(self, error: Exception | None = None) -> Result:
        """The best hypotheses, or the error."""
        found = [] if error is not None else self.ranked()[: self.options.n_best]
        return Result(self.request.id, found, error, tuple(self.trace))

    def _last_score(self) -> float:
        return self.ranked()[: self.options.n_best][-1].score


def _rank(hypothesis: Hypothesis) -> tuple[bool, float]:
    return not hypothesis.ended, -hypothesis.score


def with_seed(request: Request) -> Request:
    """Return a request whose samples are the same whenever it is started: one that has no seed gets one."""
    if request.options.method != "sample" or request.options.seed is not None:
        return request
    return replace(request, options=request.options.but(seed=secrets.randbits(63)))


def _seed(request: Request) -> int:
    """The same for the same source and seed, another for another source; without a seed, a new one each time."""
    if request.options.method != "sample":
        return 0
    seed = secrets.randbits(63) if request.options.seed is None else request.options.seed
    tokens = np.array([*request.source, -1, *request.prefix], dtype=np.int64).tobytes()
    return seed ^ zlib.crc32(tokens) << 31


# Logits processors.

LogitsProcessor = Callable[[Tensor, Tensor], None]
"""(logits (W V), changed in place; tokens written so far (W L))."""


def logits_processors(request: Request, end: int) -> list[LogitsProcessor]:
    """Return the functions that change the logits of a request before a token is chosen, in their order.

    They work on the model's raw logits, before the softmax, as CTranslate2's do. A request without any costs nothing.
    """
    options = request.options
    found: list[LogitsProcessor] = []
    if options.repetition_penalty != 1.0:
        found.append(penalize_repetition(options.repetition_penalty))
    if options.presence_penalty or options.frequency_penalty:
        found.append(penalize_count(options.presence_penalty, options.frequency_penalty))
    if options.no_repeat_ngram_size:
        found.append(forbid_repeated_ngrams(options.no_repeat_ngram_size))
    found += [forbid_phrase(phrase) for phrase in request.forbidden if phrase]
    if options.min_length:
        found.append(require_length(options.min_length + request.unscored, end))
    return found


def penalize_repetition(penalty: float) -> LogitsProcessor:
    """Divide the logits of tokens that were written by the penalty, multiply negative ones (Keskar et al. 2019)."""

    def process(score_WV: Tensor, written_WL: Tensor) -> None:
        score_WL = score_WV.gather(1, written_WL)
        score_WV.scatter_(1, written_WL, torch.where(score_WL < 0, score_WL * penalty, score_WL / penalty))

    return process


def penalize_count(presence: float, frequency: float) -> LogitsProcessor:
    """Subtract `presence` from every token that was written, and `frequency` for each time."""

    def process(score_WV: Tensor, written_WL: Tensor) -> None:
        count_WV = torch.zeros_like(score_WV)
        count_WV.scatter_add_(1, written_WL, torch.ones_like(written_WL, dtype=score_WV.dtype))
        score_WV -= presence * (count_WV > 0) + frequency * count_WV

    return process


def forbid_repeated_ngrams(size: int) -> LogitsProcessor:
    """Allow no token that would complete an n-gram of this size that was written before."""

    def process(score_WV: Tensor, written_WL: Tensor) -> None:
        length = written_WL.shape[1]
        if length < size:
            return
        window_WNG = written_WL.unfold(1, size, 1)
        ending_WG = written_WL[:, length - size + 1 :]
        again_WN = (window_WNG[:, :, :-1] == ending_WG[:, None]).all(dim=-1)
        row, place = again_WN.nonzero(as_tuple=True)
        score_WV[row, window_WNG[row, place, size - 1]] = -torch.inf

    return process


def forbid_phrase(phrase: Sequence[int]) -> LogitsProcessor:
    """Allow no token that would complete a phrase."""
    *start, last = phrase

    def process(score_WV: Tensor, written_WL: Tensor) -> None:
        if written_WL.shape[1] < len(start):
            return
        start_G = torch.tensor(start, dtype=torch.long, device=written_WL.device)
        matches_W = (written_WL[:, written_WL.shape[1] - len(start) :] == start_G).all(dim=-1)
        score_WV[:, last].masked_fill_(matches_W, -torch.inf)

    return process


def require_length(length: int, end: int) -> LogitsProcessor:
    """Allow no end token before `length` tokens."""

    def process(score_WV: Tensor, written_WL: Tensor) -> None:
        if written_WL.shape[1] < length:
            score_WV[:, end] = -torch.inf

    return process
