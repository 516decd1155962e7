"""The largest few of many numbers, faster than by looking at each: most blocks of a vocabulary hold none of them."""

from __future__ import annotations

import torch
from torch import Tensor

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
