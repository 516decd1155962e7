"""Our Transformer as a model of CTranslate2, a fast engine for CPUs and GPUs (extra `fast`).

Written through the engine's own specification, so that whatever reads its folders reads these. Positions are handed
over as a table: CTranslate2's own sinusoids are laid out in another way.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from transduce.checkpoint import ModelFolder, save_tokenizers
from transduce.config import Table
from transduce.errors import SettingsError
from transduce.interop.vocabulary_map import write_map
from transduce.models.block import SINUSOIDS
from transduce.models.transformer import Transformer, TransformerConfig
from transduce.storage import folder_aside, seal, write_json
from transduce.text.shortlist import Shortlist
from transduce.text.tokenizer import Tokenizer

KIND = "ctranslate2 export"
NOTES = "transduce.json"
POSITIONS = 4096
"""Sinusoids that are handed over: the longest text that the exported model reads or writes, in tokens."""

WRITTEN: dict[str, tuple[Any, ...]] = {
    "norm_kind": ("layer",),
    "norm_eps": (1e-5,),
    "key_value_heads": (None,),
    "scaled_attention": (True,),
    "scaled_output": (False,),
    "feed_forward": ("relu", "gelu", "gelu_tanh", "silu", "gated"),
    "ffn_bias": (None,),
}
"""Settings that are not free, and what they may be."""

Quantization = Literal["float32", "int8", "int16", "float16", "bfloat16"]


def refusal(model: nn.Module) -> str | None:
    """Why CTranslate2 cannot express a model; None where it can."""
    if not isinstance(model, Transformer):
        return f"CTranslate2 knows Transformers, not {type(model).__name__}"
    config = model.config
    key_dim, value_dim = config.head_dims
    if key_dim != value_dim:
        return f"CTranslate2 wants keys and values of one width, not {key_dim} and {value_dim}"
    if config.positions not in (*SINUSOIDS, "learned"):
        return f"its encoder-decoders hear of no {config.positions} positions"
    if config.final_norm not in (None, config.norm == "pre"):
        return "its stacks end with a norm where norms stand before sub-layers, and only there"
    for name, wanted in WRITTEN.items():
        if getattr(config, name) not in wanted:
            return f"{name} = {getattr(config, name)} has no place in its encoder-decoders"
    return None


def export(
    contents: ModelFolder,
    folder: Path,
    quantization: Quantization = "float32",
    shortlist: Shortlist | None = None,
) -> None:
    """Write a folder that CTranslate2 loads, with the tokenizers beside it, whole or not at all.

    A shortlist becomes its vocabulary map, which it uses where it is asked to (`use_vmap`).
    """
    with folder_aside(folder) as aside:
        write_files(contents, aside, quantization, shortlist)
        save_tokenizers(aside, contents.source_tokenizer, contents.target_tokenizer)
        write_json(aside / NOTES, {"quantization": quantization, "notes": contents.notes})
        seal(aside, KIND)


def write_files(
    contents: ModelFolder,
    folder: Path,
    quantization: Quantization = "float32",
    shortlist: Shortlist | None = None,
) -> None:
    """Write what CTranslate2 itself needs into an existing folder."""
    refuse_inexpressible(contents.transducer)
    assert isinstance(contents.model, Transformer)
    spec = _spec(contents.model)
    for side, tokenizer in (("source", contents.source_tokenizer), ("target", contents.target_tokenizer)):
        getattr(spec, f"register_{side}_vocabulary")(tokenizer.vocabulary)
    for name, value in _config(contents.target_tokenizer).items():
        setattr(spec.config, name, value)
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(folder))
    if shortlist is not None:
        write_map(shortlist, contents.source_tokenizer, contents.target_tokenizer, folder)


def refuse_inexpressible(model: nn.Module) -> None:
    """Say no to what CTranslate2 cannot express, and what to install where it is missing."""
    library()
    reason = refusal(model)
    if reason is not None:
        raise SettingsError(f"this model cannot be exported: {reason}")


def is_installed() -> bool:
    """Whether CTranslate2 can be used here."""
    return importlib.util.find_spec("ctranslate2") is not None


def library() -> Any:
    """CTranslate2's module, or a sentence about how to get it."""
    try:
        import ctranslate2
        import ctranslate2.specs
    except ImportError:
        raise SettingsError(
            "CTranslate2 is not installed; `pip install 'transduce[fast]'`, or use --engine torch"
        ) from None
    return ctranslate2


def _config(tokenizer: Tokenizer) -> Table:
    start, end, unknown = (
        tokenizer.vocabulary[token]
        for token in (tokenizer.start, tokenizer.end, tokenizer.pad if tokenizer.unknown is None else tokenizer.unknown)
    )
    return {
        "bos_token": start,
        "eos_token": end,
        "unk_token": unknown,  # a lossless tokenizer has none, and says nothing that would need it
        "decoder_start_token": start,
        "add_source_eos": True,
    }


def _spec(model: Transformer) -> Any:
    specs, config = library().specs, model.config
    activations = specs.Activation
    kinds = {
        "relu": activations.RELU,
        "gelu": activations.GELU,
        "gelu_tanh": activations.GELUTanh,
        "silu": activations.SWISH,
        "gated": activations.SWISH,
    }
    shared = {
        "pre_norm": config.norm == "pre",
        "activation": kinds[config.feed_forward],
        "ffn_glu": config.feed_forward == "gated",
        "head_dim": config.head_dims[0],
    }
    encoder = specs.TransformerEncoderSpec(len(model.encoder), config.num_heads, **shared)
    decoder = specs.TransformerDecoderSpec(len(model.decoder), config.num_heads, **shared)
    spec = specs.TransformerSpec(encoder, decoder)
    spec.encoder.embeddings[0].weight = _array(model.source_embedding.weight)
    spec.decoder.embeddings.weight = _array(model.target_embedding.weight)
    for side in (spec.encoder, spec.decoder):
        side.scale_embeddings = config.scaled_embedding
    _put_linear(spec.decoder.projection, model.output.weight, model.output.bias)
    for side, positions, norm in (
        (spec.encoder, model.source_positions, model.encoder_norm),
        (spec.decoder, model.target_positions, model.decoder_norm),
    ):
        side.position_encodings.encodings = _array(positions.first(positions.limit or POSITIONS))
        if not isinstance(norm, nn.Identity):
            _put_norm(side.layer_norm, norm)
    for layer, block in (
        *zip(spec.encoder.layer, model.encoder, strict=True),
        *zip(spec.decoder.layer, model.decoder, strict=True),
    ):
        _put_block(layer, block, config)
    return spec


def _put_block(layer: Any, block: Any, config: TransformerConfig) -> None:
    own = block.attention
    _put_layer(layer.self_attention.linear[0], own.query_key_value)
    _put_layer(layer.self_attention.linear[1], own.heads.merge)
    _put_norm(layer.self_attention.layer_norm, block.attention_residual.norm)
    if hasattr(block, "cross_attention"):
        cross = block.cross_attention
        for linear, ours in zip(layer.attention.linear, (cross.query, cross.key_value, cross.heads.merge), strict=True):
            _put_layer(linear, ours)
        _put_norm(layer.attention.layer_norm, block.cross_attention_residual.norm)
    widen, narrow = block.feed_forward.widen, block.feed_forward.narrow
    if config.feed_forward == "gated":
        gate, passed = widen.weight.chunk(2)
        _put_linear(layer.ffn.linear_0, gate, None)
        _put_linear(layer.ffn.linear_0_noact, passed, None)
    else:
        _put_layer(layer.ffn.linear_0, widen)
    _put_layer(layer.ffn.linear_1, narrow)
    _put_norm(layer.ffn.layer_norm, block.feed_forward_residual.norm)


def _put_layer(spec: Any, layer: nn.Linear) -> None:
    _put_linear(spec, layer.weight, layer.bias)


def _put_linear(spec: Any, weight: Tensor, bias: Tensor | None) -> None:
    spec.weight = _array(weight)
    if bias is not None:
        spec.bias = _array(bias)


def _put_norm(spec: Any, norm: Any) -> None:
    spec.gamma, spec.beta = _array(norm.weight), _array(norm.bias)


def _array(tensor: Tensor) -> NDArray[np.float32]:
    """A copy: quantizing works in place, and the model goes on being used."""
    array: NDArray[np.float32] = tensor.detach().float().cpu().contiguous().numpy().copy()
    return array
