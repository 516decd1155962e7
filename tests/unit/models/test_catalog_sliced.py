"""A batch that is cut into slices of rows gives the gradient of the whole one, dropout included."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from tests.invariants.cases import PAD, Case, case, draw_source, draw_target, encode
from transduce.models.catalog import build
from transduce.models.interface import Transducer
from transduce.nn.dropout import DropoutKey, set_dropout_key

CASES = [
    case("conv_paper", dropout=0.3),
    case("bytenet_paper", dropout=0.3),
    case("bytenet_small", "multiplicative", dropout=0.3, unit="multiplicative"),
    case("extended_neural_gpu", dropout=0.3, num_sets=2),
]


def gradient(case: Case, edges: list[int]) -> list[Tensor]:
    model = build(case.config, case.sizes, seed=1).double().train()
    assert isinstance(model, Transducer)
    source, target = draw_source(case, [7, 5, 4, 3, 2, 1]), draw_target(case, 6, 5)
    assert bool((source == PAD).any())
    for first, last in pairwise(edges):
        set_dropout_key(model, DropoutKey(seed=1, update=2, first_row=first))
        model(target[first:last], encode(model, source[first:last])).square().sum().backward()
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_slices_add_up_to_the_whole(case: Case) -> None:
    whole = gradient(case, [0, 6])
    sliced = gradient(case, [0, 1, 4, 6])
    assert max(float(grad.abs().max()) for grad in whole) > 0.0
    for one, other in zip(whole, sliced, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
