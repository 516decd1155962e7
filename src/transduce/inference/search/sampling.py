"""Sampling: which tokens may be drawn (temperature, top-k, top-p, min-p), and the random numbers.

Numbers are a function of (seed of the request, beam, position), not of a stream: a sample does not depend on what else
is in the batch, or on when the request arrived.

Letters: B requests, W beams of each, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transduce.inference.search.active_request import ActiveRequest
from transduce.inference.search.options import SearchOptions
from transduce.nn.linear import sum_dtype
from transduce.rng import mix_arrays


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
    """A number in [0, 1) for each beam; every call is one position further.  -> (B W)."""
    key_B1 = np.array([[active.seed] for active in requests], dtype=np.uint64)
    place_B1 = np.array([[active.draws] for active in requests], dtype=np.uint64)
    for active in requests:
        active.draws += 1
    mixed_BW = mix_arrays(key_B1, place_B1, np.arange(width, dtype=np.uint64))
    return (mixed_BW >> np.uint64(11)).astype(np.float64) * 2.0**-53
