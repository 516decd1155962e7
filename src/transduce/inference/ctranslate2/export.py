"""Our models as folders of CTranslate2, a fast engine for CPUs and GPUs (extra `fast`).

Written through its own specification API, so that whatever reads its folders reads these: `Translator` the
encoder-decoders, `Generator` the language models, `Encoder` the text encoders. Positions that are added to embeddings
are exported as a table: CTranslate2's own sinusoids have another layout. A model that it cannot express is rejected
with the reason.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from transduce.config import Table
from transduce.errors import SettingsError
from transduce.inference.export_card import Usage, ctranslate2_usage, readme
from transduce.model_folder import ModelFolder, save_tokenizers
from transduce.models.bert import Bert
from transduce.models.block import SINUSOIDS, BlockConfig
from transduce.models.gpt import Gpt
from transduce.models.transformer import Transformer
from transduce.nn.attention.multi_head import MultiHeadAttention
from transduce.nn.sublayer import GatedFeedForward
from transduce.storage.atomic import atomic_folder, write_json
from transduce.storage.layout import CTRANSLATE2_KIND, MODEL_CARD
from transduce.storage.manifest import write_manifest
from transduce.text.shortlist import Shortlist
from transduce.text.tokenizer import AnyTokenizer

POSITIONS = 4096
"""Sinusoids that are exported: the longest text that the exported model reads or writes, in tokens."""

ATTENTION_POSITIONS: dict[type[nn.Module], tuple[str, ...]] = {
    Transformer: ("buckets", "rotary"),
    Gpt: ("rotary",),
    Bert: (),
}
"""Supported models, and the position encodings that their attention may have."""


def library() -> Any:
    """Return CTranslate2's module; the error explains how to install it."""
    try:
        import ctranslate2
        import ctranslate2.specs
    except ImportError:
        raise SettingsError(
            "CTranslate2 is not installed; `pip install 'transduce[fast]'`, or use --engine torch"
        ) from None
    return ctranslate2


def model_rejection(model: nn.Module) -> str | None:
    """Why CTranslate2 does not support a model; None if it does."""
    if not isinstance(model, Transformer | Gpt | Bert):
        return f"it supports Transformers, not {type(model).__name__}"
    config: BlockConfig = model.config
    for attention in (config.attention, getattr(config, "decoder_attention", None) or "full"):
        if attention != "full":
            return f"it has no {attention} attention"
    key_dim, value_dim = config.head_dims
    if key_dim != value_dim:
        return f"it needs keys and values of one width, not {key_dim} and {value_dim}"
    if config.positions not in (*SINUSOIDS, "learned", *ATTENTION_POSITIONS[type(model)]):
        return f"it has no {config.positions} positions in such a model"
    if config.final_norm not in (None, config.norm == "pre"):
        return "it has a final norm with pre-norm, and only with pre-norm"
    if not isinstance(model, Gpt) and config.key_value_heads not in (None, config.num_heads):
        return "it has shared key heads in language models only"
    if isinstance(model, Bert) and model.head is not None:
        return "it encodes texts and has no heads; train or import the text encoder without a head"
    return None


def translation_rejection(model: nn.Module) -> str | None:
    """Why CTranslate2 cannot translate with a model; None if it can."""
    if isinstance(model, Gpt):
        return "language models generate with PyTorch here"
    return model_rejection(model)


def spec_of(model: nn.Module) -> Any:
    """The specification of a model that was not rejected."""
    if isinstance(model, Transformer):
        return _encoder_decoder(model)
    return _text_encoder(model) if isinstance(model, Bert) else _language_model(model)


def _shared(config: BlockConfig) -> dict[str, Any]:
    activations = library().specs.Activation
    kinds = {
        "relu": activations.RELU,
        "gelu": activations.GELU,
        "gelu_tanh": activations.GELUTanh,
        "silu": activations.SWISH,
        "swiglu": activations.SWISH,
        "geglu": activations.GELUTanh,
    }
    turned = {"rotary_dim": 0, "rotary_interleave": False, "rotary_base": config.rotary_base}
    return {
        **(turned if config.positions == "rotary" else {}),
        "pre_norm": config.norm == "pre",
        "activation": kinds[config.activation],
        "ffn_glu": config.is_gated,
        "rms_norm": config.norm_kind == "rms",
        "head_dim": config.head_dims[0],
    }


def _encoder_decoder(model: Transformer) -> Any:
    specs, config = library().specs, model.config
    shared = {**_shared(config), "relative_attention_bias": config.positions == "buckets"}
    encoder = specs.TransformerEncoderSpec(len(model.encoder), config.num_heads, **shared)
    decoder = specs.TransformerDecoderSpec(len(model.decoder), config.num_heads, **shared)
    spec = specs.TransformerSpec(encoder, decoder)
    spec.encoder.embeddings[0].weight = _array(model.source_embedding.weight)
    spec.decoder.embeddings.weight = _array(model.target_embedding.weight)
    _put_linear(spec.decoder.projection, model.output.weight, model.output.bias)
    if config.scale_output:
        spec.decoder.scale_outputs = np.dtype("float32").type(config.model_dim**-0.5)
    for side, stack, positions, relative, norm in (
        (spec.encoder, model.encoder, model.source_positions, model.source_relative_positions, model.encoder_norm),
        (spec.decoder, model.decoder, model.target_positions, model.target_relative_positions, model.decoder_norm),
    ):
        side.scale_embeddings = config.scale_embeddings
        _put_stack(side, stack, positions, norm, config)
        if config.positions == "buckets":
            for layer in side.layer:
                layer.self_attention.relative_attention_bias = _array(relative.get_parameter("weight"))
                distance = np.dtype("int32").type(config.max_distance or 128)
                layer.self_attention.relative_attention_max_distance = distance
    spec.config.layer_norm_epsilon = config.norm_eps
    return spec


def _language_model(model: Any) -> Any:
    specs, config = library().specs, model.config
    spec = specs.TransformerDecoderModelSpec.from_config(
        len(model.decoder),
        config.num_heads,
        **_shared(config),
        num_heads_kv=config.key_value_heads,
    )
    spec.decoder.embeddings.weight = _array(model.embedding.weight)
    spec.decoder.scale_embeddings = False
    _put_linear(spec.decoder.projection, model.output.weight, model.output.bias)
    _put_stack(spec.decoder, model.decoder, model.positions, model.decoder_norm, config)
    spec.config.layer_norm_epsilon = config.norm_eps
    return spec


def _text_encoder(model: Bert) -> Any:
    specs, config = library().specs, model.config
    encoder = specs.TransformerEncoderSpec(
        len(model.encoder),
        config.num_heads,
        **_shared(config),
        layernorm_embedding=True,
        num_source_embeddings=2,
        embeddings_merge=specs.EmbeddingsMerge.ADD,
    )
    spec = specs.TransformerEncoderModelSpec(encoder, pooling_layer=model.pooler is not None)
    encoder.scale_embeddings = False
    for place, embedding in zip(encoder.embeddings, (model.embedding.tokens, model.embedding.segments), strict=True):
        place.weight = _array(embedding.weight)
    _put_norm(encoder.layernorm_embedding, model.embedding.norm)
    _put_stack(encoder, model.encoder, model.embedding.positions, nn.Identity(), config)
    if model.pooler is not None:
        _put_layer(spec.pooler_dense, model.pooler)
    spec.config.layer_norm_epsilon = config.norm_eps
    return spec


def _put_stack(side: Any, stack: nn.ModuleList, positions: Any, norm: nn.Module, config: BlockConfig) -> None:
    if config.positions in (*SINUSOIDS, "learned"):
        side.position_encodings.encodings = _array(positions.first(positions.limit or POSITIONS))
    if not isinstance(norm, nn.Identity):
        _put_norm(side.layer_norm, norm)
    for layer, block in zip(side.layer, stack, strict=True):
        _put_block(layer, block)


def _put_block(layer: Any, block: Any) -> None:
    own, inner = block.self_attention, block.feed_forward
    _put_attention(layer.self_attention, (own.qkv_proj, own.out_proj), own)
    _put_norm(layer.self_attention.layer_norm, block.self_attention_residual.norm)
    if hasattr(block, "cross_attention"):
        cross = block.cross_attention
        _put_attention(layer.attention, (cross.q_proj, cross.kv_proj, cross.out_proj), cross)
        _put_norm(layer.attention.layer_norm, block.cross_attention_residual.norm)
    if isinstance(inner, GatedFeedForward):
        halves = zip(inner.gate_up.weight.chunk(2), _halves(inner.gate_up.bias), strict=True)
        for place, (weight, bias) in zip((layer.ffn.linear_0, layer.ffn.linear_0_noact), halves, strict=True):
            _put_linear(place, weight, bias)
    else:
        _put_layer(layer.ffn.linear_0, inner.up)
    _put_layer(layer.ffn.linear_1, inner.down)
    _put_norm(layer.ffn.layer_norm, block.feed_forward_residual.norm)


def _put_attention(spec: Any, layers: tuple[nn.Linear, ...], attention: MultiHeadAttention) -> None:
    for place, layer in zip(spec.linear, layers, strict=True):
        _put_layer(place, layer)
    if not attention.shape.scaled:
        spec.queries_scale = np.dtype("float32").type(1.0)


def _halves(bias: Tensor | None) -> tuple[Tensor | None, ...]:
    return (None, None) if bias is None else bias.chunk(2)


def _put_layer(spec: Any, layer: nn.Linear) -> None:
    _put_linear(spec, layer.weight, layer.bias)


def _put_linear(spec: Any, weight: Tensor, bias: Tensor | None) -> None:
    spec.weight = _array(weight)
    if bias is not None:
        spec.bias = _array(bias)


def _put_norm(spec: Any, norm: Any) -> None:
    spec.gamma = _array(norm.weight)
    if getattr(norm, "bias", None) is not None:
        spec.beta = _array(norm.bias)


def _array(tensor: Tensor) -> NDArray[np.float32]:
    """Return a copy: quantizing works in place, and the model is still in use."""
    array: NDArray[np.float32] = tensor.detach().float().cpu().contiguous().numpy().copy()
    return array


# Folders.

NOTES = "transduce.json"
Quantization = Literal["float32", "int8", "int16", "float16", "bfloat16"]


def export(
    contents: ModelFolder,
    folder: Path,
    quantization: Quantization = "float32",
    shortlist: Shortlist | None = None,
    run: Path | None = None,
) -> Usage:
    """Write a folder that CTranslate2 loads, with the tokenizers; return how to use it, as its README says.

    It is complete or absent. A shortlist becomes its vocabulary map, used with `use_vmap`. `run` is the folder that
    the model comes from, for the README.
    """
    usage = ctranslate2_usage(contents, folder, run or Path("RUN"))
    with atomic_folder(folder) as temporary:
        write_files(contents, temporary, quantization, shortlist, by_hand=True)
        (temporary / MODEL_CARD).write_text(readme(contents, "CTranslate2", usage), encoding="utf-8")
        save_tokenizers(temporary, contents.source_tokenizer, contents.target_tokenizer)
        write_json(temporary / NOTES, {"quantization": quantization, "notes": contents.notes})
        write_manifest(temporary, CTRANSLATE2_KIND)
    return usage


NEVER = -1e4
"""Bias of the tokens that our search never writes; float16 can represent it."""


def write_files(
    contents: ModelFolder,
    folder: Path,
    quantization: Quantization = "float32",
    shortlist: Shortlist | None = None,
    by_hand: bool = False,
) -> None:
    """Write what CTranslate2 itself needs into an existing folder.

    A folder that is used `by_hand`, without our engine, gets a bias against the padding and start tokens: our search
    never writes them, but CTranslate2 would, if the model is hardly trained.
    """
    check_model(model_rejection, contents.model)
    spec = spec_of(contents.model)
    translates = isinstance(contents.model, Transformer)
    if translates and by_hand:
        target, output = contents.target_tokenizer, spec.decoder.projection
        bias = np.zeros(target.size, dtype=np.float32) if contents.transducer.output.bias is None else output.bias
        bias[[token for token in (target.pad, target.start) if token != target.end]] = NEVER
        output.bias = bias
    if translates:
        for side, tokenizer in (("source", contents.source_tokenizer), ("target", contents.target_tokenizer)):
            getattr(spec, f"register_{side}_vocabulary")(tokenizer.vocabulary)
    else:
        spec.register_vocabulary(contents.target_tokenizer.vocabulary)
    for name, value in _config(contents.target_tokenizer, translates).items():
        setattr(spec.config, name, value)
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(folder))
    if shortlist is not None:
        write_map(shortlist, contents.source_tokenizer, contents.target_tokenizer, folder)


def check_model(rejection: Callable[[nn.Module], str | None], model: nn.Module) -> None:
    """Raise if CTranslate2 is not installed, or rejects the model."""
    library()
    reason = rejection(model)
    if reason is not None:
        raise SettingsError(f"CTranslate2 does not support this model: {reason}")


def is_installed() -> bool:
    """Whether CTranslate2 can be used here."""
    return importlib.util.find_spec("ctranslate2") is not None


def _config(tokenizer: AnyTokenizer, translates: bool) -> Table:
    start, end, unknown = (
        tokenizer.vocabulary[token]
        for token in (tokenizer.start, tokenizer.end, tokenizer.pad if tokenizer.unknown is None else tokenizer.unknown)
    )
    return {
        "bos_token": start,
        "eos_token": end,
        "unk_token": unknown,  # a lossless tokenizer has none, and never writes it
        **({"decoder_start_token": start, "add_source_eos": True} if translates else {}),
    }


# Shortlists as CTranslate2's vocabulary map.

NAME = "vmap.txt"


def map_rejection(source: AnyTokenizer, target: AnyTokenizer) -> str | None:
    """Why shortlists for these tokenizers cannot be exported; None if they can."""
    separators = {" ", "\t", "\r", "\n"}
    for side, tokenizer in (("source", source), ("target", target)):
        if any(separators & set(piece) for piece in tokenizer.vocabulary):
            return f"the {side}'s {tokenizer.kind} tokenizer has pieces with spaces, which a vocabulary map cannot hold"
    return None


def write_map(shortlist: Shortlist, source: AnyTokenizer, target: AnyTokenizer, folder: Path) -> None:
    """Write `vmap.txt` into the folder of an exported model, where it is used with `use_vmap`.

    It has one line for each source piece: the piece, a tab, its candidates separated by spaces. The line without a
    piece lists what is always a candidate. CTranslate2 adds the start, end and unknown tokens itself, and takes the
    union over a batch.
    """
    reason = map_rejection(source, target)
    if reason is not None:
        raise SettingsError(f"this shortlist cannot be exported: {reason}")
    pieces, tokens = target.vocabulary, shortlist.tokens.tolist()
    rows = zip(source.vocabulary, pairwise(shortlist.offsets.tolist()), strict=True)
    with (folder / NAME).open("w", encoding="utf-8", newline="\n") as file:
        file.write("\t" + " ".join(pieces[token] for token in shortlist.always.tolist()) + "\n")
        for piece, (start, end) in rows:
            if start < end:
                file.write(f"{piece}\t{' '.join(pieces[token] for token in tokens[start:end])}\n")
