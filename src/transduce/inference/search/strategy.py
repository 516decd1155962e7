"""How a search goes on from here: the rules that pick tokens, each a function from scores to a choice.

Letters: S sentences, W openings of each, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
from torch import Tensor

from transduce.inference.search.options import Request
from transduce.inference.search.required import continuations, shared_out
from transduce.inference.search.sampling import draw
from transduce.inference.search.sentence import Sentence


@dataclass(frozen=True)
class Choice:
    """What continues, and what has just ended."""

    parents: Tensor
    """(S W), which opening of its sentence each new opening continues."""
    tokens: Tensor
    """(S W), with which token."""
    scores: Tensor
    """(S W), log-probability so far; minus infinity for an opening that is not alive."""
    ended_parents: Tensor
    """(S E), which openings ended; read only where `ended` is True."""
    ended_scores: Tensor
    """(S E), log-probability with the end token."""
    ended: Tensor
    """(S E)."""


@dataclass(frozen=True)
class Continuations:
    """Every way to go on."""

    tokens: Tensor
    """(S W V), log-probability of each token after each opening; minus infinity for what may not be written."""
    openings: Tensor
    """(S W), log-probability of each opening; minus infinity for one that is not alive."""

    def whole(self) -> Tensor:
        """Log-probability of every opening with every token behind it.  -> (S W V)."""
        return self.tokens + self.openings[:, :, None]

    def best(self, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """The best of each sentence: log-probability, opening, token.  -> 3 × (S count), best first."""
        value_SWC, token_SWC = largest(self.tokens, min(count, self.tokens.shape[2]))
        score_SN = (value_SWC + self.openings[:, :, None]).flatten(1)
        best_SC, flat_SC = score_SN.topk(min(count, score_SN.shape[1]), dim=-1)
        return best_SC, flat_SC // token_SWC.shape[2], token_SWC.flatten(1).gather(1, flat_SC)


Chooser = Callable[[Continuations, int, Sequence[Sentence]], Choice]
"""(every way to go on, end token, the sentences) -> choice."""


def greedy(ways: Continuations, end: int, _: Sequence[Sentence] = ()) -> Choice:
    """Take the best token; there is one opening."""
    best_S1, zero_S1, token_S1 = ways.best(1)
    ended_S1 = token_S1 == end
    going_S1 = best_S1.masked_fill(ended_S1, -torch.inf)
    return Choice(zero_S1, token_S1, going_S1, zero_S1, best_S1, ended_S1)


def beam(ways: Continuations, end: int, _: Sequence[Sentence] = ()) -> Choice:
    """Keep the W best continuations that do not end; those that end count if they are among the W best of all."""
    width = ways.tokens.shape[1]
    # Each opening has one ending, so among the best 2W there are at least W that go on.
    best_SC, parent_SC, token_SC = ways.best(2 * width)
    end_SC = token_SC == end
    # A stable sort on "ends" brings those that go on to the front without changing their order.
    going_SW = end_SC.to(torch.int8).argsort(dim=-1, stable=True)[:, :width]
    kept = best_SC.masked_fill(end_SC, -torch.inf).gather(1, going_SW)
    top = slice(0, width)
    return Choice(
        parents=parent_SC.gather(1, going_SW),
        tokens=token_SC.gather(1, going_SW),
        scores=kept,
        ended_parents=parent_SC[:, top],
        ended_scores=best_SC[:, top],
        ended=end_SC[:, top] & best_SC[:, top].isfinite(),
    )


def sample(ways: Continuations, end: int, sentences: Sequence[Sentence]) -> Choice:
    """Draw a token for each opening by itself; the openings of a sentence are samples that have nothing in common."""
    scores = ways.whole()
    sentence_count, width, _ = scores.shape
    alive_SW = scores.amax(dim=-1).isfinite()
    token_SW = draw(scores, sentences)
    score_SW = scores.gather(2, token_SW[:, :, None])[:, :, 0]
    ended_SW = alive_SW & (token_SW == end)
    own_SW = torch.arange(width, device=scores.device).expand(sentence_count, -1)
    return Choice(own_SW, token_SW, score_SW.masked_fill(ended_SW | ~alive_SW, -torch.inf), own_SW, score_SW, ended_SW)


def diverse(ways: Continuations, end: int, sentences: Sequence[Sentence]) -> Choice:
    """A beam for each group, one after the other: a token that earlier groups have just chosen counts less.

    What is compared is changed by that, not the log-probabilities that openings are kept with.
    """
    options = sentences[0].options  # the groups are the cohort's, the strength is each sentence's own
    size = options.width // options.beam_groups
    strength_S11 = torch.tensor([[[one.options.diversity_penalty]] for one in sentences], device=ways.tokens.device)
    penalty_S1V = torch.zeros_like(ways.tokens[:, :1])
    chosen: list[Choice] = []
    for group in range(options.beam_groups):
        own = slice(group * size, (group + 1) * size)
        choice = beam(Continuations(ways.tokens[:, own] - penalty_S1V, ways.openings[:, own]), end)
        taken_SG = penalty_S1V[:, 0].gather(1, choice.tokens)
        penalty_S1V.scatter_add_(2, choice.tokens[:, None], strength_S11.expand(-1, 1, size))
        chosen.append(
            Choice(
                choice.parents + group * size,
                choice.tokens,
                choice.scores + taken_SG,
                choice.ended_parents + group * size,
                choice.ended_scores,
                choice.ended,
            )
        )
    names = [field.name for field in fields(Choice)]
    return Choice(*(torch.cat([getattr(one, name) for one in chosen], dim=1) for name in names))


def forced(ways: Continuations, end: int, sentences: Sequence[Sentence]) -> Choice:
    """A beam for sentences that have to say something: none ends before it was said, and some opening says it."""
    scores = ways.whole()
    width = scores.shape[1]
    parent_SW, token_SW = (torch.zeros(scores.shape[:2], dtype=torch.long) for _ in range(2))
    score_SW, ended_score_SW = (torch.full(scores.shape[:2], -torch.inf) for _ in range(2))
    ended_parent_SW, ended_SW = torch.zeros_like(parent_SW), torch.zeros_like(parent_SW, dtype=torch.bool)
    for row, sentence in enumerate(sentences):
        ranked = continuations(scores[row], sentence.progress, end)
        whole = [one for one in ranked if one.progress.is_whole]
        endings = [one for one in whole[:width] if one.token == end]
        kept = shared_out([one for one in ranked if one.token != end], width)
        nothing = sentence.progress[0]
        sentence.progress = [*(one.progress for one in kept), *[nothing] * (width - len(kept))]
        for column, one in enumerate(kept):
            parent_SW[row, column], token_SW[row, column], score_SW[row, column] = one.parent, one.token, one.score
        for column, one in enumerate(endings):
            ended_parent_SW[row, column], ended_score_SW[row, column] = one.parent, one.score
            ended_SW[row, column] = True
    found = (parent_SW, token_SW, score_SW, ended_parent_SW, ended_score_SW, ended_SW)
    return Choice(*(tensor.to(scores.device) for tensor in found))


CHOOSERS: dict[str, Chooser] = {
    "greedy": greedy,
    "beam": beam,
    "sample": sample,
    "diverse": diverse,
    "forced": forced,
}


class Way(NamedTuple):
    """What sentences must have in common to be stepped together."""

    chooser: str
    width: int
    groups: int
    listed: bool
    """Whether they may write the tokens of their own lists only."""


def way_of(request: Request) -> Way:
    """How a request wants to be searched for."""
    options = request.options
    chooser = "forced" if request.required else "diverse" if options.beam_groups > 1 else options.method
    listed = request.candidates is not None and not request.required  # what is required may stand on no list
    return Way(chooser, options.width, options.beam_groups, listed)


# The largest few of many numbers, faster than by looking at each: most blocks of a vocabulary hold none of them.

BLOCK = 64
"""Numbers whose maximum is taken first."""
FEW = 16
"""Up to so many blocks are searched; for more, or for a short row, all numbers are."""


def largest(numbers: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the largest numbers of each row and their places, as `topk` does.  (… V) -> 2 × (… count).

    The largest `count` stand in the `count` blocks with the largest maxima: a block that has one of them has a maximum
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
