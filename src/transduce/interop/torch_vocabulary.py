"""The vocabulary beside weights of `torch.nn.Transformer`: a `vocab.json` of characters or words, one for both sides.

`config.json` says what frames a sentence: `{"tokens": "characters", "pad": "<PAD>", "start": "<SOS>", "end": "<EOS>",
"unknown": "<UNK>"}`; `tokens` may be "words", which spaces set apart.
"""

from __future__ import annotations

import json

import tokenizers
from tokenizers import Regex, decoders, models, pre_tokenizers

from transduce.errors import ModelFolderError
from transduce.interop.huggingface.family import Settings
from transduce.interop.huggingface.folder import ForeignFolder
from transduce.models.interface import VocabularySizes
from transduce.text.imported_tokenizer import ImportedConfig, ImportedTokenizer
from transduce.text.library_codec import LibraryCodec

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
        family="torch", size=sizes.target, pad=pad, start=start, end=end, unknown=unknown, silent=silent
    )
    tokenizer = ImportedTokenizer(known, codec)
    return tokenizer, tokenizer
