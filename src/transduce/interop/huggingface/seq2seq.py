"""Encoder-decoders of Hugging Face's with the names of BART: Marian (post-norm), Pegasus and M2M100 (pre-norm).

Marian is the original Transformer; the public OPUS-MT models are it. NLLB is M2M100 with another vocabulary. Positions
are tables there: whose sinusoids a table holds is seen by comparing it, and any other is taken as learned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

from transduce.config import Table
from transduce.interop.huggingface.family import Family, Settings, are_one, bend_name
from transduce.interop.huggingface.rename import Rename, Weights
from transduce.models.block import SINUSOIDS
from transduce.models.interface import VocabularySizes
from transduce.models.transformer import TransformerConfig

SHARED = "model.shared.weight"
EMBEDDINGS = "model.{}.embed_tokens.weight"
TABLE = "model.{}.embed_positions.weight"
OUTPUT = "lm_head.weight"
SIDES = ("encoder", "decoder")

FAIRSEQ_PAD = 1
"""Token of padding that M2M100's positions are counted from; with another one they would all be others."""


def _read(
    settings: Settings, weights: Weights, norm: str, usual_positions: str, output_bias: bool
) -> TransformerConfig:
    settings.refuse_unless("normalize_embedding", False)
    settings.refuse_unless("add_bias_logits", False)
    counted_from_pad = usual_positions == "sinusoidal_fairseq"
    if counted_from_pad:
        settings.refuse_unless("pad_token_id", FAIRSEQ_PAD)
    positions = usual_positions if counted_from_pad else _positions(weights, usual_positions)
    layers, decoder_layers = settings.number("encoder_layers"), settings.number("decoder_layers")
    return TransformerConfig.from_table(
        {
            "model_dim": settings.number("d_model"),
            "num_heads": settings.same("encoder_attention_heads", "decoder_attention_heads"),
            "ffn_dim": settings.same("encoder_ffn_dim", "decoder_ffn_dim"),
            "num_layers": layers,
            "decoder_layers": None if decoder_layers == layers else decoder_layers,
            "norm": norm,
            "activation": settings.bend("activation_function", "gelu" if output_bias else "relu"),
            "positions": positions,
            "max_positions": settings.number("max_position_embeddings", 1024),
            "attention_bias": True,
            "scale_embeddings": settings.flag("scale_embedding", otherwise=not output_bias),
            "output_bias": output_bias,
            "tied_embeddings": _tied(weights),
            "dropout": settings.share("dropout", 0.1),
            "attention_dropout": settings.share("attention_dropout", 0.0),
            "activation_dropout": settings.share("activation_dropout", 0.0),
        },
        settings.where,
    )


def _positions(weights: Weights, usual: str) -> str:
    """Which signals the tables hold: those of their own layout, of another, or learned ones."""
    tables = [weights.load(name) for side in SIDES if (name := TABLE.format(side)) in weights.names]
    if not tables:
        return usual
    for kind, signals in SINUSOIDS.items():
        if all(table.dim() == 2 and _alike(table, signals(*table.shape)) for table in tables):
            return kind
    return "learned"


def _alike(table: Tensor, signal: Tensor) -> bool:
    """Whether they are the same but for the rounding of the type in which they are kept."""
    nearness = 2e-3 if table.dtype in (torch.float16, torch.bfloat16) else 2e-5
    return torch.allclose(table.double(), signal, rtol=0.0, atol=nearness)


def _tied(weights: Weights) -> str:
    source, target = (EMBEDDINGS.format(side) for side in SIDES)
    if not are_one(weights, (SHARED, target), OUTPUT):
        return "none"
    return "all" if SHARED in weights.names or are_one(weights, (source,), target) else "target"


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
        "activation_function": bend_name(config.activation),
        "scale_embedding": config.scale_embeddings,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
        "tie_word_embeddings": config.tied_embeddings != "none",
        **({"decoder_vocab_size": sizes.target} if model_type == "marian" else {}),
        **({"share_encoder_decoder_embeddings": config.tied_embeddings == "all"} if model_type == "marian" else {}),
    }


def _renames(config: TransformerConfig) -> list[Rename]:
    found = list(_embeddings(config))
    for side, layers in zip(SIDES, (config.num_layers, config.decoder_layers or config.num_layers), strict=True):
        for layer in range(layers):
            found += _block(f"{side}.{layer}", f"model.{side}.layers.{layer}", config, side == "decoder")
        if config.norm == "pre":
            found += _pair(f"{side}_norm", f"model.{side}.layer_norm")
        if config.positions == "learned":
            ours = {"encoder": "source", "decoder": "target"}[side]
            found.append(Rename(f"{ours}_positions.weight", (TABLE.format(side),)))
    return found


def _embeddings(config: TransformerConfig) -> list[Rename]:
    source, target = (EMBEDDINGS.format(side) for side in SIDES)
    if config.tied_embeddings == "all":
        found = [Rename("source_embedding.weight", (f"{SHARED}|{source}|{target}|{OUTPUT}",))]
    else:
        tied = f"|{OUTPUT}" if config.tied_embeddings == "target" else ""
        found = [Rename("source_embedding.weight", (source,)), Rename("target_embedding.weight", (f"{target}{tied}",))]
        if config.tied_embeddings == "none":
            found.append(Rename("output.weight", (OUTPUT,)))
    if config.output_bias:
        found.append(Rename("output.bias", ("final_logits_bias",), "row"))
    return found


def _block(ours: str, theirs: str, config: TransformerConfig, crosses: bool) -> list[Rename]:
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
    return found + [rename for a, b in pairs for rename in _pair(f"{ours}.{a}", f"{theirs}.{b}")]


def _pair(ours: str, theirs: str) -> list[Rename]:
    return [Rename(f"{ours}.{kind}", (f"{theirs}.{kind}",)) for kind in ("weight", "bias")]


def _stacked(ours: str, theirs: str, letters: str, widths: tuple[int, ...]) -> list[Rename]:
    return [
        Rename(f"{ours}.{kind}", tuple(f"{theirs}.{letter}_proj.{kind}" for letter in letters), widths=widths)
        for kind in ("weight", "bias")
    ]


def _tables(config: TransformerConfig, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The sinusoids that their files may hold, as tables: theirs are laid out in one way only."""
    if config.positions not in SINUSOIDS:
        return {}
    table = SINUSOIDS[config.positions](config.max_positions, config.model_dim).float()
    return {TABLE.format(side): table.clone() for side in SIDES}


def _family(
    architecture: str, model_type: str, norm: str, positions: str, output_bias: bool = True, tables: bool = True
) -> Family:
    read: Callable[[Settings, Weights], TransformerConfig] = partial(
        _read, norm=norm, usual_positions=positions, output_bias=output_bias
    )
    return Family(
        architecture=architecture,
        read=read,
        write=partial(_write, model_type=model_type),
        renames=_renames,
        ignored=("model.*.embed_positions.weight*",),
        added=_tables if tables else (lambda config, weights: {}),
    )


MARIAN = _family("MarianMTModel", "marian", "post", "sinusoidal_marian")
PEGASUS = _family("PegasusForConditionalGeneration", "pegasus", "pre", "sinusoidal_marian")
M2M100 = _family(
    "M2M100ForConditionalGeneration", "m2m_100", "pre", "sinusoidal_fairseq", output_bias=False, tables=False
)
