"""Hugging Face's encoder-decoders with BART's weight names: Marian (post-norm), Pegasus and M2M100 (pre-norm).

Marian is the original Transformer; the public OPUS-MT models use it. NLLB is M2M100 with another vocabulary. Files may
store positions as tables: a table is compared with every kind of sinusoid, and counts as learned if it equals none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

from transduce.config import Table
from transduce.interop.huggingface.architecture import (
    Architecture,
    Settings,
    WeightMapping,
    Weights,
    activation_name,
    are_tied,
)
from transduce.models.block import SINUSOIDS
from transduce.models.interface import VocabularySizes
from transduce.models.transformer import TransformerConfig

SHARED = "model.shared.weight"
EMBEDDINGS = "model.{}.embed_tokens.weight"
TABLE = "model.{}.embed_positions.weight"
OUTPUT = "lm_head.weight"
SIDES = ("encoder", "decoder")

FAIRSEQ_PAD = 1
"""Padding token of M2M100, from which its positions are counted; another value would shift them all."""


def _read(
    settings: Settings, weights: Weights, norm: str, default_positions: str, output_bias: bool
) -> TransformerConfig:
    settings.require("normalize_embedding", False)
    settings.require("add_bias_logits", False)
    counted_from_pad = default_positions == "sinusoidal_fairseq"
    if counted_from_pad:
        settings.require("pad_token_id", FAIRSEQ_PAD)
    positions = default_positions if counted_from_pad else _positions(weights, default_positions)
    layers, decoder_layers = settings.integer("encoder_layers"), settings.integer("decoder_layers")
    return TransformerConfig.from_table(
        {
            "model_dim": settings.integer("d_model"),
            "num_heads": settings.same("encoder_attention_heads", "decoder_attention_heads"),
            "ffn_dim": settings.same("encoder_ffn_dim", "decoder_ffn_dim"),
            "num_layers": layers,
            "decoder_layers": None if decoder_layers == layers else decoder_layers,
            "norm": norm,
            "activation": settings.activation("activation_function", "gelu" if output_bias else "relu"),
            "positions": positions,
            "max_positions": settings.integer("max_position_embeddings", 1024),
            "attention_bias": True,
            "scale_embeddings": settings.flag("scale_embedding", default=not output_bias),
            "output_bias": output_bias,
            "tied_embeddings": _tied(weights),
            "dropout": settings.number("dropout", 0.1),
            "attention_dropout": settings.number("attention_dropout", 0.0),
            "activation_dropout": settings.number("activation_dropout", 0.0),
        },
        settings.where,
    )


def _positions(weights: Weights, default: str) -> str:
    """Return the kind of positions that the tables hold: one of the sinusoids, or learned."""
    tables = [weights.load(name) for side in SIDES if (name := TABLE.format(side)) in weights.names]
    if not tables:
        return default
    for kind, signals in SINUSOIDS.items():
        if all(table.dim() == 2 and _alike(table, signals(*table.shape)) for table in tables):
            return kind
    return "learned"


def _alike(table: Tensor, signal: Tensor) -> bool:
    """Whether they are equal up to the rounding of the stored dtype."""
    tolerance = 2e-3 if table.dtype in (torch.float16, torch.bfloat16) else 2e-5
    return torch.allclose(table.double(), signal, rtol=0.0, atol=tolerance)


def _tied(weights: Weights) -> str:
    source, target = (EMBEDDINGS.format(side) for side in SIDES)
    if not are_tied(weights, (SHARED, target), OUTPUT):
        return "none"
    return "all" if SHARED in weights.names or are_tied(weights, (source,), target) else "target"


def _write(config: TransformerConfig, sizes: VocabularySizes, model_type: str) -> Table:
    sides = {"attention_heads": config.num_heads, "ffn_dim": config.ffn_dim}
    return {
        "model_type": model_type,
        "is_encoder_decoder": True,
        "vocab_size": sizes.source,
        "d_model": config.model_dim,
        "encoder_layers": config.num_layers,
        "decoder_layers": config.decoder_layers or config.num_layers,
        **{f"{side}_{name}": value for side in SIDES for name, value in sides.items()},
        "max_position_embeddings": config.max_positions,
        "activation_function": activation_name(config.activation),
        "scale_embedding": config.scale_embeddings,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
        "tie_word_embeddings": config.tied_embeddings != "none",
        **({"decoder_vocab_size": sizes.target} if model_type == "marian" else {}),
        **({"share_encoder_decoder_embeddings": config.tied_embeddings == "all"} if model_type == "marian" else {}),
    }


def _weight_map(config: TransformerConfig) -> list[WeightMapping]:
    found = list(_embeddings(config))
    for side, layers in zip(SIDES, (config.num_layers, config.decoder_layers or config.num_layers), strict=True):
        for layer in range(layers):
            found += _block(f"{side}.{layer}", f"model.{side}.layers.{layer}", config, side == "decoder")
        if config.norm == "pre":
            found += _pair(f"{side}_norm", f"model.{side}.layer_norm")
        if config.positions == "learned":
            ours = {"encoder": "source", "decoder": "target"}[side]
            found.append(WeightMapping(f"{ours}_positions.weight", (TABLE.format(side),)))
    return found


def _embeddings(config: TransformerConfig) -> list[WeightMapping]:
    source, target = (EMBEDDINGS.format(side) for side in SIDES)
    if config.tied_embeddings == "all":
        found = [WeightMapping("source_embedding.weight", (f"{SHARED}|{source}|{target}|{OUTPUT}",))]
    else:
        tied = f"|{OUTPUT}" if config.tied_embeddings == "target" else ""
        found = [
            WeightMapping("source_embedding.weight", (source,)),
            WeightMapping("target_embedding.weight", (f"{target}{tied}",)),
        ]
        if config.tied_embeddings == "none":
            found.append(WeightMapping("output.weight", (OUTPUT,)))
    if config.output_bias:
        found.append(WeightMapping("output.bias", ("final_logits_bias",), "row"))
    return found


def _block(ours: str, theirs: str, config: TransformerConfig, crosses: bool) -> list[WeightMapping]:
    widths = tuple(config.head_shape.widths)
    norms = [("self_attention_residual", "self_attn_layer_norm"), ("feed_forward_residual", "final_layer_norm")]
    pairs = [("self_attention.out_proj", "self_attn.out_proj"), ("feed_forward.up", "fc1")]
    pairs += [("feed_forward.down", "fc2")]
    found = _stacked(f"{ours}.self_attention.qkv_proj", f"{theirs}.self_attn", "qkv", widths)
    if crosses:
        norms.append(("cross_attention_residual", "encoder_attn_layer_norm"))
        pairs += [
            ("cross_attention.q_proj", "encoder_attn.q_proj"),
            ("cross_attention.out_proj", "encoder_attn.out_proj"),
        ]
        found += _stacked(f"{ours}.cross_attention.kv_proj", f"{theirs}.encoder_attn", "kv", widths[1:])
    pairs += [(f"{name}.norm", norm) for name, norm in norms]
    return found + [mapping for a, b in pairs for mapping in _pair(f"{ours}.{a}", f"{theirs}.{b}")]


def _pair(ours: str, theirs: str) -> list[WeightMapping]:
    return [WeightMapping(f"{ours}.{kind}", (f"{theirs}.{kind}",)) for kind in ("weight", "bias")]


def _stacked(ours: str, theirs: str, letters: str, widths: tuple[int, ...]) -> list[WeightMapping]:
    return [
        WeightMapping(f"{ours}.{kind}", tuple(f"{theirs}.{letter}_proj.{kind}" for letter in letters), widths=widths)
        for kind in ("weight", "bias")
    ]


def _tables(config: TransformerConfig, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the sinusoids as tables: `transformers` computes one layout only."""
    if config.positions not in SINUSOIDS:
        return {}
    table = SINUSOIDS[config.positions](config.max_positions, config.model_dim).float()
    return {TABLE.format(side): table.clone() for side in SIDES}


def _architecture(
    class_name: str, model_type: str, norm: str, positions: str, output_bias: bool = True, tables: bool = True
) -> Architecture:
    read: Callable[[Settings, Weights], TransformerConfig] = partial(
        _read, norm=norm, default_positions=positions, output_bias=output_bias
    )
    return Architecture(
        class_name=class_name,
        read=read,
        write=partial(_write, model_type=model_type),
        weight_map=_weight_map,
        ignored=("model.*.embed_positions.weight*",),
        added=_tables if tables else (lambda config, weights: {}),
    )


MARIAN = _architecture("MarianMTModel", "marian", "post", "sinusoidal_marian")
PEGASUS = _architecture("PegasusForConditionalGeneration", "pegasus", "pre", "sinusoidal_marian")
M2M100 = _architecture(
    "M2M100ForConditionalGeneration", "m2m_100", "pre", "sinusoidal_fairseq", output_bias=False, tables=False
)
