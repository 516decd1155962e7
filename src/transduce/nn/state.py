"""Keys and values that a decoder remembers: preallocated, grown by doubling, every sentence at its own position.

The rows of a sentence (its beams) keep their pasts in one place, and each row knows which parts of it are its own. A
row that goes on from another's past then looks at other parts; nothing is copied.

Letters: L layers, S sentences, W rows of each, H heads, C tokens that fit, N = C·W slots, T new tokens of each row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

FEWEST = 16
"""Tokens that a row has room for when it reads its first one."""


@dataclass
class KeyValues:
    """The past of all layers.  keys (L S H N K), values (L S H N V); token t of row w has slot t·W + w."""

    keys: Tensor
    values: Tensor
    own: Tensor
    """(S W N), which slots are of a row's own past, and those that it will fill."""
    lengths: Tensor
    """(S), how many tokens each sentence's rows have read."""
    longest: int
    """The largest of `lengths`, known without asking the device."""
    uniform: bool
    """Whether all sentences stand at `longest`: then writing is one slice."""

    @classmethod
    def empty(cls, layers: int, sentences: int, width: int, heads: int, dims: tuple[int, int], like: Tensor) -> Self:
        """No room yet, as sentences may be joined before their first token; `dims` are a head's keys' and values'."""
        keys, values = (like.new_zeros(layers, sentences, heads, 0, dim) for dim in dims)
        return cls(
            keys=keys,
            values=values,
            own=_unread(width, 0, like.device).repeat(sentences, 1, 1),
            lengths=torch.zeros(sentences, dtype=torch.long, device=like.device),
            longest=0,
            uniform=True,
        )

    @property
    def width(self) -> int:
        """Rows of each sentence."""
        return self.own.shape[1]

    @property
    def capacity(self) -> int:
        """How many tokens fit a row."""
        return self.own.shape[2] // self.width

    def reserve(self, extra: int) -> None:
        """Make room for `extra` more tokens in every row."""
        needed = self.longest + extra
        if needed > self.capacity:
            self._widen(max(needed, 2 * self.capacity, FEWEST))

    def write(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Put new tokens behind each sentence's past; return all that may be looked at.  (S H T·W K) -> (S H M·W K)."""
        begin, end = self.longest * self.width, self.longest * self.width + key.shape[2]
        keys_SHNK, values_SHNV = self.keys[layer], self.values[layer]
        if self.uniform:
            keys_SHNK[:, :, begin:end] = key
            values_SHNV[:, :, begin:end] = value
        else:
            sentence_S1 = torch.arange(len(key), device=key.device)[:, None]
            slot_SM = self.lengths[:, None] * self.width + torch.arange(key.shape[2], device=key.device)
            keys_SHNK.transpose(1, 2)[sentence_S1, slot_SM] = key.transpose(1, 2)
            values_SHNV.transpose(1, 2)[sentence_S1, slot_SM] = value.transpose(1, 2)
        return keys_SHNK[:, :, :end], values_SHNV[:, :, :end]

    def allowed(self, length: int) -> Tensor | None:
        """Which slots `length` new tokens of each row may look at, themselves included.  -> (S 1 T·W M·W), or None for
        all."""
        end = self.longest + length
        if self.uniform and self.width == 1 and length == 1:
            return None
        own_SWM = self.own[:, :, : end * self.width]
        if self.uniform and length == 1:
            return own_SWM[:, None]
        position_M = torch.arange(end * self.width, device=own_SWM.device) // self.width
        query_ST = self.lengths[:, None] + torch.arange(length, device=own_SWM.device)
        read_STM = position_M <= query_ST[:, :, None]
        return (own_SWM[:, None] & read_STM[:, :, None]).flatten(1, 2)[:, None]

    def asking(self, length: int) -> Tensor:
        """At which position each of `length` new tokens of each row stands.  -> (S T·W)."""
        ahead_N = torch.arange(length, device=self.lengths.device).repeat_interleave(self.width)
        return self.lengths[:, None] + ahead_N

    def asked(self, length: int) -> Tensor:
        """At which position the token of each slot stands, those of `length` new ones included.  -> (1 M·W)."""
        slots = (self.longest + length) * self.width
        return torch.arange(slots, device=self.lengths.device)[None] // self.width

    def advance(self, lengths: Tensor | int) -> None:
        """Count the tokens just written: the same for all sentences, or for each its own."""
        self.lengths = self.lengths + lengths
        if isinstance(lengths, int):
            self.longest += lengths
        else:
            self._look()

    def select(self, rows: Tensor) -> KeyValues:
        """Return these rows, in this order: whole sentences, in each of them any of its own rows.  (S'·W)."""
        chosen_SW = rows.view(-1, self.width)
        sentence_S = chosen_SW[:, 0] // self.width
        chosen = self
        if not torch.equal(sentence_S, torch.arange(len(self.lengths), device=rows.device)):
            chosen = replace(
                self,
                keys=self.keys.index_select(1, sentence_S),
                values=self.values.index_select(1, sentence_S),
                own=self.own.index_select(0, sentence_S),
                lengths=self.lengths.index_select(0, sentence_S),
            )
            chosen._look()
        if self.width == 1:
            return chosen
        parent_SW1 = (chosen_SW % self.width)[:, :, None]
        own_SWN = chosen.own.gather(1, parent_SW1.expand(-1, -1, chosen.own.shape[2]))
        read_S1N = torch.arange(own_SWN.shape[2], device=rows.device) < chosen.lengths[:, None, None] * self.width
        return replace(chosen, own=torch.where(read_S1N, own_SWN, _unread(self.width, self.capacity, rows.device)))

    def join(self, other: KeyValues) -> KeyValues:
        """Return the sentences of both; the smaller buffer is widened."""
        capacity = max(self.capacity, other.capacity)
        self._widen(capacity)
        other._widen(capacity)
        joined = replace(
            self,
            keys=torch.cat([self.keys, other.keys], dim=1),
            values=torch.cat([self.values, other.values], dim=1),
            own=torch.cat([self.own, other.own]),
            lengths=torch.cat([self.lengths, other.lengths]),
        )
        joined._look()
        return joined

    def _widen(self, capacity: int) -> None:
        more = capacity - self.capacity
        new_SWN = _unread(self.width, more, self.own.device).repeat(len(self.own), 1, 1)
        self.own = torch.cat([self.own, new_SWN], dim=2)
        self.keys = F.pad(self.keys, (0, 0, 0, more * self.width))
        self.values = F.pad(self.values, (0, 0, 0, more * self.width))

    def _look(self) -> None:
        self.longest = int(self.lengths.max()) if len(self.lengths) else 0
        self.uniform = bool((self.lengths == self.longest).all())


def _unread(width: int, capacity: int, device: torch.device) -> Tensor:
    """Slots that nobody has filled: row w will fill every slot with its own number.  -> (W, capacity·W)."""
    return torch.eye(width, dtype=torch.bool, device=device).repeat(1, capacity)
