"""Costs of layers against arithmetic done by hand, and the verdict on them."""

from __future__ import annotations

import pytest

from transduce.experiments.complexity import DEFAULT, LAYERS, ComplexitySetting, count, measure, path_length

N, D = 11, 24


@pytest.mark.parametrize(
    ("kind", "operations"),
    [
        ("self-attention", 4 * 2 * N * D * D + 2 * 2 * N * N * D),  # four projections, scores, weighted sum
        ("recurrent", 2 * 2 * N * D * D),  # from the input, from the state before
        ("convolutional", 2 * 3 * N * D * D),
    ],
)
def test_operations_are_those_counted_by_hand(kind: str, operations: int) -> None:
    assert count(kind, N, D, DEFAULT) == operations


@pytest.mark.parametrize(
    ("kind", "length", "path"),
    [
        ("self-attention", 40, 1),
        ("recurrent", 40, 40),
        ("convolutional", 27, 3),  # 3³ positions are behind three layers
        ("convolutional", 28, 4),
        ("restricted", 13, 3),  # the 12 before the last, five in each layer
        ("restricted", 12, 3),
        ("restricted", 11, 2),
    ],
)
def test_a_gradient_arrives_after_the_path_length(kind: str, length: int, path: int) -> None:
    assert path_length(kind, length, ComplexitySetting(window=5), seed=2) == path


def test_every_layer_is_measured_at_every_size() -> None:
    finding = measure(setting=ComplexitySetting(lengths=(4, 16), dims=(8, 16), heads=2, window=8, repeats=1))
    assert [row[2] for row in finding.rows[:4]] == [
        *("self-attention", "recurrent", "convolutional", "self-attention (restricted)")
    ]
    assert len(finding.rows) == 2 * 2 * len(LAYERS)
    assert all(row[7] == row[8] and row[9] > 0 and row[10] > 0 for row in finding.rows)  # type: ignore[operator]
    paths, operations, *_ = finding.checks
    assert paths.passed
    assert not operations.passed and "in 0 of 2 sizes" in operations.statement  # projections alone outweigh recurrence
