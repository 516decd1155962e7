"""Similarities agree with sets of trigrams, and repeated rows are found."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

from transduce.data.cleaning.near_duplicates import NearDuplicates, pair_hashes, repeated, shingles, similarity


def trigrams(source: str, target: str) -> set[tuple[int, str]]:
    """The same by the definition."""
    found = set()
    for side, text in enumerate((source, target)):
        padded = f"<{text}>"
        found |= {(side, padded[at : at + 3]) for at in range(len(padded) - 2)}
    return found


def test_similarity_is_that_of_the_sets_of_trigrams() -> None:
    for one, other in (
        (("abcdef", "xyz"), ("abcdeg", "xyz")),
        (("a", "b"), ("a", "c")),
        (("今日は", "x y"), ("今日", "x y")),
    ):
        hashed, counts = shingles([one[0], other[0]], [one[1], other[1]])
        ours = similarity(set(hashed[: counts[0]].tolist()), set(hashed[counts[0] :].tolist()))
        first, second = trigrams(*one), trigrams(*other)
        assert ours == len(first & second) / len(first | second)


def test_nearly_equal_pairs_are_found_among_many_and_others_are_not(tmp_path: Path) -> None:
    draw = random.Random(3)
    texts = ["".join(draw.choice("abcdefghij ") for _ in range(60)) for _ in range(700)]
    changed = [text[:30] + "#" + text[31:] for text in texts[:50]]
    sources = texts + changed
    finder = NearDuplicates(tmp_path, 0.8)
    for start in range(0, len(sources), 97):
        finder.add(sources[start : start + 97], sources[start : start + 97])
    found = finder.find(
        np.arange(len(sources)), lambda rows: ([sources[row] for row in rows], [sources[row] for row in rows])
    )
    assert found == {700 + number: number for number in range(50)}
    assert not list(tmp_path.glob("band*"))


def test_repeated_rows_name_the_first_of_their_kind() -> None:
    rows = np.array([2, 3, 5, 7, 11])
    later, first = repeated(rows, np.array([9, 4, 9, 9, 4], dtype=np.uint64))
    assert dict(zip(later.tolist(), first.tolist(), strict=True)) == {5: 2, 7: 2, 11: 3}
    assert pair_hashes(["A b!"], ["c"])[0] == pair_hashes(["ab"], ["C ?"])[0] != pair_hashes(["a"], ["bc"])[0]
