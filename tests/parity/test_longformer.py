"""The window beside `transformers`' Longformer, whose global positions are given the same projections as the others."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from transformers import LongformerConfig
from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

from transduce.nn.attention.pattern import Window
from transduce.nn.dropout import Dropout

HEADS, KEY_DIM, LENGTH, WINDOW = 3, 5, 24, 4


@pytest.mark.parametrize("few", [0, 3])
@pytest.mark.parametrize("padding", [0, 5])
def test_a_window_is_longformers(few: int, padding: int) -> None:
    width = HEADS * KEY_DIM
    torch.manual_seed(7)
    config = LongformerConfig(
        hidden_size=width, num_attention_heads=HEADS, attention_window=[2 * WINDOW], attention_probs_dropout_prob=0.0
    )
    theirs = LongformerSelfAttention(config, 0).double().eval()
    for name in ("query", "key", "value"):
        getattr(theirs, f"{name}_global").load_state_dict(getattr(theirs, name).state_dict())
    hidden = torch.randn(2, LENGTH, width, dtype=torch.float64)
    place = torch.arange(LENGTH)
    allowed = (place < torch.tensor([LENGTH, LENGTH - padding])[:, None]) | (place < few)
    is_global = (place < few).expand(2, -1)
    mask = torch.where(is_global, 10_000.0, torch.where(allowed, 0.0, -10_000.0))
    with torch.no_grad():
        (expected,) = theirs(hidden, mask, ~allowed, is_global, few > 0)

        def heads(name: str) -> Tensor:
            projected: Tensor = getattr(theirs, name)(hidden)
            return projected.unflatten(-1, (HEADS, KEY_DIM)).transpose(1, 2)

        window = Window(KEY_DIM**-0.5, WINDOW, global_tokens=few)
        found = window(heads("query"), heads("key"), heads("value"), allowed, False, Dropout(0.0))
    found = found.transpose(1, 2).flatten(-2)
    torch.testing.assert_close(found[allowed], expected[allowed], rtol=0.0, atol=1e-6)  # its softmax is in float32
