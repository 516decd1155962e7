"""T5 (Raffel et al. 2020, arXiv 1910.10683): every task as text to text, by a Transformer with a few parts exchanged.

It is the same encoder-decoder: the class is the Transformer's, and what differs is said by the settings. Positions are
heard of as a learned number per bucket of distances, norms leave out the mean, nothing has a bias, scores are not
scaled, embeddings neither.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from transduce.models.block import ActivationName, Layers, Width
from transduce.models.transformer import TransformerConfig


class T5Config(TransformerConfig):
    """Sizes and choices of one T5; the defaults are version 1.0, small."""

    model_dim: Width = 512
    """Width of every position's vector."""
    ffn_dim: Width = 2048
    """Inner width of the feed-forward network."""
    num_layers: Layers = 6
    """Blocks of the encoder, and of the decoder unless decoder_layers is given."""
    norm: Literal["post", "pre"] = "pre"
    """Norm before the sub-layer."""
    norm_kind: Literal["layer", "rms"] = "rms"
    """RMSNorm."""
    norm_eps: Annotated[float, Field(gt=0.0, lt=1.0)] = 1e-6
    """What a norm adds to the variance."""
    activation: ActivationName = "relu"
    """Activation of the feed-forward network: relu in version 1.0, geglu in 1.1."""
    ffn_bias: bool | None = False
    """Biases in the feed-forward network."""
    positions: Literal["buckets"] = "buckets"
    """Where a token stands: a learned number per head and bucket of distances."""
    scale_attention: bool = False
    """Divide scores by the root of a key's width; T5 leaves that to its first weights."""
    scale_embeddings: bool = False
    """Multiply embeddings by the root of their width."""
    scale_output: bool = True
    """Divide what goes into the last layer by the root of its width: in version 1.0, where it is the embedding."""


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
