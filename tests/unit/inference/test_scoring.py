"""Scores of given targets, against the table they come from."""

from __future__ import annotations

import pytest
import torch

from tests.unit.inference.search.toy import END, SPECIALS, Toy, random_table, written_table
from transduce.inference.scoring import score_targets

SOURCES = [(4, 1, 5), (), (5,), (1, 1, 4, 5)]
TARGETS = [(5, 4), (1,), (), (4, 4, 5, 1, 1)]


def test_each_token_is_scored_given_the_true_ones_before_it() -> None:
    row = written_table({(): {4: 0.25, 5: 0.75}, (4,): {1: 0.5, END: 0.5}, (4, 1): {END: 0.125, 5: 0.875}})
    (scored,) = score_targets(Toy(row), [(5,)], [(4, 1)], SPECIALS, SPECIALS)
    assert scored.token_scores == pytest.approx(torch.tensor([0.25, 0.5, 0.125]).log().tolist())
    assert scored.log_probability == pytest.approx(torch.tensor(0.25 * 0.5 * 0.125).log().item())
    assert scored.hits == [False, True, False]


def test_a_batch_of_different_lengths_is_scored_as_each_alone() -> None:
    row = random_table(seed=3)
    together = score_targets(Toy(row), SOURCES, TARGETS, SPECIALS, SPECIALS)
    for source, target, scored in zip(SOURCES, TARGETS, together, strict=True):
        assert [scored] == score_targets(Toy(row), [source], [target], SPECIALS, SPECIALS)


def test_the_end_token_is_scored_last_and_the_rows_are_those_of_the_table() -> None:
    row = random_table(seed=5)
    for source, target, scored in zip(
        SOURCES, TARGETS, score_targets(Toy(row), SOURCES, TARGETS, SPECIALS, SPECIALS), strict=True
    ):
        rows = [row((*source, END), target[:place]) for place in range(len(target) + 1)]
        message = (*target, END)
        assert scored.token_scores == pytest.approx([float(r[t]) for r, t in zip(rows, message, strict=True)], rel=1e-5)
        assert scored.hits == [int(r.argmax()) == t for r, t in zip(rows, message, strict=True)]


def test_scoring_leaves_no_gradient_behind() -> None:
    model = Toy(random_table(seed=7))
    score_targets(model, SOURCES, TARGETS, SPECIALS, SPECIALS)
    assert model.output.weight.grad is None
