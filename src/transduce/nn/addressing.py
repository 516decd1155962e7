"""A memory of slots that is read and written by weights over its places (Graves et al. 2014, section 3).

Heads say where they look in four steps: by content, held back by where they looked before, moved by a few places, and
made sharper. Letters: B rows, H heads, N places, K width of a place, P what a head says.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

TINY = 1e-16
"""Keeps logarithms of weights and quotients of lengths finite."""


class Address(NamedTuple):
    """Where heads want to look."""

    key: Tensor
    """(B H K): what a place should look like."""
    strength: Tensor
    """(B H 1), β above 0: how much only the most alike places count."""
    gate: Tensor
    """(B H 1), g from 0 to 1: content against where the head looked before."""
    shift: Tensor
    """(B H S), s: how likely each move is, from the farthest back to the farthest ahead; sums to 1."""
    sharpness: Tensor
    """(B H 1), γ of 1 or more."""

    @staticmethod
    def parts(slot_dim: int, max_shift: int) -> list[int]:
        """How many numbers each part has, in their order."""
        return [slot_dim, 1, 1, 2 * max_shift + 1, 1]

    @classmethod
    def of(cls, said: Tensor, slot_dim: int, max_shift: int) -> Address:
        """Bring what heads said into range.  (B H P) -> an address."""
        key, strength, gate, shift, sharpness = torch.split(said, cls.parts(slot_dim, max_shift), dim=-1)
        return cls(key.tanh(), F.softplus(strength), gate.sigmoid(), shift.softmax(dim=-1), F.softplus(sharpness) + 1)


def weights_at(address: Address, before: Tensor, memory: Tensor) -> Tensor:
    """Return how much each head looks at each place.  before (B H N), memory (B N K) -> (B H N); rows sum to 1."""
    content_BHN = (address.strength * likeness(address.key, memory)).softmax(dim=-1)
    gated_BHN = address.gate * content_BHN + (1 - address.gate) * before
    return sharpened(moved(gated_BHN, address.shift), address.sharpness)


def likeness(key: Tensor, memory: Tensor) -> Tensor:
    """Cosine of the angle between a key and every place.  (B H K), (B N K) -> (B H N)."""
    lengths_BHN = key.norm(dim=-1)[:, :, None] * memory.norm(dim=-1)[:, None, :]
    cosine_BHN: Tensor = key @ memory.transpose(1, 2) / (lengths_BHN + TINY)
    return cosine_BHN


def moved(weights: Tensor, shift: Tensor) -> Tensor:
    """Move weights round the memory, spread over several distances.  (B H N), (B H S) -> (B H N)."""
    far = shift.shape[-1] // 2
    moves = zip(range(-far, far + 1), shift.unbind(dim=-1), strict=True)
    parts = [weights.roll(move, dims=-1) * likely_BH[..., None] for move, likely_BH in moves]
    return functools.reduce(torch.add, parts)


def sharpened(weights: Tensor, sharpness: Tensor) -> Tensor:
    """w^γ / Σ w^γ, computed from logarithms, since a high power of small weights would be nothing.  (B H N)."""
    return (sharpness * (weights + TINY).log()).softmax(dim=-1)


def written(memory: Tensor, weights: Tensor, erase: Tensor, add: Tensor) -> Tensor:
    """Wipe and add at the places that heads look at, all heads at once.  (B N K), (B H N), (B H K) twice -> (B N K)."""
    erased_BHNK = weights[:, :, :, None] * erase[:, :, None, :]
    if erased_BHNK.shape[1] == 1:  # the usual case; the gradient of a product is slow
        kept_BNK = 1 - erased_BHNK[:, 0]
    else:
        kept_BNK = (1 - erased_BHNK).prod(dim=1)
    return torch.addcmul(weights.transpose(1, 2) @ add, memory, kept_BNK)
