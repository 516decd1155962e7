"""How a search goes on from here: the rules that pick tokens, each a function from scores to a choice.

Letters: S sentences, W openings of each, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

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


CHOOSERS: dict[str, Chooser] = {"greedy": greedy, "beam": beam, "sample": sample}
