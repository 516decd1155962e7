"""Residuals against mean, variance and sum done by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from transduce.nn.sublayer import RESIDUAL, PostNorm, PreNorm

DIM = 5


def normalised(value: Tensor, norm: nn.LayerNorm) -> Tensor:
    mean = value.mean(-1, keepdim=True)
    variance = ((value - mean) ** 2).mean(-1, keepdim=True)
    return (value - mean) / (variance + 1e-5).sqrt() * norm.weight + norm.bias


def build(kind: type[PostNorm | PreNorm], dropout: float = 0.0) -> PostNorm | PreNorm:
    residual = kind(DIM, dropout).double()
    nn.init.normal_(residual.norm.weight)
    nn.init.normal_(residual.norm.bias)
    return residual


def test_post_norm_normalises_the_sum() -> None:
    residual = build(PostNorm)
    value = torch.randn(2, 3, DIM, dtype=torch.float64)
    expected = normalised(value + value.sin(), residual.norm)
    torch.testing.assert_close(residual(value, torch.sin), expected, rtol=0, atol=1e-12)


def test_pre_norm_normalises_what_the_sublayer_reads() -> None:
    residual = build(PreNorm)
    value = torch.randn(2, 3, DIM, dtype=torch.float64)
    expected = value + normalised(value, residual.norm).sin()
    torch.testing.assert_close(residual(value, torch.sin), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", RESIDUAL.values())
def test_dropout_falls_on_the_sublayer_and_never_on_what_passes_by(kind: type[PostNorm | PreNorm]) -> None:
    residual = kind(DIM, dropout=0.5).train()
    residual.norm = nn.Identity()  # type: ignore[assignment]
    value = torch.arange(101 * DIM).view(101, DIM)
    torch.manual_seed(1)
    added = residual(value, lambda read: torch.full_like(read, 100.0, dtype=torch.float32)) - value
    assert set(added.flatten().tolist()) == {0.0, 200.0}
