"""The key-value cache of a decoder: preallocated, grown by half, every sentence at its own position.

The rows of a sentence (its beams) share one cache, and a mask says which slots belong to which row. When beam search
reorders rows, only the mask changes; no keys are copied. Slots of pruned beams belong to no row: they are dropped
whenever the cache is copied, because it is full or a sentence has finished.

Letters: L layers, S sentences, W rows of each, H heads, N slots filled so far, T new tokens of each row, M = N + T·W.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

FEWEST = 16
"""Minimum number of free slots per row after a copy."""


@dataclass
class KeyValues:
    """The cached keys and values of all layers, in the order of writing: all rows of a token, then those of the next.

    All sentences have the same number of slots; in a sentence that joined later or is shorter, some belong to no row.
    """

    keys: Tensor
    """(L S H N' K), with N' - N free slots."""
    values: Tensor
    """(L S H N' V)."""
    own: Tensor
    """(S W N), which slots belong to a row: one per token of its past, in order."""
    lengths: Tensor
    """(S), number of past tokens of each sentence's rows."""
    longest: int
    """Maximum of `lengths`, known without a device synchronisation."""
    uniform: bool
    """Whether all sentences are at position `longest`."""

    @classmethod
    def empty(cls, layers: int, sentences: int, width: int, heads: int, dims: tuple[int, int], like: Tensor) -> Self:
        """Return a cache without slots, as states may be joined before the first token; `dims`: key and value width."""
        keys, values = (like.new_zeros(layers, sentences, heads, 0, dim) for dim in dims)
        return cls(
            keys=keys,
            values=values,
            own=torch.zeros(sentences, width, 0, dtype=torch.bool, device=like.device),
            lengths=torch.zeros(sentences, dtype=torch.long, device=like.device),
            longest=0,
            uniform=True,
        )

    @property
    def width(self) -> int:
        """Rows per sentence."""
        return self.own.shape[1]

    @property
    def filled(self) -> int:
        """Number of filled slots, those of no row included."""
        return self.own.shape[2]

    def reserve(self, extra: int, lengths: Tensor | None = None) -> None:
        """Make room for `extra` more tokens per row; `advance` counts how many of them each sentence took."""
        if self.filled + extra * self.width > self.keys.shape[3]:
            self._copy_owned(torch.arange(len(self.own), device=self.own.device), extra)

    def write(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Append new tokens; return the keys and values of the past and of them.  (S H T·W K) -> (S H M K)."""
        begin, end = self.filled, self.filled + key.shape[2]
        keys_SHNK, values_SHNV = self.keys[layer], self.values[layer]
        keys_SHNK[:, :, begin:end] = key
        values_SHNV[:, :, begin:end] = value
        return keys_SHNK[:, :, :end], values_SHNV[:, :, :end]

    def allowed(self, length: int) -> Tensor | None:
        """Return the mask of `length` new tokens of each row over the past and themselves.  -> (S 1 T·W M).

        None where all slots are allowed.
        """
        if length == 1 and self.width == 1 and self.uniform and self.filled == self.longest:
            return None
        earlier_TT = torch.ones(length, length, dtype=torch.bool, device=self.own.device).tril()
        new_TWTW = earlier_TT[:, None, :, None] & self._same_row[:, None]
        past_STWN = self.own[:, None].expand(-1, length, -1, -1)
        new_STWM = new_TWTW.flatten(2).expand(len(self.own), -1, -1, -1)
        return torch.cat([past_STWN, new_STWM], dim=3).flatten(1, 2)[:, None]

    def key_positions(self, length: int) -> Tensor:
        """Return the position of each slot, then of `length` new tokens; -1 for slots of no row.  -> (S M)."""
        past_SN = (self.own.cumsum(dim=2) * self.own).amax(dim=1) - 1  # its index among its row's slots
        return torch.cat([past_SN, self.query_positions(length)], dim=1)

    def query_positions(self, length: int) -> Tensor:
        """Return the positions of `length` new tokens of each row.  -> (S T·W)."""
        ahead_N = torch.arange(length, device=self.lengths.device).repeat_interleave(self.width)
        return self.lengths[:, None] + ahead_N

    def advance(self, lengths: Tensor | int) -> None:
        """Count the tokens just written: one number for all sentences, or one per sentence."""
        self.lengths = self.lengths + lengths
        if isinstance(lengths, int):
            self.longest += lengths
            new_SWTW = self._same_row[:, None].expand(len(self.own), -1, lengths, -1)
        else:
            self._update_longest()
            is_new_ST = torch.arange(largest(lengths), device=lengths.device) < lengths[:, None]
            new_SWTW = is_new_ST[:, None, :, None] & self._same_row[:, None]
        self.own = torch.cat([self.own, new_SWTW.flatten(2)], dim=2)

    def select(self, rows: Tensor) -> KeyValues:
        """Return these rows, in this order: whole sentences, `width` rows each.  (S'·W)."""
        sentence_S = rows[:: self.width] // self.width
        own_SWN = self.own.flatten(0, 1).index_select(0, rows).view(len(sentence_S), self.width, self.filled)
        chosen = replace(self, own=own_SWN)
        if not torch.equal(sentence_S, torch.arange(len(self.lengths), device=rows.device)):
            chosen.lengths = self.lengths.index_select(0, sentence_S)
            chosen._update_longest()
            chosen._copy_owned(sentence_S, 0)
        return chosen

    def join(self, other: KeyValues) -> KeyValues:
        """Return the sentences of both, padded to the same number of slots."""
        joined = replace(
            self,
            keys=cat_padded([self.keys, other.keys], padded=3, dim=1),
            values=cat_padded([self.values, other.values], padded=3, dim=1),
            own=cat_padded([self.own, other.own], padded=2),
            lengths=torch.cat([self.lengths, other.lengths]),
        )
        joined._update_longest()
        return joined

    def put(self, sentences: Tensor, other: KeyValues) -> None:
        """Replace these sentences by others, in place; only the slots of the others are copied.  (S')."""
        end = other.filled
        if end > self.keys.shape[3]:
            self._copy_owned(torch.arange(len(self.own), device=self.own.device), -(-end // self.width))
        if end > self.filled:
            self.own = F.pad(self.own, (0, end - self.filled))
        self.keys[:, sentences, :, :end] = other.keys[:, :, :, :end]
        self.values[:, sentences, :, :end] = other.values[:, :, :, :end]
        self.own[sentences] = F.pad(other.own, (0, self.filled - end))
        self.lengths[sentences] = other.lengths
        self._update_longest()

    def release(self, sentences: Tensor) -> None:
        """Empty the slots of sentences that are finished, in place: the next copy leaves them out.  (S')."""
        self.own[sentences] = False
        self.lengths[sentences] = 0
        self._update_longest()

    def _copy_owned(self, sentences: Tensor, extra: int) -> None:
        """Copy the slots that belong to some row of these sentences, in order, and add free slots.  (S)."""
        owned_SN = self.own.any(dim=1)
        most = int(owned_SN.sum(dim=1).max()) if owned_SN.numel() else 0
        slot_SM = owned_SN.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, :most]
        room = max(extra * self.width, most // 2, FEWEST * self.width)
        self.own = self.own.gather(2, slot_SM[:, None].expand(-1, self.width, -1))
        self.keys = F.pad(_gathered(self.keys, sentences, slot_SM), (0, 0, 0, room))
        self.values = F.pad(_gathered(self.values, sentences, slot_SM), (0, 0, 0, room))

    @property
    def _same_row(self) -> Tensor:
        """Identity mask over the rows of a sentence.  -> (W W)."""
        return torch.eye(self.width, dtype=torch.bool, device=self.own.device)

    def _update_longest(self) -> None:
        self.longest = largest(self.lengths)
        self.uniform = bool((self.lengths == self.longest).all())


def largest(lengths: Tensor) -> int:
    """The largest of some lengths, 0 of none."""
    return int(lengths.max()) if len(lengths) else 0


def cat_padded(parts: Sequence[Tensor], padded: int, dim: int = 0) -> Tensor:
    """Concatenate tensors along `dim`, after padding the axis `padded` of each with zeros to the largest."""
    size = max(part.shape[padded] for part in parts)
    beyond = (0, 0) * (parts[0].dim() - 1 - padded)
    return torch.cat([F.pad(part, (*beyond, 0, size - part.shape[padded])) for part in parts], dim)


def _gathered(kept: Tensor, sentences: Tensor, slots: Tensor) -> Tensor:
    """Gather some slots of some sentences.  (L S H N K), (S'), (S' M) -> (L S' H M K)."""
    layers, number, heads, length, _ = kept.shape
    head_LSH = torch.arange(layers * number * heads, device=kept.device).view(layers, number, heads)
    vector_LSHM = head_LSH[:, sentences, :, None] * length + slots[:, None]
    return F.embedding(vector_LSHM, kept.flatten(0, 3))


def by_sentence(tokens: Tensor, width: int) -> Tensor:
    """Interleave the new tokens of a sentence's rows: the first of all rows, then the second.  (R T) -> (S T·W)."""
    return tokens.view(-1, width, tokens.shape[1]).transpose(1, 2).flatten(1)


def by_row(hidden: Tensor, width: int) -> Tensor:
    """Undo `by_sentence` for hidden vectors.  (S T·W D) -> (R T D)."""
    return torch.unflatten(hidden, 1, (-1, width)).transpose(1, 2).flatten(0, 1)


# Keys and values of cross-attention, which are computed once and used in every step.
#
# Letters: B sentences, G heads of keys, M memory, K and V widths of a head.


@dataclass(frozen=True)
class KeptMemory:
    """The projected memory of each sentence, shared by its rows."""

    keys: list[Tensor]
    """Per layer (B G M K)."""
    values: list[Tensor]
    """Per layer (B G M V)."""
    allowed: Tensor | None
    """(B 1 1 M), or None where no source is padded."""

    @classmethod
    def of(cls, projected: Sequence[tuple[Tensor, Tensor]], allowed: Tensor | None) -> KeptMemory:
        """Store each layer's keys and values, contiguous because every step uses them."""
        return cls([key.contiguous() for key, _ in projected], [value.contiguous() for _, value in projected], allowed)

    def layer(self, number: int) -> tuple[Tensor, Tensor, Tensor | None]:
        """Keys, values and mask of one layer."""
        return self.keys[number], self.values[number], self.allowed

    def select(self, sentences: Tensor) -> KeptMemory:
        """Return these sentences, in this order."""
        if torch.equal(sentences, torch.arange(len(self.keys[0]), device=sentences.device)):  # all stay in place
            return self
        allowed, longest = None, self._length
        if self.allowed is not None:  # the longest source may be gone: padding is at the end
            allowed = self.allowed.index_select(0, sentences)
            longest = int(allowed.flatten(1).any(dim=0).sum())
            allowed = None if bool(allowed[..., :longest].all()) else allowed[..., :longest]
        return KeptMemory(
            [key[:, :, :longest].index_select(0, sentences) for key in self.keys],
            [value[:, :, :longest].index_select(0, sentences) for value in self.values],
            allowed,
        )

    def put(self, sentences: Tensor, other: KeptMemory) -> KeptMemory:
        """Return the memory with these sentences replaced by others, in place where they are not longer.  (S')."""
        beyond = other._length - self._length
        mask_B11M, keys, values = self._mask, self.keys, self.values
        if beyond > 0:
            mask_B11M = F.pad(mask_B11M, (0, beyond))
            keys, values = ([F.pad(part, (0, 0, 0, beyond)) for part in parts] for parts in (keys, values))
        end = other._length
        for own, new in (*zip(keys, other.keys, strict=True), *zip(values, other.values, strict=True)):
            own[sentences, :, :end] = new
        mask_B11M[sentences] = F.pad(other._mask, (0, mask_B11M.shape[3] - end))
        return KeptMemory(keys, values, mask_B11M)

    def join(self, other: KeptMemory) -> KeptMemory:
        """Return the sentences of both; the shorter memory is padded."""
        return KeptMemory(
            [cat_padded(pair, padded=2) for pair in zip(self.keys, other.keys, strict=True)],
            [cat_padded(pair, padded=2) for pair in zip(self.values, other.values, strict=True)],
            cat_padded([self._mask, other._mask], padded=3),
        )

    @property
    def _length(self) -> int:
        return self.keys[0].shape[2]

    @property
    def _mask(self) -> Tensor:
        """The mask, also where no source is padded.  -> (B 1 1 M)."""
        key_BGMK = self.keys[0]
        shape = len(key_BGMK), 1, 1, key_BGMK.shape[2]
        return torch.ones(shape, dtype=torch.bool, device=key_BGMK.device) if self.allowed is None else self.allowed
