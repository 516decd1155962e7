"""Positions beyond the training length, at a size that takes a second."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from transduce.experiments.finding import Finding, silent
from transduce.experiments.positions import (
    KINDS,
    PositionSetting,
    PreviousTokenModel,
    checks,
    measure,
    sample_texts,
    train,
)
from transduce.nn.initialization import initialize

SMALL = PositionSetting(trained=8, tested=16, dim=32, words=5, updates=180, rows=12, test_rows=32, bin=4)


@pytest.fixture(scope="module")
def finding() -> Finding:
    return measure(setting=SMALL)


def test_the_label_is_the_previous_token() -> None:
    tokens, previous = sample_texts(3, 7, 5, torch.Generator().manual_seed(1))
    assert previous[:, 1:].tolist() == tokens[:, :-1].tolist() and previous[:, 0].tolist() == tokens[:, 0].tolist()


def test_both_learn_at_trained_lengths_and_nothing_is_learned_without_positions(finding: Finding) -> None:
    near = {row[0]: float(row[1]) for row in finding.rows}
    assert min(near["sinusoidal"], near["learned"]) > 0.9
    assert near["none"] < 0.5


def test_an_untrained_position_keeps_its_initialisation() -> None:
    trained, fresh = train("learned", 1, silent, replace(SMALL, updates=5)), PreviousTokenModel("learned", SMALL)
    initialize(fresh, 1)
    assert torch.equal(trained.positions.first(16)[8:], fresh.positions.first(16)[8:])
    assert not torch.equal(trained.positions.first(16)[:8], fresh.positions.first(16)[:8])


def test_beyond_the_training_length_a_learned_position_is_a_guess(finding: Finding) -> None:
    (beyond,) = [float(row[3]) for row in finding.rows if row[0] == "learned"]
    assert beyond == pytest.approx(1 / SMALL.words, abs=0.15)


@pytest.mark.parametrize("sinusoidal", [1.0, 0.5, 0.1])
def test_the_verdict_follows_the_accuracies(sinusoidal: float) -> None:
    short = {kind: torch.ones(8) for kind in KINDS}
    beyond = {"sinusoidal": sinusoidal, "learned": 0.2}
    long = {kind: torch.tensor([1.0] * 8 + [beyond.get(kind, 1.0)] * 8) for kind in KINDS}
    passed = [check.passed for check in checks(short, long, SMALL)]
    assert passed == [True, True, True, sinusoidal > 0.4, sinusoidal > 0.9]


def test_the_chart_has_a_line_for_each_kind(finding: Finding) -> None:
    assert [series.label for series in finding.charts[0].series] == list(KINDS)
    assert finding.charts[0].series[0].x == (4, 8, 12, 16)


def test_a_seed_means_one_model() -> None:
    tokens = torch.arange(5)[None]
    once, again = (train("sinusoidal", 3, silent, replace(SMALL, updates=5))(tokens) for _ in range(2))
    assert torch.equal(once, again)
