"""Which rows make the next batch, from any position of a run on.

The order is a function of (seed, epoch): a keyed permutation of all places of an epoch, which are its rows (or stand
for them, where corpora are mixed by weights: `Mixture`), taken in buckets. A bucket is sorted by length and cut into
batches by a budget of tokens, so that there is little padding, and its batches are shuffled. Nothing is drawn from a
stream, so a resumed run computes the bucket it stopped in and continues.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from transduce.data.batching import cut_by_budget
from transduce.data.store import CorpusRows, Split
from transduce.errors import DataError, SettingsError
from transduce.rng import Rows, permute, round_keys

T = TypeVar("T")

BUCKET_SIZE = 65_536
"""Rows sorted together: enough for hundreds of full batches, few enough to sort in milliseconds."""
COUNTED_BUCKETS = 4
"""An epoch of more buckets is not counted batch by batch."""


class Position(NamedTuple):
    """Position of a run in its data: the next batch is `batch` of `bucket` of `epoch`. As JSON: three numbers."""

    epoch: int = 0
    bucket: int = 0
    batch: int = 0


START = Position()
"""Where a run begins."""


class RowLengths(Protocol):
    """The lengths of one side of a corpus."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: NDArray[np.int64], /) -> NDArray[np.int64]: ...


class BatchSampler:
    """The endless deterministic sequence of batches of one corpus, as row numbers."""

    def __init__(
        self,
        source_lengths: RowLengths,
        target_lengths: RowLengths,
        tokens: int,
        seed: int,
        bucket_size: int = BUCKET_SIZE,
        corpora: Sequence[CorpusRows] | None = None,
        curriculum: int = 0,
        max_rows: int | None = None,
    ) -> None:
        """Lengths are without special tokens; `tokens` bounds rows × longest row of each side, end token included.

        `corpora` are those that the rows come from, one after the other, mixed by their weights. In the first
        `curriculum` epochs only short rows are seen, longer ones in each. `max_rows` bounds the rows of a batch.
        """
        corpora = [CorpusRows(len(target_lengths))] if corpora is None else corpora
        assert len(source_lengths) == len(target_lengths) == sum(corpus.size for corpus in corpora)
        if len(target_lengths) == 0:
            raise DataError("a corpus without pairs has no batches; check what its preparation dropped")
        if tokens < 1 or bucket_size < 1:
            raise SettingsError(f"batches need at least one token and buckets one row, not {tokens} and {bucket_size}")
        self._source_lengths = source_lengths
        self._target_lengths = target_lengths
        self._tokens, self._max_rows = tokens, max_rows
        self._seed = seed
        self._mixture = Mixture(corpora, seed)
        self._curriculum = None
        if curriculum:
            self._curriculum = Curriculum(source_lengths, target_lengths, curriculum)
        self._size = self._mixture.size
        self.num_buckets = -(-self._size // bucket_size)
        # equal buckets: a small last one would be mostly padding
        self._bucket_size = -(-self._size // self.num_buckets)

    @classmethod
    def of(
        cls,
        store: Split,
        tokens: int,
        seed: int,
        bucket_size: int = BUCKET_SIZE,
        curriculum: int = 0,
        max_rows: int | None = None,
    ) -> Self:
        """The batches of a prepared split."""
        lengths = store.source_lengths, store.target_lengths
        return cls(*lengths, tokens, seed, bucket_size, store.corpora, curriculum, max_rows)

    def starting(
        self, position: Position = START, make: Callable[[int, int], list[T]] | None = None
    ) -> Iterator[tuple[Position, T]]:
        """Yield the batches from a position on, epoch after epoch, each with the position *after* it.

        The yielded position is what a checkpoint keeps once the batch was used. `make(epoch, bucket)` makes the batches
        of a bucket where they are not rows.
        """
        make = make or cast("Callable[[int, int], list[T]]", self.bucket)
        epoch, bucket, batch = position
        while True:
            batches = make(epoch, bucket)
            for index in range(batch, len(batches)):
                if index + 1 < len(batches):
                    after = Position(epoch, bucket, index + 1)
                elif bucket + 1 < self.num_buckets:
                    after = Position(epoch, bucket + 1, 0)
                else:
                    after = Position(epoch + 1, 0, 0)
                yield after, batches[index]
            bucket, batch = bucket + 1, 0
            if bucket >= self.num_buckets:
                epoch, bucket = epoch + 1, 0

    def epoch(self, number: int) -> Iterator[Rows]:
        """Yield the batches of one epoch: every row exactly once, or as often as its corpus's weight says, but for
        those that come later in a curriculum."""
        for bucket in range(self.num_buckets):
            yield from self.bucket(number, bucket)

    @property
    def is_estimated(self) -> bool:
        """Whether `batches_in_epoch` is an estimate."""
        return self.num_buckets > COUNTED_BUCKETS

    def batches_in_epoch(self, number: int) -> int:
        """Count the batches of one epoch; epochs differ by a few, as their buckets do, and one that a curriculum leaves
        nothing of counts as one.

        A large corpus is not cut into batches just to count them: it is estimated from the first bucket.
        """
        if self.is_estimated:
            return max(1, len(self._cut(number, 0)) * self.num_buckets)
        return max(1, sum(len(self._cut(number, bucket)) for bucket in range(self.num_buckets)))

    def bucket(self, epoch: int, bucket: int) -> list[Rows]:
        """Return the batches of one bucket in the order they are used."""
        return self.shuffled(self._cut(epoch, bucket), epoch, bucket)

    def shuffled(self, batches: list[T], epoch: int, bucket: int) -> list[T]:
        """Return what was made of one bucket in the order it is used."""
        if not batches:
            return []
        places = np.arange(len(batches), dtype=np.int64)
        return [batches[place] for place in permute(places, len(batches), round_keys(self._seed, epoch, bucket))]

    def rows(self, epoch: int, bucket: int) -> tuple[int, Rows]:
        """Return where in the epoch a bucket begins, and its rows."""
        start = bucket * self._bucket_size
        places = np.arange(start, min(start + self._bucket_size, self._size), dtype=np.int64)
        rows = self._mixture.rows(permute(places, self._size, round_keys(self._seed, epoch)), epoch)
        return start, rows if self._curriculum is None else self._curriculum.seen(rows, epoch)

    def cut(self, store: Split) -> list[Rows]:
        """Cut what was made of one bucket as the bucket itself would be."""
        places = np.arange(len(store), dtype=np.int64)
        return cut_by_budget(places, store.source_lengths[:], store.target_lengths[:], self._tokens, self._max_rows)

    def _cut(self, epoch: int, bucket: int) -> list[Rows]:
        _, rows = self.rows(epoch, bucket)
        lengths = self._source_lengths[rows], self._target_lengths[rows]
        return cut_by_budget(rows, *lengths, self._tokens, self._max_rows)


# Mixing corpora.


class Mixture:
    """Several corpora as one epoch, each row as often as the weight of its corpus says.

    An epoch is a range of places. The places of one corpus are consecutive: its rows as often as the integer part of
    its weight, then a selection of them for the fraction. The selection moves on through a keyed order of the rows with
    every epoch, so that it has no row twice in an epoch, and over many epochs all rows equally often. The order of an
    epoch is a permutation of its places, so a row is a function of (seed, epoch, place); nothing is stored.
    """

    def __init__(self, corpora: Sequence[CorpusRows], seed: int) -> None:
        self._corpora = [corpus for corpus in corpora if corpus.size]
        self._keys = [round_keys(seed, "corpus", number) for number, corpus in enumerate(corpora) if corpus.size]
        self._fractions = [_fraction(corpus) for corpus in self._corpora]
        seen = [
            corpus.size * int(corpus.weight) + some for corpus, some in zip(self._corpora, self._fractions, strict=True)
        ]
        self._ends = np.cumsum(seen, dtype=np.int64)
        self._first_rows = np.cumsum([0, *(corpus.size for corpus in self._corpora)], dtype=np.int64)
        self.size = int(self._ends[-1]) if seen else 0
        """Places of an epoch."""

    def rows(self, places: Rows, epoch: int) -> Rows:
        """Return the rows at these places."""
        if len(self._corpora) == 1 and self._corpora[0].weight == 1:
            return places
        number_of = np.searchsorted(self._ends, places, side="right")
        rows = np.empty_like(places)
        for number, (corpus, keys, fraction) in enumerate(zip(self._corpora, self._keys, self._fractions, strict=True)):
            mine = np.flatnonzero(number_of == number)
            place = places[mine] - (self._ends[number - 1] if number else 0)
            beyond = place - corpus.size * int(corpus.weight)
            chosen = np.flatnonzero(beyond >= 0)
            place %= corpus.size
            place[chosen] = permute((epoch * fraction + beyond[chosen]) % corpus.size, corpus.size, keys)
            rows[mine] = self._first_rows[number] + place
        return rows


def _fraction(corpus: CorpusRows) -> int:
    """How many rows the fraction of a weight chooses; a corpus of which nothing would be seen gives one."""
    fraction = round(corpus.size * math.fmod(corpus.weight, 1.0))
    return max(fraction, 1) if corpus.weight < 1 else fraction


# Curriculum by length (Kaiser & Sutskever 2016, section 3; Bengio et al. 2009).

CHUNK = 2**20
"""Rows that are measured together, so that memory does not grow with the corpus."""


class Curriculum:
    """Short pairs first: the maximum length grows evenly, from near the shortest to the longest pair.

    It is a function of the epoch alone, so that a run can stop and resume anywhere.
    """

    def __init__(self, source_lengths: RowLengths, target_lengths: RowLengths, epochs: int) -> None:
        """A row is as long as its longer side; in the `epochs`-th epoch and from then on all are seen."""
        assert epochs >= 1 and len(target_lengths)
        self._sides, self.epochs = (source_lengths, target_lengths), epochs
        count = len(target_lengths)
        bounds = []
        for start in range(0, count, CHUNK):
            lengths = self.length(np.arange(start, min(start + CHUNK, count)))
            bounds += [int(lengths.min()), int(lengths.max())]
        self.shortest, self.longest = min(bounds), max(bounds)

    def length(self, rows: Rows) -> NDArray[np.int64]:
        """Return how long each row is."""
        source, target = self._sides
        return np.maximum(source[rows], target[rows])

    def limit(self, epoch: int) -> int:
        """Return the longest length of an epoch, counted from 0."""
        reached = min(epoch + 1, self.epochs)
        return self.shortest + (self.longest - self.shortest) * reached // self.epochs

    def seen(self, rows: Rows, epoch: int) -> Rows:
        """Return the rows that are short enough, in their order."""
        return rows[self.length(rows) <= self.limit(epoch)]
