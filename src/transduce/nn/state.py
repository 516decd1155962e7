"""The key-value cache of a decoder: preallocated, grown by half, every sentence at its own position.

The rows of a sentence (its beams) share one cache, and a mask says which slots belong to which row. When beam search
reorders rows, only the mask changes; no keys are copied. Slots of pruned beams belong to no row: they are dropped
whenever the cache is copied, because it is full or sentences have left.

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

    Every sentence fills its own slots from the first on, so attention is as long as the longest sentence, whenever the
    others joined.
    """

    keys: Tensor
    """(L S H N' K), with N' - N free slots."""
    values: Tensor
    """(L S H N' V)."""
    own: Tensor
    """(S W N), which slots belong to a row: one per token of its past, in order."""
    ends: Tensor
    """(S), number of slots that each sentence has filled, those of no row included; N is the maximum."""
    lengths: Tensor
    """(S), number of past tokens of each sentence's rows."""
    longest: int
    """Maximum of `lengths`, known without a device synchronisation."""
    uniform: bool
    """Whether all sentences are at position `longest`."""
    even: bool
    """Whether all sentences have filled N slots."""
    places: Tensor | None = None
    """Where the keys of the tokens that `reserve` made room for are written, if sentences differ.  (S·H·T·W)"""

    @classmethod
    def empty(cls, layers: int, sentences: int, width: int, heads: int, dims: tuple[int, int], like: Tensor) -> Self:
        """Return a cache without slots, as states may be joined before the first token; `dims`: key and value width."""
        keys, values = (like.new_zeros(layers, sentences, heads, 0, dim) for dim in dims)
        zero_S = torch.zeros(sentences, dtype=torch.long, device=like.device)
        return cls(
            keys=keys,
            values=values,
            own=torch.zeros(sentences, width, 0, dtype=torch.bool, device=like.device),
            ends=zero_S,
            lengths=zero_S.clone(),
            longest=0,
            uniform=True,
            even=True,
        )

    @property
    def width(self) -> int:
        """Rows per sentence."""
        return self.own.shape[1]

    @property
    def filled(self) -> int:
        """Number of slots that the fullest sentence has filled, those of no row included."""
        return self.own.shape[2]

    def reserve(self, extra: int, lengths: Tensor | None = None) -> None:
        """Make room for `extra` more tokens per row; `advance` counts how many of them each sentence took."""
        if self.filled + extra * self.width > self.keys.shape[3]:
            self._copy_owned(torch.arange(len(self.own), device=self.own.device), extra)
        self.places = None
        if not self.even:
            heads, capacity = self.keys.shape[2:4]
            head_SH = torch.arange(len(self.own) * heads, device=self.own.device).view(-1, heads)
            self.places = (head_SH[:, :, None] * capacity + self._new_slots(extra)[:, None]).flatten()

    def write(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Append the tokens of `reserve`; return the keys and values of past and new.  (S H T·W K) -> (S H M K).

        M is as long as the fullest sentence; what the others have in their last slots is not allowed.
        """
        begin, end = self.filled, self.filled + key.shape[2]
        keys_SHNK, values_SHNV = self.keys[layer], self.values[layer]
        if self.places is None:
            keys_SHNK[:, :, begin:end] = key
            values_SHNV[:, :, begin:end] = value
        else:
            for kept, new in ((keys_SHNK, key), (values_SHNV, value)):
                kept.view(-1, kept.shape[3]).index_copy_(0, self.places, new.reshape(-1, kept.shape[3]))
        return keys_SHNK[:, :, :end], values_SHNV[:, :, :end]

    def allowed(self, length: int) -> Tensor | None:
        """Return the mask of `length` new tokens of each row over the past and themselves.  -> (S 1 T·W M).

        None where all slots are allowed.
        """
        if self.width == 1 and length == 1:  # all slots of a sentence are its row's
            if self.even:
                return None
            slot_M = torch.arange(self.filled + 1, device=self.own.device)
            return (slot_M <= self.ends[:, None])[:, None, None]
        earlier_TT = torch.ones(length, length, dtype=torch.bool, device=self.own.device).tril()
        new_TWTW = earlier_TT[:, None, :, None] & self._same_row[:, None]
        past_STWN = self.own[:, None].expand(-1, length, -1, -1)
        new_STWM = new_TWTW.flatten(2).expand(len(self.own), -1, -1, -1)
        return self._with_new(past_STWN.flatten(1, 2), new_STWM.flatten(1, 2))[:, None]

    def key_positions(self, length: int) -> Tensor:
        """Return the position of each slot with those of `length` new tokens; -1 for slots of no row.  -> (S M)."""
        own_SWM = self._with_new(self.own, self._new_owners(length))
        return (own_SWM.cumsum(dim=2) * own_SWM).amax(dim=1) - 1  # its index among its row's slots

    def query_positions(self, length: int) -> Tensor:
        """Return the positions of `length` new tokens of each row.  -> (S T·W)."""
        ahead_N = torch.arange(length, device=self.lengths.device).repeat_interleave(self.width)
        return self.lengths[:, None] + ahead_N

    def advance(self, lengths: Tensor | int) -> None:
        """Count the tokens just written: one number for all sentences, or one per sentence."""
        if isinstance(lengths, int):
            new_SWN = self._new_owners(lengths)
        else:
            count = largest(lengths)
            is_new_ST = torch.arange(count, device=lengths.device) < lengths[:, None]
            new_SWN = self._new_owners(count) & is_new_ST.repeat_interleave(self.width, dim=1)[:, None]
        self.own = self._with_new(self.own, new_SWN)
        self.lengths, self.ends = self.lengths + lengths, self.ends + lengths * self.width
        if isinstance(lengths, int):
            self.longest += lengths
        else:
            self._update()

    def select(self, rows: Tensor) -> KeyValues:
        """Return these rows, in this order: whole sentences, `width` rows each.  (S'·W)."""
        sentence_S = rows[:: self.width] // self.width
        own_SWN = self.own.flatten(0, 1).index_select(0, rows).view(len(sentence_S), self.width, self.filled)
        chosen = replace(self, own=own_SWN)
        if not torch.equal(sentence_S, torch.arange(len(self.lengths), device=rows.device)):
            chosen.lengths = self.lengths.index_select(0, sentence_S)
            chosen._copy_owned(sentence_S, 0)
        return chosen

    def join(self, other: KeyValues) -> KeyValues:
        """Return the sentences of both, padded to the same number of slots."""
        joined = replace(
            self,
            keys=cat_padded([self.keys, other.keys], padded=3, dim=1),
            values=cat_padded([self.values, other.values], padded=3, dim=1),
            own=cat_padded([self.own, other.own], padded=2),
            ends=torch.cat([self.ends, other.ends]),
            lengths=torch.cat([self.lengths, other.lengths]),
        )
        joined._update()
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
        self.lengths[sentences], self.ends[sentences] = other.lengths, other.ends
        self._update()

    def release(self, sentences: Tensor) -> None:
        """Empty the slots of sentences that are finished, in place: the next copy leaves them out.  (S')."""
        self.own[sentences] = False
        self.lengths[sentences] = self.ends[sentences] = 0
        self._update()

    def _new_slots(self, length: int) -> Tensor:
        """Return the slots of `length` new tokens of each row.  -> (S T·W)."""
        return self.ends[:, None] + torch.arange(length * self.width, device=self.ends.device)

    def _new_owners(self, length: int) -> Tensor:
        """Return which of the slots of `length` new tokens belong to each row.  -> (S W T·W)."""
        return self._same_row[:, None].expand(len(self.own), -1, length, -1).flatten(2)

    def _with_new(self, past: Tensor, new: Tensor) -> Tensor:
        """Append to a mask over the filled slots one over new slots.  (S Q N), (S Q T·W) -> (S Q M)."""
        if self.even:
            return torch.cat([past, new], dim=2)
        slot_SQN = self._new_slots(new.shape[2] // self.width)[:, None].expand_as(new)
        return F.pad(past, (0, new.shape[2])).scatter_(2, slot_SQN, new)

    def _copy_owned(self, sentences: Tensor, extra: int) -> None:
        """Copy the slots that belong to some row of these sentences, in order, and add free slots.  (S)."""
        owned_SN = self.own.any(dim=1)
        self.ends = owned_SN.sum(dim=1)
        most = largest(self.ends)
        slot_SM = owned_SN.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, :most]
        room = max(extra * self.width, most // 2, FEWEST * self.width)
        self.own = self.own.gather(2, slot_SM[:, None].expand(-1, self.width, -1))
        self.keys = F.pad(_gathered(self.keys, sentences, slot_SM), (0, 0, 0, room))
        self.values = F.pad(_gathered(self.values, sentences, slot_SM), (0, 0, 0, room))
        self._update()

    @property
    def _same_row(self) -> Tensor:
        """Identity mask over the rows of a sentence.  -> (W W)."""
        return torch.eye(self.width, dtype=torch.bool, device=self.own.device)

    def _update(self) -> None:
        """Find out again how long the sentences are, after some came or went."""
        if not len(self.lengths):
            self.longest, self.uniform, self.even, self.own = 0, True, True, self.own[:, :, :0]
            return
        lengths, ends = torch.stack([self.lengths, self.ends]).tolist()  # one transfer from the device
        self.longest, filled = max(lengths), max(ends)
        self.uniform, self.even = min(lengths) == self.longest, min(ends) == filled
        self.own = self.own[:, :, :filled]


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
