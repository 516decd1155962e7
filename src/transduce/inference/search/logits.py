"""What changes the scores of tokens before one is chosen: a small part for each wish, applied to one sentence.

Every part works on the model's raw scores, before they become probabilities, in the order of `adjustments_of`; so does
CTranslate2 with those that it has. A sentence without such wishes costs nothing.

Letters: W openings of the sentence, V vocabulary, L tokens written so far.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from transduce.inference.search.options import Request

Adjustment = Callable[[Tensor, Tensor], None]
"""(scores (W V), changed in place; tokens written so far (W L))."""


def adjustments_of(request: Request, end: int) -> list[Adjustment]:
    """Return the parts that a request asks for."""
    options = request.options
    found: list[Adjustment] = []
    if options.repetition_penalty != 1.0:
        found.append(repetition(options.repetition_penalty))
    if options.presence_penalty or options.frequency_penalty:
        found.append(counted(options.presence_penalty, options.frequency_penalty))
    if options.no_repeat_ngram_size:
        found.append(no_repeat(options.no_repeat_ngram_size))
    found += [without(phrase) for phrase in request.forbidden if phrase]
    if options.min_length:
        found.append(at_least(options.min_length + request.unscored, end))
    return found


def repetition(penalty: float) -> Adjustment:
    """Divide the scores of tokens that were written by a number, multiply those below zero (Keskar et al. 2019)."""

    def adjust(score_WV: Tensor, written_WL: Tensor) -> None:
        score_WL = score_WV.gather(1, written_WL)
        score_WV.scatter_(1, written_WL, torch.where(score_WL < 0, score_WL * penalty, score_WL / penalty))

    return adjust


def counted(presence: float, frequency: float) -> Adjustment:
    """Take something off for having been written at all, and something for each time."""

    def adjust(score_WV: Tensor, written_WL: Tensor) -> None:
        count_WV = torch.zeros_like(score_WV)
        count_WV.scatter_add_(1, written_WL, torch.ones_like(written_WL, dtype=score_WV.dtype))
        score_WV -= presence * (count_WV > 0) + frequency * count_WV

    return adjust


def no_repeat(size: int) -> Adjustment:
    """Allow no token that would write `size` tokens in a row for the second time."""

    def adjust(score_WV: Tensor, written_WL: Tensor) -> None:
        length = written_WL.shape[1]
        if length < size:
            return
        window_WNG = written_WL.unfold(1, size, 1)
        opened_WG = written_WL[:, length - size + 1 :]
        again_WN = (window_WNG[:, :, :-1] == opened_WG[:, None]).all(dim=-1)
        row, place = again_WN.nonzero(as_tuple=True)
        score_WV[row, window_WNG[row, place, size - 1]] = -torch.inf

    return adjust


def without(phrase: Sequence[int]) -> Adjustment:
    """Allow no token that would complete a phrase."""
    *opening, last = phrase

    def adjust(score_WV: Tensor, written_WL: Tensor) -> None:
        if written_WL.shape[1] < len(opening):
            return
        opening_G = torch.tensor(opening, dtype=torch.long, device=written_WL.device)
        said_W = (written_WL[:, written_WL.shape[1] - len(opening) :] == opening_G).all(dim=-1)
        score_WV[:, last].masked_fill_(said_W, -torch.inf)

    return adjust


def at_least(length: int, end: int) -> Adjustment:
    """Allow no end before so many tokens."""

    def adjust(score_WV: Tensor, written_WL: Tensor) -> None:
        if written_WL.shape[1] < length:
            score_WV[:, end] = -torch.inf

    return adjust
