"""Hiding pieces of a text, to be guessed (Devlin et al. 2019, section 3.1, task 1 and 2), anew in every epoch.

What is hidden of a row, and whether its second half is exchanged, is a function of (seed, epoch, row): the same after a
restart, on any rank, in any batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from transduce.data.store import PairStore
from transduce.rng import row_generator
from transduce.tasks.text_encoding.config import TextEncodingConfig
from transduce.text.tokenizer import AnyTokenizer

FOLLOWS, FOREIGN = 0, 1
"""What is wanted of a pair: its second text follows the first, or is from elsewhere."""
HIDDEN, EXCHANGED = 0.8, 0.9
"""Of the pieces to be guessed: below the first, hidden; below the second, another piece; the rest stays as it is."""
TRIES = 16
"""Draws for a row of another document; a corpus that is nearly all one document may not have one."""
_SPACES = ("Ġ", "▁")
"""How byte-level pieces, and SentencePiece's, spell a space before a word."""
_GOES_ON = "##"
"""How WordPiece spells that a piece goes on with a word."""


class Masking:
    """Makes examples out of the rows of one split."""

    def __init__(self, data: TextEncodingConfig, tokenizer: AnyTokenizer, seed: int) -> None:
        assert tokenizer.mask is not None, "a tokenizer without a mask was refused before"
        self.data, self.seed, self.mask, self.end = data, seed, tokenizer.mask, tokenizer.end
        special = [*tokenizer.specials, self.mask, *([] if tokenizer.unknown is None else [tokenizer.unknown])]
        self.ordinary = np.setdiff1d(np.arange(tokenizer.size), special)
        self.begins = _word_beginnings(tokenizer.vocabulary)

    def examples(self, store: PairStore, rows: Sequence[int], epoch: int) -> tuple[list[list[int]], list[list[int]]]:
        """Return the tokens of these rows as they are read in an epoch, and what is wanted of them.

        Wanted is first whether the second text follows (0 where that is not asked, else the answer + 1), then for every
        token 0, or what stood there + 1.
        """
        read, wanted = [], []
        for row in rows:
            generator = row_generator(self.seed, epoch, row)
            tokens, asked = store.source(row).astype(np.int64), 0
            if self.data.next_sentence:
                tokens, foreign = self._perhaps_exchanged(store, row, tokens, generator)
                asked = 1 + (FOREIGN if foreign else FOLLOWS)
            hidden, guessed = self._masked(tokens, generator)
            read.append(hidden.tolist())
            wanted.append([asked, *guessed.tolist()])
        return read, wanted

    def _perhaps_exchanged(
        self, store: PairStore, row: int, tokens: NDArray[np.int64], generator: np.random.Generator
    ) -> tuple[NDArray[np.int64], bool]:
        """Put the second half of another document's row in place of the row's own, half of the time."""
        if generator.random() < 0.5:
            return tokens, False
        document = store.target(row)[0]
        for other in generator.integers(0, len(store), TRIES).tolist():
            if store.target(other)[0] != document:
                first = tokens[: self._between(tokens) + 1]
                strange = store.source(other).astype(np.int64)
                return np.concatenate([first, strange[self._between(strange) + 1 :]]), True
        return tokens, False

    def _between(self, tokens: NDArray[np.int64]) -> int:
        """Where the two texts of a row meet."""
        return int(np.flatnonzero(tokens == self.end)[0])

    def _masked(
        self, tokens: NDArray[np.int64], generator: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the tokens with some hidden, and for each 0 or what stood there + 1."""
        places = np.flatnonzero(tokens != self.end)
        count = max(1, round(self.data.mask_probability * len(places)))
        if self.data.whole_word_masking:
            chosen = self._words(tokens, places, count, generator)
        else:
            chosen = generator.permutation(places)[:count]
        wanted = np.zeros_like(tokens)
        wanted[chosen] = tokens[chosen] + 1
        fate = generator.random(len(chosen))
        read = tokens.copy()
        read[chosen[fate < HIDDEN]] = self.mask
        exchanged = chosen[(fate >= HIDDEN) & (fate < EXCHANGED)]
        read[exchanged] = generator.choice(self.ordinary, len(exchanged))
        return read, wanted

    def _words(
        self, tokens: NDArray[np.int64], places: NDArray[np.int64], count: int, generator: np.random.Generator
    ) -> NDArray[np.int64]:
        """Choose whole words until there are `count` pieces; a word that would go beyond is passed over.

        Where every word is longer than that, the shortest is chosen.
        """
        word = np.cumsum(self.begins[tokens[places]] | (np.diff(places, prepend=-2) > 1))
        words = [places[word == number].tolist() for number in generator.permutation(np.unique(word)).tolist()]
        chosen: list[int] = []
        for own in words:
            if len(chosen) + len(own) <= count:
                chosen += own
        return np.array(chosen or min(words, key=len), dtype=np.int64)


def _word_beginnings(vocabulary: Sequence[str]) -> NDArray[np.bool_]:
    """Which pieces begin a word, by how the vocabulary is spelled; all do where it has neither way."""
    if any(piece.startswith(_GOES_ON) for piece in vocabulary):
        return np.array([not piece.startswith(_GOES_ON) for piece in vocabulary])
    if any(piece.startswith(_SPACES) for piece in vocabulary):
        return np.array([piece.startswith(_SPACES) for piece in vocabulary])
    return np.ones(len(vocabulary), dtype=np.bool_)
