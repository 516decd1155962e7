"""Our models as folders that Hugging Face's `transformers` loads, with the same answers.

A family is chosen by what a model is made of; what none of them has is refused with the reason. Where a family has
biases and our model has none, they are zeros. Sinusoids are laid out in another way there, so the folder brings them as
a table.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from transduce.config import Config, Table
from transduce.errors import SettingsError
from transduce.interop.huggingface.bert import BERT, HEAD_BENDS
from transduce.interop.huggingface.family import BENDS, Family
from transduce.interop.huggingface.folder import CONFIG
from transduce.interop.huggingface.generation import write_generation
from transduce.interop.huggingface.language_model import GPT2, LLAMA
from transduce.interop.huggingface.rename import write_renamed
from transduce.interop.huggingface.seq2seq import FAIRSEQ_PAD, M2M100, MARIAN, PEGASUS
from transduce.interop.huggingface.t5 import T5
from transduce.interop.huggingface.tokenizer_export import Frame, export_tokenizers
from transduce.interop.import_model import GENERATION, HABITS, OUR_HABITS
from transduce.model_folder import ModelFolder, save_weights, weights_of
from transduce.models import catalog
from transduce.models.bert import BertConfig
from transduce.models.block import SINUSOIDS, BlockConfig
from transduce.models.gpt import GptConfig
from transduce.models.interface import EncoderModel, LanguageModel, Model
from transduce.models.t5 import T5Config
from transduce.models.transformer import TransformerConfig
from transduce.storage.atomic import atomic_folder
from transduce.storage.json_file import write_json
from transduce.storage.layout import MODEL_CARD, WEIGHTS

MOST_TOKENS = 513
"""Of a translation, its start among them; told nothing, `transformers` stops at 20."""


class Target(NamedTuple):
    """A family, and our settings as it would have them."""

    family: Family
    config: Config


class Theirs(NamedTuple):
    """A model as `transformers` has it: its class, its settings without those of a tokenizer, and its weights."""

    architecture: str
    settings: Table
    weights: dict[str, Tensor]


def as_theirs(model: Model, config: Config, pad: int = FAIRSEQ_PAD) -> Theirs:
    """Return a model by the names and shapes of the family that can express it; `pad` is its padding's token."""
    family, config = target_of(config, pad)
    with torch.device("meta"):
        shapes = {name: weight.shape for name, weight in weights_of(catalog.build(config, model.sizes)).items()}
    own = weights_of(model)
    weights = {name: own[name].float().cpu() if name in own else torch.zeros(shape) for name, shape in shapes.items()}
    written = write_renamed(family.renames(config), weights) | family.added(config, weights)
    settings = family.write(config, model.sizes)
    (architecture,) = settings.setdefault("architectures", [family.architecture])
    return Theirs(architecture, settings, written)


def export(contents: ModelFolder, folder: Path) -> None:
    """Write a folder that `transformers` loads, whole or not at all."""
    architecture, settings, weights = as_theirs(contents.model, contents.config, contents.source_tokenizer.pad)
    with atomic_folder(folder) as temporary:
        save_weights(temporary / WEIGHTS, weights)
        write_json(temporary / CONFIG, {**settings, **_further(contents)})
        if not isinstance(contents.model, EncoderModel):
            write_json(temporary / GENERATION, _generation(contents, settings.get("max_position_embeddings")))
        export_tokenizers(contents.source_tokenizer, contents.target_tokenizer, temporary, _frame(contents))
        card = f"---\nlibrary_name: transformers\n---\n\nA {architecture}, exported from transduce.\n"
        (temporary / MODEL_CARD).write_text(card, encoding="utf-8")


def target_of(config: Config, pad: int = FAIRSEQ_PAD) -> Target:
    """Return the family that can express a model, or say why none can."""
    if isinstance(config, BlockConfig):
        _refuse(config, attention=("full",))
    if isinstance(config, T5Config):
        return _t5(config)
    if isinstance(config, TransformerConfig):
        return _encoder_decoder(config, pad)
    if isinstance(config, GptConfig):
        return _language_model(config)
    if isinstance(config, BertConfig):
        return _reader(config)
    raise SettingsError(
        f"Hugging Face's transformers have no place for the model '{catalog.name_of(config)}'; Transformers, "
        "T5, GPT and BERT are exported"
    )


def _t5(config: T5Config) -> Target:
    _refuse_widths(config)
    _refuse(
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
    return Target(T5, config)


def _encoder_decoder(config: TransformerConfig, pad: int) -> Target:
    _refuse_shared(config)
    _refuse(
        config,
        decoder_attention=(None, "full"),
        norm_kind=("layer",),
        norm_eps=(1e-5,),
        activation=tuple(BENDS.values()),
        ffn_bias=(None, True),
        scale_attention=(True,),
        scale_output=(False,),
        final_norm=(None, config.norm == "pre"),
        positions=(*SINUSOIDS, "learned"),
    )
    full = config.but(attention_bias=True)
    if config.norm == "post":
        _refuse(config, tied_embeddings=("all", "target"))
        return Target(MARIAN, full.but(output_bias=True))
    _refuse(config, tied_embeddings=("all",))
    if config.positions == "sinusoidal_fairseq" and not config.output_bias and pad == FAIRSEQ_PAD:
        return Target(M2M100, full)
    return Target(PEGASUS, full.but(output_bias=True))


def _language_model(config: GptConfig) -> Target:
    _refuse(config, norm=("pre",), final_norm=(None, True), output_bias=(False,))
    if config.positions == "rotary":
        _refuse_widths(config)
        _refuse(config, norm_kind=("rms",), activation=("swiglu",), ffn_bias=(None, False), scale_attention=(True,))
        return Target(LLAMA, config)
    _refuse(config, positions=("learned",), norm_kind=("layer",), activation=tuple(BENDS.values()))
    _refuse_shared(config)
    return Target(GPT2, config.but(attention_bias=True, ffn_bias=None))


def _reader(config: BertConfig) -> Target:
    _refuse_shared(config)
    bends = HEAD_BENDS if config.head == "language" else tuple(BENDS.values())
    _refuse(config, norm_kind=("layer",), activation=bends, scale_attention=(True,))
    return Target(BERT, config.but(attention_bias=True, ffn_bias=None))


def _refuse_shared(config: BlockConfig) -> None:
    """Say no to heads of other widths than the model's own, and to those that share keys."""
    usual = config.model_dim // config.num_heads
    _refuse(config, key_value_heads=(None, config.num_heads), key_dim=(None, usual), value_dim=(None, usual))


def _refuse_widths(config: BlockConfig) -> None:
    """Say no to keys and values of two widths: theirs have one number for both."""
    key_dim, value_dim = config.head_dims
    if key_dim != value_dim:
        raise SettingsError(
            f"no architecture of Hugging Face's has keys of {key_dim} and values of {value_dim} in one head; train "
            "with key_dim and value_dim alike"
        )


def _refuse(config: Config, **possible: tuple[object, ...]) -> None:
    for name, values in possible.items():
        if getattr(config, name) not in values:
            listed = ", ".join(str(value) for value in dict.fromkeys(values) if value is not None)
            raise SettingsError(
                f"no architecture of Hugging Face's has {name} = {getattr(config, name)} in such a model; "
                f"it could be {listed}"
            )


def _frame(contents: ModelFolder) -> Frame:
    """What the model reads around a text."""
    if isinstance(contents.model, EncoderModel):
        return "both"
    if not isinstance(contents.model, LanguageModel):
        return "end behind"
    known: dict[str, Frame] = {"start": "start before", "nothing": "none"}
    return known.get(str(contents.notes.get("opens_with")), "end before")


def _further(contents: ModelFolder) -> Table:
    """Settings that follow from the tokenizers and labels."""
    if not isinstance(contents.model, EncoderModel):
        return _special(contents) | {"dtype": "float32"}
    table: Table = {"pad_token_id": contents.source_tokenizer.pad, "dtype": "float32"}
    labels = contents.notes.get("labels")
    if isinstance(labels, list):
        table["id2label"] = {str(number): str(name) for number, name in enumerate(labels)}
        table["label2id"] = {str(name): number for number, name in enumerate(labels)}
    kept = {name: contents.notes[name] for name in HABITS if contents.notes.get(name) is not None}
    return {**table, **({OUR_HABITS: kept} if kept else {})}


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
    wishes = write_generation(search) if isinstance(search, dict) else {}
    if not isinstance(contents.model, LanguageModel):  # for whom it is the prompter's to say
        wishes.setdefault("max_new_tokens", min(positions or MOST_TOKENS, MOST_TOKENS) - 1)
    never = {contents.target_tokenizer.pad, contents.target_tokenizer.start} - {contents.target_tokenizer.end}
    banned = (
        {} if isinstance(contents.model, LanguageModel) else {"bad_words_ids": [[token] for token in sorted(never)]}
    )
    return {**wishes, **_special(contents), **banned, "transformers_version": "5.0.0"}
