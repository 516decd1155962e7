"""Export tokenizers to files that `transformers` loads: ours as `tokenizer.json`, imported ones as they came.

It then gives the same texts, and tokens with the special tokens that the model expects: end appended for translation,
start and end for text encoders, end prepended for language models. With two tokenizers, the target's is in a subfolder:
`AutoTokenizer.from_pretrained(folder, subfolder="target_tokenizer")`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from transduce.config import Table
from transduce.errors import SettingsError
from transduce.interop.huggingface.tokenizer import SPIECE, TARGET, TARGET_VOCABULARY
from transduce.interop.huggingface.tokenizer_files import (
    SPECIAL_TOKENS,
    TOKENIZER,
    TOKENIZER_CONFIG,
    VOCABULARY,
    template,
)
from transduce.storage.atomic import write_json
from transduce.text.tokenizer import AnyTokenizer
from transduce.text.tokenizer.imported import ImportedTokenizer, SettingsFile
from transduce.text.tokenizer.library_codec import RenumberedCodec
from transduce.text.tokenizer.special import END, PAD, START, UNKNOWN
from transduce.text.tokenizer.tokenizer import Tokenizer

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
