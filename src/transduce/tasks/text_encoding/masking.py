"""Masked language modelling and next sentence prediction (Devlin et al. 2019, section 3.1), drawn in every epoch.

Which pieces of a row are masked, and whether its second half is replaced, is a function of (seed, epoch, row): the same
after a restart, on any rank, in any batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from transduce.data.store import ExampleStore
from transduce.rng import row_generator
from transduce.tasks.text_encoding.config import TextEncodingConfig
from transduce.text.tokenizer import AnyTokenizer

IS_NEXT, NOT_NEXT = 0, 1
"""Target of next sentence prediction: the second text follows the first, or is from another document."""
MASKED, REPLACED = 0.8, 0.9
"""Of the pieces to predict: below the first, masked; below the second, replaced by another piece; the rest is kept."""
TRIES = 16
"""Attempts to draw a row of another document; a corpus that is nearly all one document may not have one."""
_SPACES = ("Ġ", "▁")
"""The space before a word in byte-level pieces and in SentencePiece's."""
_CONTINUES = "##"
"""The prefix of WordPiece's pieces that continue a word."""


class Masking:
    """Masks the rows of one split."""

    def __init__(self, data: TextEncodingConfig, tokenizer: AnyTokenizer, seed: int) -> None:
        assert tokenizer.mask is not None, "a tokenizer without a mask token was rejected before"
        self.data, self.seed, self.mask, self.end = data, seed, tokenizer.mask, tokenizer.end
        special = [*tokenizer.specials, self.mask, *([] if tokenizer.unknown is None else [tokenizer.unknown])]
        self.ordinary = np.setdiff1d(np.arange(tokenizer.size), special)
        self.begins = _word_beginnings(tokenizer.vocabulary)

    def examples(self, store: ExampleStore, rows: Sequence[int], epoch: int) -> tuple[list[list[int]], list[list[int]]]:
        """Return the tokens of these rows as they are read in an epoch, and their targets.

        Targets are first that of next sentence prediction + 1 (0 without it), then for every token the original token
        + 1, or 0 where nothing is predicted.
        """
        inputs, targets = [], []
        for row in rows:
            generator = row_generator(self.seed, epoch, row)
            tokens, next_target = store.tokens[row].astype(np.int64), 0
            if self.data.next_sentence:
                tokens, is_replaced = self._with_second_text(store, row, tokens, generator)
                next_target = 1 + (NOT_NEXT if is_replaced else IS_NEXT)
            masked, originals = self._masked(tokens, generator)
            inputs.append(masked.tolist())
            targets.append([next_target, *originals.tolist()])
        return inputs, targets

    def _with_second_text(
        self, store: ExampleStore, row: int, tokens: NDArray[np.int64], generator: np.random.Generator
    ) -> tuple[NDArray[np.int64], bool]:
        """Replace the second half by that of a row of another document, half of the time."""
        if generator.random() < 0.5:
            return tokens, False
        document = store.groups[row]
        for other in generator.integers(0, len(store), TRIES).tolist():
            if store.groups[other] != document:
                first = tokens[: self._middle(tokens) + 1]
                others = store.tokens[other].astype(np.int64)
                return np.concatenate([first, others[self._middle(others) + 1 :]]), True
        return tokens, False

    def _middle(self, tokens: NDArray[np.int64]) -> int:
        """Where the first text of a row ends."""
        return int(np.flatnonzero(tokens == self.end)[0])

    def _masked(
        self, tokens: NDArray[np.int64], generator: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the tokens with some masked, and for each 0 or the original token + 1."""
        places = np.flatnonzero(tokens != self.end)
        count = max(1, round(self.data.mask_probability * len(places)))
        if self.data.whole_word_masking:
            chosen = self._words(tokens, places, count, generator)
        else:
            chosen = generator.permutation(places)[:count]
        originals = np.zeros_like(tokens)
        originals[chosen] = tokens[chosen] + 1
        draw = generator.random(len(chosen))
        masked = tokens.copy()
        masked[chosen[draw < MASKED]] = self.mask
        replaced = chosen[(draw >= MASKED) & (draw < REPLACED)]
        masked[replaced] = generator.choice(self.ordinary, len(replaced))
        return masked, originals

    def _words(
        self, tokens: NDArray[np.int64], places: NDArray[np.int64], count: int, generator: np.random.Generator
    ) -> NDArray[np.int64]:
        """Choose whole words until there are `count` pieces; a word that would exceed it is skipped.

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
    """Which pieces begin a word, by the spelling of the vocabulary; all do where it marks neither."""
    if any(piece.startswith(_CONTINUES) for piece in vocabulary):
        return np.array([not piece.startswith(_CONTINUES) for piece in vocabulary])
    if any(piece.startswith(_SPACES) for piece in vocabulary):
        return np.array([piece.startswith(_SPACES) for piece in vocabulary])
    return np.ones(len(vocabulary), dtype=np.bool_)
