"""Export models to folders that Hugging Face's `transformers` loads, with the same outputs.

The architecture is chosen by the model's config; a config that no architecture can express is an error with the reason.
Biases that the architecture has and our model lacks are zeros. `transformers` lays sinusoids out differently, so the
folder stores them as a table.

Tokenizers are exported too: ours as `tokenizer.json`, imported ones as they came. They give the same texts, and tokens
with the special tokens that the model expects: end appended for translation, start and end for text encoders, end
prepended for language models. With two tokenizers, the target's is in a subfolder:
`AutoTokenizer.from_pretrained(folder, subfolder="target_tokenizer")`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from transduce.config import Config, Table
from transduce.errors import SettingsError
from transduce.inference.export_card import Usage, huggingface_usage, readme
from transduce.interop.huggingface.architecture import ACTIVATIONS, Architecture, export_mapped
from transduce.interop.huggingface.bert import BERT, HEAD_ACTIVATIONS
from transduce.interop.huggingface.folder import CONFIG
from transduce.interop.huggingface.generation import write_generation
from transduce.interop.huggingface.language_model import GPT2, LLAMA
from transduce.interop.huggingface.seq2seq import FAIRSEQ_PAD, M2M100, MARIAN, PEGASUS
from transduce.interop.huggingface.t5 import T5
from transduce.interop.huggingface.tokenizer import SPIECE, TARGET, TARGET_VOCABULARY
from transduce.interop.huggingface.tokenizer_files import (
    SPECIAL_TOKENS,
    TOKENIZER,
    TOKENIZER_CONFIG,
    VOCABULARY,
    template,
)
from transduce.interop.import_model import ENCODER_NOTES, GENERATION, TRANSDUCE_KEY
from transduce.model_folder import ModelFolder, save_weights, weights_of
from transduce.models import catalog
from transduce.models.bert import BertConfig
from transduce.models.block import SINUSOIDS, BlockConfig
from transduce.models.gpt import GptConfig
from transduce.models.interface import EncoderModel, LanguageModel, Model
from transduce.models.t5 import T5Config
from transduce.models.transformer import TransformerConfig
from transduce.storage.atomic import atomic_folder, write_json
from transduce.storage.layout import MODEL_CARD, WEIGHTS
from transduce.text.tokenizer import AnyTokenizer
from transduce.text.tokenizer.imported import ImportedTokenizer, SettingsFile
from transduce.text.tokenizer.library_codec import RenumberedCodec
from transduce.text.tokenizer.special import END, PAD, START, UNKNOWN
from transduce.text.tokenizer.tokenizer import Tokenizer

# Tokenizers.

MODEL_FILES = {"m2m_100": "sentencepiece.bpe.model", "t5": SPIECE, "llama": "tokenizer.model"}
"""File name of each family's SentencePiece model."""

ROLES = {PAD: "pad_token", START: "bos_token", END: "eos_token", "<mask>": "mask_token"}

ENCODER_ROLES = {"cls_token": START, "sep_token": END}
"""Further roles of the special tokens of text encoders."""

Frame = Literal["append end", "prepend end", "prepend start", "both", "none"]
"""Special tokens that a model expects around a text. An imported tokenizer has its own."""


def export_tokenizers(source: AnyTokenizer, target: AnyTokenizer, folder: Path, frame: Frame = "append end") -> None:
    """Write the files of a model's tokenizers into an existing folder."""
    if isinstance(source, ImportedTokenizer) and isinstance(source.codec, RenumberedCodec):
        _write_models(source, target, folder)
        return
    _write_one(source, folder, frame)
    if target is not source and target.to_json() != source.to_json():
        (folder / TARGET).mkdir()
        _write_one(target, folder / TARGET, frame)


def _write_one(tokenizer: AnyTokenizer, folder: Path, frame: Frame) -> None:
    if isinstance(tokenizer, Tokenizer):
        content, files = _own(tokenizer, frame)
    else:
        content, files = tokenizer.codec.to_table()["tokenizer"], tokenizer.config.files
    write_json(folder / TOKENIZER, content)
    for name, table in files.items():
        write_json(folder / name, table)


def _own(tokenizer: Tokenizer, frame: Frame) -> tuple[Table, dict[SettingsFile, Table]]:
    """Convert one of our tokenizers: NFC first, special tokens added last, none parsed from text.

    The unknown token is not marked special, so that it stays visible in decoded text.
    """
    content: Table = json.loads(tokenizer.to_json())
    content["added_tokens"] = [token for token in content["added_tokens"] if token["content"] != UNKNOWN]
    own = content["normalizer"]
    content["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "NFC"}, *([] if own is None else [own])]}
    before = {"prepend end": [(END, tokenizer.end)], "prepend start": [(START, tokenizer.start)]}
    before["both"] = before["prepend start"]
    behind = [(END, tokenizer.end)] if frame in ("append end", "both") else []
    content["post_processor"] = template(before.get(frame, []), behind)
    special = [token["content"] for token in content["added_tokens"] if token["special"]]
    named: Table = {ROLES[piece]: piece for piece in special if piece in ROLES}
    if frame == "both":
        named |= ENCODER_ROLES
    if others := [piece for piece in special if piece not in ROLES]:
        named["additional_special_tokens"] = others
    settings: Table = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **named,
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": True,
    }
    if frame == "both":
        settings["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    return content, {TOKENIZER_CONFIG: settings, SPECIAL_TOKENS: named}


def _write_models(source: ImportedTokenizer, target: AnyTokenizer, folder: Path) -> None:
    """Write the original SentencePiece models with their vocabularies."""
    family = source.config.family
    sides = {MODEL_FILES[family]: source} if family in MODEL_FILES else {"source.spm": source, "target.spm": target}
    tables: list[Table] = []
    for name, tokenizer in sides.items():
        codec = tokenizer.codec if isinstance(tokenizer, ImportedTokenizer) else None
        if not isinstance(codec, RenumberedCodec):
            raise SettingsError(
                "a SentencePiece tokenizer cannot be exported together with a tokenizer of another kind"
            )
        (folder / name).write_bytes(codec.model_file)
        if codec.vocabulary is not None and codec.vocabulary not in tables:
            tables.append(codec.vocabulary)
    for name, table in zip((VOCABULARY, TARGET_VOCABULARY), tables, strict=False):
        write_json(folder / name, table)
    for name, table in source.config.files.items():
        write_json(folder / name, table)


MOST_TOKENS = 513
"""Default maximum length of a translation, start token included; without one, `transformers` stops at 20."""


class ExportTarget(NamedTuple):
    """An architecture, and our config in the form that it can express."""

    architecture: Architecture
    config: Config


class HuggingFaceModel(NamedTuple):
    """A model as `transformers` represents it: class, config without the tokenizer's settings, and weights."""

    class_name: str
    settings: Table
    weights: dict[str, Tensor]


def to_huggingface(model: Model, config: Config, pad: int = FAIRSEQ_PAD) -> HuggingFaceModel:
    """Return a model under the names and shapes of the architecture that can express it."""
    architecture, config = choose_architecture(config, pad)
    with torch.device("meta"):
        shapes = {name: weight.shape for name, weight in weights_of(catalog.build(config, model.sizes)).items()}
    own = weights_of(model)
    weights = {name: own[name].float().cpu() if name in own else torch.zeros(shape) for name, shape in shapes.items()}
    written = export_mapped(architecture.weight_map(config), weights) | architecture.added(config, weights)
    settings = architecture.write(config, model.sizes)
    (class_name,) = settings.setdefault("architectures", [architecture.class_name])
    return HuggingFaceModel(class_name, settings, written)


def export(contents: ModelFolder, folder: Path) -> Usage:
    """Write a folder that `transformers` loads, atomically; return how to use it, as its README says."""
    usage = huggingface_usage(contents, folder)
    _, settings, weights = to_huggingface(contents.model, contents.config, contents.source_tokenizer.pad)
    with atomic_folder(folder) as temporary:
        save_weights(temporary / WEIGHTS, weights)
        write_json(temporary / CONFIG, {**settings, **_further(contents)})
        if not isinstance(contents.model, EncoderModel):
            write_json(temporary / GENERATION, _generation(contents, settings.get("max_position_embeddings")))
        export_tokenizers(contents.source_tokenizer, contents.target_tokenizer, temporary, _frame(contents))
        card = readme(contents, "Hugging Face's transformers", usage, "transformers")
        (temporary / MODEL_CARD).write_text(card, encoding="utf-8")
    return usage


def choose_architecture(config: Config, pad: int = FAIRSEQ_PAD) -> ExportTarget:
    """Return the architecture that can express a model; an error says why none can."""
    if isinstance(config, BlockConfig):
        _check(config, attention=("full",))
    if isinstance(config, T5Config):
        return _t5(config)
    if isinstance(config, TransformerConfig):
        return _encoder_decoder(config, pad)
    if isinstance(config, GptConfig):
        return _language_model(config)
    if isinstance(config, BertConfig):
        return _text_encoder(config)
    raise SettingsError(
        f"a model of type '{catalog.name_of(config)}' cannot be exported to Hugging Face; "
        "Transformer, T5, GPT and BERT can"
    )


def _t5(config: T5Config) -> ExportTarget:
    _check_widths(config)
    _check(
        config,
        decoder_attention=(None, "full"),
        norm=("pre",),
        final_norm=(None, True),
        norm_kind=("rms",),
        key_value_heads=(None, config.num_heads),
        activation=("relu", "geglu", "swiglu"),
        ffn_bias=(False, None) if config.is_gated else (False,),
        attention_bias=(False,),
        scale_attention=(False,),
        scale_embeddings=(False,),
        output_bias=(False,),
        tied_embeddings=("all", "sides"),
    )
    return ExportTarget(T5, config)


def _encoder_decoder(config: TransformerConfig, pad: int) -> ExportTarget:
    _check_heads(config)
    _check(
        config,
        decoder_attention=(None, "full"),
        norm_kind=("layer",),
        norm_eps=(1e-5,),
        activation=tuple(ACTIVATIONS.values()),
        ffn_bias=(None, True),
        scale_attention=(True,),
        scale_output=(False,),
        final_norm=(None, config.norm == "pre"),
        positions=(*SINUSOIDS, "learned"),
    )
    full = config.but(attention_bias=True)
    if config.norm == "post":
        _check(config, tied_embeddings=("all", "target"))
        return ExportTarget(MARIAN, full.but(output_bias=True))
    _check(config, tied_embeddings=("all",))
    if config.positions == "sinusoidal_fairseq" and not config.output_bias and pad == FAIRSEQ_PAD:
        return ExportTarget(M2M100, full)
    return ExportTarget(PEGASUS, full.but(output_bias=True))


def _language_model(config: GptConfig) -> ExportTarget:
    _check(config, norm=("pre",), final_norm=(None, True), output_bias=(False,))
    if config.positions == "rotary":
        _check_widths(config)
        _check(config, norm_kind=("rms",), activation=("swiglu",), ffn_bias=(None, False), scale_attention=(True,))
        return ExportTarget(LLAMA, config)
    _check(config, positions=("learned",), norm_kind=("layer",), activation=tuple(ACTIVATIONS.values()))
    _check_heads(config)
    return ExportTarget(GPT2, config.but(attention_bias=True, ffn_bias=None))


def _text_encoder(config: BertConfig) -> ExportTarget:
    _check_heads(config)
    activations = HEAD_ACTIVATIONS if config.head == "language" else tuple(ACTIVATIONS.values())
    _check(config, norm_kind=("layer",), activation=activations, scale_attention=(True,))
    return ExportTarget(BERT, config.but(attention_bias=True, ffn_bias=None))


def _check_heads(config: BlockConfig) -> None:
    """Check that heads have the default width and do not share keys and values."""
    width = config.model_dim // config.num_heads
    _check(config, key_value_heads=(None, config.num_heads), key_dim=(None, width), value_dim=(None, width))


def _check_widths(config: BlockConfig) -> None:
    """Check that keys and values have the same width: `transformers` has one setting for both."""
    key_dim, value_dim = config.head_dims
    if key_dim != value_dim:
        raise SettingsError(
            f"key_dim = {key_dim} and value_dim = {value_dim} cannot be exported to Hugging Face; "
            "train with equal key_dim and value_dim"
        )


def _check(config: Config, **possible: tuple[object, ...]) -> None:
    for name, values in possible.items():
        if getattr(config, name) not in values:
            listed = ", ".join(str(value) for value in dict.fromkeys(values) if value is not None)
            raise SettingsError(
                f"{name} = {getattr(config, name)} cannot be exported to Hugging Face for this model; "
                f"supported: {listed}"
            )


def _frame(contents: ModelFolder) -> Frame:
    """Which special tokens the model reads around a text."""
    if isinstance(contents.model, EncoderModel):
        return "both"
    if not isinstance(contents.model, LanguageModel):
        return "append end"
    known: dict[str, Frame] = {"start": "prepend start", "nothing": "none"}
    return known.get(str(contents.notes.get("prompt_start")), "prepend end")


def _further(contents: ModelFolder) -> Table:
    """Settings that depend on the tokenizers and labels."""
    if not isinstance(contents.model, EncoderModel):
        return _special(contents) | {"dtype": "float32"}
    table: Table = {"pad_token_id": contents.source_tokenizer.pad, "dtype": "float32"}
    labels = contents.notes.get("labels")
    if isinstance(labels, list):
        table["id2label"] = {str(number): str(name) for number, name in enumerate(labels)}
        table["label2id"] = {str(name): number for number, name in enumerate(labels)}
    kept = {name: contents.notes[name] for name in ENCODER_NOTES if contents.notes.get(name) is not None}
    return {**table, **({TRANSDUCE_KEY: kept} if kept else {})}


def _special(contents: ModelFolder) -> Table:
    target = contents.target_tokenizer
    if isinstance(contents.model, LanguageModel):
        return {"bos_token_id": target.start, "eos_token_id": target.end, "pad_token_id": target.pad}
    return {
        "bos_token_id": target.start,
        "eos_token_id": target.end,
        "pad_token_id": target.pad,
        "decoder_start_token_id": target.start,
        "forced_eos_token_id": None,
    }


def _generation(contents: ModelFolder, positions: int | None) -> Table:
    search = contents.notes.get("search")
    settings = write_generation(search) if isinstance(search, dict) else {}
    if not isinstance(contents.model, LanguageModel):  # whose length depends on the prompt
        settings.setdefault("max_new_tokens", min(positions or MOST_TOKENS, MOST_TOKENS) - 1)
    never = {contents.target_tokenizer.pad, contents.target_tokenizer.start} - {contents.target_tokenizer.end}
    banned = (
        {} if isinstance(contents.model, LanguageModel) else {"bad_words_ids": [[token] for token in sorted(never)]}
    )
    return {**settings, **_special(contents), **banned, "transformers_version": "5.0.0"}
