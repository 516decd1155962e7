"""Parts of models by name."""

from __future__ import annotations

import pytest

from tests.unit.inspection.example import DECODER_LAYERS, ENCODER_LAYERS, HEADS, SIZES, small_transformer
from transduce.errors import SettingsError
from transduce.inspection.component import HeadName, all_heads, attention_path, check_head, feed_forward_path
from transduce.models.catalog import build
from transduce.models.interface import AnyTransducer
from transduce.models.universal import universal_mini


def test_every_head_has_a_name_and_a_path() -> None:
    model = small_transformer()
    heads = all_heads(model)
    assert len(heads) == HEADS * (ENCODER_LAYERS + 2 * DECODER_LAYERS)
    assert check_head(model, HeadName("cross", 5, 3)) == ("decoder.4.cross_attention", 2)
    assert attention_path(model, "decoder", 2) == "decoder.1.self_attention"
    assert feed_forward_path(model, "encoder", 1) == "encoder.0.feed_forward"
    assert str(heads[0]) == "encoder self-attention layer 1 head 1"
    with pytest.raises(SettingsError, match="layers 1 to 2"):
        attention_path(model, "encoder", 3)


@pytest.mark.parametrize("stack", ["", "e", "encoder.0", "middle", "cross"])
def test_unknown_stacks_are_rejected_with_the_known_ones(stack: str) -> None:
    with pytest.raises(SettingsError, match=f"named '{stack}'; choose from encoder, decoder"):
        feed_forward_path(small_transformer(), stack, 1)


def test_a_universal_transformer_has_one_layer_of_each_kind() -> None:
    config = universal_mini().but(model_dim=12, num_heads=2, ffn_dim=17, tied_embeddings="none")
    model: AnyTransducer = build(config, SIZES, seed=1)  # type: ignore[assignment]
    assert [(head.kind, head.layer) for head in all_heads(model)][::2] == [
        ("encoder", 1),
        ("decoder", 1),
        ("cross", 1),
    ]
    assert feed_forward_path(model, "decoder", 1) == "decoder.feed_forward"
