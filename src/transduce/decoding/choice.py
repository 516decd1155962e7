"""How a search goes on from here: the rules that pick tokens, each a function from scores to a choice.

Letters: S sentences, W openings of each, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
from torch import Tensor

from transduce.decoding.options import Request
from transduce.decoding.required import continuations, shared_out
from transduce.decoding.sampling import draw
from transduce.decoding.sentence import Sentence


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


Chooser = Callable[[Tensor, int, Sequence[Sentence]], Choice]
"""(scores of every continuation (S W V), end token, the sentences) -> choice."""


def greedy(scores: Tensor, end: int, _: Sequence[Sentence] = ()) -> Choice:
    """Take the best token; there is one opening."""
    best_S1, token_S1 = scores[:, 0].max(dim=-1, keepdim=True)
    ended_S1 = token_S1 == end
    zero_S1 = torch.zeros_like(token_S1)
    going_S1 = best_S1.masked_fill(ended_S1, -torch.inf)
    return Choice(zero_S1, token_S1, going_S1, zero_S1, best_S1, ended_S1)


def beam(scores: Tensor, end: int, _: Sequence[Sentence] = ()) -> Choice:
    """Keep the W best continuations that do not end; those that end count if they are among the W best of all."""
    sentences, width, vocabulary = scores.shape
    # Each opening has one ending, so among the best 2W there are at least W that go on.
    count = min(2 * width, width * vocabulary)
    best_SC, flat_SC = scores.view(sentences, -1).topk(count, dim=-1)
    parent_SC = flat_SC // vocabulary
    token_SC = flat_SC - parent_SC * vocabulary
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


def sample(scores: Tensor, end: int, sentences: Sequence[Sentence]) -> Choice:
    """Draw a token for each opening by itself; the openings of a sentence are samples that have nothing in common."""
    sentence_count, width, _ = scores.shape
    alive_SW = scores.amax(dim=-1).isfinite()
    token_SW = draw(scores, sentences)
    score_SW = scores.gather(2, token_SW[:, :, None])[:, :, 0]
    ended_SW = alive_SW & (token_SW == end)
    own_SW = torch.arange(width, device=scores.device).expand(sentence_count, -1)
    return Choice(own_SW, token_SW, score_SW.masked_fill(ended_SW | ~alive_SW, -torch.inf), own_SW, score_SW, ended_SW)


def diverse(scores: Tensor, end: int, sentences: Sequence[Sentence]) -> Choice:
    """A beam for each group, one after the other: a token that earlier groups have just chosen counts less.

    What is compared is changed by that, not the log-probabilities that openings are kept with.
    """
    options = sentences[0].options  # the groups are the cohort's, the strength is each sentence's own
    size = options.width // options.groups
    strength_S11 = torch.tensor([[[one.options.diversity]] for one in sentences], device=scores.device)
    penalty_S1V = torch.zeros_like(scores[:, :1])
    chosen: list[Choice] = []
    for group in range(options.groups):
        score_SGV = scores[:, group * size : (group + 1) * size]
        choice = beam(score_SGV - penalty_S1V, end)
        penalty_S1V.scatter_add_(2, choice.tokens[:, None], strength_S11.expand(-1, 1, size))
        parent_SGV = choice.parents[:, :, None].expand(-1, -1, scores.shape[2])
        real_SG = score_SGV.gather(1, parent_SGV).gather(2, choice.tokens[:, :, None])[:, :, 0]
        chosen.append(
            Choice(
                choice.parents + group * size,
                choice.tokens,
                real_SG,
                choice.ended_parents + group * size,
                choice.ended_scores,
                choice.ended,
            )
        )
    names = [field.name for field in fields(Choice)]
    return Choice(*(torch.cat([getattr(one, name) for one in chosen], dim=1) for name in names))


def forced(scores: Tensor, end: int, sentences: Sequence[Sentence]) -> Choice:
    """A beam for sentences that have to say something: none ends before it was said, and some opening says it."""
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
    chooser = "forced" if request.required else "diverse" if options.groups > 1 else options.method
    listed = request.candidates is not None and not request.required  # what is required may stand on no list
    return Way(chooser, options.width, options.groups, listed)
