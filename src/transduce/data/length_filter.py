"""Filters pairs that are empty, too long or of extreme ratio, first by characters, then by tokens, and counts them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transduce.data.report import MAX_EXAMPLES, CorpusCounter
from transduce.text.corpus import Pair

CHARACTERS_PER_TOKEN = 40
"""A line of more characters per allowed token than this is too long without being tokenised."""
MIN_RATIO_LENGTH = 5
"""A side counts as at least this many tokens when the lengths of two sides are compared."""

Lengths = NDArray[np.int64]
Chosen = NDArray[np.bool_]


@dataclass(frozen=True)
class LengthFilter:
    """The limits of `[data]` on the length of a pair."""

    max_length: int
    max_ratio: float
    drop_ratio: bool = True
    """Whether pairs of extreme ratio are dropped or only counted, as in validation and test corpora."""

    def keeps_text(self, pair: Pair, counter: CorpusCounter) -> bool:
        """Whether a pair is worth tokenising: neither side is empty or far too long."""
        if not pair.source.strip() or not pair.target.strip():
            counter.count("empty", [pair], dropped=1)
            return False
        max_characters = CHARACTERS_PER_TOKEN * self.max_length
        if len(pair.source) > max_characters or len(pair.target) > max_characters:
            counter.count("too_long", [pair], dropped=1)
            return False
        return True

    def keeps_tokens(
        self,
        source: Lengths,
        target: Lengths,
        prefix: tuple[int, int],
        find: Callable[[int], Pair],
        counter: CorpusCounter,
    ) -> Chosen:
        """Return which pairs of these lengths in tokens are kept; each of the others is counted for one reason.

        `prefix` are the tokens that every source and target begins with, `find` gives a pair by its place.
        """
        shorter, longer = np.minimum(source, target), np.maximum(source, target)
        kept = np.ones(len(source), dtype=np.bool_)
        empty = (source == prefix[0]) | (target == prefix[1])
        count_issue("empty", empty, kept, find, counter)  # the tokenizer drops some invisible characters
        count_issue("too_long", longer > self.max_length, kept, find, counter)
        extreme = longer > self.max_ratio * np.maximum(shorter, MIN_RATIO_LENGTH)
        count_issue("ratio", extreme, kept, find, counter, drop=self.drop_ratio)
        return kept


def count_issue(
    reason: str, found: Chosen, kept: Chosen, find: Callable[[int], Pair], counter: CorpusCounter, drop: bool = True
) -> None:
    """Count the pairs with an issue among those still kept; `drop` takes them out of `kept`."""
    places = np.flatnonzero(found & kept)
    if len(places):
        examples = [find(int(place)) for place in places[:MAX_EXAMPLES]]
        counter.count(reason, examples, **{"dropped" if drop else "kept": len(places)})
    if drop:
        kept[places] = False
