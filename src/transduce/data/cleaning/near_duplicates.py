"""Pairs that are equal, or nearly equal, to an earlier pair: MinHash (Broder 1997) with locality-sensitive hashing.

A pair is the set of its trigrams of characters, those of each side apart. The minima of a random order of two sets are
equal as often as the sets share their union; minima are grouped into bands, and pairs with an equal band are compared
exactly with the first of them. Files grow with the corpus, and 16 bytes per pair in memory, for one band at a time.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from transduce.rng import mix, splitmix64_array

BANDS, ROWS = 14, 5
"""Of two pairs with a similarity of 0.8, 99.6 % have an equal band; with one of 0.5, 36 %."""
LETTERS = 3
_SEPARATORS = re.compile(r"[\W_]+")

Hashes = NDArray[np.uint64]
Texts = Callable[[NDArray[np.int64]], tuple[list[str], list[str]]]
"""Gives the sources and targets of some rows."""


def plain(text: str) -> str:
    """Return a text without case, punctuation and spaces; where nothing else is left, as it is."""
    return _SEPARATORS.sub("", text.casefold()) or text


def pair_hashes(sources: Sequence[str], targets: Sequence[str]) -> Hashes:
    """Return a hash of each pair, equal for pairs that differ in case, punctuation and spaces only."""
    texts = (f"{plain(source)}\n{plain(target)}".encode() for source, target in zip(sources, targets, strict=True))
    digests = b"".join(hashlib.blake2b(text, digest_size=8).digest() for text in texts)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


def repeated(rows: NDArray[np.int64], hashes: Hashes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows whose hash an earlier row has, and the first such row of each; rows are in order."""
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    new = np.concatenate([[True], ordered[1:] != ordered[:-1]]) if len(ordered) else np.zeros(0, dtype=np.bool_)
    first = order[np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))]
    return rows[order[~new]], rows[first[~new]]


def shingles(sources: Sequence[str], targets: Sequence[str]) -> tuple[Hashes, NDArray[np.int64]]:
    """Return the hashed trigrams of all pairs in one array, and how many each pair has."""
    texts = [text for pair in zip(sources, targets, strict=True) for text in pair]
    padded = [f"\2{_SEPARATORS.sub(' ', text.casefold())}\3" for text in texts]
    lengths = np.array([len(text) for text in padded], dtype=np.int64)
    codes = np.frombuffer("".join(padded).encode("utf-32-le", "surrogatepass"), dtype="<u4").astype(np.uint64)
    side = np.repeat(np.arange(len(texts), dtype=np.uint64) % np.uint64(2), lengths)
    number = np.repeat(np.arange(len(texts)), lengths)
    grams = codes[:-2] | codes[1:-1] << np.uint64(21) | codes[2:] << np.uint64(42)
    inside = number[: len(grams)] == number[LETTERS - 1 :]
    hashed = splitmix64_array(grams[inside] * np.uint64(2) + side[: len(grams)][inside])
    return hashed, np.bincount(number[: len(grams)][inside] // 2, minlength=len(sources))


def bands(sources: Sequence[str], targets: Sequence[str]) -> NDArray[np.uint64]:
    """Return the hashes of each pair's bands.  -> (BANDS, pairs)."""
    hashed, counts = shingles(sources, targets)
    starts = np.cumsum(counts) - counts
    found = np.zeros((BANDS, len(sources)), dtype=np.uint64)
    for band in range(BANDS):
        for row in range(ROWS):
            salted = (hashed ^ np.uint64(mix(1, band, row))) * np.uint64(mix(2, band, row) | 1)
            least = np.minimum.reduceat(salted ^ salted >> np.uint64(32), starts)
            found[band] = splitmix64_array(found[band] ^ least)
    return found


def similarity(one: set[int], other: set[int]) -> float:
    """Return the fraction of common elements (Jaccard)."""
    return len(one & other) / max(1, len(one | other))


class NearDuplicates:
    """Collects the bands of pairs in files, then finds the pairs that are nearly equal to an earlier one."""

    def __init__(self, folder: Path, least: float) -> None:
        self._paths = [folder / f"band.{band}.bin" for band in range(BANDS)]
        self._files = [path.open("wb") for path in self._paths]
        self._least = least

    def add(self, sources: Sequence[str], targets: Sequence[str]) -> None:
        """Add pairs, in order."""
        if sources:
            for file, hashes in zip(self._files, bands(sources, targets), strict=True):
                file.write(hashes.tobytes())

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()

    def find(self, rows: NDArray[np.int64], texts: Texts) -> dict[int, int]:
        """Return nearly equal rows, each with an earlier one that is kept; `rows` are those that were added."""
        self.close()
        found: dict[int, int] = {}
        for path in self._paths:
            later, first = repeated(rows, np.fromfile(path, dtype=np.uint64))
            for start in range(0, len(later), 1024):
                pairs = {
                    (row, earlier)
                    for row, earlier in zip(
                        later[start : start + 1024].tolist(), first[start : start + 1024].tolist(), strict=True
                    )
                    if row not in found and earlier not in found
                }
                self._compare(sorted(pairs), texts, found)
            path.unlink()
        return found

    def _compare(self, pairs: list[tuple[int, int]], texts: Texts, found: dict[int, int]) -> None:
        needed = sorted({row for pair in pairs for row in pair})
        if not needed:
            return
        hashed, counts = shingles(*texts(np.array(needed)))
        ends = np.cumsum(counts)
        sets = {row: set(part.tolist()) for row, part in zip(needed, np.split(hashed, ends[:-1]), strict=True)}
        for row, earlier in pairs:
            if earlier not in found and similarity(sets[row], sets[earlier]) >= self._least:
                found[row] = earlier
