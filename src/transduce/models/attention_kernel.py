"""The attention kernel that settings choose, and the settings it is incompatible with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from transduce.nn.attention.feature import EluFeatures, FeatureAttention, LowRank, RandomFeatures
from transduce.nn.attention.hashed import Hashed
from transduce.nn.attention.kernel import Kernel
from transduce.nn.attention.pattern import Strided, Window

if TYPE_CHECKING:
    from transduce.models.block import BlockConfig

AttentionName = Literal["full", "window", "strided", "low_rank", "linear", "performer", "hashed"]
"""Kernels by name; full is `nn.attention.multi_head` itself."""
WITH_DISTANCES = ("alibi", "shaw", "buckets")
"""Position encodings that need the score of every pair."""


def make_kernel(config: BlockConfig) -> Kernel | None:
    """Return the kernel of one layer, None for full attention."""
    shape = config.head_shape
    scale = shape.key_dim**-0.5 if shape.scaled else 1.0
    if config.attention == "window":
        return Window(scale, config.window, config.dilation, config.global_tokens)
    if config.attention == "strided":
        return Strided(scale, config.stride)
    if config.attention == "low_rank":
        return LowRank(scale, config.rank, config.max_positions)
    if config.attention == "linear":
        return FeatureAttention(EluFeatures(shape.key_dim))
    if config.attention == "performer":
        return FeatureAttention(RandomFeatures(shape.key_dim, config.features, scale))
    if config.attention == "hashed":
        return Hashed(scale, shape.key_dim, config.hash_buckets, config.hash_rounds, config.hash_reach)
    return None


def incompatibility(config: BlockConfig) -> str | None:
    """Return why this attention is incompatible with other settings, or None."""
    name = config.attention
    if name == "full":
        return None
    if config.positions in WITH_DISTANCES:
        return (
            f"attention = '{name}' does not support {config.positions} positions, which need the score of every pair; "
            "choose sinusoidal, learned or rotary ones"
        )
    if name in ("linear", "low_rank") and config.positions == "rotary":
        return f"attention = '{name}' does not support rotary positions; choose sinusoidal or learned ones"
    if name in ("linear", "performer") and config.attention_dropout > 0:
        return f"attention = '{name}' never computes the weights; attention_dropout must be 0"
    if name == "hashed" and config.key_value_heads not in (None, config.num_heads):
        return "attention = 'hashed' shares queries and keys; leave out key_value_heads"
    if name == "hashed" and config.hash_buckets > 1 and config.hash_buckets % 2:
        return f"hash_buckets must be even or 1, not {config.hash_buckets}"
    return None
