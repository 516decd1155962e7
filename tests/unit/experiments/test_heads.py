"""One head against many: the task, models that differ only in heads, and the verdict."""

from __future__ import annotations

import pytest
import torch

from transduce.experiments import heads
from transduce.experiments.heads import HeadSetting, PairPredictor, accuracy, measure, sample_batch

SMALL = HeadSetting(width=16, num_heads=(1, 2), layers=(1,), symbols=3, length=9, far=3, batch=32, updates=250, tries=1)


def test_a_pair_is_the_previous_symbol_and_the_far_one() -> None:
    token_BN, pair_BN = sample_batch(SMALL, 5, torch.Generator().manual_seed(1))
    assert pair_BN.shape == (5, 6)
    for tokens, pairs in zip(token_BN.tolist(), pair_BN.tolist(), strict=True):
        for place in range(3, 9):
            assert divmod(pairs[place - 3], 3) == (tokens[place - 1], tokens[place - 3])


def test_the_number_of_heads_changes_no_parameters() -> None:
    sizes = {sum(weight.numel() for weight in PairPredictor(SMALL, count, 1).parameters()) for count in (1, 2, 4, 8)}
    assert len(sizes) == 1


def test_two_heads_learn_in_one_layer_to_attend_to_two_positions() -> None:
    assert accuracy(SMALL, layers=1, heads=2, seed=1) > 0.95


@pytest.mark.parametrize(("alone", "outcome"), [(0.125, "holds"), (1.0, "holds in part")])
def test_the_verdict_follows_from_the_numbers(alone: float, outcome: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "accuracy", lambda _, layers, count, *__: alone if count == 1 else 0.99)
    finding = measure(setting=SMALL)
    learned, fails, better, *_ = (check.passed for check in finding.checks)
    assert learned and fails == better == (alone < 0.5)
    assert finding.outcome == outcome
    assert [row[:3] for row in finding.rows] == [(1, 1, 16), (1, 2, 8)]
