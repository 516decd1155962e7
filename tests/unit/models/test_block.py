"""Choices of a stack that no other test would miss."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

from transduce.errors import SettingsError
from transduce.models.block import BlockConfig, final_norm, relative_positions
from transduce.models.gpt import GptConfig
from transduce.models.t5 import T5Config
from transduce.models.transformer import TransformerConfig
from transduce.nn.position import Buckets, alibi_slopes


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({"norm": "post"}, nn.Identity),
        ({"norm": "pre"}, nn.LayerNorm),
        ({"norm": "pre", "norm_kind": "rms"}, nn.RMSNorm),
        ({"norm": "post", "final_norm": True}, nn.LayerNorm),
        ({"norm": "pre", "final_norm": False}, nn.Identity),
    ],
    ids=str,
)
def test_a_stack_ends_with_a_norm_where_its_sums_were_not_normalised_or_where_it_is_wanted(
    settings: dict[str, Any], kind: type[nn.Module]
) -> None:
    assert type(final_norm(BlockConfig(**settings))) is kind


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_heads": 8, "key_value_heads": 3}, "num_heads 8 .* key_value_heads 3"),
        ({"positions": "rotary", "model_dim": 14, "num_heads": 2}, "even key_dim, not 7"),
        ({"positions": "buckets", "max_distance": 16}, "max_distance must be above .* 16, not 16"),
        ({"positions": "buckets", "buckets": 512}, "max_distance must be above .* 256, not 128"),
        ({"positions": "shaw", "key_value_heads": 2}, "key_value_heads"),
        ({"positions": "rotery"}, "rotery"),
    ],
    ids=str,
)
def test_heads_and_positions_that_do_not_fit_are_rejected(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        BlockConfig.from_table(settings, "recipe.toml: model")


@pytest.mark.parametrize(
    ("config", "settings", "message"),
    [
        (
            BlockConfig,
            {"attention": "window", "positions": "alibi"},
            "window.* alibi positions",
        ),
        (BlockConfig, {"attention": "linear", "positions": "rotary"}, "linear.* rotary positions"),
        (BlockConfig, {"attention": "performer", "attention_dropout": 0.1}, "attention_dropout must be 0"),
        (BlockConfig, {"attention": "hashed", "key_value_heads": 2}, "key_value_heads"),
        (BlockConfig, {"attention": "hashed", "hash_buckets": 5}, "hash_buckets must be even or 1, not 5"),
        (BlockConfig, {"attention": "hashed", "hash_reach": 10**6}, "hash_reach = 1000000"),
        (BlockConfig, {"attention": "windows"}, "attention = 'windows'"),
        (GptConfig, {"attention": "low_rank"}, "low_rank"),
        (TransformerConfig, {"attention": "low_rank"}, "decoder_attention"),
        (TransformerConfig, {"decoder_attention": "linear", "attention_dropout": 0.1}, "attention_dropout must be 0"),
        (T5Config, {"attention": "strided"}, "strided.* buckets positions"),
    ],
    ids=str,
)
def test_attention_that_cannot_go_together_with_other_settings_is_rejected_in_one_sentence(
    config: type[BlockConfig], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError, match=message) as error:
        config.from_table(settings, "recipe.toml: model")
    assert "\n" not in str(error.value)


def test_every_second_layer_of_a_dilated_window_is_dilated() -> None:
    config = BlockConfig(attention="window", dilation=3)
    assert [config.of_layer(layer).dilation for layer in range(4)] == [1, 3, 1, 3]


def test_only_an_encoder_keeps_buckets_for_what_comes_after() -> None:
    config = BlockConfig(positions="buckets", buckets=8, max_distance=16)
    both, past = relative_positions(config, bidirectional=True), relative_positions(config, bidirectional=False)
    assert isinstance(both, Buckets) and both.bidirectional
    assert isinstance(past, Buckets) and not past.bidirectional


def test_slopes_are_the_papers() -> None:
    """Press et al. 2022: 1/2 … 1/256 for eight heads; for twelve, four of sixteen heads' slopes come after them."""
    assert alibi_slopes(8) == [2.0**-power for power in range(1, 9)]
    assert alibi_slopes(12) == [*alibi_slopes(8), *(2.0 ** (-half / 2) for half in (1, 3, 5, 7))]
