"""Logits processors: what changes the logits of one request before a token is chosen.

Processors work on the model's raw logits, before the softmax, in the order of `logits_processors`; so does CTranslate2
with those that it has. A request without any costs nothing.

Letters: W beams of one request, V vocabulary, L tokens written so far.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from transduce.inference.search.options import Request

LogitsProcessor = Callable[[Tensor, Tensor], None]
"""(logits (W V), changed in place; tokens written so far (W L))."""


def logits_processors(request: Request, end: int) -> list[LogitsProcessor]:
    """Return the processors of a request."""
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
