"""Our models as folders of CTranslate2, a fast engine for CPUs and GPUs (extra `fast`).

Written through its own specification API (`spec.py`), so that whatever reads its folders reads these: `Translator` the
encoder-decoders, `Generator` the language models, `Encoder` the text encoders.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Literal

from torch import nn

from transduce.config import Table
from transduce.errors import SettingsError
from transduce.inference.ctranslate2.spec import library, model_rejection, spec_of
from transduce.model_folder import ModelFolder, save_tokenizers
from transduce.models.transformer import Transformer
from transduce.storage.atomic import atomic_folder, write_json
from transduce.storage.layout import CTRANSLATE2_KIND
from transduce.storage.manifest import write_manifest
from transduce.text.shortlist import Shortlist
from transduce.text.tokenizer import AnyTokenizer

NOTES = "transduce.json"
Quantization = Literal["float32", "int8", "int16", "float16", "bfloat16"]


def export(
    contents: ModelFolder,
    folder: Path,
    quantization: Quantization = "float32",
    shortlist: Shortlist | None = None,
) -> None:
    """Write a folder that CTranslate2 loads, with the tokenizers; it is complete or absent.

    A shortlist becomes its vocabulary map, used with `use_vmap`.
    """
    with atomic_folder(folder) as temporary:
        write_files(contents, temporary, quantization, shortlist)
        save_tokenizers(temporary, contents.source_tokenizer, contents.target_tokenizer)
        write_json(temporary / NOTES, {"quantization": quantization, "notes": contents.notes})
        write_manifest(temporary, CTRANSLATE2_KIND)


def write_files(
    contents: ModelFolder,
    folder: Path,
    quantization: Quantization = "float32",
    shortlist: Shortlist | None = None,
) -> None:
    """Write what CTranslate2 itself needs into an existing folder."""
    check_model(model_rejection, contents.model)
    spec = spec_of(contents.model)
    translates = isinstance(contents.model, Transformer)
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
