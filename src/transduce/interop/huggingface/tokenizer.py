"""Tokenizers of Hugging Face's folders, as ours, made of the files alone.

    tokenizer.json                                 goes before all others, whatever the family
    vocab.json, merges.txt                         GPT-2
    vocab.txt                                      BERT
    spiece.model                                   T5
    source.spm, target.spm, vocab.json             Marian
    sentencepiece.bpe.model, vocab.json            M2M100
    tokenizer.model                                Llama 2

Tokens and texts are those of `transformers` with the same files; but special pieces that it reads from text we do not.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from transduce.config import Table
from transduce.errors import ModelFolderError, SettingsError, suggestion
from transduce.interop.huggingface.folder import ForeignFolder
from transduce.interop.huggingface.tokenizer_files import (
    TOKENIZER,
    VOCABULARY,
    bert_codec,
    count_pieces,
    gpt2_codec,
    library_codec,
    sentencepiece_codec,
    table_of,
)
from transduce.interop.huggingface.tokenizer_settings import TokenizerSettings
from transduce.models.interface import VocabularySizes
from transduce.text.tokenizer.file import wrap_errors
from transduce.text.tokenizer.imported import ImportedConfig, ImportedTokenizer
from transduce.text.tokenizer.library_codec import LibraryCodec
from transduce.text.tokenizer.renumbered_codec import RenumberedCodec

Pair = tuple[ImportedTokenizer, ImportedTokenizer]

M2M100_LANGUAGES = {
    "m2m100": "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr "
    "ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps "
    "pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu",
    "wmt21": "en ha is ja cs ru zh de",
}
"""The languages of M2M100 in the order of their tokens, which stand behind all pieces; its folders do not list them."""

MARIAN_TAG, NLLB_TAG = re.compile(r">>[^<>]+<<"), re.compile(r"[a-z]{3}_[A-Z][a-z]{3}")
EXTRA = re.compile(r"<extra_id_(\d{1,6})>")
"""T5's pieces for what is left out of a text."""
MAX_EXTRA = 10_000
SPIECE, TARGET_VOCABULARY = "spiece.model", "target_vocab.json"
TARGET = "target_tokenizer/"
"""Where an export puts the tokenizer of targets, where it is another than that of sources."""

_SENTENCES = {"eos": "</s>", "unk": "<unk>", "pad": "<pad>"}
USUAL: dict[str, dict[str, str]] = {
    "marian": _SENTENCES,
    "m2m_100": {**_SENTENCES, "bos": "<s>"},
    "nllb": {**_SENTENCES, "bos": "<s>", "mask": "<mask>"},
    "pegasus": _SENTENCES,
    "t5": _SENTENCES,
    "bert": {"cls": "[CLS]", "sep": "[SEP]", "pad": "[PAD]", "unk": "[UNK]", "mask": "[MASK]"},
    "gpt2": dict.fromkeys(("bos", "eos", "unk"), "<|endoftext|>"),
    "llama": {"bos": "<s>", "eos": "</s>", "unk": "<unk>"},
}
"""Special pieces of each family by their roles, where a folder does not name them."""

STARTS: dict[str, tuple[str, ...]] = {
    "marian": ("decoder_start", "pad"),
    "m2m_100": ("decoder_start", "eos"),
    "nllb": ("decoder_start", "eos"),
    "pegasus": ("decoder_start", "pad"),
    "t5": ("decoder_start", "pad"),
    "bert": ("cls",),
    "gpt2": ("bos", "eos"),
    "llama": ("bos", "eos"),
}
"""The role of the token that stands first, or the next one where a folder has none."""


@dataclass(frozen=True)
class _Parts:
    """What the files of a family say."""

    codec: LibraryCodec | RenumberedCodec
    prefix: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()
    tags: dict[str, int] = field(default_factory=dict)
    reads_tags: bool = False
    readable: dict[str, int] = field(default_factory=dict)


def import_tokenizers(
    folder: ForeignFolder,
    sizes: VocabularySizes | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
) -> Pair:
    """Return the tokenizers of a folder's sources and targets; the same object where they do not differ.

    `sizes` are the rows of the model's tables, by default what `config.json` says. Languages are chosen where a model
    knows several: by its own names ("deu_Latn"), or without what is around them ("de" for "__de__").
    """
    family = _family(folder)
    settings = TokenizerSettings(folder, USUAL[family])
    rows = sizes or _sizes(settings)
    with wrap_errors(str(folder.path), "a folder with a tokenizer that can be read", "get the whole folder again"):
        if folder.find(TOKENIZER) is None and family == "marian":
            source = _made(family, settings, _marian(settings, "source"), rows.source)
            target = _made(family, settings, _marian(settings, "target"), rows.target)
        else:
            source = target = _made(family, settings, _one_for_both(family, settings), rows.source)
        if folder.find(TARGET + TOKENIZER) is not None:
            own = TokenizerSettings(folder, USUAL[family], inside=TARGET)
            target = _made(family, own, _library(family, own), rows.target)
    if source.tags:
        source, target = _speaking(source, target, source_language, target_language)
    elif source_language or target_language:
        raise SettingsError(f"{folder.path}: the model knows no languages by name; leave them out")
    return source.sides() if source is target else (source, target)


def _family(folder: ForeignFolder) -> str:
    named = folder.config.get("model_type")
    if named == "m2m_100" and folder.find(TOKENIZER) is not None:
        return "nllb"
    if not isinstance(named, str) or named not in USUAL:
        shown = str(named)[:40]
        known = suggestion(shown, USUAL.keys() - {"nllb"})
        raise ModelFolderError(f"{folder.path}: tokenizers of model type {shown!r} are not read{known}")
    return named


def _sizes(settings: TokenizerSettings) -> VocabularySizes:
    rows = settings.number("vocab_size")
    if rows is None:
        raise ModelFolderError(f"{settings.where}: does not say how many tokens its model knows (vocab_size)")
    return VocabularySizes(rows, settings.number("decoder_vocab_size") or rows)


def _made(family: str, settings: TokenizerSettings, parts: _Parts, size: int) -> ImportedTokenizer:
    codec, names = parts.codec, _tokens(parts.codec)
    end = settings.token(names, "sep" if family == "bert" else "eos")
    pad = settings.token(names, "pad", "eos")
    forced = settings.number("forced_bos_token_id")
    table: Table = {
        "family": family,
        "size": size,
        "pad": pad,
        "start": settings.token(names, *STARTS[family]),
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
        "clean_up": settings.flag("clean_up_tokenization_spaces", otherwise=False) and codec.kind != "BPE",
        "files": settings.files,
    }
    return ImportedTokenizer(ImportedConfig.from_table(table, "its tokens"), codec)


def _tokens(codec: LibraryCodec | RenumberedCodec) -> dict[str, int]:
    return {piece: token for token, piece in codec.names.items()}


def _one_for_both(family: str, settings: TokenizerSettings) -> _Parts:
    if settings.has(TOKENIZER):
        return _library(family, settings)
    if family not in MAKERS:
        raise ValueError(f"a folder of {family} needs a {TOKENIZER}")
    return MAKERS[family](settings)


def _library(family: str, settings: TokenizerSettings) -> _Parts:
    """`tokenizer.json`, which frames texts itself."""
    codec = library_codec(settings)
    special = {codec.names[token]: token for token in sorted(codec.special)}
    pattern = {"nllb": NLLB_TAG, "marian": MARIAN_TAG}.get(family)
    tags = {} if pattern is None else {name: token for name, token in special.items() if pattern.fullmatch(name)}
    extra = sorted((int(found[1]), name) for name in special if family == "t5" and (found := EXTRA.fullmatch(name)))
    readable = {name: special[name] for _, name in extra}
    return replace(_framed(codec), tags=tags, reads_tags=family == "marian", readable=readable)


def _bert(settings: TokenizerSettings) -> _Parts:
    return _framed(bert_codec(settings))


def _gpt2(settings: TokenizerSettings) -> _Parts:
    return _framed(gpt2_codec(settings))


def _framed(codec: LibraryCodec) -> _Parts:
    prefix, suffix = codec.frame
    return _Parts(codec, tuple(prefix), tuple(suffix))


def _llama(settings: TokenizerSettings) -> _Parts:
    codec = sentencepiece_codec(settings, "tokenizer.model")
    names = _tokens(codec)
    prefix = (settings.token(names, "bos"),) if settings.flag("add_bos_token", otherwise=True) else ()
    suffix = (settings.token(names, "eos"),) if settings.flag("add_eos_token", otherwise=False) else ()
    return _Parts(codec, prefix, suffix)


def _t5(settings: TokenizerSettings) -> _Parts:
    """A SentencePiece model, and behind its pieces those for what is left out, the first one last."""
    extra = settings.get("extra_ids", 100)
    if type(extra) is not int or not 0 <= extra <= MAX_EXTRA:
        raise ValueError(f"it cannot have {extra!r} extra_ids")
    last = count_pieces(settings, SPIECE) + extra - 1
    readable = {f"<extra_id_{number}>": last - number for number in range(extra)}
    codec = sentencepiece_codec(settings, SPIECE, further=readable)
    return _Parts(codec, (), (settings.token(_tokens(codec), "eos"),), readable=readable)


def _marian(settings: TokenizerSettings, side: str) -> _Parts:
    """A SentencePiece model for each side, and one table of tokens for both, or two."""
    apart = side == "target" and settings.flag("separate_vocabs", otherwise=False)
    vocabulary = table_of(settings, TARGET_VOCABULARY if apart else VOCABULARY)
    codec = sentencepiece_codec(settings, f"{side}.spm", vocabulary, trim=True)
    tags = {piece: token for piece, token in vocabulary.items() if MARIAN_TAG.fullmatch(piece) and not apart}
    return _Parts(codec, (), (settings.token(vocabulary, "eos"),), tags, reads_tags=side == "source")


def _m2m100(settings: TokenizerSettings) -> _Parts:
    """A SentencePiece model under fairseq's table, and languages behind that."""
    vocabulary = table_of(settings, VOCABULARY)
    named = settings.get("language_codes", "m2m100")
    if named not in M2M100_LANGUAGES:
        raise ValueError(f"its language_codes are {str(named)[:40]!r}{suggestion(str(named)[:40], M2M100_LANGUAGES)}")
    codes = M2M100_LANGUAGES[named].split()
    tags = {f"__{code}__": len(vocabulary) + number for number, code in enumerate(codes)}
    usual = tags.get(f"__{settings.text('src_lang') or 'en'}__", tags["__en__"])
    codec = sentencepiece_codec(settings, "sentencepiece.bpe.model", vocabulary, tags, trim=True)
    return _Parts(codec, (usual,), (settings.token(vocabulary, "eos"),), tags)


MAKERS: dict[str, Callable[[TokenizerSettings], _Parts]] = {
    "m2m_100": _m2m100,
    "t5": _t5,
    "bert": _bert,
    "gpt2": _gpt2,
    "llama": _llama,
}
"""What is made of a folder without `tokenizer.json`; Marian's have a tokenizer for each side."""


def _speaking(
    source: ImportedTokenizer, target: ImportedTokenizer, source_language: str | None, target_language: str | None
) -> Pair:
    """Choose languages. Marian's sources say into which, the others' sources and answers each which they are in."""
    before, target_prefix = (
        None if language is None else _tag(source, language) for language in (source_language, target_language)
    )
    if source.config.family == "marian":
        if before is not None:
            raise SettingsError("a Marian model is not told the language of its source; leave it out")
        return (source if target_prefix is None else source.with_languages(before=target_prefix)), target
    both = source.with_languages(before, target_prefix)
    return both, both


def _tag(tokenizer: ImportedTokenizer, language: str) -> str:
    """The tag of a language, which may be given without what is around it."""
    for tag in (language, f"__{language}__", f">>{language}<<"):
        if tag in tokenizer.tags:
            return tag
    in_scripts = [tag for tag in tokenizer.tags if tag.startswith(f"{language}_")]
    if len(in_scripts) == 1:
        return in_scripts[0]
    raise SettingsError(f"the model knows no language '{language}'{suggestion(language, tokenizer.tags)}")
