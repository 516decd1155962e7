"""Search strategies: each a function from the scores of one step to the continuations that are kept.

Letters: B requests, W beams of each, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transduce.inference.search.active_request import ActiveRequest
from transduce.inference.search.constraint import allocate_beam, candidates
from transduce.inference.search.options import Request, SearchOptions
from transduce.nn.linear import sum_dtype
from transduce.rng import mix_arrays


@dataclass(frozen=True)
class Selection:
    """The continuations that a step keeps, and the hypotheses that it finishes."""

    parents: Tensor
    """(B W), the beam of its request that each new beam continues."""
    tokens: Tensor
    """(B W), the token it is continued with."""
    scores: Tensor
    """(B W), log-probability so far; minus infinity for a beam that is not alive."""
    ended_parents: Tensor
    """(B E), which beams ended; read only where `ended` is True."""
    ended_scores: Tensor
    """(B E), log-probability with the end token."""
    ended: Tensor
    """(B E)."""

    def row(self, index: int) -> Selection:
        """The selection of one request, as a batch of one."""
        return Selection(*(getattr(self, field.name)[index : index + 1] for field in fields(self)))


@dataclass(frozen=True)
class StepScores:
    """Log-probabilities of every continuation of every beam."""

    tokens: Tensor
    """(B W V), log-probability of each token after each beam; minus infinity for tokens that are not allowed."""
    beams: Tensor
    """(B W), log-probability of each beam; minus infinity for one that is not alive."""

    def row(self, index: int) -> StepScores:
        """The scores of one request, as a batch of one."""
        return StepScores(self.tokens[index : index + 1], self.beams[index : index + 1])

    def totals(self) -> Tensor:
        """Log-probability of every beam with every token appended.  -> (B W V)."""
        return self.tokens + self.beams[:, :, None]

    def best(self, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """The best of each request: log-probability, beam, token.  -> 3 × (B count), best first."""
        value_BWC, token_BWC = largest(self.tokens, min(count, self.tokens.shape[2]))
        score_BN = (value_BWC + self.beams[:, :, None]).flatten(1)
        best_BC, flat_BC = score_BN.topk(min(count, score_BN.shape[1]), dim=-1)
        return best_BC, flat_BC // token_BWC.shape[2], token_BWC.flatten(1).gather(1, flat_BC)


Strategy = Callable[[StepScores, int, Sequence[ActiveRequest]], Selection]
"""(scores, end token, requests) -> selection."""


def greedy(step: StepScores, end: int, _: Sequence[ActiveRequest] = ()) -> Selection:
    """Take the best token; there is one beam."""
    if step.tokens.device.type == "cpu":  # numpy compares 16 numbers at a time, torch one
        token_B1 = torch.from_numpy(step.tokens.numpy().argmax(axis=-1))
        best_B1 = step.tokens.gather(2, token_B1[:, :, None])[:, :, 0] + step.beams
        zero_B1 = torch.zeros_like(token_B1)
    else:
        best_B1, zero_B1, token_B1 = step.best(1)
    ended_B1 = token_B1 == end
    alive_B1 = best_B1.masked_fill(ended_B1, -torch.inf)
    return Selection(zero_B1, token_B1, alive_B1, zero_B1, best_B1, ended_B1)


def beam(step: StepScores, end: int, _: Sequence[ActiveRequest] = ()) -> Selection:
    """Keep the W best continuations that do not end; those that end count if they are among the W best of all."""
    width = step.tokens.shape[1]
    # Each beam has one ending, so among the best 2W there are at least W that do not end.
    best_BC, parent_BC, token_BC = step.best(2 * width)
    end_BC = token_BC == end
    # A stable sort on "ends" brings unfinished ones to the front without changing their order.
    unfinished_BW = end_BC.to(torch.int8).argsort(dim=-1, stable=True)[:, :width]
    kept = best_BC.masked_fill(end_BC, -torch.inf).gather(1, unfinished_BW)
    top = slice(0, width)
    return Selection(
        parents=parent_BC.gather(1, unfinished_BW),
        tokens=token_BC.gather(1, unfinished_BW),
        scores=kept,
        ended_parents=parent_BC[:, top],
        ended_scores=best_BC[:, top],
        ended=end_BC[:, top] & best_BC[:, top].isfinite(),
    )


def sample(step: StepScores, end: int, requests: Sequence[ActiveRequest]) -> Selection:
    """Draw a token for each beam; the beams of a request are independent samples."""
    scores = step.totals()
    count, width, _ = scores.shape
    alive_BW = scores.amax(dim=-1).isfinite()
    token_BW = draw(scores, requests)
    score_BW = scores.gather(2, token_BW[:, :, None])[:, :, 0]
    ended_BW = alive_BW & (token_BW == end)
    own_BW = torch.arange(width, device=scores.device).expand(count, -1)
    return Selection(
        own_BW, token_BW, score_BW.masked_fill(ended_BW | ~alive_BW, -torch.inf), own_BW, score_BW, ended_BW
    )


def diverse(step: StepScores, end: int, requests: Sequence[ActiveRequest]) -> Selection:
    """Diverse beam search (Vijayakumar et al. 2018): one beam per group, in turn, with a penalty on tokens that earlier
    groups chose at this step.

    The penalty changes which candidates win, not the log-probabilities that beams are kept with.
    """
    options = requests[0].options  # the number of groups is the batch group's, the strength is each request's own
    size = options.width // options.beam_groups
    strength_B11 = torch.tensor([[[one.options.diversity_penalty]] for one in requests], device=step.tokens.device)
    penalty_B1V = torch.zeros_like(step.tokens[:, :1])
    chosen: list[Selection] = []
    for group in range(options.beam_groups):
        own = slice(group * size, (group + 1) * size)
        selection = beam(StepScores(step.tokens[:, own] - penalty_B1V, step.beams[:, own]), end)
        taken_BG = penalty_B1V[:, 0].gather(1, selection.tokens)
        penalty_B1V.scatter_add_(2, selection.tokens[:, None], strength_B11.expand(-1, 1, size))
        chosen.append(
            Selection(
                selection.parents + group * size,
                selection.tokens,
                selection.scores + taken_BG,
                selection.ended_parents + group * size,
                selection.ended_scores,
                selection.ended,
            )
        )
    names = [field.name for field in fields(Selection)]
    return Selection(*(torch.cat([getattr(one, name) for one in chosen], dim=1) for name in names))


def constrained(step: StepScores, end: int, requests: Sequence[ActiveRequest]) -> Selection:
    """Beam search with required phrases: no hypothesis ends without them, and some beam writes them."""
    scores = step.totals()
    width = scores.shape[1]
    parent_BW, token_BW = (torch.zeros(scores.shape[:2], dtype=torch.long) for _ in range(2))
    score_BW, ended_score_BW = (torch.full(scores.shape[:2], -torch.inf) for _ in range(2))
    ended_parent_BW, ended_BW = torch.zeros_like(parent_BW), torch.zeros_like(parent_BW, dtype=torch.bool)
    for row, active in enumerate(requests):
        ranked = candidates(scores[row], active.progress, end)
        whole = [one for one in ranked if one.progress.is_whole]
        endings = [one for one in whole[:width] if one.token == end]
        kept = allocate_beam([one for one in ranked if one.token != end], width)
        nothing = active.progress[0]
        active.progress = [*(one.progress for one in kept), *[nothing] * (width - len(kept))]
        for column, one in enumerate(kept):
            parent_BW[row, column], token_BW[row, column], score_BW[row, column] = one.parent, one.token, one.score
        for column, one in enumerate(endings):
            ended_parent_BW[row, column], ended_score_BW[row, column] = one.parent, one.score
            ended_BW[row, column] = True
    found = (parent_BW, token_BW, score_BW, ended_parent_BW, ended_score_BW, ended_BW)
    return Selection(*(tensor.to(scores.device) for tensor in found))


STRATEGIES: dict[str, Strategy] = {
    "greedy": greedy,
    "beam": beam,
    "sample": sample,
    "diverse": diverse,
    "constrained": constrained,
}


class SearchKey(NamedTuple):
    """What requests must have in common to be stepped together."""

    strategy: str
    width: int
    groups: int
    shortlisted: bool
    """Whether each may write the tokens of its own shortlist only."""


def search_key(request: Request) -> SearchKey:
    """Return the key of a request."""
    options = request.options
    strategy = "constrained" if request.required else "diverse" if options.beam_groups > 1 else options.method
    shortlisted = request.shortlist is not None and not request.required  # a phrase may not be on the list
    return SearchKey(strategy, options.width, options.beam_groups, shortlisted)


# Top-k.

BLOCK = 64
"""Numbers whose maximum is taken first."""
FEW = 16
"""The most blocks that are searched; for more, or for a short row, all numbers are."""


def largest(numbers: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the largest numbers of each row and their places, as `topk` does, but faster.  (… V) -> 2 × (… count).

    The largest `count` are in the `count` blocks with the largest maxima: a block that has one of them has a maximum
    at least as large, and so have at most `count` blocks.
    """
    size = numbers.shape[-1]
    blocks = size // BLOCK
    if count > FEW or blocks < 4 * count or numbers.device.type != "cpu":
        return numbers.topk(count, dim=-1)
    whole = torch.unflatten(numbers[..., : blocks * BLOCK], -1, (blocks, BLOCK))
    chosen = whole.amax(dim=-1).topk(count, dim=-1).indices[..., None]
    offset = torch.arange(BLOCK, device=numbers.device)
    place = torch.cat(
        [
            (chosen * BLOCK + offset).flatten(-2),
            torch.arange(blocks * BLOCK, size, device=numbers.device).expand(*numbers.shape[:-1], -1),
        ],
        dim=-1,
    )
    value, found = numbers.gather(-1, place).topk(count, dim=-1)
    return value, place.gather(-1, found)


# Sampling.


def draw(scores: Tensor, requests: Sequence[ActiveRequest]) -> Tensor:
    """Draw a token for every beam, each request by its own options.  (B W V) -> (B W)."""
    weight_BWV, order_BWV = likeliest(scores, [active.options for active in requests])
    total_BWV = weight_BWV.cumsum(dim=-1)
    number_BW = torch.from_numpy(_numbers(requests, scores.shape[1])).to(weight_BWV)
    wanted_BW1 = (number_BW * total_BWV[:, :, -1])[:, :, None]
    place_BW1 = torch.searchsorted(total_BWV, wanted_BW1, right=True).clamp_(max=scores.shape[2] - 1)
    return order_BWV.gather(2, place_BW1)[:, :, 0]


def likeliest(scores: Tensor, options: Sequence[SearchOptions]) -> tuple[Tensor, Tensor]:
    """Return the weight of each token, likeliest first, and which token that is.  (B W V) -> 2 × (B W V).

    Temperature is applied first, then top_k, top_p of the rest, and min_p. Tokens that may not be drawn have weight 0,
    and the weights need not add up to 1. The likeliest token can always be drawn.
    """

    wide = sum_dtype(scores.device)

    def option_of(name: str) -> Tensor:
        values = [getattr(option, name) for option in options]
        return torch.tensor(values, dtype=wide, device=scores.device)[:, None, None]

    score_BWV, order_BWV = scores.to(wide).sort(dim=-1, descending=True, stable=True)
    below_BWV = (score_BWV - score_BWV[:, :, :1]).nan_to_num(nan=0.0, neginf=-math.inf) / option_of("temperature")
    rank_V = torch.arange(scores.shape[2], device=scores.device)
    most_B11 = option_of("top_k")
    below_BWV.masked_fill_((most_B11 > 0) & (rank_V >= most_B11), -math.inf)
    weight_BWV = below_BWV.softmax(dim=-1)
    before_BWV = weight_BWV.cumsum(dim=-1) - weight_BWV
    left_out_BWV = (before_BWV >= option_of("top_p")) & (rank_V > 0)
    left_out_BWV |= weight_BWV < option_of("min_p") * weight_BWV[:, :, :1]
    return weight_BWV.masked_fill_(left_out_BWV, 0.0), order_BWV


def _numbers(requests: Sequence[ActiveRequest], width: int) -> NDArray[np.float64]:
    """Return a random number in [0, 1) for each beam; every call is one position further.  -> (B W).

    It is a function of (seed of the request, beam, position), not of a stream: a sample does not depend on what else is
    in the batch, or on when the request arrived.
    """
    key_B1 = np.array([[active.seed] for active in requests], dtype=np.uint64)
    place_B1 = np.array([[active.draws] for active in requests], dtype=np.uint64)
    for active in requests:
        active.draws += 1
    mixed_BW = mix_arrays(key_B1, place_B1, np.arange(width, dtype=np.uint64))
    return (mixed_BW >> np.uint64(11)).astype(np.float64) * 2.0**-53
