"""Hugging Face's Marian with the sizes of one of our models."""

from __future__ import annotations

from typing import Any

from transduce.text.tokenizer.special import Specials

LONGEST = 64
"""Maximum positions; no sentence of the benchmarks is longer."""


def marian(
    dim: int,
    ffn: int,
    heads: int,
    layers: int,
    vocabulary: int,
    specials: Specials,
    longest: int = LONGEST,
    **further: Any,
) -> Any:
    """A Marian model with random weights and the paper's settings; `further` are more Marian settings."""
    from transformers import MarianConfig, MarianMTModel

    config = MarianConfig(
        vocab_size=vocabulary,
        d_model=dim,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_ffn_dim=ffn,
        decoder_ffn_dim=ffn,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        activation_function="relu",
        scale_embedding=True,
        pad_token_id=specials.pad,
        eos_token_id=specials.end,
        decoder_start_token_id=specials.start,
        forced_eos_token_id=None,
        max_position_embeddings=longest,
        **further,
    )
    return MarianMTModel(config)
