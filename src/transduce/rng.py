"""Keyed randomness: what is drawn is a function of a key such as (seed, epoch, row), never of a stream's state.

So results do not depend on micro-batches, ranks, workers or recomputation, and resuming needs no generator state.

    initialisation, experiments       torch_generator(seed)
    dropout                           philox(key(seed, update, batch, site, call), counter)
    gradient noise                    torch_generator(key(seed, update) >> 64)
    order of the data, blocks         permute(…, round_keys(seed, epoch, …))
    span corruption                   generator("spans", seed, epoch, row)
    masked language modelling         row_generator(seed, epoch, row)
    BPE-dropout, sampling             mix(seed, epoch, line, …): a 64-bit number per draw
    recombination                     mix(seed, epoch, place), then splitmix64 of the number before
    synthetic tasks                   StableRandom(name)
    held-out words of the demo        rank(seed, word)

The algorithms differ because the costs do: SplitMix64 is cheap enough for one number per word, Philox for millions of
bits at any offset, BLAKE2b where strings are part of the key. None may change: a seed stands for one result forever.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

Rows = NDArray[np.int64]
"""Row numbers."""
Words = NDArray[np.uint64]
"""64-bit numbers."""

# Keys from numbers: SplitMix64 (Steele, Lea and Flood 2014) maps neighbours to unrelated numbers.

GAMMA = 0x9E3779B97F4A7C15
"""The step of SplitMix64's counter."""
MASK = 2**64 - 1


def splitmix64(number: int) -> int:
    """One step of SplitMix64 on a 64-bit number."""
    number = number + GAMMA & MASK
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & MASK
    number = (number ^ number >> 27) * 0x94D049BB133111EB & MASK
    return number ^ number >> 31


def splitmix64_array(numbers: Words) -> Words:
    """One step of SplitMix64 on every number of an array."""
    return _finalise(numbers + np.uint64(GAMMA))


def _finalise(numbers: Words) -> Words:
    """The mixing function of SplitMix64, without its counter's step."""
    numbers = (numbers ^ numbers >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ numbers >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return numbers ^ numbers >> np.uint64(31)


def mix(*words: int) -> int:
    """A 64-bit number from several numbers, as SplitMix64 of each with the result so far."""
    mixed = 0
    for word in words:
        mixed = splitmix64(mixed ^ word & MASK)
    return mixed


def mix_arrays(first: Words, *others: Words) -> Words:
    """The same over arrays, which are broadcast."""
    mixed = splitmix64_array(first)
    for words in others:
        mixed = splitmix64_array(mixed ^ words)
    return mixed


def key(*words: int) -> int:
    """A 128-bit key from several numbers."""
    low, high = GAMMA, 0xD1B54A32D192ED03
    for word in words:
        low, high = splitmix64(low ^ word), splitmix64(high ^ word)
    return high << 64 | low


def stream_seed(*words: int) -> int:
    """A seed for torch's own stream, which dropout on a GPU draws from: its kernel takes no key.

    Simpler than `key`, and kept because a seed must reproduce the same run.
    """
    mixed = 0
    for word in words:
        mixed = (mixed ^ word) * GAMMA % 2**64
        mixed ^= mixed >> 31
    return mixed


# Keys from names: BLAKE2b, with the purpose as its personalisation.


def _digest(purpose: str, size: int, name: Sequence[int | str]) -> bytes:
    text = "\0".join(map(str, name)).encode()
    return hashlib.blake2b(text, digest_size=size, person=f"transduce {purpose}".encode()).digest()


def rank(seed: int, word: str) -> bytes:
    """Return a word's rank in the keyed order of all words: the first are held out, whichever others there are."""
    return hashlib.blake2b(f"{seed} {word}".encode()).digest()


# Generators.


def philox(philox_key: int, counter: int = 0) -> np.random.Philox:
    """Philox (Salmon et al. 2011), a counter-based generator: bits of any place cost the same."""
    return np.random.Philox(key=philox_key, counter=counter)


def generator(purpose: str, *name: int | str) -> np.random.Generator:
    """A numpy generator for what `name` names, for example ("spans", seed, epoch, row)."""
    return np.random.Generator(philox(int.from_bytes(_digest(purpose, 16, name), "little")))


def row_generator(seed: int, epoch: int, row: int) -> np.random.Generator:
    """A numpy generator for one row of an epoch. Epoch and row are Philox's counter: no hash for each of many rows."""
    return np.random.Generator(np.random.Philox(key=seed, counter=[0, 0, epoch, row]))


def numpy_generator(seed: int) -> np.random.Generator:
    """numpy's default stream, where the draws must be those of another tool: sacreBLEU's bootstrap."""
    return np.random.default_rng(seed)


def torch_generator(seed: int) -> torch.Generator:
    """A private torch generator, so that torch's global one is left alone."""
    import torch

    return torch.Generator().manual_seed(seed)


T = TypeVar("T")


class StableRandom:
    """Draws from `random.random()`, the one method whose sequence Python guarantees not to change."""

    def __init__(self, name: str) -> None:
        self._random = random.Random(name)

    def below(self, count: int) -> int:
        """One of 0 … count - 1."""
        return int(self._random.random() * count)

    def between(self, low: int, high: int) -> int:
        """One of low … high."""
        return low + self.below(high - low + 1)

    def symbols(self, length: int, count: int) -> list[int]:
        """`length` numbers below `count`."""
        return [self.below(count) for _ in range(length)]

    def choice(self, things: Sequence[T]) -> T:
        """One of several items."""
        return things[self.below(len(things))]


# Keyed orders.

ROUNDS = 8
"""More than the four that theory requires: the halves of small domains are only a few bits wide."""


def round_keys(*name: int | str) -> Words:
    """The keys of one order from what names it, for example (seed, epoch); the same on every machine."""
    return np.frombuffer(_digest("order", 8 * ROUNDS, name), dtype="<u8").astype(np.uint64)


def permute(places: Rows, size: int, keys: Words) -> Rows:
    """Return the rows at these places of the keyed order of `size` rows; a bijection of 0..size-1.

    An order over millions of rows as an array costs memory and must be drawn from its beginning. A keyed bijection (a
    Feistel network; Luby and Rackoff 1988) gives the row at any place directly, in constant memory, so a run can start
    anywhere and every rank agrees. For sizes that are no power of two, a value outside the range is permuted again
    until it falls inside (cycle walking; Black and Rogaway 2002).
    """
    assert places.size == 0 or (places.min() >= 0 and places.max() < size)
    values = places.astype(np.uint64)
    outside = np.ones(values.shape, dtype=np.bool_)
    while outside.any():  # the domain is less than twice the size: half of the values settle in each round
        values[outside] = _feistel(values[outside], size, keys)
        outside = values >= np.uint64(size)
    return values.astype(np.int64)


def _feistel(values: Words, size: int, keys: Words) -> Words:
    bits = max(2, (size - 1).bit_length())
    low_bits = bits // 2
    low_mask = np.uint64((1 << low_bits) - 1)
    high_mask = np.uint64((1 << (bits - low_bits)) - 1)
    low, high = values & low_mask, values >> np.uint64(low_bits)
    for turn, round_key in enumerate(keys):
        if turn % 2 == 0:
            high = high ^ (_finalise(low + round_key) & high_mask)
        else:
            low = low ^ (_finalise(high + round_key) & low_mask)
    return (high << np.uint64(low_bits)) | low
