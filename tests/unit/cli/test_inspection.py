"""What `transduce inspect` prints."""

from __future__ import annotations

import numpy as np

from transduce.cli.inspection import text_lines
from transduce.inspection.maps import AttentionMaps


def test_a_word_in_characters_is_aligned_character_by_character() -> None:
    weights = np.zeros((1, 1, 3, 4), dtype=np.float32)
    for row, column in enumerate((0, 2, 3)):
        weights[0, 0, row, column] = 1.0
    maps = AttentionMaps(
        {"cross": weights},
        source_pieces=("c", "a", "t", "</s>"),
        target_pieces=("<s>", "K", "T", "</s>"),
        source="cat",
        translation="K T",
        links=((0, 0), (0, 1)),
    )
    assert text_lines(maps)[1:] == ["  K ← c (character 1 of 3)", "  T ← t (character 3 of 3)"]


def test_words_are_aligned_with_words() -> None:
    weights = np.full((1, 1, 3, 3), 1 / 3, dtype=np.float32)
    pieces = {"source_pieces": ("ein", "Hund", "</s>"), "target_pieces": ("<s>", "a", "dog", "</s>")}
    maps = AttentionMaps({"cross": weights}, **pieces, source="ein Hund", translation="a dog", links=((0, 0), (1, 1)))
    assert text_lines(maps)[1:] == ["  a ← ein", "  dog ← Hund"]
