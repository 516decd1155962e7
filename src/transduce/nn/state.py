"""Keys and values that a decoder remembers: preallocated, grown by doubling, every row at its own position."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass
class KeyValues:
    """The past of all layers.  keys (L R H C K), values (L R H C V), of which row r has filled `lengths[r]`."""

    keys: Tensor
    values: Tensor
    lengths: Tensor
    """(R), how many tokens each row has read."""
    longest: int
    """The largest of `lengths`, known without asking the device."""
    uniform: bool
    """Whether all rows stand at `longest`: then writing is one slice and nothing needs a mask."""

    @classmethod
    def empty(cls, layers: int, rows: int, heads: int, key_dim: int, value_dim: int, like: Tensor) -> Self:
        """Room for a first few tokens of `rows` rows."""
        capacity = 16
        return cls(
            keys=like.new_zeros(layers, rows, heads, capacity, key_dim),
            values=like.new_zeros(layers, rows, heads, capacity, value_dim),
            lengths=torch.zeros(rows, dtype=torch.long, device=like.device),
            longest=0,
            uniform=True,
        )

    @property
    def capacity(self) -> int:
        """How many tokens fit a row."""
        return self.keys.shape[3]

    def reserve(self, extra: int) -> None:
        """Make room for `extra` more tokens in every row."""
        needed = self.longest + extra
        if needed > self.capacity:
            self._widen(max(needed, 2 * self.capacity))

    def write(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Put new tokens behind each row's own past; return all that may be looked at.  (R H T K) -> (R H M K)."""
        length = key.shape[2]
        end = self.longest + length
        keys_RHCK, values_RHCV = self.keys[layer], self.values[layer]
        if self.uniform:
            keys_RHCK[:, :, self.longest : end] = key
            values_RHCV[:, :, self.longest : end] = value
        else:
            row_R1 = torch.arange(len(key), device=key.device)[:, None]
            position_RT = self.lengths[:, None] + torch.arange(length, device=key.device)
            keys_RHCK.transpose(1, 2)[row_R1, position_RT] = key.transpose(1, 2)
            values_RHCV.transpose(1, 2)[row_R1, position_RT] = value.transpose(1, 2)
        return keys_RHCK[:, :, :end], values_RHCV[:, :, :end]

    def advance(self, lengths: Tensor | int) -> None:
        """Count the tokens just written: the same for all rows, or for each its own."""
        if isinstance(lengths, int):
            self.lengths = self.lengths + lengths
            self.longest += lengths
        else:
            self.lengths = self.lengths + lengths
            self._look()

    def select(self, rows: Tensor) -> KeyValues:
        """Return these rows, in this order."""
        chosen = replace(
            self,
            keys=self.keys.index_select(1, rows),
            values=self.values.index_select(1, rows),
            lengths=self.lengths.index_select(0, rows),
        )
        if not self.uniform:
            chosen._look()
        return chosen

    def join(self, other: KeyValues) -> KeyValues:
        """Return the rows of both; the smaller buffer is widened."""
        capacity = max(self.capacity, other.capacity)
        self._widen(capacity)
        other._widen(capacity)
        joined = replace(
            self,
            keys=torch.cat([self.keys, other.keys], dim=1),
            values=torch.cat([self.values, other.values], dim=1),
            lengths=torch.cat([self.lengths, other.lengths]),
        )
        joined._look()
        return joined

    def _widen(self, capacity: int) -> None:
        more = capacity - self.capacity
        self.keys = F.pad(self.keys, (0, 0, 0, more))
        self.values = F.pad(self.values, (0, 0, 0, more))

    def _look(self) -> None:
        self.longest = int(self.lengths.max()) if len(self.lengths) else 0
        self.uniform = bool((self.lengths == self.longest).all())
