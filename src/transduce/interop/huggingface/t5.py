"""Hugging Face's T5, versions 1.0 (ReLU, tied output) and 1.1 (GeGLU, untied output)."""

from __future__ import annotations

from transduce.config import Table
from transduce.errors import ModelFolderError
from transduce.interop.huggingface.architecture import (
    Architecture,
    Settings,
    WeightMapping,
    Weights,
    are_tied,
    rows_and_columns,
)
from transduce.models.interface import VocabularySizes
from transduce.models.t5 import T5Config

SHARED = "shared.weight|encoder.embed_tokens.weight|decoder.embed_tokens.weight"
OUTPUT = "lm_head.weight"
FEED_FORWARD = {"relu": "relu", "gated-gelu": "geglu", "gated-silu": "swiglu"}


def _read(settings: Settings, weights: Weights) -> T5Config:
    kind = str(settings.table.get("feed_forward_proj", "relu"))
    if kind not in FEED_FORWARD:
        raise ModelFolderError(
            f"{settings.where}: feed_forward_proj = {kind!r} is not supported; supported: {', '.join(FEED_FORWARD)}"
        )
    layers = settings.integer("num_layers")
    decoder_layers = settings.integer("num_decoder_layers", layers)
    first = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    scale_output = settings.table.get("scale_decoder_outputs", settings.table.get("tie_word_embeddings", True))
    return T5Config.from_table(
        {
            "model_dim": settings.integer("d_model"),
            "num_heads": settings.integer("num_heads"),
            "key_dim": settings.integer("d_kv"),
            "value_dim": settings.integer("d_kv"),
            "ffn_dim": settings.integer("d_ff"),
            "num_layers": layers,
            "decoder_layers": None if decoder_layers == layers else decoder_layers,
            "norm_eps": settings.number("layer_norm_epsilon", 1e-6),
            "activation": FEED_FORWARD[kind],
            "buckets": settings.integer(
                "relative_attention_num_buckets", rows_and_columns(weights, first, settings.where)[0]
            ),
            "max_distance": settings.integer("relative_attention_max_distance", 128),
            "tied_embeddings": "all" if are_tied(weights, SHARED.split("|"), OUTPUT) else "sides",
            "scale_output": bool(scale_output),
            "dropout": settings.number("dropout_rate", 0.1),
        },
        settings.where,
    )


def _write(config: T5Config, sizes: VocabularySizes) -> Table:
    return {
        "model_type": "t5",
        "is_encoder_decoder": True,
        "vocab_size": sizes.target,
        "d_model": config.model_dim,
        "d_kv": config.head_dims[0],
        "d_ff": config.ffn_dim,
        "num_layers": config.num_layers,
        "num_decoder_layers": config.decoder_layers or config.num_layers,
        "num_heads": config.num_heads,
        "relative_attention_num_buckets": config.buckets,
        "relative_attention_max_distance": config.max_distance or 128,
        "dropout_rate": config.dropout,
        "layer_norm_epsilon": config.norm_eps,
        "feed_forward_proj": next(theirs for theirs, ours in FEED_FORWARD.items() if ours == config.activation),
        "tie_word_embeddings": config.scale_output,  # T5 reads from it whether the output is scaled
    }


def _weight_map(config: T5Config) -> list[WeightMapping]:
    tied = f"|{OUTPUT}" if config.tied_embeddings == "all" else ""
    found = [WeightMapping("source_embedding.weight", (f"{SHARED}{tied}",))]
    if config.tied_embeddings == "sides":
        found.append(WeightMapping("output.weight", (OUTPUT,)))
    for side, layers, kind in (
        ("encoder", config.num_layers, "source"),
        ("decoder", config.decoder_layers or config.num_layers, "target"),
    ):
        bias = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        found.append(WeightMapping(f"{kind}_relative_positions.weight", (bias,)))
        found.append(WeightMapping(f"{side}_norm.weight", (f"{side}.final_layer_norm.weight",)))
        for layer in range(layers):
            found += _block(f"{side}.{layer}", f"{side}.block.{layer}.layer", config, side == "decoder")
    return found


def _block(ours: str, theirs: str, config: T5Config, crosses: bool) -> list[WeightMapping]:
    widths, last = tuple(config.head_shape.widths), 2 if crosses else 1
    own, inner = f"{theirs}.0.SelfAttention", f"{theirs}.{last}.DenseReluDense"
    up = "gate_up" if config.is_gated else "up"
    wide = ("wi_0", "wi_1") if config.is_gated else ("wi",)
    found = [
        WeightMapping(
            f"{ours}.self_attention.qkv_proj.weight", tuple(f"{own}.{x}.weight" for x in "qkv"), widths=widths
        ),
        WeightMapping(f"{ours}.self_attention.out_proj.weight", (f"{own}.o.weight",)),
        WeightMapping(f"{ours}.self_attention_residual.norm.weight", (f"{theirs}.0.layer_norm.weight",)),
        WeightMapping(f"{ours}.feed_forward.{up}.weight", tuple(f"{inner}.{name}.weight" for name in wide)),
        WeightMapping(f"{ours}.feed_forward.down.weight", (f"{inner}.wo.weight",)),
        WeightMapping(f"{ours}.feed_forward_residual.norm.weight", (f"{theirs}.{last}.layer_norm.weight",)),
    ]
    if crosses:
        cross, keys = f"{theirs}.1.EncDecAttention", widths[1:]
        found += [
            WeightMapping(f"{ours}.cross_attention.q_proj.weight", (f"{cross}.q.weight",)),
            WeightMapping(
                f"{ours}.cross_attention.kv_proj.weight", tuple(f"{cross}.{x}.weight" for x in "kv"), widths=keys
            ),
            WeightMapping(f"{ours}.cross_attention.out_proj.weight", (f"{cross}.o.weight",)),
            WeightMapping(f"{ours}.cross_attention_residual.norm.weight", (f"{theirs}.1.layer_norm.weight",)),
        ]
    return found


T5 = Architecture(
    class_name="T5ForConditionalGeneration",
    read=_read,
    write=_write,
    weight_map=_weight_map,
    ignored=("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",),  # in old files, never used
)
