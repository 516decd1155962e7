"""Quantised weights: rounding, sizes, and the verdict."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from transduce.experiments.quantization import (
    PrecisionResult,
    QuantizationSetting,
    checks,
    measure,
    megabytes,
    round_weights,
)
from transduce.experiments.tokenization import TokenizationSetting


def test_rounded_weights_have_few_values_and_keep_the_largest() -> None:
    layer = nn.Linear(50, 3)
    before, bias = layer.weight.detach().clone(), layer.bias.detach().clone()
    round_weights(layer, 3)
    for row, original in zip(layer.weight.detach(), before, strict=True):
        assert len(row.unique()) <= 7  # -3 … 3
        assert row.abs().max() == pytest.approx(original.abs().max().item())
        assert (row - original).abs().max() <= original.abs().max() / 3 / 2 + 1e-6
    assert torch.equal(layer.bias, bias)


def test_sizes_are_those_of_the_matrices() -> None:
    layer = nn.Linear(50, 4)
    assert megabytes(layer, 32) == 800e-6
    assert megabytes(layer, 8) == pytest.approx(200e-6 + 16e-6)


def test_a_small_model_is_measured_in_every_precision() -> None:
    text = TokenizationSetting(width=8, num_layers=1, num_heads=2, longest=90, batch=2, updates=2, tested=3)
    finding = measure(setting=QuantizationSetting(text=text, vocabulary=300, bits=(8, 4), prompt=3, steps=1, repeats=1))
    assert [row[0] for row in finding.rows] == ["float32", "int8, activations too", "8 bits", "4 bits"]
    assert finding.rows[0][2] == pytest.approx(float(finding.rows[2][2]), rel=0.01)


def test_the_verdict_follows_the_figures() -> None:
    found = {
        "float32": PrecisionResult(4.0, 2.0, 1.0, 1.0, 1.0),
        "int8, activations too": PrecisionResult(1.01, 2.001, 0.99, 0.5, 1.1),
        "8 bits": PrecisionResult(1.01, 2.0, 1.0),
        "4 bits": PrecisionResult(0.5, 2.1, 0.8),
    }
    passed = [check.passed for check in checks(QuantizationSetting(bits=(8, 4)), found)]
    assert passed == [True, True, False, True, False, False]
