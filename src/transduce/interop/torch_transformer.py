"""Weights of `torch.nn.Transformer`, with the embeddings and the output layer that people put around it.

torch's module is the paper's two stacks, each closed by one more norm; what stands around it, every program names in
its own way. So a folder of such weights has a `config.json` that says the names:

    {"model_type": "torch_transformer", "nhead": 8, "prefix": "transformer.",
     "source_embedding": "src_tok_emb.embedding.weight", "target_embedding": "trg_tok_emb.embedding.weight",
     "output": "generator"}

Optional: `norm_first`, `activation` (relu or gelu), `scale_embedding` (true), `positions` (sinusoidal, or the name of a
learned table), `layer_norm_eps`, `dropout`, and how to search, as `generation_config.json` has it. All else is seen in
the weights. What is said there of the vocabulary, `torch_vocabulary` knows.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import tokenizers
from tokenizers import Regex, decoders, models, pre_tokenizers

from transduce.errors import ModelFolderError, brief, suggestion
from transduce.interop.huggingface.family import Family, Settings
from transduce.interop.huggingface.folder import ForeignFolder
from transduce.interop.huggingface.generation import WISHES
from transduce.interop.huggingface.rename import Rename, Weights, matrix
from transduce.models.interface import VocabularySizes
from transduce.models.transformer import TransformerConfig
from transduce.text.tokenizer.imported import ImportedConfig, ImportedTokenizer
from transduce.text.tokenizer.library_codec import LibraryCodec

# The vocabulary beside weights of `torch.nn.Transformer`: a `vocab.json` of characters or words, one for both sides.
#
# `config.json` says what frames a sentence: `{"tokens": "characters", "pad": "<PAD>", "start": "<SOS>", "end":
# "<EOS>", "unknown": "<UNK>"}`; `tokens` may be "words", which spaces set apart.

VOCABULARY = "vocab.json"
SPECIAL = ("pad", "start", "end", "unknown")


def torch_tokenizers(
    folder: ForeignFolder, settings: Settings, sizes: VocabularySizes
) -> tuple[ImportedTokenizer, ImportedTokenizer]:
    """Return the tokenizer of a folder, twice."""
    vocabulary = folder.table(VOCABULARY)
    if sizes.source != sizes.target:
        raise ModelFolderError(
            f"{folder.path}: {VOCABULARY} is one vocabulary, but the weights are for {sizes.source:,} and "
            f"{sizes.target:,} tokens"
        )
    numbers = list(vocabulary.values())
    if any(type(number) is not int for number in numbers) or sorted(numbers) != list(range(len(numbers))):
        raise ModelFolderError(f"{folder.path / VOCABULARY}: does not number its pieces from 0 without a gap")
    if len(vocabulary) > sizes.target:
        raise ModelFolderError(
            f"{folder.path / VOCABULARY}: has {len(vocabulary):,} pieces, but the weights are for {sizes.target:,}"
        )
    special = {role: str(settings.table.get(role)) for role in SPECIAL}
    for role, piece in special.items():
        if piece not in vocabulary:
            raise ModelFolderError(f"{settings.where}: {role} = {piece!r} is no piece of {VOCABULARY}")
    made = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token=special["unknown"]))
    settings.refuse_unless("tokens", "characters", "words")
    if settings.table.get("tokens", "characters") == "characters":
        made.pre_tokenizer, made.decoder = pre_tokenizers.Split(Regex("."), "isolated"), decoders.Fuse()
    else:
        made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    codec = LibraryCodec(json.loads(made.to_str()), special.values())
    pad, start, end, unknown = (vocabulary[special[role]] for role in SPECIAL)
    silent = tuple(sorted(codec.special))
    known = ImportedConfig(
        family="torch", size=sizes.target, pad=pad, start=start, end=end, unknown=unknown, skipped=silent
    )
    tokenizer = ImportedTokenizer(known, codec)
    return tokenizer, tokenizer


NAMES = ("prefix", "source_embedding", "target_embedding", "output")
KNOWN = {
    *("model_type", "nhead", *NAMES, "positions", "norm_first", "activation", "scale_embedding", "layer_norm_eps"),
    *("dropout", "tokens", *SPECIAL, *WISHES),
}
"""What `config.json` may say, of the vocabulary and of how to search too."""


@dataclass(frozen=True)
class Names:
    """What a program calls the parts around and within torch's module."""

    prefix: str
    source_embedding: str
    target_embedding: str
    output: str
    """Of the layer; its weight, and its bias if it has one, are below it."""
    positions: str | None
    """A learned table that both sides share; None for sinusoids."""

    @classmethod
    def of(cls, settings: Settings) -> Names:
        """What `config.json` says."""
        named = {}
        for name in NAMES:
            value = settings.table.get(name, "" if name == "prefix" else None)
            if not isinstance(value, str):
                raise ModelFolderError(f"{settings.where}: {name} should name a weight of the file, not be {value!r}")
            named[name] = value
        positions = settings.table.get("positions", "sinusoidal")
        return cls(**named, positions=None if positions == "sinusoidal" else str(positions))


def family(settings: Settings) -> Family:
    """What is known about a folder of such weights; a setting that nobody would read is refused."""
    for name in settings.table:
        if name not in KNOWN:
            raise ModelFolderError(
                f"{settings.where}: the setting {brief(name)} means nothing here, where sizes are seen in the weights; "
                f"leave it out{suggestion(name, KNOWN)}"
            )
    names = Names.of(settings)

    def read(settings: Settings, weights: Weights) -> TransformerConfig:
        return _read(settings, weights, names)

    def renames(config: TransformerConfig) -> list[Rename]:
        return _renames(config, names)

    def write(*_: object) -> dict[str, object]:
        raise ModelFolderError("weights of torch.nn.Transformer are only read here")

    return Family("torch.nn.Transformer", read, write, renames, ignored=("*.pe", "pe", "*positional*"))


def _read(settings: Settings, weights: Weights, names: Names) -> TransformerConfig:
    where, wide = settings.where, f"{names.prefix}encoder.layers.0.linear1.weight"
    encoder, decoder = (_layers(weights, f"{names.prefix}{side}.layers.", where) for side in ("encoder", "decoder"))
    return TransformerConfig.from_table(
        {
            "model_dim": matrix(weights, names.source_embedding, where).shape[1],
            "num_heads": settings.number("nhead"),
            "ffn_dim": len(matrix(weights, wide, where)),
            "num_layers": encoder,
            "decoder_layers": None if decoder == encoder else decoder,
            "norm": "pre" if settings.flag("norm_first", otherwise=False) else "post",
            "final_norm": f"{names.prefix}decoder.norm.weight" in weights.names,
            "norm_eps": settings.share("layer_norm_eps", 1e-5),
            "activation": settings.bend("activation", "relu"),
            "attention_bias": f"{names.prefix}encoder.layers.0.self_attn.in_proj_bias" in weights.names,
            "positions": "sinusoidal" if names.positions is None else "learned",
            "max_positions": 1024 if names.positions is None else len(matrix(weights, names.positions, where)),
            "scale_embeddings": settings.flag("scale_embedding", otherwise=True),
            "output_bias": f"{names.output}.bias" in weights.names,
            "tied_embeddings": "none",
            "dropout": settings.share("dropout", 0.1),
        },
        settings.where,
    )


def _layers(weights: Weights, prefix: str, where: str) -> int:
    numbers = {found[1] for name in weights.names if (found := re.match(rf"{re.escape(prefix)}(\d+)\.", name))}
    if not numbers:
        raise ModelFolderError(
            f"{where}: no weight has a name that begins with '{prefix}'; set prefix to what they have"
        )
    return len(numbers)


def _renames(config: TransformerConfig, names: Names) -> list[Rename]:
    found = [
        Rename("source_embedding.weight", (names.source_embedding,)),
        Rename("target_embedding.weight", (names.target_embedding,)),
        Rename("output.weight", (f"{names.output}.weight",)),
    ]
    if config.output_bias:
        found.append(Rename("output.bias", (f"{names.output}.bias",)))
    if names.positions is not None:
        found += [Rename(f"{side}_positions.weight", (names.positions,)) for side in ("source", "target")]
    for side, layers in (("encoder", config.num_layers), ("decoder", config.decoder_layers or config.num_layers)):
        if config.final_norm:
            found += _both(f"{side}_norm", f"{names.prefix}{side}.norm")
        for layer in range(layers):
            found += _block(f"{side}.{layer}", f"{names.prefix}{side}.layers.{layer}", config, side == "decoder")
    return found


def _block(ours: str, theirs: str, config: TransformerConfig, crosses: bool) -> list[Rename]:
    last = "norm3" if crosses else "norm2"
    pairs = [("feed_forward.up", "linear1"), ("feed_forward.down", "linear2")]
    pairs += [("self_attention_residual.norm", "norm1"), ("feed_forward_residual.norm", last)]
    found = _attention(f"{ours}.self_attention", f"{theirs}.self_attn", config)
    if crosses:
        pairs.append(("cross_attention_residual.norm", "norm2"))
        found += _cross_attention(f"{ours}.cross_attention", f"{theirs}.multihead_attn", config)
    return found + [rename for a, b in pairs for rename in _both(f"{ours}.{a}", f"{theirs}.{b}")]


def _attention(ours: str, theirs: str, config: TransformerConfig) -> list[Rename]:
    return [
        rename
        for kind in _kinds(config)
        for rename in (
            Rename(f"{ours}.qkv_proj.{kind}", (f"{theirs}.in_proj_{kind}",)),
            Rename(f"{ours}.out_proj.{kind}", (f"{theirs}.out_proj.{kind}",)),
        )
    ]


def _cross_attention(ours: str, theirs: str, config: TransformerConfig) -> list[Rename]:
    """Theirs has all three projections in one matrix; ours reads the query from another place than key and value."""
    width = config.model_dim
    return [
        rename
        for kind in _kinds(config)
        for rename in (
            Rename(f"{ours}.q_proj.{kind}", (f"{theirs}.in_proj_{kind}",), rows=slice(0, width)),
            Rename(f"{ours}.kv_proj.{kind}", (f"{theirs}.in_proj_{kind}",), rows=slice(width, 3 * width)),
            Rename(f"{ours}.out_proj.{kind}", (f"{theirs}.out_proj.{kind}",)),
        )
    ]


def _kinds(config: TransformerConfig) -> tuple[str, ...]:
    return ("weight", "bias") if config.attention_bias else ("weight",)


def _both(ours: str, theirs: str) -> list[Rename]:
    return [Rename(f"{ours}.{kind}", (f"{theirs}.{kind}",)) for kind in ("weight", "bias")]
