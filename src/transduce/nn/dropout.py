"""Dropout whose masks are a function of a key, not of a stream of random numbers.

A mask depends on (seed, update, batch, site, call, row): the same numbers give the same mask whether a batch is
computed whole or in micro-batches, in one process or in several, for the first time or again after a restart. No
generator has a state that would have to be saved.

Bits come from numpy's Philox (Salmon et al. 2011), a counter-based generator, sixteen for each value: the rate is
met to 1/65,536, and drawing them costs a small part of what `F.dropout` takes on a CPU.
"""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce import rng

MOST_CALLS = 2**20
"""Maximum calls of one dropout in one pass."""
BITS_PER_BLOCK = 16
"""Sixteen-bit numbers that one step of Philox's counter gives."""


class DropoutKey(NamedTuple):
    """What the masks of one pass depend on, besides their site in the model."""

    seed: int
    update: int
    batch: int = 0
    """Number of the batch within an update (gradient accumulation)."""
    first_row: int = 0
    """First row of a micro-batch in its batch."""


class Dropout(nn.Module):
    """Zero each value with probability `rate` while training, and scale the rest by 1 / (1 - rate)."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.threshold = min(round(rate * 2**16), 2**16 - 1)
        self.key: DropoutKey | None = None
        self.site = 0
        """Number of this module among the model's dropouts."""
        self.calls = 0
        """Number of calls under the current key; a loop over time steps has many."""

    def forward(self, value: Tensor) -> Tensor:
        """(B …) -> (B …)."""
        if not self.training or self.threshold == 0:
            return value
        # On a GPU torch's kernel is the fast one; the key is not read, or torch.compile would compile for each one.
        if value.device.type != "cpu" or self.key is None:
            return F.dropout(value, self.rate)
        bits = keyed_bits(self.key, self.site, self.calls, value)
        self.calls += 1
        return value * _mask(bits, self.threshold, value.detach())

    def extra_repr(self) -> str:
        return f"rate={self.rate}"


class WordDropout(nn.Module):
    """Zero whole vectors with probability `rate`: word dropout (Gal & Ghahramani 2016)."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.dropout = Dropout(rate)

    def forward(self, embedded: Tensor) -> Tensor:
        """(B N D) -> (B N D)."""
        if not self.training or self.dropout.rate == 0:
            return embedded
        kept_BN1: Tensor = self.dropout(embedded.new_ones(*embedded.shape[:2], 1))
        return embedded * kept_BN1


def set_dropout_key(model: nn.Module, key: DropoutKey | None) -> None:
    """Set the key of the next pass in every dropout of a model."""
    for site, module in enumerate(_sites(model)):
        module.key, module.site, module.calls = key, site, 0


def begin_pass(model: nn.Module, number: int) -> None:
    """Begin another pass under the same key, with masks that do not depend on the number of calls in the previous one.

    That number may depend on the longest row, or on the row that ponders longest.
    """
    for module in _sites(model):
        module.calls = number * MOST_CALLS


_SITES: WeakKeyDictionary[nn.Module, list[Dropout]] = WeakKeyDictionary()


def _sites(model: nn.Module) -> list[Dropout]:
    """The dropouts of a model, in order; cached, since traversing the modules is slow."""
    if model not in _SITES:
        _SITES[model] = [module for module in model.modules() if isinstance(module, Dropout)]
    return _SITES[model]


def keyed_bits(key: DropoutKey, site: int, call: int, value: Tensor) -> Tensor:
    """Draw a signed sixteen-bit number for every element; those of a row depend on the row, not on its neighbours."""
    rows, per_row = len(value), value[0].numel() if len(value) else 0
    blocks = -(-per_row // BITS_PER_BLOCK)
    generator = rng.philox(rng.key(key.seed, key.update, key.batch, site, call), counter=key.first_row * blocks)
    bits = generator.random_raw(rows * blocks * 4).view(np.int16).reshape(rows, blocks * BITS_PER_BLOCK)
    return torch.from_numpy(bits)[:, :per_row].view(value.shape)


def _mask(bits: Tensor, threshold: int, like: Tensor) -> Tensor:
    """Return 0 or 1 / (1 - rate) for each value. Comparing straight into floats is several times faster than through
    booleans, for which torch has no vector code on a CPU."""
    mask = torch.empty_like(like, memory_format=torch.contiguous_format)
    return torch.ge(bits, threshold - 2**15, out=mask).mul_(2**16 / (2**16 - threshold))
