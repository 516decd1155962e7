"""Import tokenizers of Hugging Face folders from their files alone.

    tokenizer.json                                 takes precedence, for every family
    vocab.json, merges.txt                         GPT-2
    vocab.txt                                      BERT
    spiece.model                                   T5
    source.spm, target.spm, vocab.json             Marian
    sentencepiece.bpe.model, vocab.json            M2M100
    tokenizer.model                                Llama 2

Tokens and texts equal those of `transformers` with the same files, except that special tokens are not parsed from text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from transduce.config import Table
from transduce.errors import ModelFolderError, SettingsError, suggestion
from transduce.interop.huggingface.folder import HuggingFaceFolder
from transduce.interop.huggingface.tokenizer_files import (
    TOKENIZER,
    VOCABULARY,
    TokenizerSettings,
    bert_codec,
    count_pieces,
    gpt2_codec,
    library_codec,
    sentencepiece_codec,
    table_of,
)
from transduce.models.interface import VocabularySizes
from transduce.text.tokenizer.base import wrap_errors
from transduce.text.tokenizer.imported import ImportedConfig, ImportedTokenizer
from transduce.text.tokenizer.library_codec import LibraryCodec, RenumberedCodec

Pair = tuple[ImportedTokenizer, ImportedTokenizer]

M2M100_LANGUAGES = {
    "m2m100": "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr "
    "ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps "
    "pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu",
    "wmt21": "en ha is ja cs ru zh de",
}
"""Languages of M2M100 in the order of their tokens, which follow all pieces; its folders do not list them."""

MARIAN_TAG, NLLB_TAG = re.compile(r">>[^<>]+<<"), re.compile(r"[a-z]{3}_[A-Z][a-z]{3}")
EXTRA = re.compile(r"<extra_id_(\d{1,6})>")
"""T5's sentinels."""
MAX_EXTRA = 10_000
SPIECE, TARGET_VOCABULARY = "spiece.model", "target_vocab.json"
TARGET = "target_tokenizer/"
"""Folder of the target tokenizer in an export with two tokenizers."""

_SENTENCES = {"eos": "</s>", "unk": "<unk>", "pad": "<pad>"}
DEFAULT_PIECES: dict[str, dict[str, str]] = {
    "marian": _SENTENCES,
    "m2m_100": {**_SENTENCES, "bos": "<s>"},
    "nllb": {**_SENTENCES, "bos": "<s>", "mask": "<mask>"},
    "pegasus": _SENTENCES,
    "t5": _SENTENCES,
    "bert": {"cls": "[CLS]", "sep": "[SEP]", "pad": "[PAD]", "unk": "[UNK]", "mask": "[MASK]"},
    "gpt2": dict.fromkeys(("bos", "eos", "unk"), "<|endoftext|>"),
    "llama": {"bos": "<s>", "eos": "</s>", "unk": "<unk>"},
}
"""Default special tokens of each family by role, for folders that do not name them."""

START_ROLES: dict[str, tuple[str, ...]] = {
    "marian": ("decoder_start", "pad"),
    "m2m_100": ("decoder_start", "eos"),
    "nllb": ("decoder_start", "eos"),
    "pegasus": ("decoder_start", "pad"),
    "t5": ("decoder_start", "pad"),
    "bert": ("cls",),
    "gpt2": ("bos", "eos"),
    "llama": ("bos", "eos"),
}
"""Roles of the start token, in order of preference."""


@dataclass(frozen=True)
class _Parts:
    """What the files of a tokenizer determine."""

    codec: LibraryCodec | RenumberedCodec
    prefix: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()
    tags: dict[str, int] = field(default_factory=dict)
    reads_tags: bool = False
    readable: dict[str, int] = field(default_factory=dict)


def import_tokenizers(
    folder: HuggingFaceFolder,
    sizes: VocabularySizes | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
) -> Pair:
    """Return the source and target tokenizers of a folder; the same object if they do not differ.

    `sizes` are the rows of the model's embeddings, by default those of `config.json`. The languages of a multilingual
    model are given by its own names ("deu_Latn"), or without the marks around them ("de" for "__de__").
    """
    family = _architecture(folder)
    settings = TokenizerSettings(folder, DEFAULT_PIECES[family])
    rows = sizes or _sizes(settings)
    settings.for_vocabulary(max(rows))
    with wrap_errors(str(folder.path), "a folder with a readable tokenizer", "download the whole folder again"):
        if folder.find(TOKENIZER) is None and family == "marian":
            source = _build(family, settings, _marian(settings, "source"), rows.source)
            target = _build(family, settings, _marian(settings, "target"), rows.target)
        else:
            source = target = _build(family, settings, _one_for_both(family, settings), rows.source)
        if folder.find(TARGET + TOKENIZER) is not None:
            own = TokenizerSettings(folder, DEFAULT_PIECES[family], inside=TARGET).for_vocabulary(rows.target)
            target = _build(family, own, _library(family, own), rows.target)
    if source.tags:
        source, target = _with_languages(source, target, source_language, target_language)
    elif source_language or target_language:
        raise SettingsError(f"{folder.path}: the model has no language tags; leave out the languages")
    return source.sides() if source is target else (source, target)


def _architecture(folder: HuggingFaceFolder) -> str:
    named = folder.config.get("model_type")
    if named == "m2m_100" and folder.find(TOKENIZER) is not None:
        return "nllb"
    if not isinstance(named, str) or named not in DEFAULT_PIECES:
        shown = str(named)[:40]
        known = suggestion(shown, DEFAULT_PIECES.keys() - {"nllb"})
        raise ModelFolderError(f"{folder.path}: tokenizers of model type {shown!r} are not supported{known}")
    return named


def _sizes(settings: TokenizerSettings) -> VocabularySizes:
    rows = settings.integer("vocab_size")
    if rows is None:
        raise ModelFolderError(f"{settings.where}: has no vocab_size; take config.json from the same checkpoint")
    return VocabularySizes(rows, settings.integer("decoder_vocab_size") or rows)


def _build(family: str, settings: TokenizerSettings, parts: _Parts, size: int) -> ImportedTokenizer:
    codec, names = parts.codec, _tokens(parts.codec)
    end = settings.token(names, "sep" if family == "bert" else "eos")
    pad = settings.token(names, "pad", "eos")
    forced = settings.integer("forced_bos_token_id")
    table: Table = {
        "family": family,
        "size": size,
        "pad": pad,
        "start": settings.token(names, *START_ROLES[family]),
        "end": end,
        "unknown": codec.unknown,
        "mask": names.get(settings.piece("mask") or ""),
        "prefix": parts.prefix,
        "suffix": parts.suffix,
        "target_prefix": (forced,) if forced in parts.tags.values() else (),
        "skipped": tuple(sorted(token for token in {*codec.special, pad, end} if token < size)),
        "tags": parts.tags,
        "reads_tags": parts.reads_tags,
        "readable": parts.readable,
        "clean_up": settings.flag("clean_up_tokenization_spaces", default=False) and codec.kind != "BPE",
        "files": settings.files,
    }
    return ImportedTokenizer(ImportedConfig.from_table(table, "its tokens"), codec)


def _tokens(codec: LibraryCodec | RenumberedCodec) -> dict[str, int]:
    return {piece: token for token, piece in codec.names.items()}


def _one_for_both(family: str, settings: TokenizerSettings) -> _Parts:
    if settings.has(TOKENIZER):
        return _library(family, settings)
    if family not in READERS:
        raise ValueError(f"a {family} folder needs a {TOKENIZER}")
    return READERS[family](settings)


def _library(family: str, settings: TokenizerSettings) -> _Parts:
    """Read `tokenizer.json`, which has its own post-processor."""
    codec = library_codec(settings)
    special = {codec.names[token]: token for token in sorted(codec.special)}
    pattern = {"nllb": NLLB_TAG, "marian": MARIAN_TAG}.get(family)
    tags = {} if pattern is None else {name: token for name, token in special.items() if pattern.fullmatch(name)}
    extra = sorted((int(found[1]), name) for name in special if family == "t5" and (found := EXTRA.fullmatch(name)))
    readable = {name: special[name] for _, name in extra}
    return replace(_with_frame(codec), tags=tags, reads_tags=family == "marian", readable=readable)


def _bert(settings: TokenizerSettings) -> _Parts:
    return _with_frame(bert_codec(settings))


def _gpt2(settings: TokenizerSettings) -> _Parts:
    return _with_frame(gpt2_codec(settings))


def _with_frame(codec: LibraryCodec) -> _Parts:
    prefix, suffix = codec.frame
    return _Parts(codec, tuple(prefix), tuple(suffix))


def _llama(settings: TokenizerSettings) -> _Parts:
    codec = sentencepiece_codec(settings, "tokenizer.model")
    names = _tokens(codec)
    prefix = (settings.token(names, "bos"),) if settings.flag("add_bos_token", default=True) else ()
    suffix = (settings.token(names, "eos"),) if settings.flag("add_eos_token", default=False) else ()
    return _Parts(codec, prefix, suffix)


def _t5(settings: TokenizerSettings) -> _Parts:
    """Read a SentencePiece model; the sentinels follow its pieces, the first one last."""
    extra = settings.get("extra_ids", 100)
    if type(extra) is not int or not 0 <= extra <= MAX_EXTRA:
        raise ValueError(f"extra_ids = {extra!r} is out of range")
    last = count_pieces(settings, SPIECE) + extra - 1
    readable = {f"<extra_id_{number}>": last - number for number in range(extra)}
    codec = sentencepiece_codec(settings, SPIECE, further=readable)
    return _Parts(codec, (), (settings.token(_tokens(codec), "eos"),), readable=readable)


def _marian(settings: TokenizerSettings, side: str) -> _Parts:
    """Read a SentencePiece model for each side, with one vocabulary for both or one each."""
    apart = side == "target" and settings.flag("separate_vocabs", default=False)
    vocabulary = table_of(settings, TARGET_VOCABULARY if apart else VOCABULARY)
    codec = sentencepiece_codec(settings, f"{side}.spm", vocabulary, trim=True)
    tags = {piece: token for piece, token in vocabulary.items() if MARIAN_TAG.fullmatch(piece) and not apart}
    return _Parts(codec, (), (settings.token(vocabulary, "eos"),), tags, reads_tags=side == "source")


def _m2m100(settings: TokenizerSettings) -> _Parts:
    """Read a SentencePiece model with fairseq's vocabulary; the languages follow its pieces."""
    vocabulary = table_of(settings, VOCABULARY)
    named = settings.get("language_codes", "m2m100")
    if named not in M2M100_LANGUAGES:
        raise ValueError(
            f"language_codes = {str(named)[:40]!r} is not supported{suggestion(str(named)[:40], M2M100_LANGUAGES)}"
        )
    codes = M2M100_LANGUAGES[named].split()
    tags = {f"__{code}__": len(vocabulary) + number for number, code in enumerate(codes)}
    source_tag = tags.get(f"__{settings.text('src_lang') or 'en'}__", tags["__en__"])
    codec = sentencepiece_codec(settings, "sentencepiece.bpe.model", vocabulary, tags, trim=True)
    return _Parts(codec, (source_tag,), (settings.token(vocabulary, "eos"),), tags)


READERS: dict[str, Callable[[TokenizerSettings], _Parts]] = {
    "m2m_100": _m2m100,
    "t5": _t5,
    "bert": _bert,
    "gpt2": _gpt2,
    "llama": _llama,
}
"""Import functions for folders without `tokenizer.json`; Marian has one tokenizer per side."""


def _with_languages(
    source: ImportedTokenizer, target: ImportedTokenizer, source_language: str | None, target_language: str | None
) -> Pair:
    """Select languages. Marian tags the source with the target language; the others tag each side with its own."""
    before, target_prefix = (
        None if language is None else _tag(source, language) for language in (source_language, target_language)
    )
    if source.config.family == "marian":
        if before is not None:
            raise SettingsError("a Marian model has no source language tag; leave out the source language")
        return (source if target_prefix is None else source.with_languages(before=target_prefix)), target
    both = source.with_languages(before, target_prefix)
    return both, both


def _tag(tokenizer: ImportedTokenizer, language: str) -> str:
    """Return the tag of a language, which may be given without its marks."""
    for tag in (language, f"__{language}__", f">>{language}<<"):
        if tag in tokenizer.tags:
            return tag
    in_scripts = [tag for tag in tokenizer.tags if tag.startswith(f"{language}_")]
    if len(in_scripts) == 1:
        return in_scripts[0]
    raise SettingsError(f"the model has no language '{language}'{suggestion(language, tokenizer.tags)}")
