"""Packed products against `F.linear`, and a frozen model against itself."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from transduce.models.catalog import build
from transduce.models.interface import VocabularySizes
from transduce.models.transformer import TransformerConfig
from transduce.nn.packed import LARGE, Packed, Plain, product

CAN_PACK = torch.backends.mkldnn.is_available()


@pytest.mark.skipif(not CAN_PACK, reason="this build of PyTorch has no oneDNN; install one that has")
@pytest.mark.parametrize("rows", [1, 2, 5, 17, 63, 64, 101])
@pytest.mark.parametrize("biased", [False, True])
def test_a_packed_product_is_the_plain_one(rows: int, biased: bool) -> None:
    weight, value = torch.randn(521, 257), torch.randn(rows, 257)
    bias = torch.randn(521) if biased else None
    found = product(weight, bias, frozen=True)
    assert isinstance(found, Packed)
    torch.testing.assert_close(found(value), F.linear(value, weight, bias), rtol=1e-5, atol=1e-4)


def test_small_matrices_and_weights_that_may_change_stay_as_they_are() -> None:
    large = torch.randn(LARGE // 64, 64)
    assert isinstance(product(large, None, frozen=False), Plain)
    assert isinstance(product(torch.randn(5, 7), None, frozen=True), Plain)
    assert isinstance(product(large.double(), None, frozen=True), Plain)
    changing = product(large, None, frozen=False)
    large.zero_()
    assert not changing(torch.randn(3, 64)).any()


def test_a_frozen_model_says_what_it_said_before() -> None:
    config = TransformerConfig(model_dim=256, ffn_dim=521, num_heads=4, num_layers=2, norm="pre")
    model = build(config, VocabularySizes(1009, 1009), seed=3).eval()
    source, target = torch.randint(3, 1009, (3, 7)), torch.randint(3, 1009, (3, 5))

    def scores() -> torch.Tensor:
        with torch.inference_mode():
            state = model.start(model.encode(source, torch.ones_like(source, dtype=torch.bool)))
            found = []
            for tokens in target.unbind(dim=1):
                hidden, state = model.step(tokens, state)
                found.append(model.logits(hidden))
        return torch.stack(found)

    before = scores()
    model.freeze()
    assert model.frozen
    torch.testing.assert_close(scores(), before, rtol=1e-4, atol=1e-4)
