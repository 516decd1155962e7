"""Hugging Face's language models: GPT-2, and the Llama architecture (SmolLM2 and many others)."""

from __future__ import annotations

from typing import Any

from transduce.config import Table
from transduce.errors import ModelFolderError, brief
from transduce.interop.huggingface.architecture import (
    Architecture,
    Settings,
    WeightMapping,
    Weights,
    activation_name,
    are_tied,
)
from transduce.models.gpt import GptConfig
from transduce.models.interface import VocabularySizes


def _read_gpt2(settings: Settings, weights: Weights) -> GptConfig:
    settings.require("scale_attn_by_inverse_layer_idx", False)
    settings.require("add_cross_attention", False)
    dim = settings.integer("n_embd")
    return GptConfig.from_table(
        {
            "model_dim": dim,
            "num_heads": settings.integer("n_head"),
            "ffn_dim": settings.integer("n_inner", 4 * dim),
            "num_layers": settings.integer("n_layer"),
            "norm_eps": settings.number("layer_norm_epsilon", 1e-5),
            "activation": settings.activation("activation_function", "gelu_new"),
            "max_positions": settings.integer("n_positions"),
            "scale_attention": settings.flag("scale_attn_weights", default=True),
            "tied_embeddings": are_tied(weights, ("transformer.wte.weight", "wte.weight"), "lm_head.weight"),
            "dropout": settings.number("resid_pdrop", 0.1),
            "attention_dropout": settings.number("attn_pdrop", 0.1),
        },
        settings.where,
    )


def _write_gpt2(config: GptConfig, sizes: VocabularySizes) -> Table:
    return {
        "model_type": "gpt2",
        "vocab_size": sizes.target,
        "n_embd": config.model_dim,
        "n_head": config.num_heads,
        "n_inner": config.ffn_dim,
        "n_layer": config.num_layers,
        "n_positions": config.max_positions,
        "layer_norm_epsilon": config.norm_eps,
        "activation_function": activation_name(config.activation),
        "scale_attn_weights": config.scale_attention,
        "tie_word_embeddings": config.tied_embeddings,
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "attn_pdrop": config.attention_dropout,
    }


def _names(name: str) -> str:
    """Both names of a weight: files may hold the bare model or the one with a language-model head."""
    return f"transformer.{name}|{name}"


def _weight_map_gpt2(config: GptConfig) -> list[WeightMapping]:
    tied = "|lm_head.weight" if config.tied_embeddings else ""
    found = [
        WeightMapping("embedding.weight", (_names("wte.weight") + tied,)),
        WeightMapping("positions.weight", (_names("wpe.weight"),)),
        *_both("decoder_norm", "ln_f"),
    ]
    if not config.tied_embeddings:
        found.append(WeightMapping("output.weight", ("lm_head.weight",)))
    for layer in range(config.num_layers):
        ours, theirs = f"decoder.{layer}", f"h.{layer}"
        found += _both(f"{ours}.self_attention_residual.norm", f"{theirs}.ln_1")
        found += _both(f"{ours}.feed_forward_residual.norm", f"{theirs}.ln_2")
        for name, other in (
            ("self_attention.qkv_proj", "attn.c_attn"),
            ("self_attention.out_proj", "attn.c_proj"),
            ("feed_forward.up", "mlp.c_fc"),
            ("feed_forward.down", "mlp.c_proj"),
        ):
            found.append(WeightMapping(f"{ours}.{name}.weight", (_names(f"{theirs}.{other}.weight"),), "transposed"))
            found.append(WeightMapping(f"{ours}.{name}.bias", (_names(f"{theirs}.{other}.bias"),)))
    return found


def _both(ours: str, theirs: str) -> list[WeightMapping]:
    return [WeightMapping(f"{ours}.{kind}", (_names(f"{theirs}.{kind}"),)) for kind in ("weight", "bias")]


def _read_llama(settings: Settings, weights: Weights) -> GptConfig:
    settings.require("mlp_bias", False)
    settings.require("hidden_act", "silu")
    heads = settings.integer("num_attention_heads")
    groups = settings.integer("num_key_value_heads", heads)
    return GptConfig.from_table(
        {
            "model_dim": settings.integer("hidden_size"),
            "num_heads": heads,
            "key_value_heads": None if groups == heads else groups,
            "key_dim": settings.table.get("head_dim"),
            "value_dim": settings.table.get("head_dim"),
            "ffn_dim": settings.integer("intermediate_size"),
            "num_layers": settings.integer("num_hidden_layers"),
            "norm_kind": "rms",
            "norm_eps": settings.number("rms_norm_eps", 1e-6),
            "activation": "swiglu",
            "positions": "rotary",
            "max_positions": settings.integer("max_position_embeddings", 2048),
            "rotary_base": _rotary_base(settings),
            "attention_bias": settings.flag("attention_bias", default=False),
            "tied_embeddings": are_tied(weights, ("model.embed_tokens.weight",), "lm_head.weight"),
            "dropout": 0.0,
            "attention_dropout": settings.number("attention_dropout", 0.0),
        },
        settings.where,
    )


def _rotary_base(settings: Settings) -> float:
    """Return the base of the rotary positions (rope_theta); scaled rotary positions are not supported."""
    rope: Any = settings.table.get("rope_parameters") or settings.table.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default")) if isinstance(rope, dict) else rope
    if kind != "default" or not isinstance(rope, dict):
        raise ModelFolderError(
            f"{settings.where}: rope_scaling = {brief(kind)} is not supported; export the model without it"
        )
    base = rope.get("rope_theta", settings.table.get("rope_theta", 10_000.0))
    return Settings({"rope_theta": base}, settings.where).number("rope_theta", 10_000.0)


def _write_llama(config: GptConfig, sizes: VocabularySizes) -> Table:
    return {
        "model_type": "llama",
        "vocab_size": sizes.target,
        "hidden_size": config.model_dim,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.key_value_heads or config.num_heads,
        "head_dim": config.head_dims[0],
        "intermediate_size": config.ffn_dim,
        "num_hidden_layers": config.num_layers,
        "rms_norm_eps": config.norm_eps,
        "hidden_act": "silu",
        "max_position_embeddings": config.max_positions,
        "rope_theta": config.rotary_base,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rotary_base},
        "attention_bias": config.attention_bias,
        "mlp_bias": False,
        "attention_dropout": config.attention_dropout,
        "tie_word_embeddings": config.tied_embeddings,
    }


def _weight_map_llama(config: GptConfig) -> list[WeightMapping]:
    tied = "|lm_head.weight" if config.tied_embeddings else ""
    found = [
        WeightMapping("embedding.weight", (f"model.embed_tokens.weight{tied}",)),
        WeightMapping("decoder_norm.weight", ("model.norm.weight",)),
    ]
    if not config.tied_embeddings:
        found.append(WeightMapping("output.weight", ("lm_head.weight",)))
    widths = tuple(config.head_shape.widths)
    for layer in range(config.num_layers):
        ours, theirs = f"decoder.{layer}", f"model.layers.{layer}"
        for kind in ("weight", "bias") if config.attention_bias else ("weight",):
            own = tuple(f"{theirs}.self_attn.{x}_proj.{kind}" for x in "qkv")
            found.append(WeightMapping(f"{ours}.self_attention.qkv_proj.{kind}", own, widths=widths))
            found.append(
                WeightMapping(f"{ours}.self_attention.out_proj.{kind}", (f"{theirs}.self_attn.o_proj.{kind}",))
            )
        wide = tuple(f"{theirs}.mlp.{name}_proj.weight" for name in ("gate", "up"))
        found += [
            WeightMapping(f"{ours}.feed_forward.gate_up.weight", wide),
            WeightMapping(f"{ours}.feed_forward.down.weight", (f"{theirs}.mlp.down_proj.weight",)),
            WeightMapping(f"{ours}.self_attention_residual.norm.weight", (f"{theirs}.input_layernorm.weight",)),
            WeightMapping(f"{ours}.feed_forward_residual.norm.weight", (f"{theirs}.post_attention_layernorm.weight",)),
        ]
    return found


GPT2 = Architecture(
    class_name="GPT2LMHeadModel",
    read=_read_gpt2,
    write=_write_gpt2,
    weight_map=_weight_map_gpt2,
    ignored=("*attn.bias", "*attn.masked_bias"),
)
LLAMA = Architecture(
    class_name="LlamaForCausalLM",
    read=_read_llama,
    write=_write_llama,
    weight_map=_weight_map_llama,
    ignored=("*rotary_emb.inv_freq",),
)
