"""Which pairs are empty, too long or out of proportion, each counted for one reason."""

from __future__ import annotations

import numpy as np

from transduce.data.audit import CHARACTERS_PER_TOKEN, LengthFilter
from transduce.data.report import CorpusCounter
from transduce.text.corpus import Pair

LIMITS = LengthFilter(max_length=11, max_ratio=2.0)
PAIRS = [Pair("a", "b", line) for line in range(1, 8)]


def kept(source: list[int], target: list[int], limits: LengthFilter = LIMITS) -> tuple[list[bool], CorpusCounter]:
    counter = CorpusCounter()
    found = limits.keeps_tokens(np.array(source), np.array(target), (1, 0), PAIRS.__getitem__, counter)
    return found.tolist(), counter


def test_a_pair_is_dropped_for_the_first_reason_and_the_limits_themselves_are_kept() -> None:
    """The first token of each source is a prefix, so that a source of one token is empty."""
    found, counter = kept([11, 12, 1, 11, 10, 5, 3], [11, 3, 12, 5, 5, 0, 1])
    assert found == [True, False, False, False, True, False, True]
    dropped = {
        reason: (issue.dropped, [one.line for one in issue.examples]) for reason, issue in counter.issues().items()
    }
    assert dropped == {"empty": (2, [3, 6]), "too_long": (1, [2]), "ratio": (1, [4])}


def test_an_extreme_ratio_may_be_counted_only() -> None:
    found, counter = kept([11], [5], LengthFilter(11, 2.0, drop_ratio=False))
    assert found == [True] and counter.issues()["ratio"].kept == 1


def test_text_that_is_too_long_is_dropped_before_it_is_tokenised() -> None:
    longest = "x" * (CHARACTERS_PER_TOKEN * 11)
    counter = CorpusCounter()
    pairs = [Pair(longest, longest, 1), Pair(longest + "x", "y", 2), Pair("x", longest + "y", 3), Pair(" ", "y", 4)]
    assert [LIMITS.keeps_text(pair, counter) for pair in pairs] == [True, False, False, False]
    assert {reason: issue.dropped for reason, issue in counter.issues().items()} == {"empty": 1, "too_long": 2}
