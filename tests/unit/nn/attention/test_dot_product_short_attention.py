"""Attention with its way back written out, against torch's fused kernel and finite differences."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.nn.attention import dot_product
from transduce.nn.attention.dot_product import attend, short_attention
from transduce.nn.cpu.cross_entropy import FITS

BATCH, HEADS, QUERIES, KEYS, KEY_DIM, VALUE_DIM = 2, 3, 5, 7, 11, 13
SCALE = KEY_DIM**-0.5


def inputs(size: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values as projections give them: heads inside, behind positions."""
    generator = torch.Generator().manual_seed(29)

    def heads(length: int, width: int) -> Tensor:
        rows = torch.randn(BATCH, length, HEADS, width, dtype=torch.float64, generator=generator) * size
        return rows.transpose(1, 2).requires_grad_()

    return heads(QUERIES, KEY_DIM), heads(KEYS, KEY_DIM), heads(KEYS, VALUE_DIM)


def permissions(kind: str) -> Tensor | None:
    padded = torch.arange(KEYS) < torch.tensor([KEYS, 4])[:, None]
    triangle = torch.ones(QUERIES, KEYS, dtype=torch.bool).tril()[None, None]
    return {"all": None, "padded": padded[:, None, None], "triangle": triangle}[kind]


@pytest.mark.parametrize("size", [1.0, 30.0], ids=["scores that fit", "scores that need their peak"])
@pytest.mark.parametrize("kind", ["all", "padded", "triangle"])
def test_outputs_and_gradients_are_those_of_torchs_kernel(kind: str, size: float) -> None:
    query, key, value = inputs(size)
    assert bool(((query @ key.transpose(2, 3) * SCALE).abs() > FITS).any()) == (size > 1)
    allowed = permissions(kind)
    ours = short_attention(query, key, value, allowed, SCALE)
    theirs = F.scaled_dot_product_attention(query, key, value, allowed)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    upstream = torch.randn(ours.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(31))
    found = torch.autograd.grad(ours, (query, key, value), upstream)
    expected = torch.autograd.grad(theirs, (query, key, value), upstream)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_gradients_are_those_of_finite_differences() -> None:
    allowed = permissions("padded")
    assert torch.autograd.gradcheck(lambda *parts: short_attention(*parts, allowed, SCALE), inputs())


def test_it_is_taken_where_something_is_learnt_and_only_there(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def listen(query: Tensor, *others: Tensor) -> Tensor:
        asked.append(query.shape[2])
        return short_attention(query, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(dot_product, "short_attention", listen)
    query, key, value = inputs()
    learnt = attend(query, key, value, None, False)
    assert asked == [QUERIES]
    with torch.no_grad():
        torch.testing.assert_close(attend(query, key, value, None, False), learnt, rtol=1e-12, atol=1e-12)
    assert asked == [QUERIES]
