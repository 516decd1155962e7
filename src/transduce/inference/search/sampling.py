"""Drawing tokens by their probability: which of them may be drawn, and the random numbers.

Numbers are a function of (seed of the sentence, opening, place), not of a stream: an answer does not depend on who
else is in the batch, or on when it was asked for.

Letters: S sentences, W openings of each, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transduce.inference.search.options import SearchOptions
from transduce.inference.search.sentence import Sentence
from transduce.nn.linear import widest
from transduce.rng import scattered_all


def draw(scores: Tensor, sentences: Sequence[Sentence]) -> Tensor:
    """Draw a token for every opening, each sentence by its own wishes.  (S W V) -> (S W)."""
    chance_SWV, order_SWV = likeliest(scores, [sentence.options for sentence in sentences])
    total_SWV = chance_SWV.cumsum(dim=-1)
    number_SW = torch.from_numpy(_numbers(sentences, scores.shape[1])).to(chance_SWV)
    wanted_SW1 = (number_SW * total_SWV[:, :, -1])[:, :, None]
    place_SW1 = torch.searchsorted(total_SWV, wanted_SW1, right=True).clamp_(max=scores.shape[2] - 1)
    return order_SWV.gather(2, place_SW1)[:, :, 0]


def likeliest(scores: Tensor, options: Sequence[SearchOptions]) -> tuple[Tensor, Tensor]:
    """Return what each token may be drawn with, likeliest first, and which token that is.  (S W V) -> 2 × (S W V).

    Temperature comes first, then top_k, top_p of what is left, and min_p. What may not be drawn has 0, and the rest
    need not add up to 1. The likeliest token can always be drawn.
    """

    wide = widest(scores.device)

    def wish(name: str) -> Tensor:
        values = [getattr(option, name) for option in options]
        return torch.tensor(values, dtype=wide, device=scores.device)[:, None, None]

    score_SWV, order_SWV = scores.to(wide).sort(dim=-1, descending=True, stable=True)
    below_SWV = (score_SWV - score_SWV[:, :, :1]).nan_to_num(nan=0.0, neginf=-math.inf) / wish("temperature")
    rank_V = torch.arange(scores.shape[2], device=scores.device)
    most_S11 = wish("top_k")
    below_SWV.masked_fill_((most_S11 > 0) & (rank_V >= most_S11), -math.inf)
    chance_SWV = below_SWV.softmax(dim=-1)
    before_SWV = chance_SWV.cumsum(dim=-1) - chance_SWV
    left_out_SWV = (before_SWV >= wish("top_p")) & (rank_V > 0)
    left_out_SWV |= chance_SWV < wish("min_p") * chance_SWV[:, :, :1]
    return chance_SWV.masked_fill_(left_out_SWV, 0.0), order_SWV


def _numbers(sentences: Sequence[Sentence], width: int) -> NDArray[np.float64]:
    """A number from 0 up to 1 for each opening; every call is one place further.  -> (S W)."""
    key_S1 = np.array([[sentence.seed] for sentence in sentences], dtype=np.uint64)
    place_S1 = np.array([[sentence.draws] for sentence in sentences], dtype=np.uint64)
    for sentence in sentences:
        sentence.draws += 1
    mixed_SW = scattered_all(scattered_all(scattered_all(key_S1) ^ place_S1) ^ np.arange(width, dtype=np.uint64))
    return (mixed_SW >> np.uint64(11)).astype(np.float64) * 2.0**-53
