"""Spans against section 3.1.4 of the paper: 15 % of the tokens, in spans of three on average."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from transduce.data.store import Blocks
from transduce.errors import SettingsError
from transduce.tasks.translation.span_corruption import (
    Corruption,
    corrupted,
    count_spans,
    largest_corrupted,
    longest_corrupted,
    random_spans,
)

SENTINELS = [*range(900, 1000)]
END = 2


def draw(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=seed))


def spans(taken: np.ndarray) -> list[int]:
    """Lengths of the stretches that are taken out."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], taken.astype(int), [0]])))
    return (edges[1::2] - edges[::2]).tolist()


def restored(source: Iterable[int], target: Iterable[int], sentinels: Iterable[int]) -> list[int]:
    """Put what was taken out back where it was."""
    known, name = set(sentinels), -1
    spans: dict[int, list[int]] = {}
    for token in target:
        if token in known:
            name = token
            spans[name] = []
        else:
            spans[name].append(token)
    return [found for token in source for found in (spans.get(token, []) if token in known else [token])]


def test_rate_and_length_are_the_papers_over_many_draws() -> None:
    masks = [random_spans(512, draw(seed)) for seed in range(300)]
    lengths = [length for mask in masks for length in spans(mask)]
    assert all(int(mask.sum()) == 77 for mask in masks)  # 0.15 × 512 = 76.8, the same in every text
    assert all(len(spans(mask)) == 26 for mask in masks)  # 77 / 3
    assert np.mean(lengths) == pytest.approx(3.0, abs=0.05)
    # every division of 77 tokens into 26 spans is as likely: a span has one token with probability 25 / 76
    assert np.mean(np.array(lengths) == 1) == pytest.approx(25 / 76, abs=0.02)
    where = np.mean(masks, axis=0)
    assert where[0] == 0.0 and abs(where[50:450].mean() - 0.15) < 0.01
    assert abs(where[50:250].mean() - where[250:450].mean()) < 0.02  # no part of a text is favoured


def test_inputs_of_512_leave_targets_of_114_as_in_their_released_setting() -> None:
    """Their code reads 568 tokens to get an input of 512 and a target of 114, an end token in each."""
    source, target = longest_corrupted(568)
    assert (source + 1, target + 1) == (512, 114 + 1)  # ours ends with a sentinel besides


def test_the_papers_example() -> None:
    """Figure 2 of the paper: what is left and what is asked for, sentinels in their order."""
    words = ["Thank", "you", "for", "inviting", "me", "to", "your", "party", "last", "week", "."]
    tokens = np.arange(len(words))
    for seed in range(500):
        source, target = corrupted(tokens, SENTINELS, draw(seed))
        assert len(source) + len(target) == len(words) + 2 * count_spans(len(words))[1] + 1
        assert restored(source, target, SENTINELS) == tokens.tolist()
        named = [token for token in source if token in SENTINELS]
        assert named == SENTINELS[: len(named)]
        assert [token for token in target if token in SENTINELS] == SENTINELS[: len(named) + 1]
        assert target[0] == SENTINELS[0] and target[-1] == SENTINELS[len(named)]


@pytest.mark.parametrize("length", [2, 3, 5, 7, 20, 511])
def test_any_text_of_two_tokens_or_more_can_be_put_together_again(length: int) -> None:
    tokens = np.arange(length)
    for seed in range(20):
        source, target = corrupted(tokens, SENTINELS, draw(seed))
        assert restored(source, target, SENTINELS) == tokens.tolist()
        assert len(target) > 2 and any(token not in SENTINELS for token in source)
        assert (len(source), len(target)) <= longest_corrupted(length)


def test_what_is_taken_out_depends_on_seed_epoch_and_place_alone() -> None:
    stream = np.array([END, *range(10, 70), END, *range(70, 120)])
    blocks = Blocks(stream, [len(stream)], 40, 0)

    def pairs(rows: list[int], first: int, seed: int = 1, epoch: int = 0) -> list[tuple[list[int], list[int]]]:
        made = Corruption(SENTINELS, END, 40, seed).pairs(blocks, np.array(rows), epoch, first)
        return list(zip(*made, strict=True))

    whole = pairs([0, 1, 2], 0)
    assert whole == pairs([0, 1, 2], 0)
    assert whole[1:] == pairs([1, 2], 1)
    others = [pairs([0, 1, 2], 0, seed=2), pairs([0, 1, 2], 0, epoch=1), pairs([0, 1, 2], 5)]
    assert all(one != whole for one in others)
    together = [token for source, target in whole for token in restored(source, target, SENTINELS)]
    assert together == [token for token in stream.tolist() if token != END]  # ends of documents are on neither side


@pytest.mark.parametrize("limit", [4, 5, 9, 10, 64, 512])
def test_a_block_is_as_large_as_a_models_positions_allow(limit: int) -> None:
    block = largest_corrupted(limit)
    assert max(longest_corrupted(block)) + 1 <= limit, "with the token that frames each"
    assert max(longest_corrupted(block + 1)) + 1 > limit
    assert block >= limit - 1, "what is taken out leaves room"


def test_three_positions_are_too_few() -> None:
    assert largest_corrupted(3) == 0


def test_too_few_sentinels_are_one_sentence() -> None:
    with pytest.raises(SettingsError, match=r"need 27 sentinels, and the tokenizer has 26; set tokenizer.sentinels=27"):
        Corruption(SENTINELS[:26], END, 512, 1)
