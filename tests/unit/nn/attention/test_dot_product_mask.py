"""Permission to attend, entry by entry against its definition in words."""

from __future__ import annotations

import pytest
import torch

from transduce.nn.attention.dot_product import and_causal, causal_allowed, padding_allowed

CPU = torch.device("cpu")


@pytest.mark.parametrize("pad", [0, 2, 7])
def test_padding_is_whatever_token_the_caller_says(pad: int) -> None:
    tokens = torch.tensor([[5, 0, 2], [7, 2, 0]])
    expected = [[token != pad for token in row] for row in tokens.tolist()]
    assert padding_allowed(tokens, pad).tolist() == expected


@pytest.mark.parametrize("length", [0, 1, 2, 5])
def test_a_position_may_look_at_itself_and_the_past(length: int) -> None:
    allowed = causal_allowed(length)
    assert allowed.dtype == torch.bool
    assert allowed.tolist() == [[m <= q for m in range(length)] for q in range(length)]


def test_causal_without_padding_is_the_triangle_for_everybody() -> None:
    allowed = and_causal(None, 5, CPU)
    assert allowed.shape == (1, 1, 5, 5)
    assert torch.equal(allowed[0, 0], causal_allowed(5))


def test_causal_with_padding_needs_both_permissions() -> None:
    real = torch.tensor(
        [[True, True, True, True, True], [True, True, True, False, False], [False, True, True, True, True]]
    )
    allowed = and_causal(real[:, None, None, :], 5, CPU)
    assert allowed.shape == (3, 1, 5, 5)
    for row in range(3):
        for q in range(5):
            for m in range(5):
                assert bool(allowed[row, 0, q, m]) == (bool(real[row, m]) and m <= q)
