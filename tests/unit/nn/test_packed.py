"""Packed products against `F.linear`, and a frozen model against itself."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from transduce.models.catalog import build
from transduce.models.interface import VocabularySizes
from transduce.models.transformer import TransformerConfig
from transduce.nn.packed import LARGE, packed
from transduce.nn.product import Linear

CAN_PACK = torch.backends.mkldnn.is_available()


@pytest.mark.skipif(not CAN_PACK, reason="this build of PyTorch has no oneDNN; install one that has")
@pytest.mark.parametrize("rows", [1, 2, 5, 17, 63, 64, 101])
@pytest.mark.parametrize("biased", [False, True])
def test_a_packed_product_is_the_plain_one(rows: int, biased: bool) -> None:
    weight, value = torch.randn(521, 257), torch.randn(rows, 257)
    bias = torch.randn(521) if biased else None
    found = packed(weight, bias)
    assert found is not None
    torch.testing.assert_close(found(value), F.linear(value, weight, bias), rtol=1e-5, atol=1e-4)


def test_small_matrices_and_other_numbers_stay_as_they_are() -> None:
    assert packed(torch.randn(5, 7), None) is None
    assert packed(torch.randn(LARGE // 64, 64).double(), None) is None


def test_a_layer_is_packed_for_use_and_not_for_training() -> None:
    layer = Linear(257, 521)
    value = torch.randn(2, 3, 257)
    layer.freeze()
    torch.testing.assert_close(layer.eval()(value), F.linear(value, layer.weight, layer.bias), rtol=1e-5, atol=1e-4)
    assert layer.train()(value).requires_grad


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
