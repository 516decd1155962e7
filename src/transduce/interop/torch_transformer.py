"""Weights and vocabulary of models built on `torch.nn.Transformer`, with embeddings and an output layer around it.

torch's module is the paper's two stacks, each with a final norm; every program names the layers around it differently.
So a folder of such weights has a `config.json` with the names:

    {"model_type": "torch_transformer", "nhead": 8, "prefix": "transformer.",
     "source_embedding": "src_tok_emb.embedding.weight", "target_embedding": "trg_tok_emb.embedding.weight",
     "output": "generator"}

Optional: `norm_first`, `activation` (relu or gelu), `scale_embedding` (true), `positions` (sinusoidal, or the name of a
learned table), `layer_norm_eps`, `dropout`, and the search settings of `generation_config.json`. Everything else is
inferred from the weights.

The vocabulary is a `vocab.json` of characters or words, one for both sides. `config.json` names its special tokens:
`{"tokens": "characters", "pad": "<PAD>", "start": "<SOS>", "end": "<EOS>", "unknown": "<UNK>"}`; `tokens` may be
"words", which are separated by spaces.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import tokenizers
from tokenizers import Regex, decoders, models, pre_tokenizers

from transduce.errors import ModelFolderError, brief, suggestion
from transduce.interop.huggingface.architecture import (
    Architecture,
    Settings,
    WeightMapping,
    Weights,
    rows_and_columns,
)
from transduce.interop.huggingface.folder import HuggingFaceFolder
from transduce.interop.huggingface.generation import GENERATION_SETTINGS
from transduce.models.interface import VocabularySizes
from transduce.models.transformer import TransformerConfig
from transduce.text.tokenizer.imported import ImportedConfig, ImportedTokenizer
from transduce.text.tokenizer.library_codec import LibraryCodec

VOCABULARY = "vocab.json"
SPECIAL = ("pad", "start", "end", "unknown")


def torch_tokenizers(
    folder: HuggingFaceFolder, settings: Settings, sizes: VocabularySizes
) -> tuple[ImportedTokenizer, ImportedTokenizer]:
    """Return the tokenizer of a folder, for source and target."""
    vocabulary = folder.table(VOCABULARY)
    if sizes.source != sizes.target:
        raise ModelFolderError(
            f"{folder.path}: {VOCABULARY} is shared, but the embeddings have {sizes.source:,} and {sizes.target:,} rows"
        )
    numbers = list(vocabulary.values())
    if any(type(number) is not int for number in numbers) or sorted(numbers) != list(range(len(numbers))):
        raise ModelFolderError(f"{folder.path / VOCABULARY}: must number its pieces from 0 without gaps")
    if len(vocabulary) > sizes.target:
        raise ModelFolderError(
            f"{folder.path / VOCABULARY}: has {len(vocabulary):,} pieces, but the embeddings have {sizes.target:,} rows"
        )
    special = {role: str(settings.table.get(role)) for role in SPECIAL}
    for role, piece in special.items():
        if piece not in vocabulary:
            raise ModelFolderError(f"{settings.where}: {role} = {piece!r} is not in {VOCABULARY}")
    made = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token=special["unknown"]))
    settings.require("tokens", "characters", "words")
    if settings.table.get("tokens", "characters") == "characters":
        made.pre_tokenizer, made.decoder = pre_tokenizers.Split(Regex("."), "isolated"), decoders.Fuse()
    else:
        made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    codec = LibraryCodec(json.loads(made.to_str()), special.values())
    pad, start, end, unknown = (vocabulary[special[role]] for role in SPECIAL)
    known = ImportedConfig(
        family="torch",
        size=sizes.target,
        pad=pad,
        start=start,
        end=end,
        unknown=unknown,
        skipped=tuple(sorted(codec.special)),
    )
    tokenizer = ImportedTokenizer(known, codec)
    return tokenizer, tokenizer


NAMES = ("prefix", "source_embedding", "target_embedding", "output")
KNOWN = {
    *("model_type", "nhead", *NAMES, "positions", "norm_first", "activation", "scale_embedding", "layer_norm_eps"),
    *("dropout", "tokens", *SPECIAL, *GENERATION_SETTINGS),
}
"""All settings that `config.json` may have."""


@dataclass(frozen=True)
class WeightNames:
    """Names of the weights around and within torch's module."""

    prefix: str
    source_embedding: str
    target_embedding: str
    output: str
    """The output layer; `.weight`, and `.bias` if it has one, are appended."""
    positions: str | None
    """A learned table shared by both sides; None for sinusoids."""

    @classmethod
    def of(cls, settings: Settings) -> WeightNames:
        """Read the names from `config.json`."""
        named = {}
        for name in NAMES:
            value = settings.table.get(name, "" if name == "prefix" else None)
            if not isinstance(value, str):
                raise ModelFolderError(f"{settings.where}: {name} must be the name of a weight, not {value!r}")
            named[name] = value
        positions = settings.table.get("positions", "sinusoidal")
        return cls(**named, positions=None if positions == "sinusoidal" else str(positions))


def architecture(settings: Settings) -> Architecture:
    """Return the mapping for a folder of such weights; unknown settings are an error."""
    for name in settings.table:
        if name not in KNOWN:
            raise ModelFolderError(
                f"{settings.where}: unknown setting {brief(name)} (sizes are inferred from the weights); "
                f"leave it out{suggestion(name, KNOWN)}"
            )
    names = WeightNames.of(settings)

    def read(settings: Settings, weights: Weights) -> TransformerConfig:
        return _read(settings, weights, names)

    def weight_map(config: TransformerConfig) -> list[WeightMapping]:
        return _weight_map(config, names)

    def write(*_: object) -> dict[str, object]:
        raise ModelFolderError("models cannot be exported to torch.nn.Transformer")

    return Architecture("torch.nn.Transformer", read, write, weight_map, ignored=("*.pe", "pe", "*positional*"))


def _read(settings: Settings, weights: Weights, names: WeightNames) -> TransformerConfig:
    where, wide = settings.where, f"{names.prefix}encoder.layers.0.linear1.weight"
    encoder, decoder = (_layers(weights, f"{names.prefix}{side}.layers.", where) for side in ("encoder", "decoder"))
    return TransformerConfig.from_table(
        {
            "model_dim": rows_and_columns(weights, names.source_embedding, where)[1],
            "num_heads": settings.integer("nhead"),
            "ffn_dim": rows_and_columns(weights, wide, where)[0],
            "num_layers": encoder,
            "decoder_layers": None if decoder == encoder else decoder,
            "norm": "pre" if settings.flag("norm_first", default=False) else "post",
            "final_norm": f"{names.prefix}decoder.norm.weight" in weights.names,
            "norm_eps": settings.number("layer_norm_eps", 1e-5),
            "activation": settings.activation("activation", "relu"),
            "attention_bias": f"{names.prefix}encoder.layers.0.self_attn.in_proj_bias" in weights.names,
            "positions": "sinusoidal" if names.positions is None else "learned",
            "max_positions": 1024 if names.positions is None else rows_and_columns(weights, names.positions, where)[0],
            "scale_embeddings": settings.flag("scale_embedding", default=True),
            "output_bias": f"{names.output}.bias" in weights.names,
            "tied_embeddings": "none",
            "dropout": settings.number("dropout", 0.1),
        },
        settings.where,
    )


def _layers(weights: Weights, prefix: str, where: str) -> int:
    numbers = {found[1] for name in weights.names if (found := re.match(rf"{re.escape(prefix)}(\d+)\.", name))}
    if not numbers:
        raise ModelFolderError(f"{where}: no weight name starts with '{prefix}'; set prefix accordingly")
    return len(numbers)


def _weight_map(config: TransformerConfig, names: WeightNames) -> list[WeightMapping]:
    found = [
        WeightMapping("source_embedding.weight", (names.source_embedding,)),
        WeightMapping("target_embedding.weight", (names.target_embedding,)),
        WeightMapping("output.weight", (f"{names.output}.weight",)),
    ]
    if config.output_bias:
        found.append(WeightMapping("output.bias", (f"{names.output}.bias",)))
    if names.positions is not None:
        found += [WeightMapping(f"{side}_positions.weight", (names.positions,)) for side in ("source", "target")]
    for side, layers in (("encoder", config.num_layers), ("decoder", config.decoder_layers or config.num_layers)):
        if config.final_norm:
            found += _both(f"{side}_norm", f"{names.prefix}{side}.norm")
        for layer in range(layers):
            found += _block(f"{side}.{layer}", f"{names.prefix}{side}.layers.{layer}", config, side == "decoder")
    return found


def _block(ours: str, theirs: str, config: TransformerConfig, crosses: bool) -> list[WeightMapping]:
    last = "norm3" if crosses else "norm2"
    pairs = [("feed_forward.up", "linear1"), ("feed_forward.down", "linear2")]
    pairs += [("self_attention_residual.norm", "norm1"), ("feed_forward_residual.norm", last)]
    found = _attention(f"{ours}.self_attention", f"{theirs}.self_attn", config)
    if crosses:
        pairs.append(("cross_attention_residual.norm", "norm2"))
        found += _cross_attention(f"{ours}.cross_attention", f"{theirs}.multihead_attn", config)
    return found + [mapping for a, b in pairs for mapping in _both(f"{ours}.{a}", f"{theirs}.{b}")]


def _attention(ours: str, theirs: str, config: TransformerConfig) -> list[WeightMapping]:
    return [
        mapping
        for kind in _kinds(config)
        for mapping in (
            WeightMapping(f"{ours}.qkv_proj.{kind}", (f"{theirs}.in_proj_{kind}",)),
            WeightMapping(f"{ours}.out_proj.{kind}", (f"{theirs}.out_proj.{kind}",)),
        )
    ]


def _cross_attention(ours: str, theirs: str, config: TransformerConfig) -> list[WeightMapping]:
    """Split torch's matrix of three projections: our query projection is separate from key and value."""
    width = config.model_dim
    return [
        mapping
        for kind in _kinds(config)
        for mapping in (
            WeightMapping(f"{ours}.q_proj.{kind}", (f"{theirs}.in_proj_{kind}",), rows=slice(0, width)),
            WeightMapping(f"{ours}.kv_proj.{kind}", (f"{theirs}.in_proj_{kind}",), rows=slice(width, 3 * width)),
            WeightMapping(f"{ours}.out_proj.{kind}", (f"{theirs}.out_proj.{kind}",)),
        )
    ]


def _kinds(config: TransformerConfig) -> tuple[str, ...]:
    return ("weight", "bias") if config.attention_bias else ("weight",)


def _both(ours: str, theirs: str) -> list[WeightMapping]:
    return [WeightMapping(f"{ours}.{kind}", (f"{theirs}.{kind}",)) for kind in ("weight", "bias")]
