"""Shares of attention by role: hand-made attention is classified as it was made."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from transduce.inspection.head_role import HeadSummary, SampledMaps, classify_heads, role_positions

TEXT = ("a", "b", "a", "c", "b", "a")
SENTENCE = ("▁so", "▁it", "▁is", ",", "▁so", "</s>", "</s>")


def pointing(targets: list[int], keys: int) -> Tensor:
    """Return a head whose query i attends to `targets[i]` alone.  -> (Q M)."""
    return torch.nn.functional.one_hot(torch.tensor(targets), keys).float()


def test_positions_of_roles_are_those_found_by_hand() -> None:
    found = role_positions(TEXT, "decoder", len(TEXT))
    after = {(row, column) for row, column in found["after same word"].nonzero().tolist()}
    assert after == {(2, 1), (4, 2), (5, 1), (5, 3)}
    assert found["same word"].nonzero().tolist() == [[2, 0], [4, 1], [5, 0], [5, 2]]
    assert found["first"][:, 0].tolist() == [False, False, True, True, True, True]
    assert [2, 5] in role_positions(TEXT, "encoder", len(TEXT))["same word"].nonzero().tolist()


def test_the_next_token_and_punctuation_and_the_end_are_found() -> None:
    weights = torch.stack(
        [
            pointing([1, 2, 3, 4, 5, 6, 6], 7),
            pointing([3] * 7, 7),
            pointing([5, 6, 5, 6, 5, 6, 5], 7),
            torch.full((7, 7), 1 / 7),
        ]
    )
    heads = classify_heads([SampledMaps("encoder", weights[None], SENTENCE, "</s>")])
    assert [head.role for head in heads] == ["next", "punctuation", "end", "mixed"]
    assert heads[0].shares["next"] == 1 and heads[0].entropy == 0
    assert heads[3].entropy == pytest.approx(math.log2(7))
    assert heads[3].shares["punctuation"] == pytest.approx(heads[3].uniform["punctuation"]) == pytest.approx(1 / 7)
    assert heads[3].shares["end"] == pytest.approx(2 / 7)


def test_cross_attention_aligns_where_it_follows_the_links() -> None:
    aligned_QM = pointing([2, 0, 1], 5).bool()
    weights = torch.stack([pointing([2, 0, 1], 5), pointing([4, 4, 4], 5), pointing([0, 0, 0], 5)])
    one = SampledMaps("cross", weights[None], ("x", "y", "z", "!", "</s>"), "</s>", {"aligned": aligned_QM})
    heads = classify_heads([one])
    assert [head.role for head in heads] == ["aligned", "end", "first"]
    assert heads[0].uniform["aligned"] == pytest.approx(1 / 5) and "previous" not in heads[0].shares


def test_most_of_the_attention_is_no_role_if_uniform_attention_has_as_much() -> None:
    """Of two tokens, uniform attention gives half to the token itself and half to the other."""
    weights = torch.full((1, 1, 2, 2), 0.5)
    (head,) = classify_heads([SampledMaps("encoder", weights, ("a", "b"))])
    assert head.shares["itself"] == 0.5 and head.role == "mixed" and head.role_among(["itself"]) == "itself"


def test_texts_count_by_their_queries() -> None:
    long, short = pointing([0, 1, 2, 3, 4, 5], 6), pointing([1, 0], 2)
    maps = [SampledMaps("encoder", one[None, None], TEXT[: len(one)]) for one in (long, short)]
    (head,) = classify_heads(maps)
    assert head.shares["itself"] == pytest.approx(6 / 8)
    summary = HeadSummary((head,), 2)
    assert summary.to_json()["heads"][0]["shares"]["itself"] == head.shares["itself"]
