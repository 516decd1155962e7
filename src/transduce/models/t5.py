"""T5 (Raffel et al. 2020, arXiv 1910.10683): every task as text to text, by a Transformer with a few parts exchanged.

It is the same encoder-decoder with other settings: a learned relative position bias per bucket of distances, RMSNorm,
no biases, and unscaled attention scores and embeddings.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from transduce.models.block import ActivationName, Layers, Width
from transduce.models.transformer import TransformerConfig


class T5Config(TransformerConfig):
    """Settings of a T5; the defaults are version 1.0, small."""

    model_dim: Width = 512
    """Width of the residual stream."""
    ffn_dim: Width = 2048
    """Inner width of the feed-forward network."""
    num_layers: Layers = 6
    """Encoder layers, and decoder layers unless decoder_layers is set."""
    norm: Literal["post", "pre"] = "pre"
    """Pre-norm."""
    norm_kind: Literal["layer", "rms"] = "rms"
    """RMSNorm."""
    norm_eps: Annotated[float, Field(gt=0.0, lt=1.0)] = 1e-6
    """Epsilon of the norms."""
    activation: ActivationName = "relu"
    """Activation of the feed-forward network: relu in version 1.0, geglu in 1.1."""
    ffn_bias: bool | None = False
    """Biases in the feed-forward network."""
    positions: Literal["buckets"] = "buckets"
    """Position encoding: a learned bias per head and bucket of distances."""
    scale_attention: bool = False
    """Divide attention scores by sqrt(key_dim); T5 leaves that to its initialisation."""
    scale_embeddings: bool = False
    """Multiply embeddings by sqrt(model_dim)."""
    scale_output: bool = True
    """Divide the output layer's input by sqrt(model_dim): in version 1.0, whose embeddings are tied."""


def t5_small() -> T5Config:
    """Version 1.0, small: 60.5 million parameters with a vocabulary of 32,128."""
    return T5Config()


def t5_base() -> T5Config:
    """Version 1.0, base: 223 million parameters."""
    return t5_small().but(model_dim=768, ffn_dim=3072, num_heads=12, num_layers=12)


def t5_v1_1_small() -> T5Config:
    """Version 1.1, small: GeGLU, an output layer of its own, 8 layers, 6 heads of 64, and no dropout to pre-train."""
    return T5Config(
        ffn_dim=1024,
        num_heads=6,
        key_dim=64,
        value_dim=64,
        num_layers=8,
        activation="geglu",
        tied_embeddings="sides",
        scale_output=False,
        dropout=0.0,
    )


def t5_mini() -> T5Config:
    """A T5 of laptop size, built as version 1.1 but with one matrix for all tokens."""
    return T5Config(model_dim=192, num_heads=6, ffn_dim=512, num_layers=4, activation="geglu", dropout=0.1)
